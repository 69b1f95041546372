"""ATT109: names of a component that are almost one of its entry points."""

from __future__ import annotations

import ast
from difflib import get_close_matches
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.contracts.load import all_builds
from attngate.validators.guards import is_guarded_import, is_tested, is_typing_only
from attngate.validators.index import Foreign
from attngate.validators.model import Level, Severity
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile

_CLOSE = 0.85


@rule("ATT109", "unknown-entry", Severity.WARNING)
def unknown_entry(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A component is asked for a name that no recorded build has, and that is close to one they have.

    Why:
        An entry point under another generation's name, or misspelt, is an AttributeError at the first
        call, which may be the first request of one kind of model.

    Instead:
        Use the name that the expected build has; `attngate contracts show COMPONENT` lists them.
    """
    names = file.source.names
    known = context.once(_entries)
    if not any(module.partition(".")[0] in file.source.text for module in known):
        return
    yield from _read(file, context, known)
    for statement in names.imports:
        if not isinstance(statement, ast.ImportFrom) or statement.level:
            continue
        if is_guarded_import(names, statement) or is_typing_only(names, statement):
            continue
        for alias in statement.names:
            near = _near(f"{statement.module}.{alias.name}", known)
            if near:
                yield _hit(file, statement, alias.name, near)


def _read(file: SourceFile, context: Context, known: dict[str, set[str]]) -> Iterator[Hit]:
    """Attributes of a component's modules that are read."""
    names = file.source.names
    beginnings = {name[:4] for entries in known.values() for name in entries}
    for node in names.attributes:
        # The first letters are compared first: what an expression is takes long to find out.
        if not isinstance(node.ctx, ast.Load) or node.attr[:4] not in beginnings:
            continue
        for value in context.inference.values(file, node):
            near = _near(value.path, known) if isinstance(value, Foreign) else ""
            if near and not is_tested(names, node):
                yield _hit(file, node, node.attr, near)
                break


def _entries(context: Context) -> dict[str, set[str]]:
    """Module of a component to the entry points that some build has there."""
    del context
    found: dict[str, set[str]] = {}
    for build in all_builds():
        for entry in build.entries if build.component != "torch" else ():
            for path in entry.paths if not entry.owner else ():
                module, _, name = path.rpartition(".")
                found.setdefault(module, set()).add(name)
    return found


def _near(path: str, known: dict[str, set[str]]) -> str:
    module, _, name = path.rpartition(".")
    entries = known.get(module, set())
    if not entries or name in entries:
        return ""
    # Another first word ("bf16", "fp8") is another function, not another spelling.
    alike = sorted(e for e in entries if e.partition("_")[0] == name.partition("_")[0])
    close = get_close_matches(name, alike, 1, _CLOSE)
    return close[0] if close else ""


def _hit(file: SourceFile, node: ast.expr | ast.stmt, name: str, near: str) -> Hit:
    return Hit(
        file.at_node(node),
        f"no recorded build has `{name}`; {near} is what they have",
        advice=f"Meant is perhaps `{near}`.",
        observed=file.source.line(node.lineno)[:120],
        origin="contracts of the component",
        level=Level.RECORDED,
    )
