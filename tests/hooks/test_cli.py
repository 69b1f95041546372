"""The command: every outcome has its exit code, and lost output never changes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from attngate.hooks import cli
from attngate.hooks.errors import CouldNotCheckError, RefusedError, UsageError

ATTNGATE = str(Path(sys.executable).parent / "attngate")
RUN = "from attngate.hooks import cli\n"


def python(
    code: str, tail: str = "cli.main(['x'])", **options: object
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-c", f"{RUN}{code}\n{tail}"],
        capture_output=True,
        text=True,
        check=False,
        **options,  # type: ignore[call-overload]
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError("m", "a"), 2), (RefusedError("m", "a"), 1), (CouldNotCheckError("m", "a"), 4)],
)
def test_an_error_is_a_message_with_advice_and_its_code(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "dispatch", fail)
    assert cli.guarded(["x"]) == code
    assert capsys.readouterr().err == "attngate: m\n  a\n"


def test_a_bug_names_its_crash_log(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        done = python(
            "cli.dispatch = lambda arguments: {}['lost']",
            env={"XDG_STATE_HOME": str(tmp_path / "state"), "PATH": "/bin"},
        )
    finally:
        os.umask(before)
    assert done.returncode == 3
    (path,) = re.findall(r"details in (\S+)", done.stderr)
    assert "KeyError: 'lost'" in Path(path).read_text()
    assert Path(path).stat().st_mode & 0o077 == 0
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0


def test_a_bug_without_a_place_for_its_log_prints_it() -> None:
    done = python(
        "cli.dispatch = lambda arguments: {}['lost']",
        env={"XDG_STATE_HOME": "/proc/x", "TMPDIR": "/proc/x", "PATH": "/bin"},
    )
    assert done.returncode == 3
    assert "KeyError: 'lost'" in done.stderr or "details in /" in done.stderr


def test_an_unknown_verb_suggests_one() -> None:
    done = subprocess.run([ATTNGATE, "instal"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "attngate install" in done.stderr


def test_help_lists_every_verb() -> None:
    done = subprocess.run([ATTNGATE], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    for verb in cli.verbs():
        assert re.search(rf"^  {verb} ", done.stdout, re.MULTILINE), verb
    assert {"install", "uninstall", "hook"} <= set(cli.verbs())


def test_every_verb_has_help_and_arguments() -> None:
    for verb in cli.verbs():
        assert cli.parser_of(verb).format_help().startswith(f"usage: attngate {verb}")


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize(
    "ends", [">/dev/full", ">&- 2>&-", "<&- >&- 2>&-", "2>/dev/full", "| true"]
)
def test_lost_output_leaves_the_verdict(code: int, ends: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"{RUN}import os, sys\n"
        "def verdict(arguments):\n"
        "    print('x' * 100000)\n    print('y', file=sys.stderr)\n    print(b'\\xff'.decode('utf-8', 'surrogateescape'))\n"
        "    with open(os.devnull) as file:\n        assert file.fileno() > 2\n"
        f"    return {code}\n"
        "cli.dispatch = verdict\ncli.main(['x'])\n"
    )
    shell = f'"{sys.executable}" -I "{script}" {ends}'
    status = "; exit ${PIPESTATUS[0]}" if "|" in ends else ""
    done = subprocess.run(["bash", "-c", shell + status], capture_output=True, check=False)
    assert done.returncode == code


def test_names_that_are_not_utf8_are_printed() -> None:
    done = python(
        "cli.dispatch = lambda arguments: print(arguments[0])",
        tail=r"cli.main([b'latin\xe9.py'.decode('utf-8', 'surrogateescape')])",
        env={"LC_ALL": "C", "PATH": "/bin"},
    )
    assert "latin\\udce9.py" in done.stdout
