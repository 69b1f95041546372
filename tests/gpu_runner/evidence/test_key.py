"""A key stands for exactly its inputs."""

from dataclasses import fields, replace

import pytest

from attngate.gpu_runner.evidence.key import (
    EvidenceKey,
    JobKey,
    declaration_digest,
    tool_digest,
    tree_closure,
)
from attngate.gpu_runner.worker.wire import Target

KEY = EvidenceKey(1, "tree", "contract", "suite", "declaration", "tool", "environment", "quick")


@pytest.mark.parametrize("name", [field.name for field in fields(EvidenceKey)])
def test_every_field_counts(name):
    value = 2 if name == "version" else "other"
    assert replace(KEY, **{name: value}).digest() != KEY.digest()


def test_a_widened_key_is_another_one_and_depends_on_the_whole_tree():
    first, second = JobKey(KEY, "a"), JobKey(KEY, "b")
    assert first.widened().digest() != KEY.digest()
    assert first.widened().digest() != second.widened().digest()


def test_a_closure_counts_path_mode_contents_and_stand_ins():
    base = tree_closure([("a.py", 0o100644, "1")], {"x.so": ("/one/x.so", "d")})
    assert tree_closure([("b.py", 0o100644, "1")], {"x.so": ("/one/x.so", "d")}) != base
    assert tree_closure([("a.py", 0o100755, "1")], {"x.so": ("/one/x.so", "d")}) != base
    assert tree_closure([("a.py", 0o100644, "2")], {"x.so": ("/one/x.so", "d")}) != base
    assert tree_closure([("a.py", 0o100644, "1")], {"x.so": ("/one/x.so", "e")}) != base
    assert tree_closure([("a.py", 0o100644, "1")], {"x.so": ("/two/x.so", "d")}) == base


def test_the_order_of_files_does_not_count():
    files = [("a.py", 0o100644, "1"), ("b.py", 0o100644, "2")]
    assert tree_closure(files) == tree_closure(files[::-1])


def test_a_target_counts_by_everything_but_its_name():
    target = Target("one", "m:f", "suite", options={"dtypes": ["float32"]})
    assert declaration_digest(replace(target, name="two")) == declaration_digest(target)
    assert declaration_digest(replace(target, callable="m:g")) != declaration_digest(target)
    assert declaration_digest(replace(target, options={})) != declaration_digest(target)


def test_the_tool_is_its_sources(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    before = tool_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("not a source")
    assert tool_digest(tmp_path) == before
    (tmp_path / "a.py").write_text("x = 2\n")
    assert tool_digest(tmp_path) != before
