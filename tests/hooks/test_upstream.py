from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from attngate.hooks import upstream
from attngate.hooks.errors import CouldNotCheckError, UsageError

if TYPE_CHECKING:
    from tests.hooks.conftest import Lab


def source(folder: Path, version: str = "") -> Path:
    """A folder that holds the package `vllm`."""
    (folder / "vllm").mkdir(parents=True)
    (folder / "vllm/__init__.py").write_text("")
    if version:
        (folder / "vllm/_version.py").write_text(f"__version__ = version = '{version}'\n")
    return folder


@pytest.mark.parametrize("part", ["", "vllm"])
def test_the_folder_or_the_package_in_it(tmp_path: Path, part: str) -> None:
    folder = source(tmp_path / "checkout", "0.19.1.dev3+g12")
    found = upstream.locate(str(folder / part), "", "")
    assert found is not None
    assert (found.folder, found.version) == (str(folder), "0.19.1.dev3+g12")
    assert found.label == "vllm 0.19.1.dev3+g12"


def test_a_relative_path_starts_at_the_work_tree_and_the_folder_may_name_the_version(
    tmp_path: Path,
) -> None:
    source(tmp_path / "vllm-0.18.0")
    (tmp_path / "plugin").mkdir()
    found = upstream.locate("../vllm-0.18.0", str(tmp_path / "plugin"), "")
    assert found is not None
    assert found.version == "0.18.0"


def test_what_is_configured_and_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CouldNotCheckError, match="there is no package vllm in") as caught:
        upstream.locate(str(tmp_path), "", "")
    assert "ATTNGATE_UPSTREAM" in caught.value.advice


def test_nothing_configured_and_nothing_installed() -> None:
    assert upstream.locate("", "", sys.executable) is None


def test_a_version_lies_beside_the_current_one(tmp_path: Path) -> None:
    current = upstream.target_in(str(source(tmp_path / "vllm-0.19.0")))
    older = source(tmp_path / "vllm-0.18.0")
    assert upstream.previous("0.18.0", current).folder == str(older)
    assert upstream.previous(str(older), None).folder == str(older)
    with pytest.raises(UsageError, match=r"vllm-0\.17\.0"):
        upstream.previous("0.17.0", current)
    with pytest.raises(UsageError, match="without `upstream`"):
        upstream.previous("0.17.0", None)


def test_a_changed_source_file_is_another_fingerprint(tmp_path: Path) -> None:
    folder = source(tmp_path / "x")
    first = upstream.target_in(str(folder))
    paths = set(upstream.depends(first))
    assert str(folder / "vllm/__init__.py") in paths
    (folder / "vllm/__init__.py").write_text("x = 1\n")
    assert upstream.target_in(str(folder)).fingerprint != first.fingerprint


def test_check_lists_drift_and_a_lost_change(lab: Lab, tmp_path: Path) -> None:
    previous = source(tmp_path / "vllm-1.0")
    current = source(tmp_path / "vllm-1.1")
    for folder in (previous, current):
        (folder / "vllm/layer.py").write_text("class Layer:\n    size = 1\n")
    (current / "vllm/moved.py").write_text("def helper(): ...\n")
    lab.new()
    lab.write("plugin/__init__.py", "")
    lab.write("plugin/layer.py", "class Layer:\n    # plugin: the kernel needs two\n    size = 2\n")
    lab.commit("before")
    lab.write("plugin/layer.py", "class Layer:\n    size = 1\n")
    lab.write("plugin/user.py", "from vllm.layer import helper\n")
    lab.commit("sync")
    done = lab.attngate(
        "check", "--rev", "HEAD", "--previous-target", "1.0", ATTNGATE_UPSTREAM=str(current)
    )
    assert done.code == 1
    assert "plugin/user.py:1:1: error ATT201" in done.output
    assert "Import it from vllm.moved." in done.output
    assert "plugin/layer.py:2:1: warning ATT231" in done.output
    plain = lab.attngate("check", "--rev", "HEAD", ATTNGATE_UPSTREAM=str(current))
    assert "ATT231" not in plain.output
    missing = lab.attngate("check", "--rev", "HEAD", ATTNGATE_UPSTREAM=str(tmp_path))
    assert "there is no package vllm in" in missing.output
    assert "ATT201" not in missing.output


def test_a_changed_target_is_noticed_behind_a_remembered_check(lab: Lab, tmp_path: Path) -> None:
    current = source(tmp_path / "vllm-1.1")
    (current / "vllm/layer.py").write_text("def helper(): ...\n")
    lab.new()
    lab.write("plugin/user.py", "from vllm.layer import helper\n")
    lab.commit("use")
    options = {"ATTNGATE_UPSTREAM": str(current)}
    assert lab.attngate("check", "--rev", "HEAD", **options).code == 0
    assert lab.attngate("check", "--rev", "HEAD", **options).code == 0
    (current / "vllm/layer.py").write_text("def other(): ...\n")
    assert "ATT201" in lab.attngate("check", "--rev", "HEAD", **options).output
