"""ATT106."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.context import Context, Hit, SourceFile
from attngate.validators.installed import describe
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

_GUARDS = frozenset(["ImportError", "ModuleNotFoundError", "Exception", "BaseException"])


@rule("ATT106", "missing-entry")
def missing_entry(file: SourceFile, context: Context) -> Iterator[Hit]:
    """An entry point is imported that the installed component does not define.

    Why:
        The import fails with ImportError, and the module with it. Only an installed component whose
        module was read to the end can say so; recorded contracts never do. An import that a `try` with
        `except ImportError` guards is left alone.

    Instead:
        Import what the installed version has, or guard the import and take another path without it.
    """
    missing = {
        path: component
        for component in context.options.installed.values()
        for name in component.missing
        for path in (f"{component.component}.{name}",)
    }
    if not missing or not any(c.component in file.source.text for c in missing.values()):
        return
    for node, is_guarded in _imports(file.source.tree, is_guarded=False):
        for alias in () if is_guarded or node.level else node.names:
            component = missing.get(f"{node.module}.{alias.name}")
            if component is not None:
                yield Hit(
                    file.at_node(node),
                    f"the installed {component.component} does not define `{alias.name}`",
                    advice="Import what this version has, or guard the import.",
                    origin=describe(component),
                )


def _imports(node: ast.AST, *, is_guarded: bool) -> Iterator[tuple[ast.ImportFrom, bool]]:
    if isinstance(node, ast.ImportFrom):
        yield node, is_guarded
    guards = isinstance(node, ast.Try) and any(_catches(h) for h in node.handlers)
    tried = set(node.body) if isinstance(node, ast.Try) and guards else set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _imports(child, is_guarded=is_guarded or child in tried)


def _catches(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    named = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(n, ast.Name) and n.id in _GUARDS for n in named)
