"""Variable-length flash attention, flat and paged: the suite of `flash_attn_varlen_func`.

Shapes: q [tokens, query heads, D]; k, v [tokens, KV heads, D or Dv] or page pools [pages, page size,
KV heads, D] with an int32 block table [requests, pages]; out [tokens, query heads, Dv] in the inputs'
dtype; LSE float32 [query heads, tokens], natural, of the scaled, capped, biased and masked scores. The
causal diagonal and the window are aligned at the bottom right. A row without a key is 0, its LSE an
infinity, of the declared sign if one is declared. A sink (`s_aux`) is part of the LSE, so that the LSE
of a row without a key is the sink itself.

What a target can take beyond the defaults below is never guessed. Defaults: float16 and bfloat16; equal
head dims up to 128; any group of query heads; page sizes that are multiples of 256, as upstream's
kernel wants them (16 with `convention = "vllm"`); strides free except for the last dimension.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attngate.gpu_runner.worker import inputs, measure, reference, registry, tensors, wire
from attngate.gpu_runner.worker.suites import _options
from attngate.gpu_runner.worker.suites._varlen_cases import Plan, plans_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

DTYPES = ("bfloat16", "float16")
UNIT = measure.LseUnit(base="e", empty="either", layout="HT")


@registry.suite("flash_attn_varlen", version=1)
class FlashAttnVarlen:
    """Cases, inputs and judgement; see the module."""

    name: str
    version: int
    adapter = "flash_attn_varlen"

    def plan(
        self, declaration: registry.Declaration
    ) -> tuple[list[registry.CaseSpec], list[registry.LeftOut]]:
        """The table of cases in every dtype, without what the target declares it cannot do."""
        options = declaration.options
        measure.lse_unit(options, UNIT)
        plans, left_out = plans_for(options)
        if _lacks_lse(declaration):
            plans = [replace(each, with_lse=False) for each in plans]
            left_out.append(("the LSE", "the callable does not return it"))
        dtypes = _options.dtypes(options, DTYPES)
        _p_dtype(options, dtypes[0])
        _sink_dtype(options, dtypes[0])
        return [_case(each, dtype) for dtype in dtypes for each in plans], left_out

    def prepare(
        self, case: registry.CaseSpec, declaration: registry.Declaration, rng: torch.Generator
    ) -> list[registry.Call]:
        """Two calls: of the same shapes with other contents, or of equal contents with other gaps."""
        plan = _plan_of(case)
        first = _Problem(plan, case.dtype, declaration.options, rng)
        if plan.other_gaps:
            state = rng.get_state()
            calls = [first.call("first", "nan", rng)]
            rng.set_state(state)
            return [*calls, first.call("other gaps", "big", rng)]
        second = _Problem(plan, case.dtype, declaration.options, rng)
        return [first.call("first", "nan", rng), second.call("other contents", "big", rng)]

    def judge(
        self,
        case: registry.CaseSpec,
        declaration: registry.Declaration,
        calls: Sequence[registry.Call],
        outcomes: Mapping[str, registry.Outcome],
    ) -> wire.Verdict:
        """R1 to R3 on every call, and equal bits where only the gaps of the memory differ."""
        plan, options = _plan_of(case), declaration.options
        found: list[wire.Measurement] = []
        for call in calls:
            judged = _Judged(call, plan, case.dtype, options)
            found += [
                _options.in_call(each, call.id) for each in judged.measurements(outcomes[call.id])
            ]
        if plan.other_gaps and options.get("deterministic", True):
            found += _equal_bits(outcomes[calls[0].id], outcomes[calls[1].id])
        return measure.verdict(case.id, found)


def _lacks_lse(declaration: registry.Declaration) -> bool:
    if declaration.options.get("lse") is False:
        return True
    return declaration.features is not None and "return_lse" not in declaration.features


def _case(plan: Plan, dtype: str) -> registry.CaseSpec:
    axes = {name: getattr(plan, name) for name in Plan.__dataclass_fields__}
    axes["lengths"] = [list(pair) for pair in plan.lengths]
    axes["window"] = list(plan.window)
    d = f"d{plan.d}" if plan.d == plan.dv else f"d{plan.d}x{plan.dv}"
    case_id = f"{plan.name}-b{len(plan.lengths)}-hq{plan.hq}-hk{plan.hk}-{d}"
    short = _options.SHORT_NAMES[dtype]
    return registry.CaseSpec(f"{case_id}-{short}", dtype, axes, plan.tier, plan.needs())


def _plan_of(case: registry.CaseSpec) -> Plan:
    axes = dict(case.axes)
    axes["lengths"] = tuple((pair[0], pair[1]) for pair in axes["lengths"])
    axes["window"] = tuple(axes["window"])
    return Plan(**axes)


def _rules(plan: Plan, alibi: Tensor | None = None, sinks: Tensor | None = None) -> reference.Rules:
    return reference.Rules(
        scale=plan.scale or plan.d**-0.5,
        causal=plan.causal,
        window=plan.window,
        softcap=plan.softcap,
        alibi=_alibi_by_request(alibi, len(plan.lengths)),
        sinks=None if sinks is None else sinks.double(),
    )


def _alibi_by_request(alibi: Tensor | None, requests: int) -> Tensor | None:
    """float64 [B, Hq] from slopes [Hq] or [B, Hq]."""
    if alibi is None:
        return None
    return alibi.double() if alibi.dim() == 2 else alibi.double().expand(requests, -1)


class _Problem:
    """The stored values of one call, before they are put into memory."""

    def __init__(
        self, plan: Plan, dtype: str, options: Mapping[str, Any], rng: torch.Generator
    ) -> None:
        self.plan = plan
        self.dtype = tensors.dtype_named(dtype)
        drawn = [self._draw(index, rng) for index in range(len(plan.lengths))]
        self.q, self.k, self.v = ([each[i] for each in drawn] for i in range(3))
        self.alibi = self._alibi(rng)
        self.sinks = self._sinks(_sink_dtype(options, dtype)) if plan.sinks else None
        self.unit = measure.lse_unit(options, UNIT)

    def _draw(self, index: int, rng: torch.Generator) -> list[Tensor]:
        plan = self.plan
        sq, sk = plan.lengths[index]
        scale = plan.scale or plan.d**-0.5
        page = plan.page or 64
        shape = inputs.Shape(
            sq, sk, plan.hq, plan.hk, plan.d, plan.dv, scale, page=page, index=index
        )
        return [each.to(self.dtype) for each in inputs.RECIPES[plan.recipe](shape, rng)]

    def _alibi(self, rng: torch.Generator) -> Tensor | None:
        """Distinct slopes, float32 [Hq] or [B, Hq]."""
        if not self.plan.alibi:
            return None
        shape = (self.plan.hq,) if self.plan.alibi == "h" else (len(self.q), self.plan.hq)
        return torch.rand(shape, generator=rng) * 0.5 + 0.02

    def _sinks(self, dtype: torch.dtype) -> Tensor:
        """Per head about as much mass as the keys of a middling row, a step apart between heads."""
        found = reference.attend(_stored(self.q, self.k, self.v), _rules(self.plan))
        lse = found.lse.masked_fill(found.empty, float("nan"))
        middle = torch.nan_to_num(lse.nanmedian(0).values)
        return (middle + torch.arange(self.plan.hq) % 3 - 1.0).to(dtype)

    def call(self, name: str, fill: str, rng: torch.Generator) -> registry.Call:
        """The call with these values in memory whose gaps hold `fill`."""
        plan = self.plan
        sq, sk = zip(*plan.lengths)  # noqa: B905 (pairs)
        args: dict[str, Any] = {
            **(self._paged(fill, rng) if plan.page else self._flat(fill)),
            "cu_seqlens_q": inputs.cumulative(sq),
            "cu_seqlens_k": inputs.cumulative(sk),
            "max_seqlen_q": max(sq) + plan.surplus,
            "max_seqlen_k": max(sk) + plan.surplus,
            **self._rules_as_arguments(),
        }
        tokens = sum(sq)
        shape = (tokens, plan.hq, plan.dv)
        dtype = tensors.dtype_name(self.dtype)
        outputs = [registry.OutputSpec("out", shape, (dtype,), "out" if plan.out_given else "")]
        if plan.out_given:
            blank = torch.empty(shape, dtype=self.dtype)
            args["out"] = registry.TensorArg(tensors.guarded(blank), role="output")
        if plan.with_lse:
            args["return_lse"] = True
            lse_shape = self.unit.shape(tokens, plan.hq)
            outputs.append(registry.OutputSpec("lse", lse_shape, ("float32",)))
        return registry.Call(name, args, outputs)

    def _rules_as_arguments(self) -> dict[str, Any]:
        """Only what differs from the callable's defaults is given, so that those are tried too."""
        plan = self.plan
        given = {
            "causal": plan.causal or None,
            "window_size": None if plan.window == (-1, -1) else plan.window,
            "softmax_scale": plan.scale or None,
            "softcap": plan.softcap or None,
            "alibi_slopes": self.alibi,
            "s_aux": self.sinks,
        }
        return {name: value for name, value in given.items() if value is not None}

    def _paged(self, fill: str, rng: torch.Generator) -> dict[str, Tensor]:
        together = self.plan.layout == "together"
        pages = inputs.in_pages(self.k, self.v, self.plan.page, fill, rng, together=together)
        q = tensors.guarded(torch.cat(self.q), fill)
        return {"q": q, "k": pages.k, "v": pages.v, "block_table": pages.table}

    def _flat(self, fill: str) -> dict[str, Tensor]:
        q, k, v = torch.cat(self.q), torch.cat(self.k), torch.cat(self.v)
        layout = self.plan.layout
        if layout == "fused":
            q, k, v = inputs.in_padded_rows([q, k, v], fill)
        elif layout == "kv-pair":
            q = tensors.guarded(q, fill)
            k, v = inputs.in_padded_rows([k, v], fill)
        elif layout == "padded-heads":
            q, k, v = (inputs.in_padded_heads(each, fill) for each in (q, k, v))
        else:
            q, k, v = (tensors.guarded(each, fill) for each in (q, k, v))
        return {"q": q, "k": k, "v": v}


def _sink_dtype(options: Mapping[str, Any], dtype: str) -> torch.dtype:
    declared = _options.known_dtypes(options, "sink_dtypes", [dtype])
    return tensors.dtype_named(declared[0])


def _stored(
    q: Sequence[Tensor], k: Sequence[Tensor], v: Sequence[Tensor]
) -> list[reference.Request]:
    return [reference.Request(*each) for each in zip(q, k, v)]  # noqa: B905 (equal by construction)


def _requests(call: registry.Call) -> list[reference.Request]:
    """The requests as they lie in the call's own memory."""
    starts_q, starts_k = call.args["cu_seqlens_q"].tolist(), call.args["cu_seqlens_k"].tolist()
    table = call.args.get("block_table")
    found = []
    for index in range(len(starts_q) - 1):
        q = call.args["q"][starts_q[index] : starts_q[index + 1]]
        first, last = starts_k[index], starts_k[index + 1]
        k, v = (
            call.args[name][first:last]
            if table is None
            else inputs.gathered(call.args[name], table[index], last - first)
            for name in ("k", "v")
        )
        found.append(reference.Request(q, k, v))
    return found


class _Judged:
    """One call against its reference."""

    def __init__(
        self, call: registry.Call, plan: Plan, dtype: str, options: Mapping[str, Any]
    ) -> None:
        self.plan = plan
        self.requests = _requests(call)
        self.rules = _rules(plan, call.args.get("alibi_slopes"), call.args.get("s_aux"))
        self.precision = measure.Precision(p=_p_dtype(options, dtype), out=dtype)
        self.unit = measure.lse_unit(options, UNIT)
        self.rows = measure.Rows(tuple(sq for sq, _ in plan.lengths))

    def measurements(self, outcome: registry.Outcome) -> Iterator[wire.Measurement]:
        """Output, and the LSE if it was asked for."""
        expected, found = measure.expect_attention(
            self.requests,
            self.rules,
            self.precision,
            aggregate=self.plan.recipe in inputs.AGGREGATE,
        )
        got = outcome.outputs["out"]
        out = measure.measure_output("out", got, expected, self.rows)
        if _options.is_bad(out):
            out = replace(out, hint=measure.output_hint(got, expected, self._explanations()))
        yield out
        if "lse" in outcome.outputs:
            yield self._lse(outcome.outputs["lse"], found)

    def _lse(self, stored: Tensor, found: reference.Attention) -> wire.Measurement:
        got = self.unit.natural(stored)
        limit = measure.lse_limit(found, self.precision)
        expected = measure.ExpectedLse(found.lse, limit, self.unit.empty)
        lse = measure.measure_lse("lse", got, expected, self.rows)
        if _options.is_bad(lse):
            hint = measure.lse_hint(got, found.lse) or self._lse_hint(got, expected)
            lse = replace(lse, hint=hint)
        return lse

    def _lse_hint(self, got: Tensor, expected: measure.ExpectedLse) -> str:
        wrong = _lse_misses(got, expected.want, expected.limit)
        for text, requests, rules in self._alternatives():
            other = reference.attend(requests, rules)
            limit = measure.lse_limit(other, self.precision)
            if _lse_misses(got, other.lse, limit) <= 0.01 * wrong:
                return f"right if {text}"
        return ""

    def _explanations(self) -> Iterator[tuple[str, Callable[[], measure.Expected]]]:
        for text, requests, rules in self._alternatives():

            def build(
                requests: list[reference.Request] = requests, rules: reference.Rules = rules
            ) -> measure.Expected:
                return measure.expect_attention(requests, rules, self.precision, aggregate=False)[0]

            yield text, build

    def _alternatives(self) -> Iterator[tuple[str, list[reference.Request], reference.Rules]]:
        """What else a kernel may have computed, most common first."""
        for text, changes in _other_rules(self.rules, self.plan.d):
            yield text, self.requests, replace(self.rules, **changes)
        for text, change in _OTHER_KEYS:
            yield text, [change(request) for request in self.requests], self.rules


def _lse_misses(got: Tensor, want: Tensor, limit: Tensor) -> int:
    same = torch.isinf(want) & torch.isinf(got)
    return int((~(((got - want).abs() <= limit) | same)).sum())


def _other_rules(rules: reference.Rules, d: int) -> Iterator[tuple[str, dict[str, Any]]]:
    left, right = rules.window
    if rules.causal or rules.window != (-1, -1) or rules.alibi is not None:
        yield "the diagonal is aligned at the top left", {"top_left": True}
    yield "causal is the other way", {"causal": not rules.causal}
    if left >= 0:
        yield "the window reaches one key further left", {"window": (left + 1, right)}
    if left >= 1:
        yield "the window reaches one key less far left", {"window": (left - 1, right)}
    if right >= 0:
        yield "the window reaches one key further right", {"window": (left, right + 1)}
    if rules.window != (-1, -1):
        yield "the window is ignored", {"window": (-1, -1)}
    if rules.softcap > 0:
        yield "the soft cap is ignored", {"softcap": 0.0}
    if rules.alibi is not None:
        yield "the ALiBi slopes are ignored", {"alibi": None}
        yield "the ALiBi bias has the other sign", {"alibi": -rules.alibi}
    if rules.sinks is not None:
        yield "the sinks are ignored", {"sinks": None}
        yield "the sinks are scaled like scores", {"sinks": rules.sinks * rules.scale}
    yield "the scale is applied twice", {"scale": rules.scale**2}
    yield "the scale is left out", {"scale": 1.0}
    yield "the scale is the default one", {"scale": d**-0.5}


def _with_zero_key(request: reference.Request) -> reference.Request:
    k = torch.cat([request.k, torch.zeros_like(request.k[:1])]) if len(request.k) else request.k
    v = torch.cat([request.v, torch.zeros_like(request.v[:1])]) if len(request.v) else request.v
    return reference.Request(request.q, k, v)


_OTHER_KEYS: tuple[tuple[str, Callable[[reference.Request], reference.Request]], ...] = (
    (
        "the last key of each request is left out",
        lambda r: reference.Request(r.q, r.k[:-1], r.v[:-1]),
    ),
    (
        "the first key of each request is left out",
        lambda r: reference.Request(r.q, r.k[1:], r.v[1:]),
    ),
    ("one more key, of zeros, is attended behind each request", _with_zero_key),
)


def _p_dtype(options: Mapping[str, Any], dtype: str) -> str:
    declared = options.get("p_dtype", dtype)
    if declared not in measure.UNIT:
        known = ", ".join(measure.UNIT)
        raise registry.DeclarationError(f"p_dtype = {declared!r} is not known", f"known: {known}")
    return str(declared)


def _equal_bits(first: registry.Outcome, second: registry.Outcome) -> Iterator[wire.Measurement]:
    for name in first.outputs:
        what = "what lies in memory that belongs to no request"
        yield measure.same_bits(name, first.outputs[name], second.outputs[name], what)
