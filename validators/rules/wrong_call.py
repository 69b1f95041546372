"""ATT205: calls that a function, method or class of the plugin or the target does not take."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.callables import misfits, taken_by
from attngate.validators.context import Hit
from attngate.validators.guards import is_for_a_version, is_typing_only
from attngate.validators.index import Foreign, Ref
from attngate.validators.infer import Method, NoneValue
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.callables import Misfit, Taken
    from attngate.validators.context import Context, SourceFile
    from attngate.validators.index import Index
    from attngate.validators.infer import Value


@rule("ATT205", "wrong-call")
def wrong_call(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A call passes what its callee does not take, or leaves out what it requires.

    Why:
        The call is a TypeError as soon as it runs. The callee may be the plugin's own (a wrapper whose
        parameter has another name) or the target's (an initialiser that lost a parameter).

    Instead:
        Pass what the callee takes; the finding shows its parameters and where they are.
    """
    names = file.source.names
    for call in names.calls:
        if is_typing_only(names, call) or is_for_a_version(names, call):
            continue
        values: list[Value] = [
            v for v in context.inference.values(file, call.func) if not isinstance(v, NoneValue)
        ]
        alternatives = [
            _alternatives(context.index, v) for v in values if not _is_stood_in(v, values)
        ]
        if not alternatives or any(a is None for a in alternatives):
            continue
        yield from _judge(file, context, call, [t for a in alternatives for t in a or ()])


def _is_stood_in(value: Value, values: list[Value]) -> bool:
    """True for a component's class where a class of the plugin stands in for it when it is missing."""
    return isinstance(value, Foreign) and any(
        isinstance(v, Ref) and v.kind == "class" and v.name == value.path.rpartition(".")[2]
        for v in values
    )


def _alternatives(index: Index, value: Value) -> list[Taken] | None:
    if (
        isinstance(value, Method)
        and not value.exact
        and index.is_overridden(value.owner, value.function.name)
    ):
        return None
    return taken_by(index, value)


def _judge(file: SourceFile, context: Context, call: ast.Call, taken: list[Taken]) -> Iterator[Hit]:
    """What all alternatives refuse; one that takes the call makes it good."""
    found = [list(misfits(call, t)) for t in taken]
    if not found or not all(found):
        return
    first = taken[0]
    text = ast.get_source_segment(file.source.text, call) or "\0"
    if not context.index.is_tree(first.module) and context.index.counterpart_says(file.path, text):
        return
    for misfit in found[0]:
        if all(any(_same(misfit, other) for other in others) for others in found):
            yield Hit(
                file.at_node(misfit.node),
                _message(misfit, first),
                advice=_advice(misfit),
                expected=f"{first.what.rpartition('.')[2]}{first}",
                observed=ast.unparse(call)[:200],
                origin=context.index.place(first.module, first.line),
            )


def _same(one: Misfit, other: Misfit) -> bool:
    return one.kind == other.kind and (one.kind == "positions" or one.name == other.name)


def _message(misfit: Misfit, taken: Taken) -> str:
    match misfit.kind:
        case "keyword":
            return f"{taken.what} does not take the keyword `{misfit.name}`"
        case "positions":
            return f"{taken.what} takes at most {misfit.name} arguments by position"
        case "twice":
            return f"{taken.what} gets `{misfit.name}` by position and by keyword"
    return f"{taken.what} is called without {misfit.name}"


def _advice(misfit: Misfit) -> str:
    if misfit.kind == "missing":
        return "Pass what it requires."
    return "Leave it out, or use the name that the callee has."
