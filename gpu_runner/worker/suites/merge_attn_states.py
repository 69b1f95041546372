"""Merging two partial attention states by their LSE, in place: vLLM's `merge_attn_states`.

The state of each side is an output [tokens, heads, D] and an LSE, float32 [heads, tokens], natural.
An LSE of either infinity says "this side saw no key". Then the output of that side means nothing
and must not be read: kernels that produce it may leave anything there. Where both sides are empty the
merged output is 0 and its LSE -inf.

Skewed masses decide: with two sides of equal mass every base, sign and layout of the LSE gives the
same weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attngate.gpu_runner.worker import inputs, measure, reference, registry, tensors, wire
from attngate.gpu_runner.worker.suites import _options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

DTYPES = ("bfloat16", "float16", "float32")
HEAD_DIMS = (64, 128, 96, 80, 32, 256)
CONTEXT = "prefill_tokens_with_context"
UNIT = measure.LseUnit(base="e", empty="-inf", layout="HT")

Lses = tuple[Tensor, Tensor]
"""Natural LSE of prefix and suffix, float32 [T, H]."""


@dataclass(frozen=True)
class Plan:
    """One line of the table of cases.

    Attributes:
        name: First part of the case's id.
        recipe: Name of the LSE recipe.
        tokens: T.
        heads: H.
        d: Head dim; 0 for the target's first.
        garbage: What lies in the output of an empty side: "nan" or "big" (1e4).
        padded: Head rows are longer than D in memory: views as of a sliced, padded V.
        with_lse: Ask for the merged LSE.
        context: Tokens that have a prefix at all; None leaves the argument out.
        tier: Smallest tier.
    """

    name: str
    recipe: str
    tokens: int = 23
    heads: int = 3
    d: int = 0
    garbage: str = "big"
    padded: bool = False
    with_lse: bool = True
    context: int | None = None
    tier: str = "default"


PLANS = (
    Plan("similar", "similar", 66, 4, tier="quick"),
    Plan("skewed", "skewed", 33, 5, tier="quick"),
    Plan("one-side-empty", "one_side_empty", tier="quick"),
    Plan("one-side-empty-garbage-nan", "one_side_empty", garbage="nan", tier="quick"),
    Plan("both-empty", "both_empty", tier="quick"),
    Plan("both-empty-garbage-nan", "both_empty", garbage="nan", tier="quick"),
    Plan("mixed-empty", "mixed_empty", 40, 4, garbage="nan", tier="quick"),
    Plan("far-apart", "far_apart", 34, 4, tier="quick"),
    Plan("near-overflow", "near_overflow", 34, 4, tier="quick"),
    Plan("very-large", "very_large", 34, 4),
    Plan("equal", "equal", 33, 2),
    Plan("square", "skewed", 16, 16),
    Plan("one-token", "skewed", 1, 8),
    Plan("one-head", "skewed", 129, 1),
    Plan("many-heads", "mixed_empty", 17, 17, garbage="nan"),
    Plan("padded-heads", "skewed", 22, 3, padded=True, tier="quick"),
    Plan("padded-heads-empty", "mixed_empty", 22, 3, padded=True, garbage="nan"),
    Plan("without-lse", "skewed", 22, 3, with_lse=False),
    Plan("without-lse-empty", "mixed_empty", 22, 3, with_lse=False, garbage="nan"),
    Plan("no-prefix-from-token-13", "skewed", 22, 3, context=13),
    Plan("no-prefix-from-token-1-empty", "suffix_empty", 22, 3, context=1, garbage="nan"),
    Plan("prefix-everywhere", "skewed", 22, 3, context=22),
    Plan("long", "mixed_empty", 1500, 8, tier="full"),
)


def similar(shape: tuple[int, int], rng: torch.Generator) -> Lses:
    """Both sides of similar mass."""
    return inputs.gaussian(rng, *shape), inputs.gaussian(rng, *shape)


def skewed(shape: tuple[int, int], rng: torch.Generator) -> Lses:
    """Masses of 99 to 1, either way round by token and head, on a common level between -20 and 20."""
    level = torch.rand(shape, generator=rng) * 40.0 - 20.0
    lead = math.log(99.0) * (2.0 * _coin(shape, rng) - 1.0)
    return level + lead, level


def far_apart(shape: tuple[int, int], rng: torch.Generator) -> Lses:
    """From e^8 to e^1000 times the mass: the smaller side fades, then underflows."""
    gap = torch.tensor([8.0, 20.0, 88.0, 105.0, 1000.0])[_choice(5, shape, rng)]
    gap = gap * (2.0 * _coin(shape, rng) - 1.0)
    return gap / 2, -gap / 2


def near_overflow(shape: tuple[int, int], rng: torch.Generator) -> Lses:
    """Levels at which exp without a subtracted maximum overflows or vanishes."""
    level = torch.tensor([80.0, 89.0, 104.0, 150.0, -80.0, -104.0, -150.0])[_choice(7, shape, rng)]
    return level + inputs.gaussian(rng, *shape), level + inputs.gaussian(rng, *shape)


def very_large(shape: tuple[int, int], rng: torch.Generator) -> Lses:
    """Levels up to 1e4 of both signs; the sides differ by a little or by twice that."""
    level = torch.tensor([1.0e3, 1.0e4, -1.0e3, -1.0e4])[_choice(4, shape, rng)]
    other = torch.where(_coin(shape, rng) > 0, level, -level)
    return level + inputs.gaussian(rng, *shape), other + inputs.gaussian(rng, *shape)


def equal(shape: tuple[int, int], rng: torch.Generator) -> Lses:
    """The same LSE on both sides."""
    lse = inputs.gaussian(rng, *shape) * 5.0
    return lse, lse.clone()


def one_side_empty(shape: tuple[int, int], rng: torch.Generator) -> Lses:
    """Exactly one side empty in two of three places, by either infinity."""
    prefix, suffix = skewed(shape, rng)
    which = _choice(3, shape, rng)
    hollow = _infinity(shape, rng)
    return torch.where(which == 1, hollow, prefix), torch.where(which == 2, hollow, suffix)


def both_empty(shape: tuple[int, int], rng: torch.Generator) -> Lses:
    """Both sides empty in half of the places, by each combination of infinities."""
    prefix, suffix = skewed(shape, rng)
    both = _coin(shape, rng) > 0
    prefix = torch.where(both, _infinity(shape, rng), prefix)
    return prefix, torch.where(both, _infinity(shape, rng), suffix)


def mixed_empty(shape: tuple[int, int], rng: torch.Generator) -> Lses:
    """Neither, prefix, suffix, or both empty, in turn by token and head."""
    prefix, suffix = skewed(shape, rng)
    turn = torch.arange(shape[0]).unsqueeze(1) * 3 + torch.arange(shape[1])
    prefix = torch.where(turn % 4 % 2 == 1, _infinity(shape, rng), prefix)
    return prefix, torch.where(turn % 4 >= 2, _infinity(shape, rng), suffix)


def suffix_empty(shape: tuple[int, int], rng: torch.Generator) -> Lses:
    """The suffix is empty in half of the places."""
    prefix, suffix = skewed(shape, rng)
    return prefix, torch.where(_coin(shape, rng) > 0, -_infinity(shape, rng).abs(), suffix)


RECIPES: dict[str, Callable[[tuple[int, int], torch.Generator], Lses]] = {
    each.__name__: each
    for each in (
        similar,
        skewed,
        far_apart,
        near_overflow,
        very_large,
        equal,
        one_side_empty,
        both_empty,
        mixed_empty,
        suffix_empty,
    )
}


def _coin(shape: tuple[int, int], rng: torch.Generator) -> Tensor:
    return torch.randint(2, shape, generator=rng).float()


def _choice(count: int, shape: tuple[int, int], rng: torch.Generator) -> Tensor:
    return torch.randint(count, shape, generator=rng)


def _infinity(shape: tuple[int, int], rng: torch.Generator) -> Tensor:
    return torch.where(_coin(shape, rng) > 0, math.inf, -math.inf)


@registry.suite("merge_attn_states", version=1)
class MergeAttnStates:
    """Cases, inputs and judgement; see the module."""

    name: str
    version: int
    adapter = "merge_attn_states"

    def plan(
        self, declaration: registry.Declaration
    ) -> tuple[list[registry.CaseSpec], list[registry.LeftOut]]:
        """Every line of the table in every dtype, and one case for each further head dim."""
        options = declaration.options
        measure.lse_unit(options, UNIT)
        dims = _options.value_dims(options, HEAD_DIMS)
        plans = [replace(each, d=dims[0]) for each in PLANS]
        plans += [
            Plan(f"d{d}", "mixed_empty", 11, 3, d=d, padded=d == dims[1], garbage="nan")
            for d in dims[1:]
        ]
        left_out = [("output_scale", "quantised output is not covered by this suite yet")]
        if options.get("strided") is False:
            plans = [each for each in plans if not each.padded]
            left_out.append(("padded heads", "the target declares strided = false"))
        dtypes = _options.dtypes(options, DTYPES)
        return [_case(each, dtype) for dtype in dtypes for each in plans], left_out

    def prepare(
        self, case: registry.CaseSpec, declaration: registry.Declaration, rng: torch.Generator
    ) -> list[registry.Call]:
        """Two calls of the same shapes with other contents."""
        plan, unit = Plan(**case.axes), measure.lse_unit(declaration.options, UNIT)
        return [_call(name, plan, case.dtype, unit, rng) for name in ("first", "other contents")]

    def judge(
        self,
        case: registry.CaseSpec,
        declaration: registry.Declaration,
        calls: Sequence[registry.Call],
        outcomes: Mapping[str, registry.Outcome],
    ) -> wire.Verdict:
        """R1 and R2 on the output, R3 on the LSE."""
        unit = measure.lse_unit(declaration.options, UNIT)
        found: list[wire.Measurement] = []
        for call in calls:
            measured = _measure(call, outcomes[call.id], case.dtype, unit)
            found += [_options.in_call(each, call.id) for each in measured]
        return measure.verdict(case.id, found)


def _case(plan: Plan, dtype: str) -> registry.CaseSpec:
    axes = {name: getattr(plan, name) for name in Plan.__dataclass_fields__}
    needs = [*(["output_lse"] if plan.with_lse else []), *([CONTEXT] if plan.context else [])]
    short = _options.SHORT_NAMES[dtype]
    case_id = f"{plan.name}-t{plan.tokens}-h{plan.heads}-d{plan.d}-{short}"
    return registry.CaseSpec(case_id, dtype, axes, plan.tier, tuple(needs))


def _call(
    name: str, plan: Plan, dtype: str, unit: measure.LseUnit, rng: torch.Generator
) -> registry.Call:
    shape = (plan.tokens, plan.heads, plan.d)
    lses = RECIPES[plan.recipe](shape[:2], rng)
    kept = plan.tokens if plan.context is None else plan.context
    lses[0][kept:] = math.nan
    args: dict[str, Any] = {}
    for side, lse in zip(("prefix", "suffix"), lses, strict=True):
        out = inputs.gaussian(rng, *shape).to(tensors.dtype_named(dtype))
        nothing = inputs.poisoned(shape, out.dtype, plan.garbage)
        out = torch.where(torch.isfinite(lse).unsqueeze(-1), out, nothing)
        args[f"{side}_output"] = _laid_out(out, plan)
        args[f"{side}_lse"] = tensors.guarded(unit.stored(lse))
    blank = torch.empty(shape, dtype=tensors.dtype_named(dtype))
    args["output"] = registry.TensorArg(_laid_out(blank, plan), role="output")
    outputs = [registry.OutputSpec("out", shape, (dtype,), argument="output")]
    if plan.with_lse:
        lse_shape = unit.shape(*shape[:2])
        args["output_lse"] = registry.TensorArg(
            tensors.guarded(torch.empty(lse_shape)), role="output"
        )
        outputs.append(registry.OutputSpec("lse", lse_shape, ("float32",), argument="output_lse"))
    if plan.context is not None:
        args[CONTEXT] = plan.context
    return registry.Call(name, args, outputs)


def _laid_out(tensor: Tensor, plan: Plan) -> Tensor:
    if plan.padded:
        return inputs.in_padded_heads(tensor, "nan")
    return tensors.guarded(tensor)


def _measure(
    call: registry.Call, outcome: registry.Outcome, dtype: str, unit: measure.LseUnit
) -> list[wire.Measurement]:
    states = _states(call, unit)
    merged = reference.merge(*states)
    expected = measure.Expected(
        merged.out,
        measure.merge_limit(merged, dtype),
        measure.Precision(p="float32", out=dtype),
        (reference.emulate_merge(*states),),
    )
    rows = measure.Rows((merged.out.shape[0],))
    out = measure.measure_output("out", outcome.outputs["out"], expected, rows)
    if _options.is_bad(out):
        out = replace(out, hint=_hint(outcome.outputs["out"], expected, states, dtype))
    if "lse" not in outcome.outputs:
        return [out]
    got = unit.natural(outcome.outputs["lse"])
    limit = measure.merge_lse_limit(merged)
    lse = measure.measure_lse("lse", got, measure.ExpectedLse(merged.lse, limit, "-inf"), rows)
    if _options.is_bad(lse):
        lse = replace(lse, hint=measure.lse_hint(got, merged.lse))
    return [out, lse]


States = tuple[Tensor, Tensor, Tensor, Tensor]
"""Output and natural LSE of the prefix, then of the suffix: [T, H, D] and [T, H]."""


def _states(call: registry.Call, unit: measure.LseUnit) -> States:
    """The stored inputs; tokens without a prefix count as an empty prefix."""
    args = call.args
    prefix_lse, suffix_lse = unit.natural(args["prefix_lse"]), unit.natural(args["suffix_lse"])
    kept = args.get(CONTEXT)
    if kept is not None:
        prefix_lse = prefix_lse.clone()
        prefix_lse[kept:] = -math.inf
    return args["prefix_output"], prefix_lse, args["suffix_output"], suffix_lse


def _hint(got: Tensor, expected: measure.Expected, states: States, dtype: str) -> str:
    a_out, a_lse, b_out, b_lse = states
    limit = _limiter(dtype)
    hollow = torch.isinf(a_lse) | torch.isinf(b_lse)
    broken = ~torch.isfinite(got).all(-1)
    if broken.any() and not (broken & ~hollow).any():
        return (
            "every wrong place has an empty side: choose by the LSE and do not multiply the empty "
            "side's output by 0, since its content is arbitrary"
        )
    ln2 = math.log(2.0)
    return measure.output_hint(
        got,
        expected,
        [
            ("the two sides are swapped", lambda: limit(a_out, b_lse, b_out, a_lse)),
            (
                "the LSE are taken as base 2",
                lambda: limit(a_out, a_lse * ln2, b_out, b_lse * ln2),
            ),
            (
                "the LSE are taken from base 2 to base e the wrong way",
                lambda: limit(a_out, a_lse / ln2, b_out, b_lse / ln2),
            ),
            (
                "the LSE are read in the other layout (heads and tokens swapped)",
                lambda: limit(a_out, _turned(a_lse), b_out, _turned(b_lse)),
            ),
        ],
    )


def _limiter(dtype: str) -> Callable[..., measure.Expected]:
    def build(*states: Tensor) -> measure.Expected:
        merged = reference.merge(*states)
        precision = measure.Precision(p="float32", out=dtype)
        return measure.Expected(merged.out, measure.merge_limit(merged, dtype), precision)

    return build


def _turned(lse: Tensor) -> Tensor:
    """What a kernel sees that reads memory [H, T] as [T, H]."""
    return lse.t().reshape(lse.shape)
