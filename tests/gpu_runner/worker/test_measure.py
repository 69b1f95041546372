"""The rules pass what a sound kernel may do and nothing else, and say where and why."""

from __future__ import annotations

import math

import pytest
import torch

from attngate.gpu_runner.worker import measure, reference, registry
from attngate.gpu_runner.worker.measure import Expected, ExpectedLse, LseUnit, Precision, Rows
from attngate.gpu_runner.worker.reference import Request, Rules
from attngate.gpu_runner.worker.wire import Measurement, VerdictKind

BF16 = Precision("bfloat16", "bfloat16")


def expected(dtype: str = "bfloat16", sq: int = 40, sk: int = 300, aggregate: bool = True):
    """Requests and what is expected of them: two, one with rows without keys."""
    rng = torch.Generator().manual_seed(1)
    requests = [
        Request(*(torch.randn(n, 2, 16, generator=rng).to(getattr(torch, dtype)) for n in lengths))
        for lengths in ((sq, sk, sk), (3, 1, 1))
    ]
    rules, precision = Rules(0.25, causal=True), Precision(dtype, dtype)
    return (
        requests,
        rules,
        *measure.expect_attention(requests, rules, precision, aggregate=aggregate),
    )


ROWS = Rows((40, 3))


def rounded(want: torch.Tensor, dtype: str) -> torch.Tensor:
    return want.to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_rounded_reference_passes(dtype: str):
    _, _, want, _ = expected(dtype)
    found = measure.measure_output("out", rounded(want.want, dtype), want, ROWS)
    assert found.worst <= 1.0
    assert found.nonfinite == 0
    assert found.elements == 43 * 2 * 16


def test_one_wrong_element_of_thousands_is_seen_and_named():
    _, _, want, _ = expected()
    got = rounded(want.want, "bfloat16")
    got[41, 1, 5] += 0.5
    found = measure.measure_output("out", got, want, ROWS)
    assert found.worst > 1.0
    assert "row 41 (query 1 of request 1), head 1, channel 5" in found.position
    assert "expected 0" in found.position


def test_rows_without_keys_must_be_exactly_zero():
    _, _, want, found = expected()
    assert found.empty[40:42].all()
    assert not want.limit[40:42].any()
    got = rounded(want.want, "bfloat16")
    got[40, 0, 0] = 1e-30
    measured = measure.measure_output("out", got, want, ROWS)
    assert measured.rule == "R4"
    assert measured.worst == measure.EXACT_MISS


def test_nonfinite_values_are_counted_and_found_first():
    _, _, want, _ = expected()
    got = rounded(want.want, "bfloat16")
    got[7, 1, 2:5] = torch.tensor([math.nan, math.inf, -math.inf])
    found = measure.measure_output("out", got, want, ROWS)
    assert found.nonfinite == 3
    assert "row 7 (query 7 of request 0), head 1, channel 2" in found.position
    assert measure.verdict("c", [found]).kind is VerdictKind.NONFINITE
    assert math.isfinite(found.worst)


def test_the_likely_bound_is_never_above_one_and_a_half_times_the_worst_case():
    _, _, want, found = expected()
    unit = measure.UNIT["bfloat16"]
    eta = measure.score_error(found, BF16).unsqueeze(-1)
    worst = unit * found.out.abs() + unit * found.a1 + 2 * eta * found.a1
    assert (want.limit <= 1.5 * worst + 1e-37).all()


def test_the_aggregate_rule_sees_an_error_that_every_element_may_have():
    """A bias well within R1 on each element, but the same on all of them."""
    _, _, want, _ = expected(sk=40)
    got = rounded(want.want, "bfloat16").double() + 0.5 * want.limit
    found = measure.measure_output("out", got, want, ROWS)
    assert found.rule == "R2"
    assert found.worst > 1.0
    assert "root mean square over the block" in found.position
    without = Expected(want.want, want.limit, want.precision)
    assert measure.measure_output("out", got, without, ROWS).worst <= 1.0


def test_blocks_are_cut_in_long_requests_and_pooled_over_short_ones():
    blocks = Rows((70, 1, 2, 16, *[1] * 15)).blocks()
    assert [len(block) for block in blocks] == [35, 35, 16, 18]
    assert blocks[-1].tolist() == [70, 71, 72, *range(89, 104)]
    assert Rows((5, 5)).blocks() == []
    assert all(
        len(block) >= measure.RMS_ROWS for n in range(16, 300) for block in Rows((n,)).blocks()
    )


def test_a_soft_cap_by_the_fast_tanh_is_allowed_in_16_bits_only():
    _, _, _, found = expected()
    capped = reference.Attention(**{**vars(found), "capped": torch.ones_like(found.capped)})
    for dtype, more in (("bfloat16", measure.FAST_TANH), ("float32", 0.0)):
        precision = Precision(dtype, dtype)
        gained = measure.lse_limit(capped, precision) - measure.lse_limit(found, precision)
        torch.testing.assert_close(gained, torch.full_like(gained, more))


def lse_of(got: torch.Tensor, want: torch.Tensor, empty: str = "either") -> Measurement:
    limit = torch.full_like(want, 2e-5)
    return measure.measure_lse("lse", got, ExpectedLse(want, limit, empty), Rows((len(want),)))


@pytest.mark.parametrize(
    ("value", "empty", "passes"),
    [
        (-math.inf, "either", True),
        (math.inf, "either", True),
        (-math.inf, "-inf", True),
        (math.inf, "-inf", False),
        (-math.inf, "+inf", False),
        (-1e30, "either", False),
        (0.0, "either", False),
    ],
)
def test_a_row_without_a_key_holds_exactly_the_declared_infinity(value, empty, passes):
    want = torch.tensor([[-math.inf], [1.0]]).double()
    found = lse_of(torch.tensor([[value], [1.0]]), want, empty)
    assert (found.worst <= 1.0) is passes
    assert found.nonfinite == 0
    if not passes:
        assert "this row has no key" in found.position


def test_nan_in_a_row_without_a_key_and_infinity_in_one_with_keys_are_not_finite():
    want = torch.tensor([[-math.inf], [1.0]]).double()
    found = lse_of(torch.tensor([[math.nan], [math.inf]]), want)
    assert found.nonfinite == 2


def test_the_lse_limit_is_its_own_and_not_the_outputs():
    want = torch.zeros(4, 2).double()
    assert lse_of(want + 1.9e-5, want).worst <= 1.0
    assert lse_of(want + 2.1e-5, want).worst > 1.0


LSE = torch.linspace(1.0, 9.0, 60).view(20, 3).double()


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (LSE * 1.442695, "base-2"),
        (LSE * 0.6931472, "twice"),
        (torch.zeros_like(LSE), "never reach the kernel"),
        (LSE.t().reshape(20, 3), "heads and tokens are swapped"),
        (LSE.reshape(3, 20).t(), "heads and tokens are swapped"),
        (LSE + 0.3, ""),
    ],
)
def test_lse_hints(got: torch.Tensor, words: str):
    hint = measure.lse_hint(got, LSE)
    assert words in hint
    assert bool(hint) is bool(words)


def test_output_hints_try_explanations_in_order_and_name_the_one_that_fits():
    requests, rules, want, _ = expected()
    wider = Rules(rules.scale)
    built = measure.expect_attention(requests, wider, BF16, aggregate=False)[0]
    got = rounded(built.want, "bfloat16")
    explanations = [("it is raining", lambda: want), ("causal is ignored", lambda: built)]
    assert measure.output_hint(got, want, explanations) == "right if causal is ignored"
    assert measure.output_hint(torch.zeros_like(got), want, []) == "every value is 0"
    stale = torch.where(torch.rand_like(got.float()) < 0.1, 1e4, got.float()).bfloat16()
    assert "1e4" in measure.output_hint(stale, want, [])


@pytest.mark.parametrize("base", ["e", "2"])
@pytest.mark.parametrize("layout", ["HT", "TH"])
def test_an_lse_unit_stores_and_reads_back(base: str, layout: str):
    unit = LseUnit(base, "either", layout)
    natural = torch.randn(5, 3)
    stored = unit.stored(natural)
    assert tuple(stored.shape) == unit.shape(5, 3)
    torch.testing.assert_close(unit.natural(stored).float(), natural)


def test_lse_declarations_replace_the_default_part_by_part():
    default = LseUnit("e", "-inf", "HT")
    assert measure.lse_unit({"lse": {"base": "2"}}, default) == LseUnit("2", "-inf", "HT")
    assert measure.lse_unit({}, default) == default
    with pytest.raises(registry.DeclarationError, match=r"lse\.color"):
        measure.lse_unit({"lse": {"color": "red"}}, default)


def test_equal_bits_are_demanded_bit_by_bit():
    one = torch.tensor([1.0, math.nan, -0.0])
    assert measure.same_bits("out", one, one.clone(), "the gaps").worst == 0.0
    other = torch.tensor([1.0, math.nan, 0.0])
    found = measure.same_bits("out", one, other, "the gaps")
    assert found.worst > 1.0
    assert "1 elements change with the gaps, the first at [2]" in found.position


def test_a_verdict_speaks_of_the_worst_measurement():
    good = Measurement("out", "R1", 0.4, 0.1, 10)
    bad = Measurement("lse", "R3", 7.25, 0.1, 10, position="row 3", hint="because")
    assert measure.verdict("c", [good]).kind is VerdictKind.PASSED
    verdict = measure.verdict("c", [good, bad])
    assert verdict.kind is VerdictKind.WRONG_VALUES
    assert verdict.message == "lse: 7.25 times the allowed error (R3); row 3"
    assert verdict.advice == "because"
    assert verdict.measurements == (good, bad)


def test_a_merge_may_err_by_its_roundings_and_no_more():
    rng = torch.Generator().manual_seed(2)
    outs = [torch.randn(30, 2, 8, generator=rng).bfloat16() for _ in range(2)]
    lses = [torch.randn(30, 2, generator=rng) for _ in range(2)]
    merged = reference.merge(outs[0], lses[0], outs[1], lses[1])
    want = Expected(
        merged.out, measure.merge_limit(merged, "bfloat16"), Precision("float32", "bfloat16")
    )
    rows = Rows((30,))
    assert measure.measure_output("out", merged.out.bfloat16(), want, rows).worst <= 1.0
    sloppy = (merged.out * 1.01).bfloat16()
    assert measure.measure_output("out", sloppy, want, rows).worst > 1.0
