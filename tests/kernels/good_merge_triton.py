"""A correct merge as a Triton kernel: one program per head and block of tokens."""

import triton
import triton.language as tl


@triton.jit
def _merge(
    out,
    out_lse,
    p_out,
    p_lse,
    s_out,
    s_lse,
    tokens,
    kept,
    out_t,
    out_h,
    p_t,
    p_h,
    s_t,
    s_h,
    D: tl.constexpr,
    TOKENS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WITH_LSE: tl.constexpr,
):
    head = tl.program_id(1).to(tl.int64)
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    column = tl.arange(0, COLUMNS)
    real = token < tokens
    minus = float("-inf")
    lse_p = tl.load(p_lse + head * tokens + token, mask=real & (token < kept), other=minus)
    lse_s = tl.load(s_lse + head * tokens + token, mask=real, other=minus)
    lse_p = tl.where(lse_p == float("inf"), minus, lse_p)
    lse_s = tl.where(lse_s == float("inf"), minus, lse_s)
    top = tl.maximum(lse_p, lse_s)
    top = tl.where(top == minus, 0.0, top)
    mass_p = tl.exp(lse_p - top)
    mass_s = tl.exp(lse_s - top)
    total = mass_p + mass_s
    divisor = tl.where(total == 0.0, 1.0, total)
    inside = real[:, None] & (column < D)[None, :]
    p_at = p_out + token[:, None] * p_t + head * p_h + column[None, :]
    s_at = s_out + token[:, None] * s_t + head * s_h + column[None, :]
    p = tl.load(p_at, mask=inside & (lse_p > minus)[:, None], other=0.0).to(tl.float32)
    s = tl.load(s_at, mask=inside & (lse_s > minus)[:, None], other=0.0).to(tl.float32)
    merged = p * (mass_p / divisor)[:, None] + s * (mass_s / divisor)[:, None]
    out_at = out + token[:, None] * out_t + head * out_h + column[None, :]
    tl.store(out_at, merged.to(out.dtype.element_ty), mask=inside)
    if WITH_LSE:
        lse = tl.where(total == 0.0, minus, tl.log(divisor) + top)
        tl.store(out_lse + head * tokens + token, lse, mask=real)


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
    """The interface of vLLM's operator; LSE float32 [H, T], natural, contiguous."""
    if output_scale is not None:
        raise NotImplementedError("quantised output is not supported")
    tokens, heads, d = output.shape
    kept = tokens if prefill_tokens_with_context is None else prefill_tokens_with_context
    block = 32
    _merge[(triton.cdiv(tokens, block), heads)](
        output,
        output_lse if output_lse is not None else prefix_lse,
        prefix_output,
        prefix_lse,
        suffix_output,
        suffix_lse,
        tokens,
        kept,
        *output.stride()[:2],
        *prefix_output.stride()[:2],
        *suffix_output.stride()[:2],
        D=d,
        TOKENS=block,
        COLUMNS=triton.next_power_of_2(d),
        WITH_LSE=output_lse is not None,
    )
