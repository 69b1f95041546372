"""ATT223: tests for None of values that are never None."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.registry import rule
from attngate.validators.symbols import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile

_LANGUAGE = ("tl.", "triton.language.")
# Functions of Triton's language that give a block or a scalar, whatever happens.
_GIVES_VALUES = frozenset(
    ["load", "arange", "full", "zeros", "zeros_like", "program_id", "num_programs", "dot", "where",
     "sum", "max", "min", "exp", "exp2", "log", "log2", "maximum", "minimum", "cdiv", "cast"]
)  # fmt: skip


@rule("ATT223", "never-none")
def never_none(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A value that Triton loads or computes is compared with None.

    Why:
        A loaded value is a number, so `is None` is false for every program and the branch never runs:
        padding is treated as data, and nothing fails.

    Instead:
        Test the value: `if not is_valid`, or a comparison with what stands for "nothing".
    """
    del context
    names = file.source.names
    for node in names.comparisons:
        if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Is | ast.IsNot):
            continue
        right = node.comparators[0]
        is_none = isinstance(right, ast.Constant) and right.value is None
        if not is_none or not isinstance(node.left, ast.Name):
            continue
        scope = names.scope_of(node)
        bindings = names.reaching(node.left.id, scope, names.statement_of(node))
        if bindings and all(_gives_value(b.how) for b in bindings):
            yield Hit(
                file.at_node(node),
                f"`{node.left.id}` comes from {_called(bindings[0].how)} and is never None",
                advice=f"Test the value itself, for instance `not {node.left.id}`.",
                observed=ast.unparse(node),
            )


def _gives_value(how: ast.AST | None) -> bool:
    name = _called(how)
    return name.startswith(_LANGUAGE) and name.rpartition(".")[2] in _GIVES_VALUES


def _called(how: ast.AST | None) -> str:
    return dotted(how.func) if isinstance(how, ast.Call) else ""
