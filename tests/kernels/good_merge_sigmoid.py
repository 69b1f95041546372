"""A correct merge of another kind: the prefix's share is the sigmoid of the difference of the LSE."""

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
    """The interface of vLLM's operator; LSE float32 [H, T], natural."""
    if output_scale is not None:
        raise NotImplementedError("quantised output is not supported")
    tokens = output.shape[0]
    kept = tokens if prefill_tokens_with_context is None else prefill_tokens_with_context
    has_p = torch.isfinite(prefix_lse) & (torch.arange(tokens) < kept)
    has_s = torch.isfinite(suffix_lse)
    gap = torch.where(has_p & has_s, prefix_lse - suffix_lse, 0.0)
    share = torch.where(has_p & has_s, torch.sigmoid(gap), has_p.float())
    share_p = share.t()[..., None]
    p = torch.where(has_p.t()[..., None], prefix_output.float(), 0.0)
    s = torch.where(has_s.t()[..., None], suffix_output.float(), 0.0)
    rest = torch.where(has_p & has_s, torch.sigmoid(-gap), has_s.float()).t()[..., None]
    output.copy_(p * share_p + s * rest)
    if output_lse is not None:
        both = torch.maximum(prefix_lse, suffix_lse) + torch.log1p(torch.exp(-gap.abs()))
        one = torch.where(has_p, prefix_lse, suffix_lse)
        lse = torch.where(has_p & has_s, both, one)
        output_lse.copy_(torch.where(has_p | has_s, lse, float("-inf")))
