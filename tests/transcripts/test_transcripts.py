"""Run the sessions in this folder; README.md here has their format."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SAMPLE = HERE.parents[1] / "hooks" / "sample" / "plugin"
SCRIPTS = Path(sys.executable).parent
TRANSCRIPTS = sorted(HERE.glob("*.txt"))


@dataclass
class Step:
    """One command, what it must print, and the code it must end with."""

    command: str
    lines: list[str] = field(default_factory=list)
    code: int = 0


def parse(text: str) -> tuple[str, list[Step]]:
    """What the repository begins with, and the steps."""
    begins_with, steps = "empty", []
    for line in text.splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:]))
        elif steps and re.fullmatch(r"\? \d+", line):
            steps[-1].code = int(line[2:])
        elif steps:
            steps[-1].lines.append(line)
        elif line.startswith("% "):
            begins_with = line[2:]
    return begins_with, steps


def fits(lines: list[str], printed: str) -> bool:
    """True where what was printed is the expected lines, placeholders considered."""
    wanted = "".join(r"(?:.*\n)*?" if line == "..." else one_line(line) for line in trimmed(lines))
    return bool(re.fullmatch(wanted, "".join(line + "\n" for line in trimmed(printed.split("\n")))))


def one_line(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("[..]")) + r"\n"


def trimmed(lines: list[str]) -> list[str]:
    return "\n".join(lines).strip("\n").splitlines()


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    # Not pytest's own folder: the path of a Unix socket is short.
    with tempfile.TemporaryDirectory(prefix="agt-") as folder:
        yield {
            "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
            "HOME": folder,
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "100",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "A Developer",
            "GIT_AUTHOR_EMAIL": "developer@example.invalid",
            "GIT_COMMITTER_NAME": "A Developer",
            "GIT_COMMITTER_EMAIL": "developer@example.invalid",
            **{name: private(folder, name) for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME")},
        }


def private(folder: str, name: str) -> str:
    path = os.path.join(folder, name.lower())
    os.mkdir(path, 0o700)
    return path


@pytest.fixture
def shell(env: dict[str, str], tmp_path: Path) -> Iterator["Shell"]:
    session = Shell(tmp_path / "repository", env)
    yield session
    session.run("attngate daemon stop")


@dataclass
class Shell:
    """Runs commands in one repository."""

    folder: Path
    env: dict[str, str]

    def begin(self, with_what: str) -> None:
        self.folder.mkdir()
        if with_what == "sample":
            shutil.copytree(SAMPLE, self.folder, dirs_exist_ok=True)
        made = self.run("git init -q -b main && git add . && git commit -q --allow-empty -m Begin")
        assert made.returncode == 0, made.stdout

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", command],
            check=False,
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_session_comes_out_as_written(path: Path, shell: Shell) -> None:
    begins_with, steps = parse(path.read_text("utf-8"))
    assert steps, "a transcript without a command"
    shell.begin(begins_with)
    for step in steps:
        done = shell.run(step.command)
        said = f"$ {step.command}\n{done.stdout}? {done.returncode}"
        assert done.returncode == step.code, said
        assert fits(step.lines, done.stdout), said


def test_each_verb_has_a_session() -> None:
    from attngate.hooks import cli

    shown = " ".join(path.read_text("utf-8") for path in TRANSCRIPTS)
    # The demo is a session itself, and tests/hooks/commands/test_demo.py plays it.
    assert [v for v in cli.verbs() if v != "demo" and f"attngate {v}" not in shown] == []


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("one [..] line", "one short line", True),
        ("one [..] line", "one\nline", False),
        ("first\n...\nlast", "first\nsecond\nthird\nlast", True),
        ("first\n...\nlast", "first\nlast", True),
        ("first\n...", "first", True),
        ("first\n...\nlast", "first\nsecond", False),
        ("a.c", "abc", False),
        ("", "anything", False),
    ],
)
def test_the_placeholders(expected: str, printed: str, same: bool) -> None:
    assert fits(expected.splitlines(), printed) is same
