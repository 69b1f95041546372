"""What a contract file says, as types: one file a component family, one build a generation of it.

A contract is a set of observations, not a law. Each names the build it was made on, so that another
build can be told apart: what was seen there is then due for revalidation.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec

from attngate.validators.model import Level  # noqa: TC001 (msgspec reads the annotation)
from attngate.validators.signatures import Signature, parse_signature

State = Literal["absent", "given", "none", "nonzero"]


class Observation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that was seen, where and when.

    Attributes:
        id: Name that entries and constraints refer to.
        entry: Entry point it speaks of, "" for the whole build.
        statement: What was seen.
        builds: Versions of the component it was seen on.
        device: Device it was seen on; "none" for a reading of the source.
        date: ISO date.
        level: How strongly it is established.
        source: How it was learnt.
    """

    id: str
    entry: str
    statement: str
    builds: tuple[str, ...]
    device: str
    date: str
    level: Level
    source: str


class Returns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What comes back for one setting of the options.

    Attributes:
        values: Names of the returned values in order; one name means that value alone, not a tuple.
        seen: Observation that says so.
        when: Options and the literal that selects this row; empty for the row that is left.
    """

    values: tuple[str, ...]
    seen: str
    when: dict[str, bool] = {}


class Constraint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A combination of arguments that is refused.

    Attributes:
        id: Short name.
        refuses: Parameter to the state it must have; refused where all hold together.
        message: What is wrong with the combination.
        advice: What to do.
        seen: Observation that says so.
    """

    id: str
    refuses: dict[str, State]
    message: str
    advice: str
    seen: str


class Lse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log-sum-exp an entry point returns: layout, base ("e" or "2"), value of a row without keys."""

    layout: str
    base: Literal["e", "2"]
    empty: Literal["+inf", "-inf"]
    dtype: str = "float32"


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """One callable of a build.

    Attributes:
        name: Function name.
        paths: Dotted paths under which it can be imported, the public one first.
        parameters: The parameter list as a `def` writes it.
        parameters_seen: Observation that the list rests on.
        complete: False where the list is not known to hold every keyword that the build takes.
        rejected: Keyword that this build refuses, to what to do instead.
        rejected_seen: Observation that says so.
        unlisted: Keyword that is not in the list and that nobody observed to be refused, to advice.
        unrecorded: Keywords that callers pass and nobody has observed on this entry point.
        returns: Returned values by option.
        roles: Parameter to what it holds; tells one positional order from another.
        constraints: Combinations that are refused.
        lse: The returned log-sum-exp.
        in_place: Parameters that the call writes to.
        owner: Class of a method, "" for a function; `paths` then end in class and method.
        flags: Parameters that are true or false: a number in their place is another meaning.
    """

    name: str
    paths: tuple[str, ...]
    parameters: str
    parameters_seen: str
    returns: tuple[Returns, ...]
    rejected: dict[str, str] = {}
    rejected_seen: str = ""
    complete: bool = True
    unlisted: dict[str, str] = {}
    unrecorded: tuple[str, ...] = ()
    roles: dict[str, str] = {}
    constraints: tuple[Constraint, ...] = ()
    lse: Lse | None = None
    in_place: tuple[str, ...] = ()
    owner: str = ""
    flags: tuple[str, ...] = ()

    @cached_property
    def signature(self) -> Signature:
        """`parameters`, parsed."""
        return parse_signature(self.parameters)


class Build(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One generation of a component.

    Attributes:
        id: Name of the contract build.
        component: Component as settings and pins call it.
        distributions: Names under which it is distributed.
        title: What it is, in a phrase.
        since: First public version of the same generation, observed or not.
        before: First public version beyond it.
        local: Prefix of the version's local part ("metax"). Without one, a version also stands for
            builds of it with any local part that no other build claims.
        entries: Its entry points.
        observations: What was seen.
    """

    id: str
    component: str
    distributions: tuple[str, ...]
    title: str
    since: str
    before: str
    entries: tuple[Entry, ...]
    observations: tuple[Observation, ...]
    local: str = ""

    def observation(self, name: str) -> Observation:
        """The observation called `name`; KeyError where there is none."""
        return {o.id: o for o in self.observations}[name]

    def entry(self, name: str) -> Entry | None:
        """The entry point called `name`, None where this build has none."""
        return next((e for e in self.entries if e.name == name), None)


class Reexport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Modules outside the tree that hand an entry point on, and why the call cannot be judged."""

    prefix: str
    reason: str


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One contract file.

    Attributes:
        name: Name of the family; also the file's name.
        role_words: Role to the words in an argument's name that betray it.
        reexports: Modules outside the tree that hand entry points on.
        builds: The generations.
    """

    name: str
    builds: tuple[Build, ...]
    role_words: dict[str, tuple[str, ...]] = {}
    reexports: tuple[Reexport, ...] = ()
