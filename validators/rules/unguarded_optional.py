"""ATT108: functions that may be missing, called without asking."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.guards import ancestors, catches
from attngate.validators.model import Severity
from attngate.validators.registry import rule
from attngate.validators.symbols import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.names import Binding, FileNames

_EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@rule("ATT108", "unguarded-optional", Severity.WARNING)
def unguarded_optional(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A function that is None where a component lacks it is called without a test.

    Why:
        `getattr(component, name, None)`, or None in an `except ImportError`, keeps the import of a module
        from failing where the installed build lacks the function. The call then fails with "'NoneType' object is not callable", far from
        the reason.

    Instead:
        Test the function before the call and say which component is too old, or let the lookup fail.
    """
    del context
    names = file.source.names
    optional = {
        name: bindings[0]
        for name, bindings in names.module.bindings.items()
        if bindings
        and (all(_is_lookup(b) for b in bindings) or _is_import_or_none(names, bindings))
    }
    for call in names.calls if optional else ():
        func = call.func
        if not isinstance(func, ast.Name) or func.id not in optional:
            continue
        if names.scope_of(func) is names.module or _is_local(names, func):
            continue
        if not _is_tested(names, call, func.id):
            yield Hit(
                file.at_node(call),
                f"`{func.id}` may be None here: that is what it is where the function is missing",
                advice="Test it first, and name the component that lacks it.",
                observed=file.source.line(getattr(optional[func.id].statement, "lineno", 0))[:120],
            )


def _is_lookup(binding: Binding) -> bool:
    how = binding.how
    if not isinstance(how, ast.Call) or dotted(how.func) != "getattr" or len(how.args) != 3:
        return False
    return isinstance(how.args[2], ast.Constant) and how.args[2].value is None


def _is_import_or_none(names: FileNames, bindings: list[Binding]) -> bool:
    """True for a name that a `try` imports from outside, and None in its `except ImportError`."""
    imports = [b for b in bindings if isinstance(b.how, ast.alias) and b.of is not None]
    nothing = [b for b in bindings if isinstance(b.how, ast.Constant) and b.how.value is None]
    if len(imports) != 1 or len(nothing) != 1 or len(bindings) != 2:
        return False
    handler = names.parents.get(nothing[0].statement)
    guard = names.parents.get(imports[0].statement)
    return (
        isinstance(handler, ast.ExceptHandler)
        and isinstance(guard, ast.Try)
        and imports[0].statement in guard.body
        and handler in guard.handlers
        and imports[0].of is not None
        and not imports[0].of.level
        and not _sets_flag([*guard.body, *guard.orelse, *handler.body])
    )


def _sets_flag(statements: list[ast.stmt]) -> bool:
    """True where a flag tells the rest of the module whether the import worked."""
    return any(
        isinstance(s, ast.Assign)
        and isinstance(s.value, ast.Constant)
        and isinstance(s.value.value, bool)
        for s in statements
    )


def _is_local(names: FileNames, node: ast.Name) -> bool:
    scope = names.scope_of(node)
    while scope.outer is not None:
        if node.id in scope.bindings:
            return True
        scope = scope.outer
    return False


def _is_tested(names: FileNames, node: ast.AST, name: str) -> bool:
    """True where a test of the name stands around the call, or before it in its function."""
    for outer, child in ancestors(names, node):
        if isinstance(outer, ast.If | ast.IfExp | ast.BoolOp) and _names_it(outer, name, child):
            return True
        is_tried = isinstance(outer, ast.Try) and child in outer.body
        if is_tried and any(catches(h, ("TypeError", "Exception")) for h in outer.handlers):  # type: ignore[attr-defined]
            return True
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
            return any(_asks_first(s, name, node) for s in ast.walk(outer))
    return False


def _names_it(node: ast.AST, name: str, child: ast.AST) -> bool:
    test = node.test if isinstance(node, ast.If | ast.IfExp) else node
    if child is test and not isinstance(node, ast.BoolOp):
        return False
    return any(
        isinstance(part, ast.Name) and part.id == name and not _is_callee(part, test)
        for part in ast.walk(test)
    )


def _is_callee(name: ast.Name, test: ast.AST) -> bool:
    return any(isinstance(part, ast.Call) and part.func is name for part in ast.walk(test))


def _asks_first(statement: ast.AST, name: str, node: ast.AST) -> bool:
    """An `if` or `assert` on the name, or a call that is given it, in a line before."""
    line = getattr(node, "lineno", 0)
    if getattr(statement, "lineno", line) >= line:
        return False
    if isinstance(statement, ast.If):
        leaves = bool(statement.body) and isinstance(statement.body[-1], _EXITS)
        return leaves and _mentions(statement.test, name)
    if isinstance(statement, ast.Assert):
        return _mentions(statement.test, name)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return True if not statement.value.args else _mentions(statement.value, name)
    return False


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))
