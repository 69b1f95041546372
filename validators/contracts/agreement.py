"""Whether a real signature is the one that a contract records, and which calls tell the two apart."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attngate.validators.signatures import Parameter, Passing, Signature

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.contracts.schema import Entry

UNKNOWN_KEYWORD = "no_such_parameter"


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a comparison of a recorded entry point with a real signature came to.

    Attributes:
        changed: What contradicts the record, in phrases.
        news: What the record leaves open and the signature tells.
        open: Why the signature decides nothing, "" where it does.
    """

    changed: tuple[str, ...] = ()
    news: tuple[str, ...] = ()
    open: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """A combination of arguments and what the record says of it.

    Attributes:
        what: The combination in words.
        positions: How many arguments are passed by position.
        keywords: Those passed by keyword.
        taken: True where it has to be taken, False where it has to be refused.
    """

    what: str
    positions: int
    keywords: tuple[str, ...]
    taken: bool


def agreement(entry: Entry, real: Signature) -> Agreement:
    """Compare a record with a signature.

    A list that is not known to be complete is not contradicted by a further optional parameter, one
    that ends in `*args, **kwargs` by no further parameter at all, and a parameter recorded as a
    keyword may also have a position.
    """
    recorded = entry.signature
    if real.more_keywords and not recorded.more_keywords:
        return Agreement(open=f"it takes {real}: what it hands on to is not visible")
    changed = [*_lost(entry, real), *_order(recorded, real), *_met(recorded, real)]
    news: list[str] = []
    for parameter in real.parameters:
        if _is_recorded(recorded, parameter.name):
            continue
        if parameter.name in entry.rejected:
            changed.append(f"{parameter.name} was refused and is taken now")
        elif recorded.more_keywords:
            news.append(f"it also takes {_written(parameter)}")
        elif parameter.required:
            changed.append(f"{parameter.name} is new, and is required")
        elif entry.complete:
            changed.append(f"{parameter.name} is new")
        else:
            news.append(f"it also takes {_written(parameter)}")
    news += [*_settled(entry, real), *_incomparable(recorded, real)]
    return Agreement(tuple(changed), tuple(news))


def _written(parameter: Parameter) -> str:
    return parameter.name if parameter.required else f"{parameter.name}={parameter.default}"


def _is_recorded(recorded: Signature, name: str) -> bool:
    return any(p.name == name for p in recorded.parameters)


def _lost(entry: Entry, real: Signature) -> Iterator[str]:
    there = {p.name for p in real.parameters}
    if not real.more_keywords:
        yield from (f"{p.name} is gone" for p in entry.signature.parameters if p.name not in there)


def _order(recorded: Signature, real: Signature) -> Iterator[str]:
    before = [p.name for p in recorded.positional]
    after = [p.name for p in real.positional]
    shared = [name for name in before if name in after]
    if shared != [name for name in after if name in before]:
        yield f"positions are now ({', '.join(after)})"
    elif after[: len(shared)] != shared:
        # The names keep their order, and something stands between them now.
        fresh = next(n for n, m in zip(after, shared, strict=False) if n != m)
        yield f"{fresh} now stands among the recorded positions"


def _met(recorded: Signature, real: Signature) -> Iterator[str]:
    """What became of the parameters that both have."""
    after = {p.name: p for p in real.parameters}
    for old in recorded.parameters:
        new = after.get(old.name)
        if new is None:
            continue
        if new.passing not in (old.passing, Passing.EITHER):
            yield f"{old.name} is passed {new.passing.value} now"
        yield from _default(old, new)


def _default(old: Parameter, new: Parameter) -> Iterator[str]:
    if old.default is None and new.default is None:
        return
    if new.default is None:
        yield f"{old.name}={old.default} is required now"
    elif old.default is None:
        yield f"{old.name}, which was required, has the default {new.default}"
    elif same_default(old.default, new.default) is False:
        yield f"{old.name}={old.default} became {old.name}={new.default}"


def same_default(old: str, new: str) -> bool | None:
    """Whether two defaults are the same; None where one of them is no literal, so that nobody can say."""
    if old == new:
        return True
    try:
        before, after = ast.literal_eval(old), ast.literal_eval(new)
    except (ValueError, SyntaxError):
        return None
    return bool(before == after) and isinstance(before, bool) == isinstance(after, bool)


def _incomparable(recorded: Signature, real: Signature) -> Iterator[str]:
    after = {p.name: p.default for p in real.parameters}
    for old in recorded.parameters:
        new = after.get(old.name)
        if old.default is not None and new is not None and same_default(old.default, new) is None:
            yield f"whether {old.name}={new} is the recorded {old.default} cannot be told"


def _settled(entry: Entry, real: Signature) -> Iterator[str]:
    if real.more_keywords:
        return
    names = {p.name for p in real.parameters}
    open_names = (*entry.unrecorded, *entry.unlisted)
    yield from (f"it does not take {name}" for name in open_names if name not in names)


def probes(entry: Entry) -> list[Probe]:
    """The calls that a build as recorded takes, and those that it refuses before anything runs.

    A record that ends in `*args, **kwargs` lists what callers pass by position, and no names.
    """
    recorded = entry.signature
    if recorded.more_keywords:
        return [Probe("what is required, by position", _required_positions(recorded), (), True)]
    by_position = [p for p in recorded.parameters if p.passing is Passing.POSITION]
    rest = [p for p in recorded.parameters if p.passing is not Passing.POSITION]
    needed = tuple(p.name for p in rest if p.required)
    least = (len(by_position), needed)
    found = [
        Probe(
            "what is required, by position", _required_positions(recorded), _only(recorded), True
        ),
        Probe("what is required, by keyword", *least, True),
        Probe("everything by keyword", len(by_position), tuple(p.name for p in rest), True),
    ]
    for row in entry.returns:
        options = tuple(n for n in row.when if n not in needed)
        if options:
            found.append(Probe(f"with {', '.join(options)}", least[0], needed + options, True))
    refused = dict.fromkeys(entry.rejected)
    if entry.complete:
        refused[UNKNOWN_KEYWORD] = None
    found += [Probe(f"with {name}", least[0], (*needed, name), False) for name in refused]
    return found


def _required_positions(signature: Signature) -> int:
    return sum(1 for p in signature.positional if p.required)


def _only(signature: Signature) -> tuple[str, ...]:
    """Required parameters that have no position."""
    return tuple(
        p.name for p in signature.parameters if p.required and p.passing is Passing.KEYWORD
    )
