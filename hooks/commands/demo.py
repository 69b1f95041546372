"""`attngate demo`: a small plugin repository, driven from a refused call to a push that goes through.

Everything happens in a temporary folder with its own HOME, runner and remote. The commands are those
that a developer types, and what they print is shown as it is; each step is then held to what it
should have done.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attngate.gpu_runner import spawn
from attngate.hooks.errors import EXIT_FINDINGS, EXIT_PASS, AttngateError, CouldNotCheckError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

HELP = "Drive the hooks through a small plugin repository, from a refused call to a push."

SAMPLE = Path(__file__).parents[1] / "sample"
REMOTE_MAIN = "git --git-dir=../remote.git rev-parse -q --verify main"
DEADLINE_S = 600.0
FOREIGN = ("GIT_", "ATTNGATE", "PRE_COMMIT", "XDG_", "PYTHON", "SKIP", "CI", "GITHUB_")


@dataclass(frozen=True)
class Act:
    """One command and what it should do.

    Attributes:
        command: What is typed.
        refused: True where it should end with another code than 0.
        says: Phrases that its output should have.
    """

    command: str
    refused: bool = False
    says: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """A few commands under one heading.

    Attributes:
        title: The heading.
        files: Files that are put in place first: path in `sample/` to path in the repository.
        acts: The commands.
        pushed: Whether afterwards the remote has the local commit.
    """

    title: str
    files: dict[str, str]
    acts: tuple[Act, ...]
    pushed: bool = False


STEPS = (
    Step("The hooks are installed in a plugin's repository", {}, (Act("attngate install"),)),
    Step(
        "A new backend calls flash_attn as another build of it is called",
        {"plugin": "", "steps/refused_call": ""},
        (
            Act("git add ."),
            Act(
                'git commit -m "Add the prefill backend"',
                refused=True,
                says=("backend.py", "fa_version", "return_softmax_lse"),
            ),
        ),
    ),
    Step(
        "The call is corrected, and the commit is made; its validation starts in the background",
        {"plugin": ""},
        (Act('git commit -a -m "Add the prefill backend"', says=("Add the prefill backend",)),),
    ),
    Step(
        "A faster merge kernel takes natural-log weights for base-2 ones: its own test is content, "
        "the push is refused",
        {"steps/faulty_kernel": ""},
        (
            Act("python tests/allclose_merge.py", says=("allclose(atol=1e-2) holds",)),
            Act('git commit -a -m "Use exp2 in the merge"'),
            Act(
                "git push origin main",
                refused=True,
                says=("wrong_values merge_attn_states", "taken as base 2"),
            ),
        ),
    ),
    Step(
        "The weights are converted first",
        {"steps/fixed_kernel": ""},
        (Act('git commit -a -m "Convert the weights to base 2"'),),
    ),
    Step(
        "The push goes through: one verdict is new, the other one is known from before",
        {},
        (
            Act(
                "git push origin main",
                says=("passed on cpu (fresh", "passed on cpu (reused"),
            ),
        ),
        pushed=True,
    ),
)


class DemoError(AttngateError):
    """A step did not do what it should (exit 1)."""

    exit_code = EXIT_FINDINGS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--keep", action="store_true", help="keep the temporary folder and name it")


def run(args: argparse.Namespace) -> int:
    """Run the demo; EXIT_PASS only if every step did what it should.

    Raises:
        DemoError: A step did not.
        CouldNotCheckError: This Python has no torch, or there is no git.
    """
    _require_what_is_needed()
    began = time.monotonic()
    with _temporary_folder(keep=args.keep) as folder:
        stage = Stage(folder, _environment(folder, dict(os.environ)))
        try:
            stage.begin()
            for number, step in enumerate(STEPS, 1):
                stage.play(number, step)
            stage.quietly('git diff --quiet HEAD && test -z "$(git status --porcelain)"')
        finally:
            stage.end()
    print(f"\nEvery step did what it should, in {time.monotonic() - began:.0f} s.")
    return EXIT_PASS


@dataclass(frozen=True)
class Stage:
    """The temporary folder with the repository and the remote, and the environment of a command."""

    folder: Path
    env: dict[str, str]

    @property
    def repository(self) -> Path:
        """Where the commands run."""
        return self.folder / "sample-plugin"

    def begin(self) -> None:
        """Make the remote and the repository, with a first commit that both have."""
        self.repository.mkdir()
        self.put("plugin/README.md", "README.md")
        for command in (
            "git init -q --bare -b main ../remote.git",
            "git init -q -b main",
            "git remote add origin ../remote.git",
            "git add README.md && git commit -q -m 'Begin' && git push -q origin main",
        ):
            self.quietly(command)

    def play(self, number: int, step: Step) -> None:
        """Run one step in front of the user and hold it to what it should do."""
        print(f"\n=== {number}. {step.title}", flush=True)
        for source, target in step.files.items():
            self.put(source, target)
        before = self.quietly(REMOTE_MAIN)
        for act in step.acts:
            self.perform(act)
        after, local = self.quietly(REMOTE_MAIN), self.quietly("git rev-parse HEAD")
        expected = local if step.pushed else before
        if after != expected:
            raise DemoError(f"step {number}: the remote has {after}, and should have {expected}")

    def perform(self, act: Act) -> None:
        """Type one command, show what it prints, and compare.

        Raises:
            DemoError: It did not end or did not say as it should.
        """
        print(f"$ {act.command}", flush=True)
        code, said = self.shell(act.command)
        print(said, end="" if said.endswith("\n") or not said else "\n", flush=True)
        if (code != 0) is not act.refused:
            raise DemoError(
                f"{act.command!r} ended with {code}, and should have been "
                f"{'refused' if act.refused else 'accepted'}"
            )
        for phrase in act.says:
            if phrase not in said:
                raise DemoError(f"{act.command!r} should have said {phrase!r}")

    def quietly(self, command: str) -> str:
        """Run a command of the demo's own; its output without the last line break.

        Raises:
            DemoError: It failed.
        """
        code, said = self.shell(command)
        if code != 0:
            raise DemoError(f"{command!r} ended with {code}: {said.strip()}")
        return said.rstrip("\n")

    def shell(self, command: str) -> tuple[int, str]:
        """Run a command line by sh; its code, and both of its streams in the order written."""
        done = spawn.run(
            ["/bin/sh", "-c", f"exec 2>&1\n{command}"],
            cwd=str(self.repository),
            env=self.env,
            timeout_s=DEADLINE_S,
        )
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def put(self, source: str, target: str) -> None:
        """Copy a file or the files of a folder of the sample into the repository."""
        origin, copy = SAMPLE / source, self.repository / target
        if origin.is_file():
            shutil.copyfile(origin, copy)
        else:
            shutil.copytree(
                origin, copy, copy_function=shutil.copyfile, dirs_exist_ok=True, ignore=_caches
            )

    def end(self) -> None:
        """Stop the runner that the hooks started."""
        self.shell("attngate daemon stop")


def _caches(_folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name in ("__pycache__", ".ruff_cache")]


def _require_what_is_needed() -> None:
    if importlib.util.find_spec("torch") is None:
        raise CouldNotCheckError(
            f"the demo validates kernels with torch, and {sys.executable} has none",
            "install the extra that brings it, attngate[gpu], or run `make demo` in a checkout",
        )
    if shutil.which("git") is None:
        raise CouldNotCheckError("the demo needs git, and there is none on PATH")


def _environment(folder: Path, outer: dict[str, str]) -> dict[str, str]:
    """The user's environment without what steers git or attngate, and with folders of our own."""
    env = {name: value for name, value in outer.items() if not name.startswith(FOREIGN)}
    person = {"NAME": "A Developer", "EMAIL": "developer@example.invalid"}
    for role in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{role}_{key}": value for key, value in person.items()}
    for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        private = folder / name.removeprefix("XDG_").split("_")[0].lower()
        private.mkdir(mode=0o700)
        env[name] = str(private)
    env["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), outer.get("PATH", os.defpath)])
    return env | {"GIT_CONFIG_NOSYSTEM": "1", "NO_COLOR": "1"}


@contextlib.contextmanager
def _temporary_folder(*, keep: bool) -> Iterator[Path]:
    # A short name: the path of the runner's socket has a limit of about 100 bytes.
    folder = Path(tempfile.mkdtemp(prefix="attngate-demo-"))
    try:
        yield folder
    finally:
        if keep:
            print(f"\nkept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
