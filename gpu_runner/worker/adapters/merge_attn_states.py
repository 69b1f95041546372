"""vLLM's `merge_attn_states`: the merged output is written in place, nothing is returned.

Canonical arguments are the interface's own names. Shapes: outputs [tokens, heads, head dim], LSE
[heads, tokens] in natural log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attngate.gpu_runner.worker.adapters.signature import (
    DoesNotFitError,
    Fit,
    check,
    features,
    parameters_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REQUIRED = ("output", "prefix_output", "prefix_lse", "suffix_output", "suffix_lse")
OPTIONAL = {name: name for name in ("output_lse", "prefill_tokens_with_context", "output_scale")}


def fit(target: Callable[..., Any], options: Mapping[str, Any]) -> Fit:
    """Check the names; raises DoesNotFitError, with a hint where it is FlashInfer's interface."""
    del options
    parameters = parameters_of(target)
    if {"v_a", "s_a", "v_b", "s_b"} <= set(parameters.names):
        raise DoesNotFitError(
            f"the callable does not fit suite merge_attn_states: it takes {parameters.text} and "
            "returns the merged state, where the suite has `output` written in place",
            'use suite = "merge_states" for this interface, or an adapter',
        )
    check("merge_attn_states", REQUIRED, (*REQUIRED, *OPTIONAL), parameters)
    return Fit("merge_attn_states", parameters, features(parameters, OPTIONAL, OPTIONAL))


def call(target: Callable[..., Any], arguments: dict[str, Any], fit: Fit) -> dict[str, Any]:
    """Call by keyword; the result lies in `output` and `output_lse`."""
    del fit
    target(**arguments)
    return {}
