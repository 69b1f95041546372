"""ATT222: a backend declares how the target treats it, and its implementation lacks what that needs."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.index import Ref
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.index import Index
    from attngate.validators.symbols import Class


@dataclass(frozen=True, slots=True)
class _Promise:
    """An attribute with the value that makes the target call a method of the implementation."""

    attribute: str
    value: str
    method: str


# vLLM, model_executor/layers/attention: the layer updates the cache itself where the backend says that
# its forward does not.
_PROMISES = (_Promise("forward_includes_kv_cache_update", "False", "do_kv_cache_update"),)


@rule("ATT222", "declared-without-method")
def declared_without_method(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A backend declares that the target has to call a method, and its implementation has none.

    Why:
        The target's layer asks the backend's class what it may leave to the implementation and then
        calls it. Without the method nothing is written to the cache, or an assertion stops the model.

    Instead:
        Give the implementation the method, or declare what is true.
    """
    index = context.index
    module = index.module_of(file.path)
    summary = index.summary(module)
    for known in summary.classes.values() if summary is not None else ():
        for promise in _PROMISES:
            own = known.attributes.get(promise.attribute)
            if not own or own[0].value != promise.value:
                continue
            impl = _implementation(file, index, module, known)
            if impl is not None and _lacks(index, impl, promise.method):
                yield Hit(
                    file.at(own[0].line),
                    f"{known.name} declares {promise.attribute} = {promise.value}, and {impl.name} has no "
                    f"`{promise.method}`",
                    advice=f"Define `{promise.method}` in {impl.name}, or declare the opposite.",
                    origin=f"{index.path_of(impl.module)} line {_line(index, impl)}",
                )


def _implementation(file: SourceFile, index: Index, module: str, known: Class) -> Ref | None:
    """The class that the backend's `get_impl_cls` returns."""
    functions = known.methods.get("get_impl_cls")
    if not functions:
        return None
    for node in ast.walk(file.source.tree):
        if isinstance(node, ast.FunctionDef) and node.lineno == functions[0].line:
            returned = [r.value for r in ast.walk(node) if isinstance(r, ast.Return)]
            for value in returned:
                if isinstance(value, ast.Name):
                    found = index.lookup(module, value.id)
                    if len(found) == 1 and isinstance(found[0], Ref) and found[0].kind == "class":
                        return found[0]
    return None


def _lacks(index: Index, impl: Ref, method: str) -> bool:
    lineage = index.lineage(impl)
    return lineage.complete and not any(
        method in known.methods or method in known.attributes for _, known in lineage.classes
    )


def _line(index: Index, impl: Ref) -> int:
    known = index.class_of(impl)
    return known.line if known is not None else 1
