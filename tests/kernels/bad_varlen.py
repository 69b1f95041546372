"""Wrong variable-length attentions, by class: A empty sets, B LSE, C sinks, D window and causal, E soft
cap, scale and bias, F paging, G strides and head geometry, L poison, P precision.
"""

from mutants import Mutant

SUITE, BASE = "flash_attn_varlen", "good_varlen_torch"


def _mutant(name: str, kind: str, old: str, new: str, **options: object) -> Mutant:
    return Mutant(f"varlen-{name}", kind, SUITE, BASE, old, new, dict(options))


_LSE = "lse[:, q0:q1] = merged_lse"
_CAUSAL = "right = 0 if causal else right"
_DIAGONAL = "diagonal = torch.arange(sq)[:, None] + (sk - sq)"
_LEFT = "hidden = hidden | ((left >= 0) & (position < diagonal - left))"
_RIGHT = "hidden = (right >= 0) & (position > diagonal + right)"
_SINK = "lse = torch.logaddexp(lse, sinks.float()[:, None].expand_as(lse))"
_CAP = "s = softcap * torch.tanh(s / softcap)"
_BIAS = "s = s - slopes[:, None, None] * (diagonal - position).abs()"
_SCALE = "scale = d**-0.5 if softmax_scale is None else softmax_scale"
_PARTS = "return [(start, min(start + SPLIT, sk)) for start in range(0, max(sk, 1), SPLIT)]"
_DOT = "s = (rows @ kt) * scale"
_HIDE = "s = s.masked_fill(hidden, NEVER)"
_SUM = "total = total * shrink + p.sum(-1, keepdim=True)"
_RETURN = "return acc / divisor, (best + torch.log(total)).squeeze(-1)"

EMPTY = [
    _mutant(
        "no-keys-is-nan",
        "A",
        "divisor = total.masked_fill(total == 0, 1.0)",
        "divisor = total",
    ),
    _mutant(
        "no-keys-lse-is-zero",
        "A",
        "    return merged, lse",
        "    return merged, lse.masked_fill(lse == NEVER, 0.0)",
    ),
    _mutant(
        "no-keys-lse-is-finite-minimum",
        "A",
        "    return merged, lse",
        "    return merged, lse.clamp(min=-1e30)",
    ),
    _mutant(
        "no-keys-lse-of-other-sign",
        "A",
        "    return merged, lse",
        "    return merged, lse.masked_fill(lse == NEVER, float('inf'))",
        lse={"empty": "-inf"},
    ),
    _mutant(
        "request-without-keys-unwritten",
        "A",
        "if q1 == q0:",
        "if q1 == q0 or k1 == k0:",
    ),
    _mutant(
        "zero-length-read-as-one-key",
        "A",
        "k0, k1 = int(cu_seqlens_k[i]), int(cu_seqlens_k[i + 1])",
        "k0, k1 = int(cu_seqlens_k[i]), max(int(cu_seqlens_k[i + 1]), int(cu_seqlens_k[i]) + 1)",
    ),
    _mutant(
        "hidden-tile-is-nan",
        "A",
        "safe = peak.masked_fill(peak == NEVER, 0.0)",
        "safe = peak",
    ),
    _mutant(
        "masked-row-averages-values",
        "A",
        "s = s.masked_fill(hidden, NEVER)",
        "s = s.masked_fill(hidden, -1e30)",
    ),
    _mutant(
        "empty-split-counts",
        "A",
        "top = top.masked_fill(top == NEVER, 0.0)",
        "lses = lses.masked_fill(lses == NEVER, 0.0)",
    ),
]

LSE = [
    _mutant("lse-in-base-2", "B", _LSE, "lse[:, q0:q1] = merged_lse * 1.442695"),
    _mutant("lse-converted-twice", "B", _LSE, "lse[:, q0:q1] = merged_lse * 0.6931472"),
    _mutant(
        "lse-in-token-major-memory",
        "B",
        "return (out, lse, None)",
        "return (out, lse.t().reshape(lse.shape), None)",
    ),
    _mutant(
        "lse-returned-as-token-major", "B", "return (out, lse, None)", "return (out, lse.t(), None)"
    ),
    _mutant(
        "lse-of-decode-swapped",
        "B",
        _LSE,
        "lse[:, q0:q1] = merged_lse if q1 - q0 > 1 else"
        " merged_lse.view(k.shape[-2], -1).t().reshape(heads, 1)",
    ),
    _mutant("lse-is-the-maximum", "B", _RETURN, "return acc / divisor, best.squeeze(-1)"),
    _mutant(
        "lse-without-maximum", "B", _RETURN, "return acc / divisor, torch.log(total).squeeze(-1)"
    ),
    _mutant(
        "lse-never-reaches-the-kernel",
        "B",
        "return (out, lse, None)",
        "return (out, torch.zeros(heads, total_q), None)",
    ),
    _mutant("lse-of-kv-head", "B", _LSE, "lse[:, q0:q1] = merged_lse[:1]"),
    _mutant("lse-unscaled", "B", _LSE, "lse[:, q0:q1] = merged_lse / scale"),
    _mutant(
        "splits-weighed-in-base-2",
        "B",
        "weights = torch.exp(lses - lse.masked_fill(lse == NEVER, 0.0))",
        "weights = torch.softmax(lses * 0.6931472, 0).nan_to_num() "
        "* torch.exp(lses.logsumexp(0) - lse.masked_fill(lse == NEVER, 0.0))",
    ),
    _mutant(
        "lse-of-last-split",
        "B",
        "    return merged, lse",
        "    return merged, lses[-1]",
    ),
    _mutant(
        "splits-averaged",
        "B",
        "weights = torch.exp(lses - lse.masked_fill(lse == NEVER, 0.0))",
        "weights = torch.exp(lses - lse.masked_fill(lse == NEVER, 0.0)) if len(lses) == 1 else"
        " (lses > NEVER).float() / (lses > NEVER).sum(0).clamp(min=1)",
    ),
]

_NO_SINK_IN_LSE = "return merged, lse if sinks is None else lses.logsumexp(0)"

SINKS = [
    _mutant("sinks-ignored", "C", "if sinks is not None:", "if False:"),
    _mutant(
        "sinks-once-per-split",
        "C",
        _SINK,
        "lse = torch.logaddexp(lse, (sinks.float() + torch.tensor(float(len(parts))).log())"
        "[:, None].expand_as(lse))",
    ),
    _mutant("sinks-not-in-lse", "C", "    return merged, lse", f"    {_NO_SINK_IN_LSE}"),
    _mutant("sinks-scaled", "C", _SINK, _SINK.replace("sinks.float()", "(sinks.float() * 0.125)")),
    _mutant(
        "sinks-taken-as-base-2",
        "C",
        _SINK,
        _SINK.replace("sinks.float()", "(sinks.float() * 0.6931472)"),
    ),
    _mutant(
        "sink-of-first-head-for-all",
        "C",
        _SINK,
        _SINK.replace("sinks.float()[:, None]", "sinks.float()[:1, None]"),
    ),
    _mutant(
        "sink-of-kv-head",
        "C",
        _SINK,
        _SINK.replace("sinks.float()", "sinks.float()[torch.arange(len(sinks)) // 2]"),
    ),
    _mutant(
        "sink-without-exponential",
        "C",
        _SINK,
        "lse = torch.log(torch.exp(lse) + sinks.float().abs()[:, None])",
    ),
    _mutant(
        "sinks-only-in-prefill",
        "C",
        "merged, merged_lse = combine(parts, s_aux)",
        "merged, merged_lse = combine(parts, s_aux if q1 - q0 > 1 else None)",
    ),
]

MASKS = [
    _mutant("window-one-wider", "D", _LEFT, _LEFT.replace("- left)", "- left - 1)")),
    _mutant("window-one-narrower", "D", _LEFT, _LEFT.replace("- left)", "- left + 1)")),
    _mutant(
        "window-right-one-wider", "D", _RIGHT, _RIGHT.replace("+ right)", "+ right + (right > 0))")
    ),
    _mutant(
        "window-ignored-in-decode",
        "D",
        _LEFT,
        _LEFT.replace("(left >= 0)", "(left >= 0 and sq > 1)"),
    ),
    _mutant(
        "window-of-whole-tiles",
        "D",
        _LEFT,
        _LEFT.replace("(position <", "(position - position % TILE + TILE - 1 <"),
    ),
    _mutant(
        "window-ignores-offset",
        "D",
        _LEFT,
        _LEFT.replace("diagonal - left", "diagonal - (sk - sq) - left"),
    ),
    _mutant("window-right-ignored", "D", _CAUSAL, "right = 0 if causal else -1"),
    _mutant(
        "window-left-makes-causal",
        "D",
        _CAUSAL,
        "right = 0 if causal or (left >= 0 and right < 0) else right",
    ),
    _mutant(
        "window-dropped-one-early",
        "D",
        "left = -1 if left >= max_seqlen_k else left",
        "left = -1 if left >= max_seqlen_k - 3 else left",
    ),
    _mutant(
        "window-dropped-by-row-count",
        "D",
        "left = -1 if left >= max_seqlen_k else left",
        "left = -1 if left >= max_seqlen_q else left",
    ),
    _mutant("causal-at-top-left", "D", _DIAGONAL, "diagonal = torch.arange(sq)[:, None]"),
    _mutant(
        "causal-hides-diagonal",
        "D",
        _RIGHT,
        _RIGHT.replace("diagonal + right", "diagonal + right - int(right == 0)"),
    ),
    _mutant(
        "causal-ignored-for-drafts",
        "D",
        _RIGHT,
        _RIGHT.replace("(right >= 0)", "(right >= 0 and not 1 < sq <= 4)"),
    ),
    _mutant("causal-one-too-many", "D", _CAUSAL, "right = 1 if causal else right"),
    _mutant(
        "last-key-dropped",
        "D",
        "return [(0, sk)]",
        "return [(0, max(sk - 1, 0))] if sk > 1 else [(0, sk)]",
    ),
    _mutant(
        "first-key-dropped-when-long",
        "D",
        "return [(0, sk)]",
        "return [(1, sk)] if sk > 64 else [(0, sk)]",
    ),
    _mutant(
        "last-tile-dropped",
        "D",
        "for start in range(first, last, TILE):",
        "for start in range(first, last - (last % TILE == 1), TILE):",
    ),
]

SCORES = [
    _mutant("softcap-ignored", "E", "if softcap > 0:", "if False:"),
    _mutant(
        "softcap-before-scale",
        "E",
        _CAP,
        "s = softcap * torch.tanh(s / scale / softcap) * scale",
    ),
    _mutant(
        "softcap-overflows",
        "E",
        _CAP,
        "s = softcap * (torch.exp(s / softcap) - torch.exp(-s / softcap))"
        " / (torch.exp(s / softcap) + torch.exp(-s / softcap))",
    ),
    _mutant("softcap-twice", "E", _CAP, "s = softcap * torch.tanh(torch.tanh(s / softcap))"),
    _mutant("softcap-clamps", "E", _CAP, "s = s.clamp(-softcap, softcap)"),
    _mutant("softcap-ignored-in-decode", "E", "if softcap > 0:", "if softcap > 0 and sq > 1:"),
    _mutant("scale-ignored", "E", _SCALE, "scale = d**-0.5"),
    _mutant("scale-one-percent", "E", _SCALE, f"{_SCALE}\n    scale = scale * 1.01"),
    _mutant(
        "scale-of-padded-dim",
        "E",
        _SCALE,
        "scale = (1 << (d - 1).bit_length()) ** -0.5 if softmax_scale is None else softmax_scale",
    ),
    _mutant("scale-twice", "E", _DOT, "s = (rows @ kt) * scale * (scale if scale > 0.2 else 1.0)"),
    _mutant(
        "scale-of-decode-is-default",
        "E",
        _DOT,
        "s = (rows @ kt) * (scale if sq > 1 else rows.shape[-1] ** -0.5)",
    ),
    _mutant("alibi-sign", "E", _BIAS, _BIAS.replace("s - ", "s + ")),
    _mutant("alibi-ignored", "E", "if slopes is not None:", "if False:"),
    _mutant(
        "alibi-without-offset",
        "E",
        _BIAS,
        _BIAS.replace("diagonal - position", "diagonal - (sk - sq) - position"),
    ),
    _mutant("alibi-scaled", "E", _BIAS, _BIAS.replace("s - ", "s - scale * ")),
    _mutant(
        "alibi-of-first-request", "E", "slopes = alibi_slopes[i] if", "slopes = alibi_slopes[0] if"
    ),
    _mutant(
        "alibi-not-absolute",
        "E",
        _BIAS,
        _BIAS.replace("(diagonal - position).abs()", "(diagonal - position)"),
    ),
    _mutant("alibi-without-log2e", "E", _BIAS, _BIAS.replace("slopes[", "0.6931472 * slopes[")),
    _mutant(
        "split-of-one-key-dropped", "E", _PARTS, _PARTS.replace("max(sk, 1)", "max(sk - 1, 1)")
    ),
]

MEMORY = [
    _mutant(
        "page-table-taken-as-identity",
        "F",
        "block = table[token // page].long()",
        "block = token // page",
    ),
    _mutant(
        "page-zero-for-all",
        "F",
        "block = table[token // page].long()",
        "block = table[token * 0].long()",
    ),
    _mutant(
        "page-seam-off-by-one",
        "F",
        "block = table[token // page].long()",
        "block = table[(token + 1) // page].long()",
    ),
    _mutant(
        "page-offset-ignored",
        "F",
        "return pool[block, token % page]",
        "return pool[block, (token % page).clamp(max=page - 2)]",
    ),
    _mutant(
        "values-from-key-pages-of-first",
        "F",
        "from_pages(v, block_table[i], k1 - k0)",
        "from_pages(v, block_table[0], k1 - k0)",
    ),
    _mutant(
        "strides-taken-as-contiguous",
        "G",
        "total_q, heads, d = q.shape",
        "total_q, heads, d = q.shape\n    q = torch.as_strided(q, q.shape, (heads * d, d, 1))",
    ),
    _mutant(
        "value-strides-of-key",
        "G",
        "total_q, heads, d = q.shape",
        "total_q, heads, d = q.shape\n    v = torch.as_strided(v, v.shape, (v.shape[1] * v.shape[2], v.shape[2], 1)) if v.dim() == 3 else v",
    ),
    _mutant("first-64-dims-only", "G", _DOT, "s = (rows[..., :64] @ kt[:, :64]) * scale"),
    _mutant(
        "heads-interleaved",
        "G",
        "kt = keys[position].repeat_interleave(group, 1)",
        "kt = keys[position].repeat(1, group, 1)",
    ),
    _mutant(
        "group-rounded-to-power-of-2",
        "G",
        "group = heads // kv_heads",
        "group = 1 << (heads // kv_heads - 1).bit_length()",
    ),
    _mutant(
        "pad-keys-score-zero",
        "L",
        _SUM,
        f"{_SUM} + (TILE - len(position)) * torch.exp(-safe)",
    ),
    _mutant(
        "one-pad-key-scores-zero",
        "L",
        _SUM,
        f"{_SUM} + (len(position) < TILE) * torch.exp(-safe)",
    ),
    _mutant(
        "tail-of-page-read",
        "L",
        "keys = k[k0:k1] if block_table is None else from_pages(k, block_table[i], k1 - k0)",
        "keys = k[k0:k1] if block_table is None else from_pages(k, block_table[i], k1 - k0)\n"
        "        rows = rows if block_table is None or k1 == k0 else rows + 0 * k[int(block_table[i][0]), -1].float().mean()",
    ),
    _mutant(
        "accumulates-in-half",
        "P",
        "acc = acc * shrink + p.to(vt.dtype).float() @ vt.float()",
        "acc = (acc * shrink + p.to(vt.dtype).float() @ vt.float()).bfloat16().float()",
    ),
    _mutant("scores-in-half", "P", _DOT, "s = (rows @ kt).bfloat16().float() * scale"),
    _mutant(
        "maximum-starts-at-zero",
        "L",
        "best = torch.full((heads, sq, 1), NEVER)",
        "best = torch.full((heads, sq, 1), 0.0)",
    ),
]

MUTANTS = [*EMPTY, *LSE, *SINKS, *MASKS, *SCORES, *MEMORY]
