"""ATT215: caches that keep tensors alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.symbols import Function, Summary


@rule("ATT215", "cached-tensors")
def cached_tensors(file: SourceFile, context: Context) -> Iterator[Hit]:
    """`functools.cache` or `lru_cache` stands on a function that takes or returns tensors.

    Why:
        A tensor is a key by identity, so no call ever hits, and the cache keeps every input and output
        alive until the device is out of memory. The decorator usually belongs to the function above or
        below.

    Instead:
        Take the decorator off, or put it where it belongs.
    """
    summary = context.index.summary(context.index.module_of(file.path))
    for function in _functions(summary) if summary is not None else ():
        if not (function.has_decorator("cache") or function.has_decorator("lru_cache")):
            continue
        tensors = [p.name for p in function.params if "Tensor" in p.annotation]
        if tensors:
            yield Hit(
                file.at(function.line),
                f"{function.name} is cached and takes tensors ({', '.join(tensors)})",
                advice="Take the cache off: it keeps every tensor alive.",
            )


def _functions(summary: Summary) -> Iterator[Function]:
    for functions in summary.functions.values():
        yield from functions
    for known in summary.classes.values():
        for functions in known.methods.values():
            yield from functions
