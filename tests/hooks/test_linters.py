"""ruff and mypy run on the exported tree, only where it configures them, and say which they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from attngate.hooks import linters
from attngate.hooks.linters import LintRequest, configured, run_linters

UNFORMATTED = "import os\nx = {  'a':1 }\n"


@pytest.fixture
def lint(tree, tmp_path):
    def run(files, env=None, interpreter=sys.executable, packages=(), only=None):
        for path, text in files.items():
            target = tmp_path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        request = LintRequest(
            snapshot=tree(files),
            folder=str(tmp_path),
            env=dict(os.environ) if env is None else env,
            interpreter=interpreter,
            packages=packages,
        )
        return {answer.tool: answer for answer in run_linters(request, only)}

    return run


def test_nothing_is_run_that_the_tree_does_not_configure(lint):
    answers = lint({"a.py": UNFORMATTED})
    assert {answer.status for answer in answers.values()} == {linters.NOT_CONFIGURED}


def test_ruff_reports_path_line_code_and_what_it_is(lint):
    answers = lint(
        {"pkg/a.py": UNFORMATTED, "pyproject.toml": "[tool.ruff.lint]\nselect = ['F']\n"}
    )
    answer = answers["ruff"]
    assert answer.status == linters.FOUND
    (finding,) = answer.findings
    assert (finding.code, finding.location.path, finding.location.line) == ("F401", "pkg/a.py", 1)
    assert finding.line_text == "import os"
    assert answer.version.startswith("ruff ")
    assert Path(answer.program).is_file()
    assert answer.configured_by == "pyproject.toml"
    assert answers["ruff format"].status == linters.NOT_CONFIGURED


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "[tool.ruff.format]\nquote-style = 'double'\n"),
        ("ruff.toml", "[format]\nquote-style = 'double'\n"),
        (".pre-commit-config.yaml", "repos:\n- repo: x\n  hooks:\n  - id: ruff-format\n"),
    ],
)
def test_the_formatter_is_asked_where_the_tree_asks_for_it(lint, name, text):
    answer = lint({"a.py": UNFORMATTED, name: text})["ruff format"]
    assert answer.status == linters.FOUND
    assert [f.location.path for f in answer.findings] == ["a.py"]


def test_the_excludes_of_the_tree_are_honoured(lint):
    config = "[tool.ruff]\nexclude = ['old']\n"
    assert lint({"old/a.py": UNFORMATTED, "pyproject.toml": config})["ruff"].status == linters.CLEAN


def test_mypy_reports_errors_of_the_packages(lint):
    files = {
        "pkg/__init__.py": "def f(x: int) -> str:\n    return x\n",
        "other.py": "y: int = ''\n",
        "mypy.ini": "[mypy]\nstrict = True\n",
    }
    answer = lint(files, packages=("pkg",))["mypy"]
    assert answer.status == linters.FOUND
    (finding,) = answer.findings
    assert (finding.code, finding.location.path, finding.location.line) == (
        "return-value",
        "pkg/__init__.py",
        2,
    )


def test_mypy_is_given_nothing_where_its_configuration_names_files(lint):
    files = {
        "a.py": "y: int = ''\n",
        "b.py": "y: int = ''\n",
        "setup.cfg": "[mypy]\nfiles = b.py\n",
    }
    answer = lint(files)["mypy"]
    assert [f.location.path for f in answer.findings] == ["b.py"]


def test_a_plugin_that_is_missing_is_could_not_run_and_says_so(lint):
    files = {"a.py": "x = 1\n", "pyproject.toml": "[tool.mypy]\nplugins = ['no_such.plugin']\n"}
    answer = lint(files)["mypy"]
    assert answer.status == linters.COULD_NOT_RUN
    assert answer.message.startswith('pyproject.toml: Error importing plugin "no_such')


def test_a_broken_configuration_is_could_not_run(lint):
    answer = lint({"a.py": "x = 1\n", "ruff.toml": "select = 7\n"})["ruff"]
    assert answer.status == linters.COULD_NOT_RUN
    assert answer.message


def test_a_program_that_is_nowhere_is_could_not_run(lint, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    files = {"a.py": "x = 1\n", "ruff.toml": ""}
    answer = lint(files, env={"PATH": str(tmp_path)}, interpreter="")["ruff"]
    assert answer.status == linters.COULD_NOT_RUN
    assert "no ruff was found" in answer.message


def test_the_interpreters_program_comes_before_the_one_on_path(tmp_path):
    for folder in ("venv", "path"):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "ruff"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    env = {"PATH": str(tmp_path / "path")}
    own = linters.find_program("ruff", env, str(tmp_path / "venv" / "python"))
    assert own == str(tmp_path / "venv" / "ruff")
    assert linters.find_program("ruff", env, "") == str(tmp_path / "path" / "ruff")


def test_variables_that_redirect_a_linter_are_dropped(lint):
    env = {**os.environ, "RUFF_NO_CACHE": "x", "PYTHONPATH": "/nowhere", "GIT_DIR": "/nowhere"}
    answer = lint({"a.py": "x = 1\n", "ruff.toml": ""}, env=env)["ruff"]
    assert answer.status == linters.CLEAN


def test_what_configures_them(tree):
    files = {"pyproject.toml": "[tool.ruff]\n[tool.ruff.format]\n", "setup.cfg": "[mypy]\n"}
    assert configured(tree(files)) == {
        "ruff": "pyproject.toml",
        "ruff format": "pyproject.toml",
        "mypy": "setup.cfg",
    }


def test_nothing_is_written_into_the_exported_tree(lint, tmp_path):
    files = {"a.py": "x = 1\n", "pyproject.toml": "[tool.ruff]\n[tool.mypy]\n[tool.ruff.format]\n"}
    lint(files)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.py", "pyproject.toml"]
