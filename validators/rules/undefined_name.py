"""ATT208: names that nothing binds."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.guards import is_typing_only
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.names import Names

_ALWAYS = frozenset(
    ["__file__", "__name__", "__doc__", "__path__", "__spec__", "__package__", "__loader__",
     "__builtins__", "__class__", "__qualname__", "__module__", "__annotations__", "__debug__",
     "__dict__", "WindowsError", "reveal_type", "reveal_locals"]
)  # fmt: skip


@rule("ATT208", "undefined-name")
def undefined_name(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A name is used that no statement of the file binds.

    Why:
        It is a NameError when the line runs. A merge that dropped an import or renamed a variable in
        one place leaves such names, and a branch for one model may hide them for long.

    Instead:
        Import or define the name, or use the one that is there.
    """
    names = file.source.names
    summary = context.index.summary(context.index.module_of(file.path))
    if names.module.stars or summary is None or summary.is_open:
        return
    for node in names.loads:
        if (
            node.id in _ALWAYS
            or hasattr(builtins, node.id)
            or _is_bound(names.scope_of(node), node.id)
        ):
            continue
        if _catches_name_error(file, node) or is_typing_only(names, node):
            continue
        if _is_annotation_only(file, node):
            continue
        yield Hit(
            file.at_node(node),
            f"nothing binds the name `{node.id}`",
            advice="Import or define it.",
            observed=file.source.line(node.lineno)[:120],
        )


def _is_bound(scope: Names | None, name: str) -> bool:
    while scope is not None:
        if name in scope.bindings or scope.elsewhere.get(name) == "global":
            return True
        if scope.stars:
            return True
        scope = scope.outer
    return False


def _catches_name_error(file: SourceFile, node: ast.AST) -> bool:
    from attngate.validators.guards import ancestors, catches

    return any(
        isinstance(outer, ast.Try)
        and child in outer.body
        and any(catches(h, ("NameError", "Exception")) for h in outer.handlers)
        for outer, child in ancestors(file.source.names, node)
    )


def _is_annotation_only(file: SourceFile, node: ast.AST) -> bool:
    """True in an annotation that is never evaluated (`from __future__ import annotations`)."""
    from attngate.validators.guards import ancestors

    if "from __future__ import annotations" not in file.source.text:
        return False
    for outer, child in ancestors(file.source.names, node):
        if isinstance(outer, ast.arg | ast.AnnAssign) and child is outer.annotation:
            return True
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef) and child is outer.returns:
            return True
    return False
