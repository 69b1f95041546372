"""ATT217: bound methods that get `self` a second time."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.infer import Instance, Method
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile


@rule("ATT217", "self-twice")
def self_twice(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A method is called on `self` and gets `self` as its first argument again.

    Why:
        The method is bound already, so the first argument lands in the first parameter after `self`
        and everything else moves by one: a TypeError, or tensors in the wrong places.

    Instead:
        Leave the second `self` out.
    """
    for call in file.source.names.calls:
        func = call.func
        if not (isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and call.args):
            continue
        first = call.args[0]
        if not (isinstance(first, ast.Name) and first.id == func.value.id == "self"):
            continue
        values = context.inference.values(file, func)
        owners = context.inference.values(file, func.value)
        if not all(isinstance(o, Instance) for o in owners):
            continue
        if all(isinstance(v, Method) and v.skips == 1 and not _wants_self(v) for v in values):
            yield Hit(
                file.at_node(call),
                f"`{ast.unparse(func)}` is bound to self and gets self again",
                advice="Leave the first argument out.",
                observed=ast.unparse(call)[:120],
            )


def _wants_self(method: Method) -> bool:
    """True where the parameter after `self` is meant for an object of the same kind."""
    params = method.function.params[1:2]
    if not params:
        return False
    words = ("other", "layer", "module", "owner", "impl", "parent", "obj", "instance", "self")
    return params[0].name in words or method.owner.name in params[0].annotation
