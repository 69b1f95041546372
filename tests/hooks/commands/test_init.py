"""`attngate init` adds text to pyproject.toml and changes nothing that is there."""

import os
import tomllib

import pytest


def test_a_table_is_added_behind_what_is_there(lab):
    lab.new()
    before = b"# mine\r\n[project]\r\nname = 'p'"
    path = lab.write("pyproject.toml", before)
    lab.write("plug/__init__.py", "")
    lab.write("tests/__init__.py", "")
    lab.git("add", "-A")
    assert lab.attngate("init", "--profile", "vllm-metax").code == 0
    after = path.read_bytes()
    assert after.startswith(before)
    assert b"\n" not in after.replace(b"\r\n", b"")
    table = tomllib.loads(after.decode())["tool"]["attngate"]
    assert table == {"profile": "vllm-metax", "packages": ["plug"]}


def test_a_new_file_and_a_source_folder(lab):
    lab.new()
    lab.write("src/plug/__init__.py", "")
    lab.git("add", "-A")
    run = lab.attngate("init")
    assert run.code == 0
    assert "attngate-gate" in run.output
    table = tomllib.loads((lab.repo / "pyproject.toml").read_text())["tool"]["attngate"]
    assert table == {"packages": ["plug"], "import_roots": ["src"]}
    assert lab.attngate("config", "--worktree").code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.attngate]\n", "has a [tool.attngate] table already"),
        ("[project\n", "is not valid TOML"),
        (b"\xff\xfe", "cannot read"),
    ],
)
def test_a_file_that_cannot_be_added_to_is_left_alone(lab, text, said):
    lab.new()
    path = lab.write("pyproject.toml", text)
    before = path.read_bytes()
    run = lab.attngate("init")
    assert run.code == 2
    assert said in run.output
    assert path.read_bytes() == before


def test_dry_run_writes_nothing(lab):
    lab.new()
    run = lab.attngate("init", "--dry-run")
    assert run.code == 0
    assert run.output.startswith("[tool.attngate]\n")
    assert not (lab.repo / "pyproject.toml").exists()


def test_an_unknown_profile_names_the_known_ones(lab):
    lab.new()
    run = lab.attngate("init", "--profile", "nothing")
    assert run.code == 2
    assert "vllm-metax" in run.output


def test_a_bare_repository_is_refused(lab):
    lab.new()
    bare = lab.remote()
    run = lab.attngate("init", cwd=bare)
    assert run.code == 2
    assert "bare repository" in run.output
    assert "pyproject.toml" not in os.listdir(bare)
