"""The suite flash_attn_varlen passes correct kernels and says what is wrong with wrong ones."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import bad_varlen
import pytest
from driving import Session, first_failure
from mutants import FOLDER, correct
from processes import verdicts

from attngate.gpu_runner.worker import registry
from attngate.gpu_runner.worker.wire import VerdictKind

SUITE = "flash_attn_varlen"
SMALL_PAGES = {"page_sizes": [16]}


def failure_of(name: str, folder: Path, case: str):
    mutant = next(each for each in bad_varlen.MUTANTS if each.name == f"varlen-{name}")
    options = {"dtypes": ["float32"], **SMALL_PAGES, **mutant.options}
    session = Session(mutant.build(folder), SUITE, options)
    verdict = first_failure(session.verdicts(lambda each: case not in each))
    assert verdict is not None
    return verdict


def cases_of(**options):
    cases, left_out = registry.find(SUITE).plan(registry.Declaration("t", SUITE, options))
    return cases, dict(left_out)


def test_a_correct_kernel_passes_every_case_in_float32():
    options = {"dtypes": ["float32"], **SMALL_PAGES}
    found = list(Session(correct("good_varlen_torch", SUITE), SUITE, options).verdicts())
    assert {verdict.kind for verdict in found} == {VerdictKind.PASSED}
    assert len(found) > 90


@pytest.mark.parametrize("kernel", ["good_varlen_torch", "good_varlen_sdpa"])
def test_correct_kernels_pass_in_16_bits_with_the_defaults(kernel: str):
    session = Session(correct(kernel, SUITE), SUITE, {}, "quick", seed=7)
    found = list(session.verdicts())
    assert {verdict.kind for verdict in found} == {VerdictKind.PASSED}
    assert {verdict.case.rsplit("-", 1)[1] for verdict in found} == {"bf16", "fp16"}
    assert any("paged256" in verdict.case for verdict in found)


def test_a_triton_kernel_passes_in_the_interpreter():
    source = (FOLDER / "good_varlen_triton.py").read_text()
    options = {"dtypes": ["float16"], "alibi": False, "softcap": False, "strided": False}
    found = list(islice(verdicts(source, SUITE, {**options, **SMALL_PAGES}, tier="quick"), 4))
    assert [verdict.kind for verdict in found] == [VerdictKind.PASSED] * 4


def test_a_kernel_without_softcap_is_not_asked_for_it_and_the_report_says_so():
    session = Session(correct("good_varlen_sdpa", SUITE), SUITE, SMALL_PAGES, "quick")
    verdict = next(iter(session.verdicts()))
    assert verdict.kind is VerdictKind.PASSED
    assert any("softcap" in what and "takes no softcap" in why for what, why in session.left_out)


def test_a_kernel_without_lse_is_judged_by_its_output_alone():
    right = correct("good_varlen_torch", SUITE)

    def without(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                softmax_scale=None, causal=False, window_size=(-1, -1)):  # fmt: skip
        return right(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, 0.0,
                     softmax_scale, causal, window_size)  # fmt: skip

    session = Session(without, SUITE, {"dtypes": ["float16"]}, "quick")
    found = list(session.verdicts())
    assert {verdict.kind for verdict in found} == {VerdictKind.PASSED}
    assert {each.output for verdict in found for each in verdict.measurements} == {"out"}
    assert ("the LSE", "the callable does not return it") in session.left_out


def test_the_vllm_convention_is_driven_by_its_own_names_and_order():
    right = correct("good_varlen_torch", SUITE)

    def vllm_order(q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, cu_seqlens_k=None,
                   seqused_k=None, softmax_scale=None, causal=False, window_size=None,
                   softcap=0.0, alibi_slopes=None, block_table=None, return_softmax_lse=False,
                   out=None, s_aux=None):  # fmt: skip
        if cu_seqlens_k is None:
            cu_seqlens_k = (*[0], *seqused_k.cumsum(0).tolist())
        window = (-1, -1) if window_size is None else tuple(window_size)
        result, lse, _ = right(
            q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, 0.0, softmax_scale,
            causal, window, softcap, alibi_slopes, False, True, block_table, s_aux,
        )  # fmt: skip
        result = result if out is None else out.copy_(result)
        return (result, lse) if return_softmax_lse else result

    options = {"convention": "vllm", "dtypes": ["float32"], "sinks": True}
    session = Session(vllm_order, SUITE, options)
    wanted = ("out-given", "paged16-seams", "paged16-decode", "sinks-b", "mixed-b")
    chosen = list(islice(session.verdicts(lambda c: not any(w in c for w in wanted)), 12))
    assert {verdict.kind for verdict in chosen} == {VerdictKind.PASSED}
    assert any("out-given" in verdict.case for verdict in chosen)


@pytest.mark.parametrize(
    ("name", "case", "hint"),
    [
        ("window-one-wider", "window-causal-b", "the window reaches one key further left"),
        ("causal-at-top-left", "offset", "the diagonal is aligned at the top left"),
        ("softcap-ignored", "softcap-b", "the soft cap is ignored"),
        ("scale-ignored", "scale-given", "the scale is the default one"),
        ("alibi-sign", "alibi-b", "the ALiBi bias has the other sign"),
        ("sinks-scaled", "sinks-b", "the sinks are scaled like scores"),
        ("last-key-dropped", "dense", "the last key of each request is left out"),
        ("lse-in-base-2", "dense", "looks like a base-2 logarithm"),
        ("lse-never-reaches-the-kernel", "dense", "may never reach the kernel"),
        ("lse-in-token-major-memory", "dense", "heads and tokens are swapped"),
    ],
)
def test_the_verdict_names_the_likely_cause(name: str, case: str, hint: str, tmp_path: Path):
    assert hint in failure_of(name, tmp_path, case).advice


def test_the_verdict_says_where_in_words(tmp_path: Path):
    verdict = failure_of("window-one-wider", tmp_path, "window-normal")
    assert "times the allowed error (R1)" in verdict.message
    assert "of request" in verdict.message
    assert "channel" in verdict.message


def test_what_belongs_to_no_request_must_not_matter():
    right = correct("good_varlen_torch", SUITE)

    def reads_a_gap(q, k, *args, block_table=None, **kwargs):
        result = right(q, k, *args, block_table=block_table, **kwargs)
        last_bit = k.flatten()[0].nan_to_num(0.0).sign() * 2.0**-23
        return result[0] * (1 + last_bit), *result[1:]

    options = {"dtypes": ["float32"], **SMALL_PAGES}
    session = Session(reads_a_gap, SUITE, options)
    verdict = next(session.verdicts(lambda case: "together" not in case))
    assert verdict.kind is VerdictKind.WRONG_VALUES
    assert "change with what lies in memory that belongs to no request" in verdict.message


def test_a_declared_sign_of_the_empty_lse_is_demanded():
    right = correct("good_varlen_torch", SUITE)
    options = {"dtypes": ["float32"], **SMALL_PAGES}
    for empty, passes in (("-inf", True), ("either", True), ("+inf", False)):
        session = Session(right, SUITE, {**options, "lse": {"empty": empty}})
        verdict = next(session.verdicts(lambda case: "rows-without-keys" not in case))
        assert (verdict.kind is VerdictKind.PASSED) is passes
        if not passes:
            assert "expected +inf (this row has no key)" in verdict.message


def test_declarations_choose_the_cases():
    cases, left_out = cases_of(
        dtypes=["float16"],
        head_dims=[[192, 128]],
        groups=[3],
        page_sizes=[32],
        alibi=False,
        softcap=False,
        sinks=False,
        causal=True,
    )
    assert {(case.axes["d"], case.axes["dv"]) for case in cases} == {(192, 128)}
    assert {case.axes["hq"] // case.axes["hk"] for case in cases} == {3}
    assert {case.axes["page"] for case in cases} == {0, 32}
    assert all(case.axes["causal"] for case in cases)
    assert not any(case.axes["alibi"] or case.axes["softcap"] for case in cases)
    assert {"alibi", "softcap", "sinks", "dropout"} <= set(left_out)


def test_declared_limits_hold_in_the_paged_cases_too():
    cases, _ = cases_of(alibi=False, softcap=False, sinks=False, window=False)
    assert not any(case.axes["sinks"] or case.axes["softcap"] for case in cases)
    assert all(case.axes["window"] == [-1, -1] for case in cases)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"page_sizes": [0]}, "sizes are positive"),
        ({"causal": "yes"}, "neither a boolean"),
        ({"p_dtype": "int4"}, "p_dtype = 'int4' is not known"),
        ({"sink_dtypes": ["float99"]}, "sink_dtypes: 'float99' is not known"),
        ({"groups": 4}, "must be a list"),
    ],
)
def test_a_declaration_that_cannot_be_used_is_refused(options: dict, words: str):
    with pytest.raises(registry.DeclarationError, match=words):
        cases_of(**options)


def test_case_ids_are_unique_and_say_what_they_are():
    cases, _ = cases_of(page_sizes=[16, 64, 256])
    ids = [case.id for case in cases]
    assert len(set(ids)) == len(ids)
    assert "window-causal-b5-hq4-hk2-d64-bf16" in ids
