"""Triton's CPU interpreter: was it used, and can it compute in a dtype at all?

The interpreter silently computes on raw bits in a dtype that numpy lacks (bfloat16), so results there
say nothing about a kernel. Launches are counted; a case that launched kernels in a dtype in which one
multiplication and one dot product go wrong cannot be run here, which is neither a pass nor a failure.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import Any

import torch

from attngate.gpu_runner.worker import tensors

_SIDE = 16

_launches = 0


def count_launches() -> None:
    """Count kernel launches of the interpreter from now on, if Triton is loaded and interprets."""
    module = sys.modules.get("triton.runtime.interpreter")
    executor = getattr(module, "GridExecutor", None)
    if executor is None or getattr(executor.__call__, "counts", False):
        return
    original = executor.__call__

    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        global _launches  # noqa: PLW0603 (one process, one interpreter)
        _launches += 1
        return original(self, *args, **kwargs)

    counting.counts = True  # type: ignore[attr-defined]
    executor.__call__ = counting


def launches() -> int:
    """How many kernels the interpreter has run since `count_launches`."""
    return _launches


def is_interpreting() -> bool:
    """True if Triton kernels of this process run in the interpreter."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes")


@lru_cache(maxsize=None)
def can_compute(dtype: str) -> bool:
    """Multiply and dot a few numbers in the interpreter and compare with float64."""
    from attngate.gpu_runner.worker import triton_check

    torch_dtype = tensors.dtype_named(dtype)
    count = _SIDE * _SIDE
    left = (torch.arange(count) % 7 - 3).reshape(_SIDE, _SIDE).to(torch_dtype)
    right = (torch.arange(count) % 5 - 2).reshape(_SIDE, _SIDE).to(torch_dtype)
    product = torch.zeros_like(left)
    dot = torch.zeros(_SIDE, _SIDE, dtype=torch.float32)
    try:
        triton_check.multiply_and_dot[(1,)](left, right, product, dot, SIDE=_SIDE)
    except Exception:  # any refusal means that it cannot
        return False
    exact_left, exact_right = left.double(), right.double()
    return bool(
        torch.equal(product.double(), exact_left * exact_right)
        and torch.equal(dot.double(), exact_left @ exact_right)
    )


def why_not_runnable(dtype: str, launched: int) -> str:
    """The reason why a case in `dtype` that launched so many kernels says nothing, else ""."""
    if not launched or not is_interpreting() or can_compute(dtype):
        return ""
    return (
        f"{launched} Triton kernel launches ran in Triton's CPU interpreter, which gets a multiply "
        f"and a dot in {dtype} wrong here; the numbers say nothing about the kernel"
    )
