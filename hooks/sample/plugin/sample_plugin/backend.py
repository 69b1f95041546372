"""The attention backend: prefill of new tokens over a context that is in the cache already."""

from __future__ import annotations

import torch
from flash_attn import flash_attn_varlen_func

from sample_plugin.ops.merge import merge_attn_states


class SampleAttentionImpl:
    def __init__(self, scale):
        self.scale = scale

    def forward_prefill(self, query, key, value, context_key, context_value, metadata):
        """Attend the new tokens to the context and to themselves; returns [tokens, heads, dim]."""
        new_output, new_lse, _ = flash_attn_varlen_func(
            q=query,
            k=key,
            v=value,
            cu_seqlens_q=metadata.query_start_loc,
            cu_seqlens_k=metadata.query_start_loc,
            max_seqlen_q=metadata.max_query_len,
            max_seqlen_k=metadata.max_query_len,
            softmax_scale=self.scale,
            causal=True,
            return_attn_probs=True,
        )
        context_output, context_lse, _ = flash_attn_varlen_func(
            q=query,
            k=context_key,
            v=context_value,
            cu_seqlens_q=metadata.query_start_loc,
            cu_seqlens_k=metadata.context_start_loc,
            max_seqlen_q=metadata.max_query_len,
            max_seqlen_k=metadata.max_context_len,
            softmax_scale=self.scale,
            causal=False,
            return_attn_probs=True,
        )
        output = torch.empty_like(query)
        merge_attn_states(output, context_output, context_lse, new_output, new_lse)
        return output
