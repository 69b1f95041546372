"""A correct variable-length flash attention in torch: tiles, online softmax, split keys for decode.

The base of the mutants; each of its lines is there to be broken by one of them. Supports everything
that the suite knows: pages, windows, soft cap, ALiBi, sinks, grouped heads, differing head dims.
"""

import torch

TILE = 32
SPLIT = 64
NEVER = float("-inf")


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
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
    s_aux=None,
):
    """The interface of flash_attn's function, with sinks."""
    total_q, heads, d = q.shape
    out = torch.empty(total_q, heads, v.shape[-1], dtype=q.dtype)
    lse = torch.empty(heads, total_q)
    scale = d**-0.5 if softmax_scale is None else softmax_scale
    left, right = window_size
    right = 0 if causal else right
    left = -1 if left >= max_seqlen_k else left
    for i in range(len(cu_seqlens_q) - 1):
        q0, q1 = int(cu_seqlens_q[i]), int(cu_seqlens_q[i + 1])
        k0, k1 = int(cu_seqlens_k[i]), int(cu_seqlens_k[i + 1])
        if q1 == q0:
            continue
        rows = q[q0:q1].float().transpose(0, 1)
        keys = k[k0:k1] if block_table is None else from_pages(k, block_table[i], k1 - k0)
        values = v[k0:k1] if block_table is None else from_pages(v, block_table[i], k1 - k0)
        slopes = None
        if alibi_slopes is not None:
            slopes = alibi_slopes[i] if alibi_slopes.dim() == 2 else alibi_slopes
        rules = (scale, left, right, softcap, slopes)
        parts = [attend(rows, keys, values, part, rules) for part in parts_of(q1 - q0, k1 - k0)]
        merged, merged_lse = combine(parts, s_aux)
        out[q0:q1] = merged.transpose(0, 1)
        lse[:, q0:q1] = merged_lse
    return (out, lse, None) if return_attn_probs else out


def from_pages(pool, table, length):
    """The tokens [length, Hk, D] of one request."""
    page = pool.shape[1]
    token = torch.arange(length)
    block = table[token // page].long()
    return pool[block, token % page]


def parts_of(sq, sk):
    """Ranges of keys that are attended apart: several for few rows, else one."""
    if sq > 4:
        return [(0, sk)]
    return [(start, min(start + SPLIT, sk)) for start in range(0, max(sk, 1), SPLIT)]


def attend(rows, keys, values, part, rules):
    """Output [H, Sq, Dv] and LSE [H, Sq] of the rows over a range of keys."""
    scale, left, right, softcap, slopes = rules
    heads, sq, _ = rows.shape
    sk, kv_heads, _ = keys.shape
    group = heads // kv_heads
    diagonal = torch.arange(sq)[:, None] + (sk - sq)
    best = torch.full((heads, sq, 1), NEVER)
    total = torch.zeros(heads, sq, 1)
    acc = torch.zeros(heads, sq, values.shape[-1])
    first, last = part
    for start in range(first, last, TILE):
        position = torch.arange(start, min(start + TILE, last))
        kt = keys[position].repeat_interleave(group, 1).permute(1, 2, 0).float()
        vt = values[position].repeat_interleave(group, 1).transpose(0, 1)
        s = (rows @ kt) * scale
        if softcap > 0:
            s = softcap * torch.tanh(s / softcap)
        if slopes is not None:
            s = s - slopes[:, None, None] * (diagonal - position).abs()
        hidden = (right >= 0) & (position > diagonal + right)
        hidden = hidden | ((left >= 0) & (position < diagonal - left))
        s = s.masked_fill(hidden, NEVER)
        peak = torch.maximum(best, s.amax(-1, keepdim=True))
        safe = peak.masked_fill(peak == NEVER, 0.0)
        p = torch.exp(s - safe)
        shrink = torch.exp(best - safe)
        total = total * shrink + p.sum(-1, keepdim=True)
        acc = acc * shrink + p.to(vt.dtype).float() @ vt.float()
        best = peak
    divisor = total.masked_fill(total == 0, 1.0)
    return acc / divisor, (best + torch.log(total)).squeeze(-1)


def combine(parts, sinks):
    """One state from the states of all ranges; the sinks join once, here."""
    lses = torch.stack([lse for _, lse in parts])
    top = lses.amax(0)
    top = top.masked_fill(top == NEVER, 0.0)
    lse = top + torch.log(torch.exp(lses - top).sum(0))
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks.float()[:, None].expand_as(lse))
    weights = torch.exp(lses - lse.masked_fill(lse == NEVER, 0.0))
    merged = sum(w[..., None] * out for w, (out, _) in zip(weights, parts, strict=True))
    return merged, lse
