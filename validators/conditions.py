"""The tests under which a node of a syntax tree runs, and what a way through them is for."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from attngate.validators.symbols import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from attngate.validators.names import FileNames

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
# A test and whether it holds; text where it is not an expression.
Test = tuple[ast.expr | str, bool]
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_LONGEST = 90
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
}  # fmt: skip
# Words in conditions and names to what a path through them is for.
_TAGS = tuple(
    (re.compile(pattern), tag)
    for pattern, tag in (
        (r"prefill", "prefill"),
        (r"(?<!spec_)(?<!as_)decode(?!r)", "decode"),
        (r"capture|cuda_?graph", "capture"),
        (r"(?<![a-z])dcp|context_parallel", "DCP"),
        (r"cascade", "cascade"),
        (r"sink|s_aux", "sinks"),
        (r"fp8", "fp8"),
        (r"quantiz|quantis|int8", "quantised"),
        (r"encoder(?!_decoder)", "encoder"),
        (r"spec_decode|(?<![a-z])mtp(?![a-z])|speculative", "MTP"),
        (r"flatten", "flattened"),
        (r"(?<![a-z])native", "native"),
        (r"fallback", "fallback"),
        (r"sparse", "sparse"),
        (r"sliding_window", "window"),
        (r"(has|prefill|chunked|dcp)_context|context_(chunk|kv)", "context"),
        (r"batch_invariant", "batch-invariant"),
    )
)


def conditions_of(names: FileNames, node: ast.AST, within: ast.AST | None = None) -> list[Test]:
    """Tests that hold where a node runs, the outermost first.

    Args:
        names: The file's scopes, which know who is whose parent.
        node: The node.
        within: The function to begin at; None for the one around the node, or the file.
    """
    found: list[Test] = []
    child, parent = node, names.parents.get(node)
    while parent is not None and child is not within:
        if isinstance(parent, FunctionNode | ast.Lambda) and within is None:
            found += reversed(_passed_by(parent, child))
            break
        found += reversed(_passed_by(parent, child))
        found += _taken(parent, child)
        child, parent = parent, names.parents.get(parent)
    return list(reversed(found))


def texts_of(tests: Iterable[Test]) -> tuple[str, ...]:
    """The tests in words, each once."""
    return tuple(dict.fromkeys(_text(test, holds=holds) for test, holds in tests))


def tags_of(tests: Iterable[Test], names: Iterable[str] = ()) -> tuple[str, ...]:
    """What a way is for: only by tests that have to hold, and by the names of what is called."""
    words = list(names)
    for test, holds in tests:
        if isinstance(test, str):
            words.append("fallback")
        else:
            words += [w for atom, is_so in _atoms(test, holds=holds) if is_so for w in _words(atom)]
    text = " ".join(words).lower()
    return tuple(tag for pattern, tag in _TAGS if pattern.search(text))


def _taken(parent: ast.AST, child: ast.AST) -> list[Test]:
    """The test of a statement or expression on the way to one of its parts."""
    match parent:
        case ast.If() | ast.While() if child in parent.body:
            return [(parent.test, True)]
        case ast.If() if child in parent.orelse:
            return [(parent.test, False)]
        case ast.IfExp() if child is not parent.test:
            return [(parent.test, child is parent.body)]
        case ast.BoolOp() if child in parent.values:
            before = parent.values[: parent.values.index(child)]
            return [(value, isinstance(parent.op, ast.And)) for value in reversed(before)]
        case ast.ExceptHandler():
            return [(f"after {_short(parent.type) if parent.type else 'any error'}", True)]
    return []


def _passed_by(parent: ast.AST, child: ast.AST) -> list[Test]:
    """Tests before a statement of a block that would have left the block."""
    found: list[Test] = []
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if not isinstance(block, list) or child not in block:
            continue
        for before in block[: block.index(child)]:
            if not isinstance(before, ast.If):
                continue
            if _always_leaves(before.body) and not _always_leaves(before.orelse):
                found.append((before.test, False))
            elif _always_leaves(before.orelse) and not _always_leaves(before.body):
                found.append((before.test, True))
    return found


def _always_leaves(block: list[ast.stmt]) -> bool:
    last = block[-1] if block else None
    if isinstance(last, ast.If):
        return _always_leaves(last.body) and _always_leaves(last.orelse)
    if isinstance(last, ast.With | ast.AsyncWith):
        return _always_leaves(last.body)
    return isinstance(last, _LEAVES)


def _text(test: ast.expr | str, *, holds: bool) -> str:
    if isinstance(test, str):
        return test
    return _short(test if holds else _negated(test))


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return ast.Compare(test.left, [_OPPOSITE[type(test.ops[0])]()], test.comparators)
    return ast.UnaryOp(ast.Not(), test)


def _short(node: ast.expr) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _atoms(test: ast.expr, *, holds: bool) -> Iterator[tuple[ast.expr, bool]]:
    """Parts of a test that are certain: of `a or b` neither is."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            yield from _atoms(test.operand, holds=not holds)
        case ast.BoolOp():
            if isinstance(test.op, ast.And) == holds:
                for value in test.values:
                    yield from _atoms(value, holds=holds)
        case ast.NamedExpr():
            yield from _atoms(test.value, holds=holds)
        case ast.Compare(ops=[op], comparators=[right]):
            yield test, holds != _says_no(op, right)
        case _:
            yield test, holds


def _says_no(op: ast.cmpop, right: ast.expr) -> bool:
    """True for `x == 0`, `x is None`, `x not in ...`: what x is about is absent."""
    is_nothing = isinstance(right, ast.Constant) and not right.value
    if isinstance(op, ast.NotIn | ast.Lt | ast.LtE):
        return True
    if isinstance(op, ast.Eq | ast.Is):
        return is_nothing
    return isinstance(op, ast.NotEq | ast.IsNot) and not is_nothing


def _words(node: ast.expr) -> Iterator[str]:
    for part in ast.walk(node):
        path = dotted(part) if isinstance(part, ast.Attribute | ast.Name) else ""
        if path:
            yield path
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
