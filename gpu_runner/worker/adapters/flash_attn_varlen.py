"""Variable-length flash attention, in the order and names of either of its two public interfaces.

Canonical arguments: q [tokens, query heads, D]; k, v [tokens, KV heads, D], or page pools
[pages, page size, KV heads, D] with `block_table` [requests, pages]; cu_seqlens_q, cu_seqlens_k int32
[requests + 1]; max_seqlen_q, max_seqlen_k int; and, where the case has them, softmax_scale, causal,
window_size (left, right), softcap, alibi_slopes, s_aux [query heads], return_lse (bool), out.

Convention "flash_attn" (the default) is flash_attn's own function: LSE through `return_attn_probs`,
which returns (out, lse, probabilities). Convention "vllm" is vllm_flash_attn's: positions 4 to 7 in
another order, key lengths of a paged call as `seqused_k` [requests], the window as a list, LSE through
`return_softmax_lse`, an optional `out`.

Canonical outputs: out [tokens, query heads, D], lse [query heads, tokens] as the callable gives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attngate.gpu_runner.worker.adapters.keywords import named
from attngate.gpu_runner.worker.adapters.signature import (
    DoesNotFitError,
    Fit,
    Parameters,
    check,
    features,
    parameters_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ORDER = {
    "flash_attn": (
        *("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"),
    ),
    "vllm": ("q", "k", "v", "max_seqlen_q", "cu_seqlens_q", "max_seqlen_k", "cu_seqlens_k"),
}
LSE_SWITCH = {"flash_attn": "return_attn_probs", "vllm": "return_softmax_lse"}
COMMON = ("softmax_scale", "causal", "window_size")
OPTIONAL = {
    "softcap": "softcap",
    "alibi_slopes": "alibi_slopes",
    "block_table": "block_table",
    "s_aux": "s_aux",
    "out": "out",
    "seqused_k": "seqused_k",
}
STANDARD = {
    "flash_attn": ("softcap", "alibi_slopes", "block_table", "return_lse"),
    "vllm": ("softcap", "alibi_slopes", "block_table", "return_lse", "out", "seqused_k"),
}


def fit(target: Callable[..., Any], options: Mapping[str, Any]) -> Fit:
    """Choose the convention and check names and order; raises DoesNotFitError."""
    convention = options.get("convention", "flash_attn")
    if convention not in ORDER:
        known = ", ".join(f'"{name}"' for name in ORDER)
        message = f"suite flash_attn_varlen has no convention {convention!r}"
        raise DoesNotFitError(message, f"convention is one of {known}")
    parameters = parameters_of(target)
    _check_order(convention, parameters)
    called_with = [*ORDER[convention], *COMMON]
    optional = {**OPTIONAL, "return_lse": LSE_SWITCH[convention]}
    _check_lse_switch(convention, parameters)
    check(
        f'flash_attn_varlen (convention "{convention}")',
        called_with,
        [*called_with, *optional.values()],
        parameters,
    )
    standard = [*STANDARD[convention], *(["s_aux"] if options.get("sinks") else [])]
    return Fit(convention, parameters, features(parameters, optional, standard))


def _other(convention: str) -> str:
    return "vllm" if convention == "flash_attn" else "flash_attn"


def _check_order(convention: str, parameters: Parameters) -> None:
    """A caller that gives the lengths by position must not meet the other interface's order."""
    wanted = set(ORDER[convention])
    found = tuple(name for name in parameters.positional if name in wanted)
    if found == ORDER[_other(convention)]:
        raise DoesNotFitError(
            f'the callable takes its lengths in the order of convention "{_other(convention)}" '
            f'({", ".join(found)}), not of "{convention}" ({", ".join(ORDER[convention])})',
            f'set convention = "{_other(convention)}" in the target, or reorder the parameters',
        )


def _check_lse_switch(convention: str, parameters: Parameters) -> None:
    mine, others = LSE_SWITCH[convention], LSE_SWITCH[_other(convention)]
    if others in parameters.names and not parameters.accepts(mine):
        raise DoesNotFitError(
            f"the callable returns the LSE through `{others}`, which is convention "
            f'"{_other(convention)}"; convention "{convention}" has `{mine}`',
            f'set convention = "{_other(convention)}" in the target',
        )


def call(target: Callable[..., Any], arguments: dict[str, Any], fit: Fit) -> dict[str, Any]:
    """Make the real call and name what comes back."""
    real = dict(arguments)
    with_lse = real.pop("return_lse", False)
    if with_lse:
        real[LSE_SWITCH[fit.convention]] = True
    if fit.convention == "vllm":
        _to_vllm(real)
    result = named(target(**real), ("out", "lse", "probabilities"))
    result.pop("probabilities", None)
    if real.get("out") is not None and result.get("out") is real["out"]:
        del result["out"]
    return result


def _to_vllm(real: dict[str, Any]) -> None:
    if real.get("block_table") is not None and real.get("seqused_k") is None:
        cumulative = real.pop("cu_seqlens_k")
        real["seqused_k"] = cumulative[1:] - cumulative[:-1]
    if real.get("window_size") is not None:
        real["window_size"] = list(real["window_size"])
