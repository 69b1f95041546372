"""How far a result is from the reference, and how far a sound kernel may be.

Four rules, stated once and used by every suite:

R1  every element lies within a bound derived from the roundings that a sound kernel cannot avoid;
R2  per head and block of rows, the root mean square error stays near that of our own float32 kernel;
R3  the LSE is compared in its own unit; rows without a key hold exactly the declared infinity;
R4  what must be exact is exact (rows without a key are 0, gaps of the memory have no influence).

A limit is data with its derivation beside it. Nothing here takes a percentage of elements that may
be wrong, and nothing compares against a low-precision run of a naive kernel: both hide single rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attngate.gpu_runner.worker import reference, registry, wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# Unit roundoff of each type: half the distance from 1.0 to its successor.
UNIT = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "tf32": 2.0**-11,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
}
U32 = UNIT["float32"]

# Below this a type has no relative accuracy: float16 steps by 2^-24 there, the wide types are flushed
# to zero by many kernels below their smallest normal number.
FLOOR = {
    "float64": 2.0**-1022,
    "float32": 2.0**-126,
    "tf32": 2.0**-126,
    "float16": 2.0**-24,
    "bfloat16": 2.0**-126,
    "float8_e4m3fn": 2.0**-9,
    "float8_e5m2": 2.0**-16,
}

# Rounding P acts as independent relative errors, so their sum grows like its l2 norm A2. Sound kernels
# were seen at 1.7 units of it (length 65 to 8192, score deviation 1 and 6); 4 leaves a factor of 2.
Z = 4.0
# e4m3 without an offset puts most of P among the subnormals: seen at 2.5.
Z_E4M3 = 6.0
# No element may exceed the worst case of the same roundings by more than this.
WORST_CASE = 1.5
# A score is a float32 sum of products and passes an exp2: 8 unit roundoffs of the largest partial sum,
# and 8 for the approximate exponential.
SCORE_STEPS = 8.0
EXP_STEPS = 8.0
# Products of tf32 or fp8 tensor cores: an estimate until measured on the device at hand.
SHORT_SCORE = 2.0**-11
# The tanh instruction of GPUs promises 2^-11 relative error, and kernels for 16-bit inputs use it in
# their soft cap: a capped score may be off by that part of itself. float32 targets get no such slack.
FAST_TANH = 2.0**-11

# R2: relative root mean square error by the type of P. The first is the floor of IEEE float32
# summation, the 16-bit ones are twice what rounding the output alone makes.
RMS_LIMIT = {
    "float64": 5e-6,
    "float32": 5e-6,
    "tf32": 1e-3,
    "float16": 4.5e-4,
    "bfloat16": 3.5e-3,
    "float8_e4m3fn": 4e-2,
    "float8_e5m2": 8e-2,
}
# R2: how much worse than the worse of the two baselines a block may be. On blocks below 16 rows sound
# kernels exceed it by chance, from 16 rows on none did.
RMS_FACTOR = 1.5
RMS_ROWS = 16
# R2: blocks are cut at about twice the smallest size, so that one wrong row keeps its weight.
BLOCK_ROWS = 32

# R3: absolute part and part of the largest score. 1e-6 is about 16 unit roundoffs of float32: a sum
# over the head dimension, exp2, log2 and the rescaling of the online softmax.
LSE_LIMIT = (2e-5, 1e-6)
LSE_LIMIT_SHORT = (1e-3, SHORT_SCORE)

# What a miss counts where the limit is 0, since JSON has no infinity.
EXACT_MISS = 1e9
LOG2_E = 1.0 / math.log(2.0)


@dataclass(frozen=True)
class Precision:
    """Names of the types that a sound kernel may round to: P before the product with V, and the result."""

    p: str
    out: str

    @property
    def rms_limit(self) -> float:
        """Relative RMS limit: the coarser of the two types decides."""
        return max(RMS_LIMIT[self.p], RMS_LIMIT[self.out])


@dataclass(frozen=True)
class Rows:
    """Names rows in a user's words, by the number of query rows of each request."""

    lengths: tuple[int, ...]

    def name(self, row: int) -> str:
        """Such as "row 17 (query 3 of request 2)"."""
        first = 0
        for request, length in enumerate(self.lengths):
            if row < first + length:
                return f"row {row} (query {row - first} of request {request})"
            first += length
        return f"row {row}"

    def blocks(self) -> list[Tensor]:
        """Row numbers of each block of R2: cut within long requests, pooled over short ones."""
        blocks: list[Tensor] = []
        short: list[Tensor] = []
        first = 0
        for length in self.lengths:
            rows = torch.arange(first, first + length)
            first += length
            if length < RMS_ROWS:
                short.append(rows)
            else:
                blocks.extend(rows.tensor_split(max(1, length // BLOCK_ROWS)))
        pooled = torch.cat(short) if short else torch.empty(0, dtype=torch.long)
        return [*blocks, pooled] if len(pooled) >= RMS_ROWS else blocks


@dataclass(frozen=True)
class Expected:
    """What an output [T, H, Dv] must be.

    Attributes:
        want: float64 values.
        limit: Largest error of each element (R1); 0 demands the exact value.
        precision: Types, for the limits of R2.
        baselines: Results of sound float32 kernels; empty switches R2 off, which ramp, one-hot and
            huge-score inputs need (their error is not that of a mean of zero-mean values).
    """

    want: Tensor
    limit: Tensor
    precision: Precision
    baselines: tuple[Tensor, ...] = ()


def score_error(found: reference.Attention, precision: Precision) -> Tensor:
    """Largest error of a score [T, H] in a sound kernel (eta)."""
    eta = SCORE_STEPS * U32 * found.smax + EXP_STEPS * U32
    if precision.p not in ("float32", "float64"):
        eta = eta + FAST_TANH * found.capped
    if precision.p in ("tf32", "float8_e4m3fn", "float8_e5m2"):
        eta = eta + SHORT_SCORE * found.smax
    return eta


def attention_limit(found: reference.Attention, precision: Precision) -> Tensor:
    """R1 for attention, [T, H, Dv]; 0 in rows without a key.

    u(out) |o| + Z u(P) A2 + 2 eta A1, never above 1.5 times the worst case with A1 in place of Z A2,
    and the absolute steps of the short types where relative accuracy ends.
    """
    z = Z_E4M3 if precision.p == "float8_e4m3fn" else Z
    eta = score_error(found, precision).unsqueeze(-1)
    rounding = UNIT[precision.out] * found.out.abs()
    scores = 2.0 * eta * found.a1
    likely = rounding + z * UNIT[precision.p] * found.a2 + scores
    worst = WORST_CASE * (rounding + UNIT[precision.p] * found.a1 + scores)
    steps = 2.0 * FLOOR[precision.out] + FLOOR[precision.p] * found.v2
    return (torch.minimum(likely, worst) + steps).masked_fill(found.empty.unsqueeze(-1), 0.0)


def expect_attention(
    requests: Sequence[reference.Request],
    rules: reference.Rules,
    precision: Precision,
    *,
    aggregate: bool,
) -> tuple[Expected, reference.Attention]:
    """Reference, R1 limits and, where `aggregate` holds, the baselines of R2."""
    found = reference.attend(requests, rules)
    p_dtype = torch.float32 if precision.p == "tf32" else getattr(torch, precision.p)
    out_dtype = getattr(torch, precision.out)
    baselines = tuple(
        reference.emulate(requests, rules, p_dtype, out_dtype, normalised=normalised)
        for normalised in ((False, True) if aggregate else ())
    )
    return Expected(found.out, attention_limit(found, precision), precision, baselines), found


def merge_limit(merged: reference.Merged, out: str) -> Tensor:
    """R1 for a merge of two stored states, [T, H, D]; 0 where both sides are empty.

    The stored partial results enter exactly. What is left is the rounding of the result, a few
    float32 operations on terms of size A1, and the error of the two LSE, which play the part of
    scores (a kernel may rescale them to base 2 first) and move the result by `swing` per unit.
    """
    eta = (SCORE_STEPS * U32 * merged.smax + EXP_STEPS * U32).unsqueeze(-1)
    arithmetic = EXP_STEPS * U32 * merged.a1 + 2.0 * eta * merged.swing
    limit = UNIT[out] * merged.out.abs() + arithmetic + 2.0 * FLOOR[out]
    return limit.masked_fill(merged.empty.unsqueeze(-1), 0.0)


def lse_limit(found: reference.Attention, precision: Precision) -> Tensor:
    """R3 for attention, [T, H], in natural logarithms."""
    absolute, relative = LSE_LIMIT
    if precision.p in ("tf32", "float8_e4m3fn", "float8_e5m2"):
        absolute, relative = LSE_LIMIT_SHORT
    limit = absolute + relative * found.smax
    if precision.p not in ("float32", "float64"):
        limit = limit + FAST_TANH * found.capped
    return limit


def merge_lse_limit(merged: reference.Merged) -> Tensor:
    """R3 for a merge, [T, H]: the larger LSE takes the place of the largest score."""
    absolute, relative = LSE_LIMIT
    return absolute + relative * merged.smax


def measure_output(name: str, got: Tensor, expected: Expected, rows: Rows) -> wire.Measurement:
    """R1, R2 and R4 of one output [T, H, Dv]; reports the rule that is closest to its limit.

    Args:
        name: Name of the output.
        got: What came back.
        expected: The reference and its limits.
        rows: Names of the rows.
    """
    got = got.double()
    finite = torch.isfinite(got)
    error = (got - expected.want).abs().masked_fill(~finite, 0.0)
    ratio = _ratio(error, expected.limit)
    first = _worst_index(ratio, ~finite)
    result = wire.Measurement(
        output=name,
        rule="R1" if first is None or expected.limit[first] > 0 else "R4",
        worst=float(ratio.max()) if ratio.numel() else 0.0,
        max_abs=float(error.max()) if error.numel() else 0.0,
        elements=got.numel(),
        nonfinite=int((~finite).sum()),
        rms_rel=_relative_rms(error, expected.want),
        position="" if first is None else _where_output(first, rows, got, expected),
    )
    if result.nonfinite or result.worst > 1.0 or not expected.baselines:
        return result  # a single wrong element tells more than its block
    worst, place = _worst_block(got, expected, rows)
    if worst <= result.worst:
        return result
    return replace(result, rule="R2", worst=worst, position=place)


def _ratio(error: Tensor, limit: Tensor) -> Tensor:
    safe = limit.masked_fill(limit == 0, 1.0)
    exact = (error > 0).to(error.dtype) * EXACT_MISS
    return torch.where(limit == 0, exact, error / safe).clamp(max=EXACT_MISS)


def _worst_index(ratio: Tensor, broken: Tensor) -> tuple[int, ...] | None:
    if not ratio.numel():
        return None
    flat = int(broken.flatten().byte().argmax()) if broken.any() else int(ratio.argmax())
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), ratio.shape))


def _where_output(index: tuple[int, ...], rows: Rows, got: Tensor, expected: Expected) -> str:
    row, head, channel = index
    values = f"got {got[index]:.6g}, expected {expected.want[index]:.6g}"
    return f"{rows.name(row)}, head {head}, channel {channel}: {values}"


def _relative_rms(error: Tensor, want: Tensor) -> float | None:
    size = float(want.square().mean().sqrt()) if want.numel() else 0.0
    return float(error.square().mean().sqrt()) / size if size > 0 else None


def _worst_block(got: Tensor, expected: Expected, rows: Rows) -> tuple[float, str]:
    worst, place = 0.0, ""
    for block in rows.blocks():
        ratios = _block_ratios(got[block], expected, block)
        value, head = ratios.max(0)
        if float(value) > worst:
            worst = float(value)
            span = f"rows {int(block[0])} to {int(block[-1])}"
            place = f"{span}, head {int(head)} (root mean square over the block)"
    return min(worst, EXACT_MISS), place


def _block_ratios(got: Tensor, expected: Expected, block: Tensor) -> Tensor:
    """Per head: the larger of RMS error and cosine difference, each over its limit."""
    want = expected.want[block]
    size = _rms(want)
    base = torch.stack([_rms(each[block] - want) for each in expected.baselines]).amax(0)
    limit = torch.maximum(RMS_FACTOR * base, expected.precision.rms_limit * size)
    limit = limit + 2.0 * FLOOR[expected.precision.out]
    relative = limit / size.clamp(min=1e-300)
    by_rms = _rms(got - want) / limit
    # The root, because this difference grows with the square of the error.
    by_angle = (_cosine_difference(got, want) / (2.0 * relative.square())).sqrt()
    return torch.where(size > 0, torch.maximum(by_rms, by_angle), by_rms)


def _rms(block: Tensor) -> Tensor:
    return block.square().mean(dim=(0, 2)).sqrt()


def _cosine_difference(got: Tensor, want: Tensor) -> Tensor:
    """1 - 2 <x, y> / (|x|^2 + |y|^2) per head, without cancellation."""
    total = (got.square() + want.square()).sum(dim=(0, 2))
    return (got - want).square().sum(dim=(0, 2)) / total.clamp(min=1e-300)


@dataclass(frozen=True)
class LseUnit:
    """How a callable writes its LSE.

    Attributes:
        base: "e" or "2".
        empty: Infinity of rows without a key: "-inf", "+inf", or "either".
        layout: "HT" for [heads, tokens], "TH" for [tokens, heads].
    """

    base: str = "e"
    empty: str = "either"
    layout: str = "HT"

    def natural(self, lse: Tensor) -> Tensor:
        """As float64 [T, H] in natural logarithms."""
        rows = lse.double() if self.layout == "TH" else lse.double().transpose(0, 1)
        return rows if self.base == "e" else rows / LOG2_E

    def stored(self, natural: Tensor) -> Tensor:
        """The inverse: float32 in the callable's own unit and layout."""
        rows = natural if self.base == "e" else natural * LOG2_E
        return (rows if self.layout == "TH" else rows.transpose(0, 1)).float().contiguous()

    def shape(self, tokens: int, heads: int) -> tuple[int, int]:
        """Shape of the callable's LSE."""
        return (tokens, heads) if self.layout == "TH" else (heads, tokens)


_LSE_CHOICES = {"base": ("e", "2"), "empty": ("-inf", "+inf", "either"), "layout": ("HT", "TH")}


def lse_unit(options: Mapping[str, Any], default: LseUnit) -> LseUnit:
    """The unit that a target declares by `lse = {...}`; raises DeclarationError for other values."""
    declared = options.get("lse")
    if declared is None or isinstance(declared, bool):
        return default
    if not isinstance(declared, dict):
        raise registry.DeclarationError("lse must be a table", 'such as lse = { base = "e" }')
    for key, value in declared.items():
        choices = _LSE_CHOICES.get(key, ())
        if value not in choices:
            known = ", ".join(repr(choice) for choice in choices) or "no value; keys: " + ", ".join(
                _LSE_CHOICES
            )
            raise registry.DeclarationError(f"lse.{key} = {value!r} is not known", f"use {known}")
    return replace(default, **declared)


@dataclass(frozen=True)
class ExpectedLse:
    """What an LSE [T, H] must be, in natural logarithms.

    Attributes:
        want: float64; -inf in rows without a key.
        limit: Largest error of each element (R3).
        empty: Infinity of rows without a key: "-inf", "+inf", or "either".
    """

    want: Tensor
    limit: Tensor
    empty: str = "either"


def measure_lse(name: str, got: Tensor, expected: ExpectedLse, rows: Rows) -> wire.Measurement:
    """R3 of one LSE [T, H] that was brought to natural logarithms and to this layout."""
    got = got.double()
    hollow = torch.isinf(expected.want)
    error = (got - expected.want).abs()
    ratio = _ratio(error.masked_fill(hollow, 0.0).nan_to_num(0.0, 0.0, 0.0), expected.limit)
    ratio[hollow] = (~_right_infinity(got[hollow], expected.empty)).double() * EXACT_MISS
    broken = torch.isnan(got) | (torch.isinf(got) & ~hollow)
    first = _worst_index(ratio, broken)
    finite = error[~hollow & ~broken]
    return wire.Measurement(
        output=name,
        rule="R3" if first is None or not hollow[first] else "R4",
        worst=float(ratio.max()) if ratio.numel() else 0.0,
        max_abs=float(finite.max()) if finite.numel() else 0.0,
        elements=got.numel(),
        nonfinite=int(broken.sum()),
        position="" if first is None else _where_lse(first, rows, got, expected),
    )


def _right_infinity(got: Tensor, empty: str) -> Tensor:
    allowed = torch.zeros_like(got, dtype=torch.bool)
    if empty in ("-inf", "either"):
        allowed |= got == -math.inf
    if empty in ("+inf", "either"):
        allowed |= got == math.inf
    return allowed


def _where_lse(index: tuple[int, ...], rows: Rows, got: Tensor, expected: ExpectedLse) -> str:
    row, head = index
    want = float(expected.want[index])
    wanted = f"{want:.6g}"
    if math.isinf(want):
        wanted = "-inf or +inf" if expected.empty == "either" else expected.empty
        wanted = f"{wanted} (this row has no key)"
    return f"{rows.name(row)}, head {head}: got {got[index]:.6g}, expected {wanted}"


def lse_hint(got: Tensor, want: Tensor) -> str:
    """Likely cause of a wrong LSE [T, H] by its ratio to the reference, or by its layout."""
    usable = torch.isfinite(got) & torch.isfinite(want) & (want.abs() > 0.5)
    if int(usable.sum()) < 8:
        return ""
    if not got[usable].any():
        return "every value is 0: the buffer of the LSE may never reach the kernel"
    ratio = float((got[usable] / want[usable]).median())
    if abs(ratio - LOG2_E) < 1e-3:
        return "1.4427 times the reference: looks like a base-2 logarithm"
    if abs(ratio - 1.0 / LOG2_E) < 1e-3:
        return "0.6931 times the reference: looks converted from base 2 twice"
    for turned in (got.t().reshape(want.shape), got.reshape(want.t().shape).t()):
        close = torch.isclose(turned, want, rtol=1e-3, atol=1e-3) | ~torch.isfinite(want)
        if bool(close.all()):
            return "right when read in the other layout: heads and tokens are swapped"
    return ""


def output_hint(
    got: Tensor,
    expected: Expected,
    explanations: Iterable[tuple[str, Callable[[], Expected]]],
) -> str:
    """Likely cause of a wrong output: the first explanation under which (nearly) all of it is right."""
    if not got.any():
        return "every value is 0"
    if bool((got == torch.tensor(1.0e4, dtype=got.dtype)).any()):
        return "holds 1e4, the pattern that unowned memory was filled with"
    got = got.double()
    wrong = _misses(got, expected)
    for text, build in explanations:
        if _misses(got, build()) <= 0.01 * wrong:
            return f"right if {text}"
    return ""


def _misses(got: Tensor, expected: Expected) -> int:
    within = (got - expected.want).abs() <= expected.limit
    return int((~within).sum())


def same_bits(name: str, first: Tensor, second: Tensor, what: str) -> wire.Measurement:
    """R4: two results that must agree bit for bit, because their calls differ only in `what`."""
    differs = first.view(_bits_of(first)) != second.view(_bits_of(second))
    count = int(differs.sum())
    error = (first.double() - second.double()).abs().nan_to_num(0.0, 0.0, 0.0)
    position = ""
    if count:
        place = tuple(int(i) for i in differs.nonzero()[0])
        position = f"{count} elements change with {what}, the first at {list(place)}"
    return wire.Measurement(
        output=name,
        rule="R4",
        worst=EXACT_MISS if count else 0.0,
        max_abs=float(error.max()) if error.numel() else 0.0,
        elements=first.numel(),
        position=position,
    )


def _bits_of(tensor: Tensor) -> torch.dtype:
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]


def verdict(case: str, measurements: Sequence[wire.Measurement]) -> wire.Verdict:
    """Passed if every measurement is within its limit; otherwise the worst one speaks."""
    measurements = tuple(measurements)
    broken = [each for each in measurements if each.nonfinite]
    if broken:
        worst = max(broken, key=lambda each: each.nonfinite)
        message = (
            f"{worst.output}: {worst.nonfinite} of {worst.elements} elements are not finite "
            f"where the reference is; {worst.position}"
        )
        kind = wire.VerdictKind.NONFINITE
    else:
        worst = max(measurements, key=lambda each: each.worst)
        if worst.worst <= 1.0:
            return wire.Verdict(case, wire.VerdictKind.PASSED, measurements=measurements)
        kind = wire.VerdictKind.WRONG_VALUES
        message = f"{worst.output}: {_excess(worst)}; {worst.position}"
    return wire.Verdict(case, kind, message, advice=worst.hint, measurements=measurements)


def _excess(worst: wire.Measurement) -> str:
    if worst.worst >= EXACT_MISS:
        return f"differs where it must be exact ({worst.rule})"
    return f"{worst.worst:.3g} times the allowed error ({worst.rule})"
