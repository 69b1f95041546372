"""Attention over packed sequences, tile by tile with a running softmax, in plain torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

TILE = 128


@dataclass(frozen=True)
class Options:
    scale: float
    causal: bool
    left: int
    right: int
    softcap: float


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
    softcap=0.0,
    alibi_slopes=None,
    return_attn_probs=False,
    block_table=None,
):
    """Attend each sequence of q to its own keys.

    q is [total_q, heads, dim]; k and v are [total_k, kv_heads, dim], or pages
    [pages, page, kv_heads, dim] with a block_table [sequences, pages of one]. Returns the output like
    q, with return_attn_probs (out, lse [heads, total_q] in natural log, None). A row without a key
    has output 0 and lse -inf.
    """
    if dropout_p:
        raise ValueError("dropout is for training; this operation has none")
    if q.shape[1] % k.shape[-2]:
        raise ValueError(f"{q.shape[1]} query heads do not divide into {k.shape[-2]} KV heads")
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    options = Options(scale, causal, window_size[0], window_size[1], softcap)
    out = torch.zeros(q.shape[0], q.shape[1], v.shape[-1], dtype=q.dtype, device=q.device)
    lse = torch.full((q.shape[1], q.shape[0]), -math.inf, device=q.device)
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for i in range(len(ends_q) - 1):
        rows = slice(ends_q[i], ends_q[i + 1])
        keys, values = keys_of(i, k, v, ends_k, block_table)
        slopes = None if alibi_slopes is None else alibi_slopes.reshape(-1, q.shape[1])
        slope = None if slopes is None else slopes[i % slopes.shape[0]]
        out[rows], lse[:, rows] = attend(q[rows], keys, values, slope, options)
    return (out, lse, None) if return_attn_probs else out


def keys_of(i, k, v, ends_k, block_table):
    """Keys and values [length, kv_heads, dim] of sequence i."""
    if block_table is None:
        return k[ends_k[i] : ends_k[i + 1]], v[ends_k[i] : ends_k[i + 1]]
    length = ends_k[i + 1] - ends_k[i]
    pages = block_table[i, : -(-length // k.shape[1])].long()
    return k[pages].flatten(0, 1)[:length], v[pages].flatten(0, 1)[:length]


def attend(q, k, v, slope, options):
    """One sequence: output [rows, heads, dim] and lse [heads, rows]."""
    group = q.shape[1] // k.shape[1]
    rows = q.float().transpose(0, 1)
    best = torch.full(rows.shape[:2], -math.inf, device=q.device)
    total = torch.zeros_like(best)
    summed = torch.zeros(*rows.shape[:2], v.shape[-1], device=q.device)
    for start in range(0, k.shape[0], TILE):
        keys = k[start : start + TILE].float().transpose(0, 1).repeat_interleave(group, 0)
        values = v[start : start + TILE].float().transpose(0, 1).repeat_interleave(group, 0)
        scores = scores_of(rows, keys, start, k.shape[0], slope, options)
        higher = torch.maximum(best, scores.amax(-1))
        base = higher.masked_fill(higher == -math.inf, 0.0)  # a row that has seen no key yet
        weights = torch.exp(scores - base[..., None])
        keep = torch.exp(best - base)
        total = total * keep + weights.sum(-1)
        summed = summed * keep[..., None] + weights @ values
        best = higher
    out = summed / total.masked_fill(total == 0, 1.0)[..., None]
    return out.transpose(0, 1).to(q.dtype), best + torch.log(total)


def scores_of(rows, keys, start, length, slope, options):
    """Scores [heads, rows, tile]; -inf where a row does not see a key."""
    scores = rows @ keys.transpose(1, 2) * options.scale
    if options.softcap:
        scores = options.softcap * torch.tanh(scores / options.softcap)
    # The last row is aligned with the last key.
    row = torch.arange(rows.shape[1], device=rows.device)[:, None] + length - rows.shape[1]
    key = torch.arange(start, start + keys.shape[1], device=rows.device)[None]
    if slope is not None:
        scores = scores - slope[:, None, None] * (row - key).abs()
    hidden = torch.zeros_like(scores[0], dtype=torch.bool)
    if options.causal:
        hidden |= key > row
    if options.left >= 0:
        hidden |= key < row - options.left
    if options.right >= 0:
        hidden |= key > row + options.right
    return scores.masked_fill(hidden, -math.inf)
