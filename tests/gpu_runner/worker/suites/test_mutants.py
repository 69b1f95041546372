"""Every wrong kernel is refused, and what refuses it is what it breaks."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import bad_merge
import bad_varlen
import pytest
from matrix import DECLARED, KILLS, MUTANTS, killer
from mutants import Mutant
from processes import verdicts

from attngate.gpu_runner.worker.wire import VerdictKind

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_wrong_kernel_is_refused(name: str, tmp_path: Path):
    mutant = BY_NAME[name]
    verdict = killer(mutant, mutant.build(tmp_path))
    assert verdict is not None
    assert verdict.message


def test_each_class_has_three_wrong_kernels_where_it_applies():
    varlen = Counter(mutant.kind for mutant in bad_varlen.MUTANTS)
    merge = Counter(mutant.kind for mutant in bad_merge.MUTANTS)
    assert all(varlen[kind] >= 3 for kind in "ABCDE")
    assert all(merge[kind] >= 3 for kind in "AB")


def test_the_kill_list_is_of_these_mutants_and_two_thirds_pass_allclose():
    lines = [line.split() for line in KILLS.read_text().splitlines() if re.match(r"[A-P]  ", line)]
    assert [line[1] for line in lines] == list(BY_NAME)
    assert "SURVIVES" not in KILLS.read_text()
    first = [line for line in lines if line[0] in "ABCDE"]
    assert sum(line[3] == "passes" for line in first) >= len(first) * 2 / 3


def test_a_mutant_whose_line_is_gone_says_so():
    mutant = Mutant("gone", "A", "merge_attn_states", "good_merge_torch", "no such line", "")
    with pytest.raises(ValueError, match="gone: 0 places in good_merge_torch"):
        mutant.source()


@pytest.mark.parametrize("name", ["merge-both-empty-is-nan", "varlen-alibi-sign"])
def test_real_processes_refuse_it_too(name: str):
    mutant = BY_NAME[name]
    options = {**DECLARED, "dtypes": ["float32"]}
    found = verdicts(mutant.source(), mutant.suite, options, tier="quick")
    kinds = {verdict.kind for verdict in found}
    assert VerdictKind.PASSED in kinds
    assert kinds & {VerdictKind.NONFINITE, VerdictKind.WRONG_VALUES}
