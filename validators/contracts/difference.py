"""What differs between two builds of a component, as a caller meets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.contracts.schema import Build, Entry, Returns
    from attngate.validators.signatures import Parameter


class Difference(msgspec.Struct, frozen=True):
    """One difference.

    Attributes:
        entry: Entry point.
        what: "entry", "parameter", "order", "default", "refused", "returns" or "lse".
        text: What it is, in a phrase.
    """

    entry: str
    what: str
    text: str


def differences(old: Build, new: Build) -> list[Difference]:
    """Everything that a call of `old` has to mind under `new`, entry point by entry point."""
    found: list[Difference] = []
    names = dict.fromkeys([e.name for e in old.entries] + [e.name for e in new.entries])
    for name in names:
        before, after = old.entry(name), new.entry(name)
        if before is None or after is None:
            words = "only the second has it" if before is None else "only the first has it"
            found.append(Difference(name, "entry", words))
        else:
            found += [Difference(name, what, text) for what, text in _between(before, after)]
    return found


def _between(old: Entry, new: Entry) -> Iterator[tuple[str, str]]:  # noqa: C901 (one part a kind)
    before = {p.name: p for p in old.signature.parameters}
    after = {p.name: p for p in new.signature.parameters}
    for name in before if not new.signature.more_keywords else ():
        if name not in after:
            yield "parameter", f"{name} is gone"
    for name in (n for n in after if n not in before):
        needed = "" if after[name].default is not None else ", and is required"
        yield "parameter", f"{name} is new{needed}"
    shared = [name for name in before if name in after]
    if shared != [name for name in after if name in before]:
        yield "order", f"({', '.join(before)}) became ({', '.join(after)})"
    for name in shared:
        if before[name].default != after[name].default:
            yield "default", f"{_default(before[name])} became {_default(after[name])}"
    for name in sorted(new.rejected.keys() - old.rejected.keys()):
        yield "refused", f"{name}: {new.rejected[name]}"
    for name in sorted(old.rejected.keys() - new.rejected.keys()):
        yield "refused", f"{name} is no longer refused"
    if _rows(old.returns) != _rows(new.returns):
        yield "returns", f"{_rows(old.returns)} became {_rows(new.returns)}"
    if old.lse != new.lse:
        yield "lse", f"{_lse(old)} became {_lse(new)}"


def _default(parameter: Parameter) -> str:
    if parameter.default is None:
        return f"{parameter.name}, which is required,"
    return f"{parameter.name}={parameter.default}"


def _rows(rows: tuple[Returns, ...]) -> str:
    parts = []
    for row in rows:
        when = ", ".join(f"{n}={v}" for n, v in row.when.items()) or "otherwise"
        parts.append(f"{len(row.values)} ({when})")
    return "; ".join(parts) or "not recorded"


def _lse(entry: Entry) -> str:
    lse = entry.lse
    return f"{lse.layout} base {lse.base}, empty {lse.empty}" if lse is not None else "not recorded"
