"""The store answers with a pass only for a complete run of exactly the key."""

import sqlite3
from dataclasses import replace

import pytest

from attngate.gpu_runner.evidence.key import EvidenceKey, JobKey
from attngate.gpu_runner.evidence.store import EvidenceStore, StoreError
from attngate.gpu_runner.protocol import Facts
from attngate.gpu_runner.worker.wire import Measurement, Verdict, VerdictKind

KEY = JobKey(EvidenceKey(1, "tree", "", "suite", "decl", "tool", "env", "quick"), "whole")
CASES = ("s/one", "s/two")
FACTS = Facts(planned=CASES)


def passed(case):
    return Verdict(case, VerdictKind.PASSED, measurements=(Measurement("out", "R1", 0.5, 0.1, 8),))


def failed(case):
    return Verdict(case, VerdictKind.WRONG_VALUES, "off")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "private" / "evidence.sqlite"


@pytest.fixture
def store(path):
    opened = EvidenceStore(path)
    yield opened
    opened.close()


def fill(store, verdicts, facts=FACTS, key=KEY):
    run = store.begin(key, "target", facts.planned)
    for verdict in verdicts:
        store.record(run, verdict)
    return run


def test_a_complete_run_is_found_again_after_reopening(store, path):
    run = fill(store, map(passed, CASES))
    store.complete(run, FACTS, 1.0)
    store.close()
    again = EvidenceStore(path)
    found = again.lookup(KEY)
    assert found.passed
    assert [v.case for v in found.verdicts] == list(CASES)
    again.close()


def test_an_unfinished_run_establishes_nothing(store):
    run = fill(store, [passed(CASES[0])])
    assert store.lookup(KEY) is None
    with pytest.raises(StoreError, match="every case"):
        store.complete(run, FACTS, 1.0)
    assert store.lookup(KEY) is None


def test_another_key_is_not_answered(store):
    store.complete(fill(store, map(passed, CASES)), FACTS, 1.0)
    assert store.lookup(replace(KEY, key=replace(KEY.key, environment="other"))) is None


def test_a_failure_is_kept_and_is_no_pass(store):
    store.complete(fill(store, [passed(CASES[0]), failed(CASES[1])]), FACTS, 1.0)
    assert not store.lookup(KEY).passed


def test_an_unfinished_failure_takes_an_older_pass_away(store):
    store.complete(fill(store, map(passed, CASES)), FACTS, 1.0)
    fill(store, [failed(CASES[0])])
    assert store.lookup(KEY) is None


def test_a_widened_run_counts_for_the_whole_tree_only(store):
    facts = Facts(planned=CASES, scope="whole tree")
    store.complete(fill(store, map(passed, CASES), facts), facts, 1.0)
    assert store.lookup(KEY).passed
    assert store.lookup(replace(KEY, whole_tree="another tree")) is None


def test_a_widened_run_takes_an_older_narrow_pass_away(store):
    store.complete(fill(store, map(passed, CASES)), FACTS, 1.0)
    facts = Facts(planned=CASES, scope="whole tree")
    store.complete(fill(store, map(passed, CASES), facts), facts, 1.0)
    assert store.lookup(replace(KEY, whole_tree="another tree")) is None


def test_a_case_has_one_verdict_and_rows_cannot_be_changed(store, path):
    run = fill(store, map(failed, CASES))
    with pytest.raises(StoreError):
        store.record(run, passed(CASES[0]))
    store.complete(run, FACTS, 1.0)
    with sqlite3.connect(path) as other, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        other.execute("UPDATE verdicts SET kind = 'passed'")


def test_a_verdict_that_contradicts_itself_is_passed_over(store, path):
    store.complete(fill(store, map(failed, CASES)), FACTS, 1.0)
    with sqlite3.connect(path) as other:
        other.execute("DROP TRIGGER verdicts_are_final")
        other.execute("UPDATE verdicts SET kind = 'passed'")
    assert store.lookup(KEY) is None
    assert any("unreadable" in warning for warning in store.warnings)


def test_a_damaged_database_is_moved_aside(path):
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"this is no database, and it is long enough to be read as one" * 100)
    store = EvidenceStore(path)
    assert store.lookup(KEY) is None
    assert any("damaged" in warning for warning in store.warnings)
    assert list(path.parent.glob("*.damaged-*"))
    store.close()


def test_a_later_versions_database_is_left_alone(path):
    EvidenceStore(path).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 999")
    before = path.read_bytes()
    store = EvidenceStore(path)
    assert store.name == "in memory"
    assert store.warnings
    store.close()
    assert path.read_bytes() == before


def test_an_unusable_folder_means_memory_and_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    store = EvidenceStore(tmp_path / "file" / "evidence.sqlite")
    assert store.name == "in memory"
    assert any("memory only" in warning for warning in store.warnings)
    store.complete(fill(store, map(passed, CASES)), FACTS, 1.0)
    assert store.lookup(KEY).passed
    store.close()


def test_pruning_keeps_the_newest_run_of_a_key(store):
    for _ in range(3):
        store.complete(fill(store, map(passed, CASES)), FACTS, 1.0)
    store.prune(max_age_s=0.0, max_bytes=0)
    assert store.lookup(KEY).passed
