"""The component builds that a tree asks for in its own requirements.

Only exact versions count: a range does not say which build will be there.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attngate.validators.model import Build, display_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.model import Snapshot

_FILES = re.compile(r"(?:.*/)?(?:requirements[^/]*|requirements/[^/]+)\.(?:txt|in)")
_TOML = "pyproject.toml"
_PINNED = re.compile(
    r"\s*(?P<name>[A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*={2,3}\s*(?P<version>[^\s;#,*\\]+)\s*(?:$|[;#\\]|--)"
)
_WHEEL = re.compile(
    r"\s*(?P<name>[A-Za-z0-9][\w.-]*)\s*@.*?/[\w.]+-(?P<version>\d[^-/]*)-[^/]*\.whl"
)


@dataclass(frozen=True, slots=True)
class Pin:
    """One exact requirement: normalised distribution name, version, and where it stands."""

    name: str
    version: str
    where: str


def normalised(name: str) -> str:
    """A distribution's name as indexes compare it: lower case, one dash between the words."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(snapshot: Snapshot) -> list[Pin]:
    """Every exact requirement of a tree.

    Looks into requirements files (`requirements*.txt`, `requirements/*.txt`, the same with `.in`) and
    into the dependencies, extras and dependency groups of `pyproject.toml` at the root.
    """
    found: list[Pin] = []
    for key in snapshot.files:
        path = display_path(key)
        if path != _TOML and not _FILES.fullmatch(path):
            continue
        raw = snapshot.blob(key)
        if raw is None:
            continue
        text = raw.decode("utf-8", "replace")
        lines = _toml_lines(text) if path == _TOML else enumerate(text.splitlines(), start=1)
        found += [pin for number, line in lines if (pin := parse_pin(line, path, number))]
    return found


def pins_identity(snapshot: Snapshot) -> str:
    """Identity of the files that `read_pins` looks into, without reading them."""
    found = [
        f"{path} {entry.oid}"
        for key, entry in snapshot.files.items()
        if (path := display_path(key)) == _TOML or _FILES.fullmatch(path)
    ]
    return "\n".join(found)


def parse_pin(line: str, path: str, number: int) -> Pin | None:
    """The pin on a requirements line, None for anything but an exact version."""
    match = _PINNED.match(line) or _WHEEL.match(line)
    if match is None:
        return None
    version = match["version"].replace("%2B", "+").replace("%2b", "+")
    where = f"{path} line {number}" if number else path
    return Pin(normalised(match["name"]), version, where)


def builds_for(pins: list[Pin], distributions: tuple[str, ...]) -> list[Build]:
    """The distinct builds that the pins ask for under any of a component's names."""
    names = {normalised(d) for d in distributions}
    by_version: dict[str, Build] = {}
    for pin in pins:
        if pin.name in names:
            by_version.setdefault(pin.version, Build(pin.version, f"pinned in {pin.where}"))
    return list(by_version.values())


def _toml_lines(text: str) -> Iterator[tuple[int, str]]:
    """Requirement strings of a project file; a file that is no TOML has none."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    project = data.get("project")
    tables: list[Any] = [data.get("dependency-groups")]
    if isinstance(project, dict):
        tables += [{"": project.get("dependencies")}, project.get("optional-dependencies")]
    for table in tables:
        for group in table.values() if isinstance(table, dict) else ():
            for item in group if isinstance(group, list) else ():
                if isinstance(item, str):
                    yield _line_of(text, item), item


def _line_of(text: str, item: str) -> int:
    """The line a requirement stands on, 0 where it is written in another way."""
    place = text.find(item)
    return text.count("\n", 0, place) + 1 if place >= 0 else 0
