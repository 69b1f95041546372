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
        what: "entry", "parameter", "renamed", "order", "default", "refused", "returns", "rows",
            "lse", "layout" or "unit".
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


def _between(old: Entry, new: Entry) -> Iterator[tuple[str, str]]:
    yield from _parameters(old, new)
    for name in sorted(new.rejected.keys() - old.rejected.keys()):
        yield "refused", f"{name}: {new.rejected[name]}"
    for name in sorted(old.rejected.keys() - new.rejected.keys()):
        yield "refused", f"{name} is no longer refused"
    if _rows(old.returns) != _rows(new.returns):
        yield "returns", f"{_rows(old.returns)} became {_rows(new.returns)}"
    for name in dict.fromkeys((*old.objects, *new.objects)):
        if old.objects.get(name) != new.objects.get(name):
            yield "returns", f"{name}: {_object(old, name)} became {_object(new, name)}"
    if _buffer(old) != _buffer(new):
        yield "rows", f"{_buffer(old)} became {_buffer(new)}"
    yield from _meanings(old, new)


def _meanings(old: Entry, new: Entry) -> Iterator[tuple[str, str]]:
    if old.lse != new.lse:
        yield "lse", f"{_lse(old)} became {_lse(new)}"
    for name in dict.fromkeys((*old.wants, *new.wants)):
        if old.wants.get(name) != new.wants.get(name):
            yield "lse", f"{name}: {_wanted(old, name)} became {_wanted(new, name)}"
    for what, before, after in (
        ("layout", old.layouts, new.layouts),
        ("unit", old.units, new.units),
    ):
        for name in (n for n in before if n in after and before[n] != after[n]):
            yield what, f"{name}: {before[name]} became {after[name]}"


def _parameters(old: Entry, new: Entry) -> Iterator[tuple[str, str]]:
    before = {p.name: p for p in old.signature.parameters}
    after = {p.name: p for p in new.signature.parameters}
    renamed = _renamed(old, new)
    for name, other in renamed.items():
        yield "renamed", f"{name} became {other}"
    for name in before if not new.signature.more_keywords else ():
        if name not in after and name not in renamed:
            yield "parameter", f"{name} is gone"
    for name in (n for n in after if n not in before and n not in renamed.values()):
        needed = "" if after[name].default is not None else ", and is required"
        yield "parameter", f"{name} is new{needed}"
    shared = [name for name in before if name in after]
    if shared != [name for name in after if name in before]:
        yield "order", f"({', '.join(before)}) became ({', '.join(after)})"
    for name in shared:
        if before[name].default != after[name].default:
            yield "default", f"{_default(before[name])} became {_default(after[name])}"


def _renamed(old: Entry, new: Entry) -> dict[str, str]:
    """Required parameters that one list lacks and the other has at the same place under another name."""
    before = {p.name for p in old.signature.parameters}
    after = {p.name for p in new.signature.parameters}
    pairs = zip(old.signature.positional, new.signature.positional, strict=False)
    return {
        one.name: other.name
        for one, other in pairs
        if one.required and other.required and one.name not in after and other.name not in before
    }


def _object(entry: Entry, name: str) -> str:
    if not any(name in row.values for row in entry.returns):
        return "not returned"
    return entry.objects.get(name, "a tensor")


def _buffer(entry: Entry) -> str:
    rows = entry.rows
    if rows is None:
        return "not recorded"
    count = f"{rows.by}({rows.of})" if rows.by else rows.of
    return f"{count} + {rows.more}" if rows.more else count


def _wanted(entry: Entry, name: str) -> str:
    wanted = entry.wants.get(name)
    return f"{wanted.layout} base {wanted.base}" if wanted is not None else "not recorded"


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
