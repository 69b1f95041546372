"""The suite merge_attn_states passes correct kernels and says what is wrong with wrong ones."""

from __future__ import annotations

from pathlib import Path

import bad_merge
import pytest
import torch
from driving import Session, first_failure
from mutants import FOLDER, correct
from processes import verdicts

from attngate.gpu_runner.worker import registry
from attngate.gpu_runner.worker.wire import VerdictKind

SUITE = "merge_attn_states"


def failure_of(name: str, folder: Path, case: str, **options):
    mutant = next(each for each in bad_merge.MUTANTS if each.name == f"merge-{name}")
    session = Session(mutant.build(folder), SUITE, {"dtypes": ["float32"], **options})
    verdict = first_failure(session.verdicts(lambda each: case not in each))
    assert verdict is not None
    return verdict


@pytest.mark.parametrize("kernel", ["good_merge_torch", "good_merge_sigmoid"])
def test_correct_kernels_pass_in_every_dtype(kernel: str):
    found = list(Session(correct(kernel, SUITE), SUITE, {}, seed=3).verdicts())
    assert {verdict.kind for verdict in found} == {VerdictKind.PASSED}
    assert {verdict.case.rsplit("-", 1)[1] for verdict in found} == {"bf16", "fp16", "fp32"}
    assert all(verdict.measurements for verdict in found)


def test_a_triton_kernel_passes_in_the_interpreter_and_bfloat16_is_not_runnable_there():
    source = (FOLDER / "good_merge_triton.py").read_text()
    found = list(verdicts(source, SUITE, {}, tier="quick"))
    kinds = {verdict.case.rsplit("-", 1)[1]: set() for verdict in found}
    for verdict in found:
        kinds[verdict.case.rsplit("-", 1)[1]].add(verdict.kind)
    assert kinds["fp16"] == kinds["fp32"] == {VerdictKind.PASSED}
    assert kinds["bf16"] == {VerdictKind.NOT_RUNNABLE}


def test_what_is_not_covered_is_left_out_by_name():
    session = Session(correct("good_merge_torch", SUITE), SUITE, {"strided": False}, "quick")
    cases = [verdict.case for verdict in session.verdicts()]
    assert not any("padded" in case for case in cases)
    assert {what for what, _ in session.left_out} == {"output_scale", "padded heads"}


def test_a_kernel_without_a_prefix_bound_is_not_asked_for_it():
    right = correct("good_merge_torch", SUITE)

    def without(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None):
        right(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse)

    session = Session(without, SUITE, {"dtypes": ["float32"]})
    assert {verdict.kind for verdict in session.verdicts()} == {VerdictKind.PASSED}
    assert any("prefill_tokens_with_context" in why for _, why in session.left_out)


def test_a_declared_base_2_is_what_is_given_and_expected():
    right = correct("good_merge_torch", SUITE)
    factor = 0.6931471805599453

    def in_base_2(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None):
        lses = [lse.double().mul(factor).float() for lse in (prefix_lse, suffix_lse)]
        right(output, prefix_output, lses[0], suffix_output, lses[1], output_lse)
        if output_lse is not None:
            output_lse.copy_(output_lse.double() / factor)

    options = {"dtypes": ["float32"], "lse": {"base": "2"}}
    assert first_failure(Session(in_base_2, SUITE, options).verdicts()) is None
    assert first_failure(Session(in_base_2, SUITE, {"dtypes": ["float32"]}).verdicts()) is not None


@pytest.mark.parametrize(
    ("name", "case", "hint"),
    [
        ("sides-swapped", "skewed", "right if the two sides are swapped"),
        ("weights-in-base-2", "skewed", "right if the LSE are taken as base 2"),
        ("lse-read-transposed", "skewed-t33", "in the other layout"),
        ("lse-returned-in-base-2", "skewed", "looks like a base-2 logarithm"),
        ("lse-written-transposed", "similar", "heads and tokens are swapped"),
        ("empty-prefix-times-zero", "garbage-nan", "do not multiply the empty side's output by 0"),
    ],
)
def test_the_verdict_names_the_likely_cause(name: str, case: str, hint: str, tmp_path: Path):
    assert hint in failure_of(name, tmp_path, case).advice


def test_the_verdict_says_where(tmp_path: Path):
    verdict = failure_of("both-empty-keeps-prefix", tmp_path, "both-empty-t23")
    assert verdict.kind is VerdictKind.WRONG_VALUES
    assert "differs where it must be exact (R4)" in verdict.message
    assert "of request 0), head" in verdict.message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtypes": ["int8"]}, "dtypes: 'int8' is not known"),
        ({"dtypes": "float32"}, "must be a list"),
        ({"head_dims": [[64, 64, 64]]}, "pairs of sizes"),
        ({"lse": {"base": "10"}}, "lse.base = '10' is not known"),
        ({"lse": "e"}, "lse must be a table"),
    ],
)
def test_a_declaration_that_cannot_be_used_is_refused(options: dict, words: str):
    said = registry.Declaration("t", SUITE, options)
    with pytest.raises(registry.DeclarationError, match=words):
        registry.find(SUITE).plan(said)


def test_the_same_seed_gives_the_same_calls():
    suite, said = registry.find(SUITE), registry.Declaration("t", SUITE)
    for case in suite.plan(said)[0][:8]:
        one, two = (suite.prepare(case, said, torch.Generator().manual_seed(5)) for _ in range(2))
        for first, second in zip(one, two, strict=True):
            lses = (first.args["prefix_lse"], second.args["prefix_lse"])
            assert torch.equal(*(lse.nan_to_num() for lse in lses))
