"""Poison in the memory that the callable allocates itself, so that an unwritten element shows.

While a call runs, what `torch.empty` and its relatives return holds the pattern of the round. A
dispatch mode sees every such allocation, from Python and from C++, except those inside a custom
operator, where the mode is off: there the Python functions are replaced for the operator's duration.
C++ code inside a custom operator is not seen; on a GPU the caching allocator is therefore primed with
poisoned blocks of the sizes that the last round returned.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from attngate.gpu_runner.worker import tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_ALLOCATING = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
)
_PYTHON_NAMES = ("empty", "empty_like", "empty_strided", "empty_permuted")
_METHOD_NAMES = ("new_empty", "new_empty_strided")


class PoisonAllocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fill fresh allocations with the pattern `fill` ("nan" or "big") while the mode is on."""

    def __init__(self, fill: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._fill = fill

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let `torch.compile` compile under the mode; else it would silently run the plain function."""
        return True

    if not hasattr(TorchDispatchMode, "ignore_compile_internals"):  # an older torch

        @classmethod
        def is_infra_mode(cls) -> bool:
            """The older name of the same permission."""
            return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        namespace, _, name = func._schema.name.partition("::")  # noqa: SLF001 (torch's only way)
        if namespace == "aten":
            result = func(*args, **(kwargs or {}))
            is_fresh = name in _ALLOCATING and "out" not in (kwargs or {})
            return _poisoned(result, self._fill) if is_fresh else result
        with _python_level(self._fill):
            return func(*args, **(kwargs or {}))


def _poisoned(result: Any, fill: str) -> Any:
    if type(result) is torch.Tensor and result.device.type in ("cpu", "cuda"):
        tensors.poison(tensors.whole_storage(result), fill)
    return result


@contextlib.contextmanager
def _python_level(fill: str) -> Iterator[None]:
    owners = [(torch, name) for name in _PYTHON_NAMES]
    owners += [(torch.Tensor, name) for name in _METHOD_NAMES]  # type: ignore[misc]
    before = [(owner, name, getattr(owner, name)) for owner, name in owners]
    for owner, name, original in before:
        setattr(owner, name, _wrapped(original, fill))
    try:
        yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)


def _wrapped(original: Callable[..., Any], fill: str) -> Callable[..., Any]:
    def allocate(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        return result if "out" in kwargs else _poisoned(result, fill)

    return allocate


def prime_allocator(sizes: Iterable[int], fill: str, device: str) -> None:
    """Leave freed blocks of these byte sizes with the pattern in a GPU's caching allocator."""
    if device == "cuda":
        blocks = [torch.empty(size // 4 + 1, dtype=torch.float32, device=device) for size in sizes]
        for block in blocks:
            tensors.poison(block, fill)
