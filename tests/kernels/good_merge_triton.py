"""A correct merge as a Triton kernel: one program per token and head."""

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
    BLOCK: tl.constexpr,
    WITH_LSE: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < D
    minus = float("-inf")
    lse_p = tl.load(p_lse + head * tokens + token)
    lse_s = tl.load(s_lse + head * tokens + token)
    lse_p = tl.where((lse_p == float("inf")) | (token >= kept), minus, lse_p)
    lse_s = tl.where(lse_s == float("inf"), minus, lse_s)
    top = tl.maximum(lse_p, lse_s)
    top = tl.where(top == minus, 0.0, top)
    mass_p = tl.exp(lse_p - top)
    mass_s = tl.exp(lse_s - top)
    total = mass_p + mass_s
    divisor = tl.where(total == 0.0, 1.0, total)
    width_p = tl.where(mass_p > 0.0, D, 0)
    width_s = tl.where(mass_s > 0.0, D, 0)
    p = tl.load(p_out + token * p_t + head * p_h + column, mask=column < width_p, other=0.0)
    s = tl.load(s_out + token * s_t + head * s_h + column, mask=column < width_s, other=0.0)
    merged = p.to(tl.float32) * (mass_p / divisor) + s.to(tl.float32) * (mass_s / divisor)
    tl.store(out + token * out_t + head * out_h + column, merged, mask=inside)
    if WITH_LSE:
        lse = tl.where(total == 0.0, minus, tl.log(divisor) + top)
        tl.store(out_lse + head * tokens + token, lse)


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
    _merge[(tokens, heads)](
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
        BLOCK=triton.next_power_of_2(d),
        WITH_LSE=output_lse is not None,
    )
