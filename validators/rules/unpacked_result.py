"""ATT209: results of the plugin's and the target's functions unpacked into the wrong number of names."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.index import Ref
from attngate.validators.infer import Method, NoneValue
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.infer import Value
    from attngate.validators.symbols import Function


@rule("ATT209", "unpacked-result")
def unpacked_result(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A result is unpacked into more or fewer names than the function returns.

    Why:
        It is a ValueError at the first call. A wrapper that gained or lost a returned value usually
        leaves one of its callers behind.

    Instead:
        Unpack what every `return` of the function gives.
    """
    for node, call, count in _unpackings(file):
        values = [
            v for v in context.inference.values(file, call.func) if not isinstance(v, NoneValue)
        ]
        functions = [_function(context, v) for v in values]
        if not functions or any(f is None for f in functions):
            continue
        known = [f for f in functions if f is not None]
        if all(_never(function, count) for _, function in known):
            module, function = known[0]
            given = " or ".join(str(n) for n in function.returned)
            yield Hit(
                file.at(node.lineno, node.col_offset + 1),
                f"{function.name} returns {given} values, {count} are unpacked",
                advice="Unpack as many names as it returns.",
                observed=ast.unparse(node)[:160],
                origin=context.index.place(module, function.line),
            )


def _unpackings(file: SourceFile) -> Iterator[tuple[ast.Assign, ast.Call, int]]:
    names = file.source.names
    for call in names.calls:
        parent = names.parents.get(call)
        if isinstance(parent, ast.Assign) and parent.value is call:
            for target in parent.targets:
                if isinstance(target, ast.Tuple | ast.List) and not any(
                    isinstance(e, ast.Starred) for e in target.elts
                ):
                    yield parent, call, len(target.elts)


def _function(context: Context, value: Value) -> tuple[str, Function] | None:
    if isinstance(value, Ref) and value.kind == "function":
        found = context.index.functions_of(value)
        is_plain = len(found) == 1 and not found[0].decorators and not found[0].is_async
        return (value.module, found[0]) if is_plain else None
    if isinstance(value, Method):
        function = value.function
        dynamic = not value.exact and context.index.is_overridden(value.owner, function.name)
        known = {"staticmethod", "classmethod"}
        if dynamic or set(function.decorators) - known or function.only_raises:
            return None
        return value.owner.module, function
    return None


def _never(function: Function, count: int) -> bool:
    """True where every `return` is written as a tuple and none has so many values."""
    counts = set(function.returned)
    return bool(counts) and -1 not in counts and count not in counts and counts != {0}
