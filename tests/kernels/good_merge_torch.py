"""A correct merge of two attention states in torch: weights by exp after subtracting the larger LSE.

The base of the merge mutants; each of its lines is there to be broken by one of them.
"""

import torch


def merge_attn_states(
    output,
    prefix_output,
    prefix_lse,
    suffix_output,
    suffix_lse,
    output_lse=None,
    prefill_tokens_with_context=None,
    output_scale=None,
):
    """Outputs [T, H, D] of any float type, LSE float32 [H, T], natural; writes in place."""
    if output_scale is not None:
        raise NotImplementedError("quantised output is not supported")
    tokens, _heads, _ = output.shape
    lse_p, lse_s = prefix_lse.float(), suffix_lse.float()
    if prefill_tokens_with_context is not None:
        behind = torch.arange(tokens) >= prefill_tokens_with_context
        lse_p = lse_p.masked_fill(behind, float("-inf"))
    lse_p = lse_p.masked_fill(lse_p == float("inf"), float("-inf"))
    lse_s = lse_s.masked_fill(lse_s == float("inf"), float("-inf"))
    top = torch.maximum(lse_p, lse_s)
    safe = top.masked_fill(top == float("-inf"), 0.0)
    mass_p = torch.exp(lse_p - safe)
    mass_s = torch.exp(lse_s - safe)
    total = mass_p + mass_s
    merged_lse = torch.log(total) + safe
    divisor = total.masked_fill(total == 0, 1.0)
    weight_p = (mass_p / divisor).t().unsqueeze(-1)
    weight_s = (mass_s / divisor).t().unsqueeze(-1)
    held_p = prefix_output.float().masked_fill((lse_p == float("-inf")).t().unsqueeze(-1), 0.0)
    held_s = suffix_output.float().masked_fill((lse_s == float("-inf")).t().unsqueeze(-1), 0.0)
    merged = weight_p * held_p + weight_s * held_s
    output.copy_(merged)
    if output_lse is not None:
        output_lse.copy_(merged_lse)
