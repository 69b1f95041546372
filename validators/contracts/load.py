"""Reads the contract files that lie beside this module."""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec

from attngate.validators.contracts.schema import Build, Entry, Family


@cache
def families() -> dict[str, Family]:
    """Every contract file by its family's name, in order of the names."""
    found: dict[str, Family] = {}
    for item in sorted(resources.files(__package__).iterdir(), key=lambda entry: entry.name):
        if item.name.endswith(".toml"):
            family = parse(item.read_bytes(), item.name)
            found[family.name] = family
    return found


def all_builds() -> list[Build]:
    """Every generation of every component that is recorded."""
    return [build for family in families().values() for build in family.builds]


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
    for build in family.builds:
        for entry in build.entries:
            _require_references(build, entry, name)
    return family


def _require_references(build: Build, entry: Entry, name: str) -> None:
    """Every observation and parameter that an entry point refers to exists."""
    where = f"contract {name}: {build.id}.{entry.name}"
    needed = [entry.parameters_seen, *(r.seen for r in entry.returns)]
    needed += [c.seen for c in entry.constraints]
    needed += [entry.rejected_seen] if entry.rejected else []
    unseen = sorted(set(needed) - {o.id for o in build.observations})
    if unseen:
        raise ValueError(f"{where}: no observation {unseen}")
    used = {n for r in entry.returns for n in r.when} | set(entry.roles)
    used |= {n for c in entry.constraints for n in c.refuses} | set(entry.flags)
    unknown = sorted(used - {p.name for p in entry.signature.parameters})
    if unknown:
        raise ValueError(f"{where}: no parameter {unknown}")
