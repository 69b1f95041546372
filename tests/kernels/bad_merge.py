"""Wrong merges of attention states: classes A (empty sets) and B (LSE); C to E do not apply here."""

from mutants import Mutant

SUITE, BASE = "merge_attn_states", "good_merge_torch"


def _mutant(name: str, kind: str, old: str, new: str) -> Mutant:
    return Mutant(f"merge-{name}", kind, SUITE, BASE, old, new)


MUTANTS = [
    _mutant(
        "both-empty-is-nan",
        "A",
        'safe = top.masked_fill(top == float("-inf"), 0.0)',
        "safe = top",
    ),
    _mutant(
        "prefix-plus-inf-kept",
        "A",
        'lse_p = lse_p.masked_fill(lse_p == float("inf"), float("-inf"))',
        "pass",
    ),
    _mutant(
        "suffix-plus-inf-kept",
        "A",
        'lse_s = lse_s.masked_fill(lse_s == float("inf"), float("-inf"))',
        "pass",
    ),
    _mutant(
        "plus-inf-to-zero",
        "A",
        'lse_s = lse_s.masked_fill(lse_s == float("inf"), float("-inf"))',
        'lse_s = lse_s.masked_fill(lse_s == float("inf"), 0.0)',
    ),
    _mutant(
        "both-empty-divides-by-zero",
        "A",
        "divisor = total.masked_fill(total == 0, 1.0)",
        "divisor = total",
    ),
    _mutant(
        "empty-prefix-times-zero",
        "A",
        '.masked_fill((lse_p == float("-inf")).t().unsqueeze(-1), 0.0)\n    held_s',
        "\n    held_s",
    ),
    _mutant(
        "empty-suffix-times-zero",
        "A",
        '.masked_fill((lse_s == float("-inf")).t().unsqueeze(-1), 0.0)\n    merged',
        "\n    merged",
    ),
    _mutant(
        "both-empty-keeps-prefix",
        "A",
        "output.copy_(merged)",
        "output.copy_(torch.where((total == 0).t()[..., None], prefix_output.float(), merged))",
    ),
    _mutant(
        "empty-lse-is-zero",
        "A",
        "merged_lse = torch.log(total) + safe",
        "merged_lse = torch.log(total.clamp(min=1e-30)) * (total > 0) + safe",
    ),
    _mutant(
        "empty-lse-is-plus-inf",
        "A",
        "output_lse.copy_(merged_lse)",
        'output_lse.copy_(merged_lse.masked_fill(total == 0, float("inf")))',
    ),
    _mutant(
        "nan-to-num-as-cure",
        "A",
        "output.copy_(merged)",
        "output.copy_(torch.nan_to_num(merged + 0.0 * prefix_output.float()))",
    ),
    _mutant(
        "no-key-rows-skipped",
        "A",
        "output.copy_(merged)",
        "output[(total > 0).t()] = merged[(total > 0).t()].to(output.dtype)",
    ),
    _mutant(
        "weights-in-base-2",
        "B",
        "mass_p = torch.exp(lse_p - safe)\n    mass_s = torch.exp(lse_s - safe)",
        "mass_p = torch.exp2(lse_p - safe)\n    mass_s = torch.exp2(lse_s - safe)",
    ),
    _mutant(
        "rebased-once-too-often",
        "B",
        "lse_p, lse_s = prefix_lse.float(), suffix_lse.float()",
        "lse_p, lse_s = prefix_lse.float() * 1.442695, suffix_lse.float() * 1.442695",
    ),
    _mutant(
        "prefix-rebased-alone",
        "B",
        "lse_p, lse_s = prefix_lse.float(), suffix_lse.float()",
        "lse_p, lse_s = prefix_lse.float() * 0.6931472, suffix_lse.float()",
    ),
    _mutant(
        "lse-returned-in-base-2",
        "B",
        "output_lse.copy_(merged_lse)",
        "output_lse.copy_(merged_lse * 1.442695)",
    ),
    _mutant(
        "lse-is-the-larger-one",
        "B",
        "output_lse.copy_(merged_lse)",
        "output_lse.copy_(top)",
    ),
    _mutant(
        "lse-read-transposed",
        "B",
        "lse_p, lse_s = prefix_lse.float(), suffix_lse.float()",
        "lse_p, lse_s = (x.float().view(x.shape[::-1]).t() for x in (prefix_lse, suffix_lse))",
    ),
    _mutant(
        "lse-written-transposed",
        "B",
        "output_lse.copy_(merged_lse)",
        "output_lse.copy_(merged_lse.t().reshape(output_lse.shape))",
    ),
    _mutant(
        "lse-of-head-0",
        "B",
        "weight_p = (mass_p / divisor).t().unsqueeze(-1)",
        "weight_p = (mass_p / divisor)[:1].t().unsqueeze(-1)",
    ),
    _mutant(
        "no-maximum-subtracted",
        "B",
        "top = torch.maximum(lse_p, lse_s)",
        "top = torch.zeros_like(lse_p)",
    ),
    _mutant(
        "maximum-of-prefix-only",
        "B",
        "top = torch.maximum(lse_p, lse_s)",
        "top = lse_p",
    ),
    _mutant(
        "sides-swapped",
        "B",
        "merged = weight_p * held_p + weight_s * held_s",
        "merged = weight_s * held_p + weight_p * held_s",
    ),
    _mutant(
        "weights-averaged",
        "B",
        "weight_p = (mass_p / divisor).t().unsqueeze(-1)",
        "weight_p = (0.98 * mass_p / divisor + 0.01 * (mass_p > 0)).t().unsqueeze(-1)",
    ),
    _mutant(
        "lse-in-half-precision",
        "P",
        "lse_p, lse_s = prefix_lse.float(), suffix_lse.float()",
        "lse_p, lse_s = prefix_lse.half().float(), suffix_lse.half().float()",
    ),
    _mutant(
        "context-bound-ignored",
        "B",
        "behind = torch.arange(tokens) >= prefill_tokens_with_context",
        "behind = torch.arange(tokens) >= tokens",
    ),
    _mutant(
        "context-bound-off-by-one",
        "B",
        "behind = torch.arange(tokens) >= prefill_tokens_with_context",
        "behind = torch.arange(tokens) > prefill_tokens_with_context",
    ),
]
