"""ATT212: an attention operator that is missing from the list its siblings are in."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile


@rule("ATT212", "unlisted-operator", over="tree")
def unlisted_operator(context: Context) -> Iterator[Hit]:
    """The plugin adds some of its attention operators to a list of the target and leaves out another.

    Why:
        The compiler splits its graph at the operators of that list. One that is not in it is captured
        into the graph with its metadata, and replay then works with the values of the capture.

    Instead:
        Add every operator of the family, under the name it is registered with.
    """
    listed = list(_listed(context))
    names = {name for _, _, name in listed}
    if not listed:
        return
    stems = {n.rpartition("::")[2].partition(".")[0] for n in names}
    for path, file in sorted(context.files.items()):
        if "direct_register_custom_op" not in file.source.text:
            continue
        for call in file.source.names.calls:
            name = _registered_name(call)
            if not name or name in stems:
                continue
            family = next(
                (s for s in sorted(stems) if name.startswith(s) or s.startswith(name)), ""
            )
            if family and path in context.in_scope:
                where = next((f, n) for f, n, w in listed if w.rpartition("::")[2] == family)
                yield _hit(file, call, name, family, where)


def _listed(context: Context) -> Iterator[tuple[SourceFile, ast.expr, str]]:
    """Operator names that the plugin appends to a list of names whose own name says "ops"."""
    for file in context.files.values():
        if "_ops" not in file.source.text or "::" not in file.source.text:
            continue
        for call in file.source.names.calls:
            func = call.func
            if not isinstance(func, ast.Attribute) or func.attr not in ("append", "extend"):
                continue
            if not ast.unparse(func.value).endswith(("_ops", "_operators")):
                continue
            for node in ast.walk(call):
                if (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and "::" in node.value
                ):
                    yield file, node, node.value


def _registered_name(call: ast.Call) -> str:
    func = call.func
    word = func.id if isinstance(func, ast.Name) else getattr(func, "attr", "")
    if word != "direct_register_custom_op":
        return ""
    values = [k.value for k in call.keywords if k.arg == "op_name"] or call.args[:1]
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value
    return ""


def _hit(
    file: SourceFile, call: ast.Call, name: str, family: str, where: tuple[SourceFile, ast.expr]
) -> Hit:
    other, node = where
    return Hit(
        file.at_node(call),
        f"the operator {name} is registered and not in the list that holds {family}",
        advice=f"Add it where {family} is added: {other.path} line {node.lineno}.",
        origin=f"{other.path} line {node.lineno}",
    )
