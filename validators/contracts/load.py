"""Reads the contract files that lie beside this module."""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec
from msgspec.structs import replace

from attngate.validators.contracts.schema import Build, Entry, Family


@cache
def _read() -> dict[str, Family]:
    found: dict[str, Family] = {}
    for item in sorted(resources.files(__package__).iterdir(), key=lambda entry: entry.name):
        if item.name.endswith(".toml"):
            family = parse(item.read_bytes(), item.name)
            found[family.name] = family
    return found


@cache
def families() -> dict[str, Family]:
    """The contract files of components by the family's name, in order of the names."""
    return {n: f for n, f in _read().items() if not _is_targets(f)}


@cache
def target_families() -> dict[str, Family]:
    """The contract files of the target's own operators, whose signatures its source has."""
    return {n: f for n, f in _read().items() if _is_targets(f)}


def _is_targets(family: Family) -> bool:
    return all(build.signatures == "target" for build in family.builds)


def all_builds() -> list[Build]:
    """Every generation of every component that is recorded."""
    return [build for family in families().values() for build in family.builds]


def shown_builds() -> list[Build]:
    """Everything that is recorded, the target's own operators included."""
    return [build for family in _read().values() for build in family.builds]


def parse(raw: bytes, name: str) -> Family:
    """The family a contract file describes.

    Args:
        raw: The file's bytes (TOML).
        name: The file's name, for messages.

    Raises:
        ValueError: The file does not fit the schema, or refers to an observation it does not have.
    """
    try:
        family = msgspec.toml.decode(raw, type=Family)
    except msgspec.DecodeError as error:
        raise ValueError(f"contract {name}: {error}") from error
    family = replace(
        family, builds=tuple(_completed(build, family, name) for build in family.builds)
    )
    for build in family.builds:
        for entry in build.entries:
            _require_references(build, entry, name)
    return family


def _completed(build: Build, family: Family, name: str) -> Build:
    """The build with what it takes over from the one it is like."""
    if not build.like:
        return build
    other = next((b for b in family.builds if b.id == build.like and not b.like), None)
    if other is None:
        raise ValueError(f"contract {name}: {build.id} is like {build.like}, which is no build")
    entries = {e.name: e for e in (*other.entries, *build.entries)}
    seen = {o.id: o for o in (*other.observations, *build.observations)}
    return replace(build, entries=tuple(entries.values()), observations=tuple(seen.values()))


def _require_references(build: Build, entry: Entry, name: str) -> None:
    """Every observation and parameter that an entry point refers to exists."""
    where = f"contract {name}: {build.id}.{entry.name}"
    needed = [entry.parameters_seen, *(r.seen for r in entry.returns)]
    needed += [c.seen for c in entry.constraints]
    needed += [entry.rejected_seen] if entry.rejected else []
    needed += [entry.rows.seen] if entry.rows is not None else []
    unseen = sorted(set(needed) - {o.id for o in build.observations})
    if unseen:
        raise ValueError(f"{where}: no observation {unseen}")
    used = {n for r in entry.returns for n in r.when} | set(entry.roles)
    used |= {n for c in entry.constraints for n in c.refuses} | set(entry.flags) | set(entry.wants)
    used |= {w.natural_if for w in entry.wants.values() if w.natural_if}
    used |= {entry.rows.of} if entry.rows is not None else set()
    used |= {entry.lse.natural_if} if entry.lse is not None and entry.lse.natural_if else set()
    named = {p.name for p in entry.signature.parameters}
    returned = {value for row in entry.returns for value in row.values}
    lost = sorted((set(entry.layouts) | set(entry.units)) - named - returned)
    lost += sorted(set(entry.objects) - returned)
    if lost:
        raise ValueError(f"{where}: no parameter or returned value {lost}")
    unknown = sorted(used - named)
    if unknown:
        raise ValueError(f"{where}: no parameter {unknown}")
