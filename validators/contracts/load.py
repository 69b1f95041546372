"""Reads the contract files that lie beside this module."""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec

from attngate.validators.contracts.schema import Family


@cache
def families() -> dict[str, Family]:
    """Every contract file by its family's name, in order of the names."""
    found: dict[str, Family] = {}
    for item in sorted(resources.files(__package__).iterdir(), key=lambda entry: entry.name):
        if item.name.endswith(".toml"):
            family = parse(item.read_bytes(), item.name)
            found[family.name] = family
    return found


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
        seen = {o.id for o in build.observations}
        for entry in build.entries:
            needed = {entry.parameters_seen, *(r.seen for r in entry.returns)}
            needed |= {c.seen for c in entry.constraints}
            needed |= {entry.rejected_seen} if entry.rejected else set()
            if needed - seen - {""} or "" in needed:
                lost = ", ".join(sorted(needed - seen)) or "one is not named"
                raise ValueError(f"contract {name}: {build.id}.{entry.name}: observation {lost}")
            names = {p.name for p in entry.signature.parameters}
            used = {n for r in entry.returns for n in r.when} | set(entry.roles)
            used |= {n for c in entry.constraints for n in c.refuses}
            if used - names:
                raise ValueError(
                    f"contract {name}: {build.id}.{entry.name}: no parameter {sorted(used - names)}"
                )
    return family
