"""A correct variable-length attention of another kind: torch's own attention with an explicit bias.

A sink is one more key of zeros whose bias is the sink and whose value is 0. There is no soft cap, so
that a suite has something to leave out.
"""

from itertools import pairwise

import torch
from torch.nn.functional import scaled_dot_product_attention


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
    s_aux=None,
):
    """The interface of flash_attn's function without the soft cap."""
    out = torch.zeros(*q.shape[:2], v.shape[-1], dtype=q.dtype)
    lse = torch.full((q.shape[1], q.shape[0]), float("-inf"))
    starts_q, starts_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for i, (q0, q1) in enumerate(pairwise(starts_q)):
        length = starts_k[i + 1] - starts_k[i]
        if q0 == q1:
            continue
        keys, values = (
            _tokens(pool, block_table, i, starts_k[i], length, q.shape[1]) for pool in (k, v)
        )
        bias = _bias(q1 - q0, length, causal, window_size)
        bias = bias.expand(q.shape[1], -1, -1)
        if alibi_slopes is not None:
            slopes = alibi_slopes[i] if alibi_slopes.dim() == 2 else alibi_slopes
            bias = bias - slopes[:, None, None] * _distance(q1 - q0, length).abs()
        if s_aux is not None:
            column = s_aux.float()[:, None, None].expand(-1, q1 - q0, 1)
            keys = torch.nn.functional.pad(keys, (0, 0, 0, 1))
            values = torch.nn.functional.pad(values, (0, 0, 0, 1))
            bias = torch.cat([bias, column], -1)
        rows = q[q0:q1].transpose(0, 1).float()
        scale = q.shape[2] ** -0.5 if softmax_scale is None else softmax_scale
        if keys.shape[1]:
            attended = scaled_dot_product_attention(
                rows[None], keys[None], values[None], bias[None].float(), scale=scale
            )[0]
            row_lse = torch.logsumexp(rows @ keys.transpose(1, 2) * scale + bias, -1)
            attended = torch.where(torch.isfinite(row_lse)[..., None], attended, 0.0)
            out[q0:q1] = attended.transpose(0, 1)
            lse[:, q0:q1] = row_lse
    return (out, lse, None) if return_attn_probs else out


def _tokens(pool, table, i, start, length, heads):
    if table is None:
        tokens = pool[start : start + length]
    else:
        page = pool.shape[1]
        blocks = table[i, : -(-length // page)].long()
        tokens = pool[blocks].reshape(-1, *pool.shape[2:])[:length]
    return tokens.repeat_interleave(heads // pool.shape[-2], 1).transpose(0, 1).float()


def _distance(sq, sk):
    return torch.arange(sk) - (torch.arange(sq)[:, None] + sk - sq)


def _bias(sq, sk, causal, window):
    away = _distance(sq, sk)
    seen = torch.ones(sq, sk, dtype=torch.bool)
    if causal:
        seen &= away <= 0
    if window[0] >= 0:
        seen &= away >= -window[0]
    if window[1] >= 0:
        seen &= away <= window[1]
    return torch.zeros(sq, sk).masked_fill(~seen, float("-inf"))
