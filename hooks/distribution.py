"""The distribution that a tree would build: name, version and entry points, read without building.

The validation process imports the plugin from an exported tree that nobody installed. What
`importlib.metadata` should say about it there is synthesised from the tree's own `pyproject.toml`,
`setup.cfg` or `setup.py`, the last one read as a syntax tree and never run.
"""

from __future__ import annotations

import ast
import configparser
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.model import Snapshot

UNKNOWN_VERSION = "0+unknown"
_SCRIPTS = {"scripts": "console_scripts", "gui-scripts": "gui_scripts"}


@dataclass(frozen=True, slots=True)
class TreeDistribution:
    """What the tree says about the distribution it would build.

    Attributes:
        name: Distribution name, "" where the tree names none.
        version: Static version, `UNKNOWN_VERSION` where it is computed at build time.
        entry_points: Group to [name, value] pairs.
        sources: The files that this was read from.
        problems: Files that could not be read, with the reason.
    """

    name: str = ""
    version: str = UNKNOWN_VERSION
    entry_points: dict[str, list[list[str]]] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def read_distribution(snapshot: Snapshot) -> TreeDistribution:
    """Merge what pyproject.toml, setup.cfg and setup.py say, in this order of precedence."""
    name, version = "", ""
    entry_points: dict[str, list[list[str]]] = {}
    sources: list[str] = []
    problems: list[str] = []
    for path, reader in _READERS.items():
        raw = snapshot.blob(path.encode())
        if raw is None:
            continue
        try:
            found = reader(raw.decode("utf-8"))
        except (ValueError, SyntaxError, configparser.Error) as error:
            problems.append(f"{path}: {error}")
            continue
        sources.append(path)
        name = name or found.name
        version = version or found.version
        for group, pairs in found.entry_points.items():
            entry_points.setdefault(group, pairs)
    return TreeDistribution(
        name, version or UNKNOWN_VERSION, entry_points, tuple(sources), tuple(problems)
    )


def _from_pyproject(text: str) -> TreeDistribution:
    project = tomllib.loads(text).get("project", {})
    if not isinstance(project, dict):
        raise ValueError("[project] is not a table")  # noqa: TRY004 (one kind for all malformed files)
    groups = {_SCRIPTS[key]: project[key] for key in _SCRIPTS if key in project}
    groups.update(project.get("entry-points", {}))
    pairs = {
        group: [[str(k), str(v)] for k, v in table.items()]
        for group, table in groups.items()
        if isinstance(table, dict)
    }
    return TreeDistribution(str(project.get("name", "")), str(project.get("version", "")), pairs)


def _from_setup_cfg(text: str) -> TreeDistribution:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # entry point groups keep their case
    parser.read_string(text)
    version = parser.get("metadata", "version", fallback="")
    groups: dict[str, list[list[str]]] = {}
    if parser.has_section("options.entry_points"):
        for group, lines in parser.items("options.entry_points"):
            groups[group] = list(_pairs(lines.splitlines()))
    computed = version.startswith(("attr:", "file:"))
    name = parser.get("metadata", "name", fallback="")
    return TreeDistribution(name, "" if computed else version, groups)


def _from_setup_py(text: str) -> TreeDistribution:
    tree = ast.parse(text)
    constants = _module_constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called_name(node.func) == "setup":
            values = {k.arg: _literal(k.value, constants) for k in node.keywords if k.arg}
            return TreeDistribution(
                _text(values.get("name")), _text(values.get("version")), _groups(values)
            )
    return TreeDistribution()


def _module_constants(tree: ast.Module) -> dict[str, ast.expr]:
    return {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _called_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _literal(node: ast.expr, constants: dict[str, ast.expr]) -> Any:
    """The value of a literal, or of a name bound to one at module level; None otherwise."""
    if isinstance(node, ast.Name):
        node = constants.get(node.id, node)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return None


def _groups(values: dict[str, Any]) -> dict[str, list[list[str]]]:
    raw = values.get("entry_points")
    if isinstance(raw, str):
        parsed = _from_setup_cfg(f"[options.entry_points]\n{_ini_groups(raw)}")
        return parsed.entry_points
    if not isinstance(raw, dict):
        return {}
    groups: dict[str, list[list[str]]] = {}
    for group, lines in raw.items():
        entries = lines.splitlines() if isinstance(lines, str) else lines
        groups[str(group)] = list(_pairs(str(entry) for entry in entries))
    return groups


def _ini_groups(text: str) -> str:
    """Turn the ini form that setup() takes ("[group]", then lines) into setup.cfg's form."""
    lines: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            lines.append(f"{line[1:-1]} =")
        elif line:
            lines.append(f"    {line}")
    return "\n".join(lines)


def _pairs(lines: Any) -> Iterator[list[str]]:
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and name.strip():
            yield [name.strip(), value.strip()]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_READERS = {
    "pyproject.toml": _from_pyproject,
    "setup.cfg": _from_setup_cfg,
    "setup.py": _from_setup_py,
}
