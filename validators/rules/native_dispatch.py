"""ATT213: custom operators that replace one dispatch path of the target and inherit another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.index import Ref
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.index import Index
    from attngate.validators.symbols import Class, Function


@rule("ATT213", "native-dispatch")
def native_dispatch(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A custom operator overrides `forward_oot` and inherits a `forward_native` for another platform.

    Why:
        vLLM takes `forward_native` where custom operators are switched off, as they are by default
        when the model is compiled. Where the target's `forward_native` is no plain PyTorch but hands
        over to CUDA or ROCm kernels, the plugin's code is passed by.

    Instead:
        Override `forward_native` too, and let it call the plugin's implementation.
    """
    index = context.index
    module = index.module_of(file.path)
    summary = index.summary(module)
    for known in summary.classes.values() if summary is not None else ():
        own = known.methods.get("forward_oot")
        if not own or "forward_native" in known.methods:
            continue
        for where, base in index.lineage(Ref("class", module, known.name)).classes[1:]:
            native = base.methods.get("forward_native")
            if native:
                if not index.is_tree(where) and _is_for_platform(index, where, native[0]):
                    yield _hit(file, index, known, own[0], where, native[0])
                break


def _is_for_platform(index: Index, module: str, native: Function) -> bool:
    """True where the native path calls another platform's path, or only says that there is none."""
    text = index.source_lines(module, native.line, native.end)
    return any(f".{name}(" in text for name in ("forward_cuda", "forward_hip", "forward_xpu"))


def _hit(
    file: SourceFile, index: Index, known: Class, own: Function, module: str, native: Function
) -> Hit:
    return Hit(
        file.at(known.line),
        f"{known.name} overrides forward_oot and inherits a forward_native that is made for another platform",
        advice="Define forward_native and call the plugin's implementation from it.",
        observed=f"forward_oot at line {own.line}",
        origin=index.place(module, native.line),
    )
