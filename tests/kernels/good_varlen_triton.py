"""A correct variable-length flash attention as a Triton kernel, for float16 and float32 on any Triton.

One program per request, block of query rows and query head. Head dims are padded to a power of two.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _attend(
    q,
    k,
    v,
    out,
    lse,
    starts_q,
    starts_k,
    table,
    slopes,
    sinks,
    scale,
    softcap,
    left,
    right,
    total_q,
    q_t,
    q_h,
    k_p,
    k_t,
    k_h,
    v_p,
    v_t,
    v_h,
    table_b,
    slopes_b,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    HEADS: tl.constexpr,
    PAGE: tl.constexpr,
    CAPPED: tl.constexpr,
    BIASED: tl.constexpr,
    SUNK: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDTH_V: tl.constexpr,
):
    block = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    request = tl.program_id(2)
    q0 = tl.load(starts_q + request)
    sq = tl.load(starts_q + request + 1) - q0
    k0 = tl.load(starts_k + request)
    sk = tl.load(starts_k + request + 1) - k0
    row = block * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    column_v = tl.arange(0, WIDTH_V)
    real = row < sq
    minus = float("-inf")
    kv_head = head // GROUP
    at = (q0 + row).to(tl.int64)
    q_at = q + at[:, None] * q_t + head * q_h + column[None, :]
    rows = tl.load(q_at, mask=real[:, None] & (column < D)[None, :], other=0.0)
    diagonal = row + (sk - sq)
    best = tl.full([ROWS], minus, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    if SUNK:
        best = tl.full([ROWS], 0.0, tl.float32) + tl.load(sinks + head).to(tl.float32)
        total = total + 1.0
    acc = tl.zeros([ROWS, WIDTH_V], tl.float32)
    for start in range(0, sk, KEYS):
        key = start + tl.arange(0, KEYS)
        there = key < sk
        if PAGE > 0:
            number = tl.load(table + request * table_b + key // PAGE, mask=there, other=0)
            page = number.to(tl.int64)
            inside = key % PAGE
        else:
            page = tl.zeros([KEYS], tl.int64)
            inside = k0 + key
        k_at = k + page * k_p + inside * k_t + kv_head * k_h
        v_at = v + page * v_p + inside * v_t + kv_head * v_h
        kt = tl.load(
            k_at[None, :] + column[:, None], mask=(column < D)[:, None] & there[None, :], other=0.0
        )
        vt = tl.load(
            v_at[:, None] + column_v[None, :],
            mask=there[:, None] & (column_v < DV)[None, :],
            other=0.0,
        )
        s = tl.dot(rows, kt, input_precision="ieee").to(tl.float32) * scale
        if CAPPED:
            s = softcap * (2.0 * tl.sigmoid(2.0 * s / softcap) - 1.0)
        away = key[None, :] - diagonal[:, None]
        if BIASED:
            slope = tl.load(slopes + request * slopes_b + head)
            s = s - slope * tl.abs(away).to(tl.float32)
        seen = there[None, :] & (away <= right) & (away >= 0 - left)
        s = tl.where(seen, s, minus)
        peak = tl.maximum(best, tl.max(s, 1))
        safe = tl.where(peak == minus, 0.0, peak)
        p = tl.exp(s - safe[:, None])
        shrink = tl.exp(best - safe)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]
        acc += tl.dot(p.to(vt.dtype), vt, input_precision="ieee").to(tl.float32)
        best = peak
    divisor = tl.where(total == 0.0, 1.0, total)
    out_at = out + (at[:, None] * HEADS + head) * DV + column_v[None, :]
    result = (acc / divisor[:, None]).to(out.dtype.element_ty)
    tl.store(out_at, result, mask=real[:, None] & (column_v < DV)[None, :])
    row_lse = tl.where(total == 0.0, minus, tl.log(divisor) + best)
    tl.store(lse + head * total_q + at, row_lse, mask=real)


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
    dv = v.shape[-1]
    out = torch.empty(total_q, heads, dv, dtype=q.dtype, device=q.device)
    lse = torch.empty(heads, total_q, dtype=torch.float32, device=q.device)
    unlimited = 1 << 30
    left, right = (unlimited if side < 0 else side for side in window_size)
    paged = block_table is not None
    rows = 16 if max_seqlen_q <= 16 else 64
    _attend[(triton.cdiv(max_seqlen_q, rows), heads, len(cu_seqlens_q) - 1)](
        q,
        k,
        v,
        out,
        lse,
        cu_seqlens_q,
        cu_seqlens_k,
        block_table if paged else cu_seqlens_k,
        alibi_slopes if alibi_slopes is not None else lse,
        s_aux if s_aux is not None else lse,
        d**-0.5 if softmax_scale is None else softmax_scale,
        softcap,
        left,
        0 if causal else right,
        total_q,
        *q.stride()[:2],
        *(k.stride()[:3] if paged else (0, *k.stride()[:2])),
        *(v.stride()[:3] if paged else (0, *v.stride()[:2])),
        block_table.stride(0) if paged else 0,
        alibi_slopes.stride(0) if alibi_slopes is not None and alibi_slopes.dim() == 2 else 0,
        GROUP=heads // k.shape[-2],
        D=d,
        DV=dv,
        HEADS=heads,
        PAGE=k.shape[1] if paged else 0,
        CAPPED=softcap > 0,
        BIASED=alibi_slopes is not None,
        SUNK=s_aux is not None,
        ROWS=rows,
        KEYS=64,
        WIDTH=max(16, triton.next_power_of_2(d)),
        WIDTH_V=max(16, triton.next_power_of_2(dv)),
    )
    return (out, lse, None) if return_attn_probs else out
