"""What a usual test does: one dense Gaussian input and `torch.allclose` of the output at 1e-2.

The inputs use the feature that a mutant's class breaks, with the values such a test has: sinks of unit
variance, a soft cap of 50, a window of half the length. So the column says what the usual test misses,
not that the feature was off.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from mutants import correct

if TYPE_CHECKING:
    from collections.abc import Callable

    from mutants import Mutant

LENGTH, HEADS, KV_HEADS, D, PAGE = 512, 4, 2, 64, 16


def passes_allclose(mutant: Mutant, wrong: Callable[..., Any]) -> bool:
    """True if the usual test would not notice the mutant."""
    run = _merge if mutant.suite == "merge_attn_states" else _varlen
    try:
        got = run(wrong, mutant.kind)
    except Exception:
        return False
    want = _right(mutant.base, mutant.suite, mutant.kind)
    return bool(torch.allclose(got, want, rtol=1e-2, atol=1e-2))


@lru_cache
def _right(base: str, suite: str, kind: str) -> torch.Tensor:
    run = _merge if suite == "merge_attn_states" else _varlen
    return run(correct(base, suite), kind)


def _merge(function: Callable[..., Any], kind: str) -> torch.Tensor:
    rng = torch.Generator().manual_seed(1)
    outs = [torch.randn(64, HEADS, D, generator=rng) for _ in range(2)]
    lses = [torch.randn(HEADS, 64, generator=rng) for _ in range(2)]
    merged, lse = torch.zeros(64, HEADS, D), torch.zeros(HEADS, 64)
    function(merged, outs[0], lses[0], outs[1], lses[1], lse)
    return merged


def _varlen(function: Callable[..., Any], kind: str) -> torch.Tensor:
    rng = torch.Generator().manual_seed(1)
    q = torch.randn(2 * LENGTH, HEADS, D, generator=rng)
    k, v = (torch.randn(2 * LENGTH, KV_HEADS, D, generator=rng) for _ in range(2))
    starts = torch.tensor([0, LENGTH, 2 * LENGTH], dtype=torch.int32)
    rules: dict[str, Any] = {"causal": True}
    if kind == "C":
        rules["s_aux"] = torch.randn(HEADS, generator=rng)
    if kind == "D":
        rules["window_size"] = (LENGTH // 2, 0)
    if kind == "E":
        rules |= {"softcap": 50.0, "softmax_scale": D**-0.5}
    if kind == "F":
        k, v = (x.view(-1, PAGE, KV_HEADS, D) for x in (k, v))
        rules["block_table"] = torch.arange(2 * LENGTH // PAGE, dtype=torch.int32).view(2, -1)
    out: torch.Tensor = function(q, k, v, starts, starts, LENGTH, LENGTH, **rules)
    return out
