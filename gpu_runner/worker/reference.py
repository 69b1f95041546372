"""What attention is, in float64 and from the definition, and what a sound float32 kernel makes of it.

Two kinds of functions live here and must not be mixed up. `attend` and `merge` are the references:
float64 on the stored inputs, no tiles, no online softmax, nothing shared with a kernel. `emulate`
and `emulate_merge` are the yardsticks of the aggregate rule: float32 with the roundings that a
correct kernel cannot avoid, so that their error says how much error is honest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

INF = math.inf


@dataclass(frozen=True)
class Rules:
    """Everything but the tensors that decides what a row attends to, and how.

    Attributes:
        scale: Factor on the dot product of a query and a key.
        causal: Bottom-right alignment: row i of Sq sees keys up to i + Sk - Sq.
        window: Keys to the left and right of the diagonal that stay visible; -1 for no limit.
        softcap: Scores become softcap * tanh(score / softcap); 0 switches it off.
        alibi: float64 [B, Hq] slopes, bias -slope * |i + Sk - Sq - j|; None without.
        sinks: float64 [Hq] logits that join the denominator (and the LSE) of every row; None without.
        top_left: Align the diagonal at the top left instead. No convention asks for it; it is here to
            recognise a kernel that does it.
    """

    scale: float
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    alibi: Tensor | None = None
    sinks: Tensor | None = None
    top_left: bool = False


@dataclass(frozen=True)
class Request:
    """One request: q [Sq, Hq, D], k [Sk, Hk, D], v [Sk, Hk, Dv], exactly the stored values."""

    q: Tensor
    k: Tensor
    v: Tensor


@dataclass(frozen=True)
class Attention:
    """Float64 results over the rows of all requests, with the sums that bound a kernel's error.

    Attributes:
        out: [T, Hq, Dv]; 0 in rows without a key.
        lse: [T, Hq], natural logarithm; -inf in rows without a key (and without a sink).
        a1: [T, Hq, Dv], sum over keys of p |v|: the worst case of relative errors in p.
        a2: [T, Hq, Dv], root of the sum of (p v)^2: independent relative errors in p.
        v2: [T, Hq, Dv], root of the sum of v^2 over the visible keys: absolute errors in p.
        smax: [T, Hq], the largest score magnitude a kernel has to sum up on the way.
        capped: [T, Hq], largest magnitude of a soft-capped score (0 without a soft cap).
        empty: bool [T, Hq], rows without a visible key.
    """

    out: Tensor
    lse: Tensor
    a1: Tensor
    a2: Tensor
    v2: Tensor
    smax: Tensor
    capped: Tensor
    empty: Tensor


def visible(sq: int, sk: int, rules: Rules) -> Tensor:
    """Which keys each row sees: bool [Sq, Sk], aligned at the bottom right corner."""
    key, diagonal = torch.arange(sk).unsqueeze(0), _diagonal(sq, sk, rules)
    mask = torch.ones(sq, sk, dtype=torch.bool)
    left, right = rules.window
    if rules.causal:
        mask &= key <= diagonal
    if left >= 0:
        mask &= key >= diagonal - left
    if right >= 0:
        mask &= key <= diagonal + right
    return mask


def _diagonal(sq: int, sk: int, rules: Rules) -> Tensor:
    return torch.arange(sq).unsqueeze(1) + (0 if rules.top_left else sk - sq)


def _bias(sq: int, sk: int, rules: Rules, slopes: Tensor) -> Tensor:
    distance = (_diagonal(sq, sk, rules) - torch.arange(sk).unsqueeze(0)).abs()
    return -slopes.view(-1, 1, 1) * distance.unsqueeze(0)


@dataclass(frozen=True)
class Scores:
    """Scores [Hq, Sq, Sk] (hidden ones -inf), and the magnitudes [Hq, Sq] that bound their error."""

    values: Tensor
    smax: Tensor
    capped: Tensor
    mask: Tensor


def scores(request: Request, rules: Rules, index: int) -> Scores:
    """Scores of one request in the dtype of its tensors: scale, then soft cap, then bias, then mask."""
    sq, hq, _ = request.q.shape
    sk = request.k.shape[0]
    k = heads_first(request.k, hq)
    q = request.q.transpose(0, 1)
    values = (q @ k.transpose(1, 2)) * rules.scale
    mask = visible(sq, sk, rules).expand(hq, sq, sk)
    nothing = torch.zeros(hq, sq, dtype=values.dtype)
    if sk == 0:
        return Scores(values, nothing, nothing, mask)
    magnitude = ((q.abs() @ k.abs().transpose(1, 2)) * abs(rules.scale)).masked_fill(~mask, 0.0)
    smax, capped = magnitude.amax(-1), nothing
    if rules.softcap > 0:
        values = rules.softcap * torch.tanh(values / rules.softcap)
        capped = values.abs().masked_fill(~mask, 0.0).amax(-1)
    if rules.alibi is not None:
        bias = _bias(sq, sk, rules, rules.alibi[index].to(values.dtype))
        values = values + bias
        smax = smax + bias.abs().masked_fill(~mask, 0.0).amax(-1)
    return Scores(values.masked_fill(~mask, -INF), smax, capped, mask)


def heads_first(kv: Tensor, hq: int) -> Tensor:
    """[Sk, Hk, D] as [Hq, Sk, D]: query head h reads KV head h // (Hq / Hk)."""
    return kv.repeat_interleave(hq // kv.shape[1], dim=1).transpose(0, 1)


def _with_sink(values: Tensor, rules: Rules) -> Tensor:
    if rules.sinks is None:
        return values
    sink = rules.sinks.to(values.dtype).view(-1, 1, 1).expand(-1, values.shape[1], 1)
    return torch.cat([values, sink], dim=-1)


def attend_one(request: Request, rules: Rules, index: int = 0) -> Attention:
    """Reference of one request. Computes in float64 whatever the inputs' dtype is."""
    request = Request(request.q.double(), request.k.double(), request.v.double())
    found = scores(request, rules, index)
    hq, sk = found.values.shape[0], request.k.shape[0]
    logits = _with_sink(found.values, rules)
    lse = torch.logsumexp(logits, -1) if logits.shape[-1] else torch.full_like(found.smax, -INF)
    p = torch.exp(found.values - lse.unsqueeze(-1)).masked_fill(~found.mask, 0.0)
    v = heads_first(request.v, hq)
    smax = found.smax
    if rules.sinks is not None:
        finite = torch.nan_to_num(rules.sinks.double(), posinf=0.0, neginf=0.0).abs()
        smax = torch.maximum(smax, finite.view(-1, 1).expand_as(smax))
    empty = ~found.mask.any(-1) if sk else torch.ones_like(smax, dtype=torch.bool)
    return Attention(
        out=_rows(p @ v),
        lse=lse.transpose(0, 1),
        a1=_rows(p @ v.abs()),
        a2=_rows((p.square() @ v.square()).sqrt()),
        v2=_rows((found.mask.double() @ v.square()).sqrt()),
        smax=smax.transpose(0, 1),
        capped=found.capped.transpose(0, 1),
        empty=empty.transpose(0, 1),
    )


def _rows(tensor: Tensor) -> Tensor:
    return tensor.transpose(0, 1)


def attend(requests: Sequence[Request], rules: Rules) -> Attention:
    """Reference of a batch: the rows of all requests one after the other."""
    parts = [attend_one(request, rules, index) for index, request in enumerate(requests)]
    names = Attention.__dataclass_fields__
    return Attention(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})


def emulate(
    requests: Sequence[Request],
    rules: Rules,
    p_dtype: torch.dtype,
    out_dtype: torch.dtype,
    *,
    normalised: bool,
    tile: int = 64,
) -> Tensor:
    """What a sound kernel returns: float32 sums, P rounded to `p_dtype`, the result to `out_dtype`.

    Args:
        requests: The stored inputs, any dtype.
        rules: The problem.
        p_dtype: Type in which P enters the product with V.
        out_dtype: Type of the stored result.
        normalised: Round P after division by the sum (True), or tile by tile before it (False).
        tile: Keys of one tile of the online softmax; unused when `normalised`.

    Returns:
        float64 [T, Hq, Dv].
    """
    one = _emulate_normalised if normalised else _emulate_tiled
    parts = []
    for index, request in enumerate(requests):
        single = Request(request.q.float(), request.k.float(), request.v.float())
        values = scores(single, rules, index).values
        v = heads_first(single.v, single.q.shape[1])
        parts.append(_rows(one(values, v, rules, p_dtype, tile)))
    return torch.cat(parts).to(out_dtype).double()


def _emulate_normalised(
    values: Tensor, v: Tensor, rules: Rules, p_dtype: torch.dtype, tile: int
) -> Tensor:
    del tile
    logits = _with_sink(values, rules)
    if logits.shape[-1] == 0:
        return torch.zeros(*values.shape[:2], v.shape[-1])
    p = torch.nan_to_num(torch.softmax(logits, -1))[..., : values.shape[-1]]
    return p.to(p_dtype).float() @ v


def _emulate_tiled(
    values: Tensor, v: Tensor, rules: Rules, p_dtype: torch.dtype, tile: int
) -> Tensor:
    hq, sq, sk = values.shape
    best = torch.full((hq, sq, 1), -INF)
    total = torch.zeros(hq, sq, 1)
    if rules.sinks is not None:
        best = rules.sinks.float().view(-1, 1, 1).expand(hq, sq, 1)
        total = (best > -INF).float()
    out = torch.zeros(hq, sq, v.shape[-1])
    for start in range(0, sk, tile):
        part = values[..., start : start + tile]
        peak = torch.maximum(best, part.amax(-1, keepdim=True))
        safe = peak.masked_fill(peak == -INF, 0.0)
        p, shrink = torch.exp(part - safe), torch.exp(best - safe)
        total = total * shrink + p.sum(-1, keepdim=True)
        out = out * shrink + p.to(p_dtype).float() @ v[:, start : start + tile]
        best = peak
    return out / total.masked_fill(total == 0, 1.0)


@dataclass(frozen=True)
class Merged:
    """Float64 merge of two partial states, [T, H, D] and [T, H].

    Attributes:
        out: Weighted mean; 0 where both sides are empty.
        lse: Natural logarithm; -inf where both sides are empty.
        a1: Weighted mean of the magnitudes.
        swing: How far `out` moves per unit of error in the difference of the two LSE.
        smax: Largest finite LSE magnitude of the two.
        empty: bool, both sides empty.
    """

    out: Tensor
    lse: Tensor
    a1: Tensor
    swing: Tensor
    smax: Tensor
    empty: Tensor


def merge(a_out: Tensor, a_lse: Tensor, b_out: Tensor, b_lse: Tensor) -> Merged:
    """Reference merge: outputs [T, H, D], LSE [T, H], natural; either infinity means "no key".

    The output of an empty side is never read, so whatever lies there cannot matter.
    """
    lses = [lse.double().masked_fill(torch.isinf(lse), -INF) for lse in (a_lse, b_lse)]
    lse = torch.logaddexp(lses[0], lses[1])
    empty = torch.isinf(lse)
    weights = [torch.exp(each - lse.masked_fill(empty, 0.0)).unsqueeze(-1) for each in lses]
    outs = [
        out.double().masked_fill(torch.isinf(each).unsqueeze(-1), 0.0)
        for out, each in zip((a_out, b_out), lses, strict=True)
    ]
    finite = [each.masked_fill(torch.isinf(each), 0.0) for each in lses]
    return Merged(
        out=weights[0] * outs[0] + weights[1] * outs[1],
        lse=lse,
        a1=weights[0] * outs[0].abs() + weights[1] * outs[1].abs(),
        swing=weights[0] * weights[1] * (outs[0].abs() + outs[1].abs()),
        smax=torch.maximum(finite[0].abs(), finite[1].abs()),
        empty=empty,
    )


def emulate_merge(a_out: Tensor, a_lse: Tensor, b_out: Tensor, b_lse: Tensor) -> Tensor:
    """What a sound merge returns: float32 weights and sums, the result in the inputs' dtype."""
    lses = [lse.float().masked_fill(torch.isinf(lse), -INF) for lse in (a_lse, b_lse)]
    peak = torch.maximum(lses[0], lses[1])
    peak = peak.masked_fill(torch.isinf(peak), 0.0)
    weights = [torch.exp(each - peak) for each in lses]
    total = weights[0] + weights[1]
    total = total.masked_fill(total == 0, 1.0)
    out = torch.zeros(a_out.shape)
    for weight, each, lse in zip(weights, (a_out, b_out), lses, strict=True):
        held = each.float().masked_fill(torch.isinf(lse).unsqueeze(-1), 0.0)
        out = out + (weight / total).unsqueeze(-1) * held
    return out.to(a_out.dtype).double()
