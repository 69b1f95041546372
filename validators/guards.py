"""Whether a statement may fail or be skipped on purpose: in a `try`, below a platform test, for typing."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.symbols import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.names import FileNames

_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")


def is_guarded_import(names: FileNames, node: ast.AST) -> bool:
    """True in a `try` that catches a failed import, or in its handler."""
    for outer, child in ancestors(names, node):
        if isinstance(outer, ast.With | ast.AsyncWith) and any(
            "suppress" in dotted(getattr(i.context_expr, "func", None)) for i in outer.items
        ):
            return True
        if _asks_version(outer):
            return True
        if not isinstance(outer, ast.Try):
            continue
        if child in outer.body and any(catches(h, _IMPORT_ERRORS) for h in outer.handlers):
            return True
    return False


def _asks_version(node: ast.AST) -> bool:
    """True for a test of a version: what is below it is for one target of several."""
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name | ast.Attribute) and "version" in dotted(part).lower()
        for part in ast.walk(node.test)
    )


def is_for_a_version(names: FileNames, node: ast.AST) -> bool:
    """True below a test of a version."""
    return any(_asks_version(outer) for outer, _ in ancestors(names, node))


def catches(handler: ast.ExceptHandler, errors: tuple[str, ...]) -> bool:
    """True for a handler of one of the errors, and for a bare `except`."""
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(dotted(t).rpartition(".")[2] in errors for t in types)


def is_typing_only(names: FileNames, node: ast.AST) -> bool:
    """True below `if TYPE_CHECKING:`, which never runs."""
    for outer, child in ancestors(names, node):
        is_body = isinstance(outer, ast.If) and child in outer.body
        if is_body and dotted(outer.test).rpartition(".")[2] == "TYPE_CHECKING":  # type: ignore[attr-defined]
            return True
    return False


def ancestors(names: FileNames, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Every node around, with its child on the way."""
    child, parent = node, names.parents.get(node)
    while parent is not None:
        yield parent, child
        child, parent = parent, names.parents.get(parent)


def is_tested(names: FileNames, node: ast.Attribute) -> bool:
    """True where the function around asks for the attribute or the class, or catches that it is not there."""
    attribute, owner = node.attr, dotted(node.value)
    if is_for_a_version(names, node):
        return True
    for outer, child in ancestors(names, node):
        is_tried = isinstance(outer, ast.Try) and child in outer.body
        if is_tried and any(catches(h, ("AttributeError", "Exception")) for h in outer.handlers):  # type: ignore[attr-defined]
            return True
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            if _asks(outer, attribute, owner):
                return True
            if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
                return False
    return False


def _asks(scope: ast.AST, attribute: str, owner: str) -> bool:
    asserted = {id(node.test) for node in ast.walk(scope) if isinstance(node, ast.Assert)}
    for node in ast.walk(scope):
        if not isinstance(node, ast.Call) or len(node.args) < 2:
            continue
        asked = dotted(node.func)
        is_class = asked in ("isinstance", "issubclass") and id(node) not in asserted
        if is_class and owner and dotted(node.args[0]) == owner:
            return True
        second = node.args[1]
        is_named = isinstance(second, ast.Constant) and second.value == attribute
        if asked in ("hasattr", "getattr") and is_named:
            return True
    return False
