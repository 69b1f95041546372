"""ATT219: parameters that the target's version of a function has and the plugin's does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.index import Ref
from attngate.validators.model import Severity
from attngate.validators.registry import rule
from attngate.validators.twins import twin_classes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.index import Index
    from attngate.validators.symbols import Function


@rule("ATT219", "counterpart-parameter", Severity.NOTE)
def counterpart_parameter(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A function that was taken over from the target lacks a parameter that the target's has.

    Why:
        A new parameter is how the target hands in a case that it did not treat before. The plugin's
        copy still works for its own callers and does not treat that case.

    Instead:
        Take the parameter and what it is for, or say why the case cannot occur here.
    """
    index = context.index
    for own, theirs, module in _pairs(index, file.path):
        is_kernel = any("jit" in decorator for decorator in own.decorators)
        is_shape = own.name.endswith(("_fake", "_meta"))  # follows the operator that it belongs to
        if own.kwargs or own.star or own.name.startswith("__") or is_kernel or is_shape:
            continue
        names = {p.name for p in own.params}
        lacking = [p.name for p in theirs.params if p.name not in names]
        shared = names & {p.name for p in theirs.params}
        if lacking and len(shared) >= len(names) / 2:
            yield Hit(
                file.at(own.line),
                f"{own.name} lacks {', '.join(f'`{n}`' for n in lacking)}, which the target's version takes",
                advice="Take over what the parameter is for.",
                origin=index.place(module, theirs.line),
            )


def _pairs(index: Index, path: str) -> Iterator[tuple[Function, Function, str]]:
    module = index.module_of(path)
    twin = index.counterpart(module)
    own, theirs = index.summary(module), index.summary(twin) if twin else None
    if own is not None and theirs is not None:
        for name, functions in own.functions.items():
            other = theirs.functions.get(name)
            if other and len(functions) == len(other) == 1:
                yield functions[0], other[0], twin
    for pair in twin_classes(index, path):
        ref = Ref("class", module, pair.own.name)
        for name, functions in pair.own.methods.items():
            other = pair.theirs.methods.get(name)
            if other and len(functions) == len(other) == 1 and not _is_override(index, ref, name):
                yield functions[0], other[0], pair.module


def _is_override(index: Index, ref: Ref, name: str) -> bool:
    """True where a base of the target has the method: then its signature is what counts."""
    return any(
        name in known.methods and not index.is_tree(module)
        for module, known in index.lineage(ref).classes[1:]
    )
