"""Merge two partial attention results of the same queries, in plain torch."""

from __future__ import annotations

import math

import torch

LOG2_E = math.log2(math.e)


def merge_attn_states(
    output,
    prefix_output,
    prefix_lse,
    suffix_output,
    suffix_lse,
    output_lse=None,
):
    """Write the attention over both parts into output [tokens, heads, dim].

    The log-sum-exps are [heads, tokens] in natural log; an infinite one, of either sign, means that
    its part had no key. With output_lse given, the merged one is written there.
    """
    prefix_lse = prefix_lse.masked_fill(prefix_lse == math.inf, -math.inf)
    suffix_lse = suffix_lse.masked_fill(suffix_lse == math.inf, -math.inf)
    merged_lse = torch.logaddexp(prefix_lse, suffix_lse)
    higher = torch.maximum(prefix_lse, suffix_lse).nan_to_num(neginf=0.0)
    # exp2 is one instruction on the device; the log-sum-exps are in natural log.
    prefix_mass = torch.exp2((prefix_lse - higher) * LOG2_E)
    suffix_mass = torch.exp2((suffix_lse - higher) * LOG2_E)
    total = (prefix_mass + suffix_mass).clamp_min(1e-30)
    output.copy_(
        weighted(prefix_output, prefix_mass / total) + weighted(suffix_output, suffix_mass / total)
    )
    if output_lse is not None:
        output_lse.copy_(merged_lse)


def weighted(part, weight):
    """A part times its weight; a part without weight counts as zero whatever it holds."""
    weight = weight.transpose(0, 1)[..., None]
    return torch.where(weight > 0, part.float() * weight, 0.0)
