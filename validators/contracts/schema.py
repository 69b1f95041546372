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

State = Literal["absent", "given", "none", "nonzero", "passed", "true", "false"]


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
        refuses: Parameter to the state it must have; refused where all hold together. "passed" is
            anything but None, also where its value is not visible.
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
    """The log-sum-exp an entry point returns: layout, base ("e" or "2"), value of a row without keys.

    Attributes:
        layout: Names of its dimensions, in brackets.
        base: Base of the logarithm.
        empty: What stands in a row without keys.
        dtype: Element type.
        natural_if: Parameter that makes the base e where it is true, and 2 where it is false.
        unless: Parameters that may change base or layout where they are passed.
    """

    layout: str
    base: Literal["e", "2"]
    empty: Literal["+inf", "-inf"]
    dtype: str = "float32"
    natural_if: str = ""
    unless: tuple[str, ...] = ()


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log-sum-exp an entry point takes: layout, base, and the parameter that tells the base.

    Attributes:
        layout: Names of its dimensions, in brackets.
        also: Further layouts that are taken.
        base: Base of the logarithm.
        natural_if: Parameter that makes the base e where it is true, and 2 where it is false.
    """

    layout: str
    also: tuple[str, ...] = ()
    base: Literal["e", "2"] = "e"
    natural_if: str = ""


class Rows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many rows the returned buffer has.

    Attributes:
        of: Parameter that the number depends on.
        by: Entry point that tells the number, given `of`; "" where it is `of` itself.
        more: Rows beyond that number.
        seen: Observation that says so.
    """

    of: str
    seen: str
    by: str = ""
    more: int = 0


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
        wants: Parameter to the log-sum-exp that it takes.
        objects: Returned value to what it is instead of a tensor: a class's name, or "None".
        rows: Rows of the returned buffer, for callers that keep one of their own.
        layouts: Parameter or returned value to its shape.
        units: Parameter or returned value to what its numbers count.
        forwards: Path of the component's entry point that this one only hands on to.
        reached_by: End of an attribute chain by which callers reach it, where no import names it.
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
    wants: dict[str, Wanted] = {}
    objects: dict[str, str] = {}
    rows: Rows | None = None
    layouts: dict[str, str] = {}
    units: dict[str, str] = {}
    forwards: str = ""
    reached_by: str = ""

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
        vendor: Who builds it, "" for upstream. A tree that pins a vendor's builds of other components
            is expected to run that vendor's build of this one as well.
        local_since: First number behind `local` of the same generation ("3.8"), "" for any.
        local_before: First such number beyond it, "" for any.
        like: Build whose entry points and observations count here as well, where this one has none of
            the same name; "" for none.
        tells: Names that only this generation has: a tree that imports one is written for it.
        signatures: "target" where the target's own source has the signatures, and calls are compared
            with that; what is recorded here is what a signature does not show.
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
    vendor: str = ""
    local_since: str = ""
    local_before: str = ""
    like: str = ""
    tells: tuple[str, ...] = ()
    signatures: Literal["recorded", "target"] = "recorded"

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
