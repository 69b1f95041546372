"""Kill -9 at random moments, over and over, and look for a pass that was not earned.

Usage: python tests/gpu_runner/kill_rounds.py [--rounds N] [--seed S]

A scratch repository has two targets: a correct kernel and a wrong one. In each round a commit is made
and pushed while one process, drawn at random (daemon, candidate, judge, hook, or git's whole group),
is killed at a random moment. Afterwards

- no verdict of the wrong kernel may be a pass, and the push must not have gone through;
- every complete run in the store has a verdict for each planned case;
- the work tree, the index and the refs are what git and the user made of them;
- a run without a kill works: the correct kernel passes, the wrong one fails (every fourth round).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

ATTNGATE = str(Path(sys.executable).parent / "attngate")
VICTIMS = ("daemon", "candidate", "judge", "hook", "git")
LONGEST_S = 5.0

KERNEL = '''
"""Merge of two partial attention results."""

import torch

ROUND = 0


def merge_attn_states(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None):
    p, s = prefix_lse.double(), suffix_lse.double()
    p = torch.where(p.isinf(), -torch.inf, p)
    s = torch.where(s.isinf(), -torch.inf, s)
    total = torch.logaddexp(p, s)
    nothing = total == -torch.inf
    left = torch.where(nothing, 0.0, torch.BASE(p - total)).T.unsqueeze(-1)
    right = torch.where(nothing, 0.0, torch.BASE(s - total)).T.unsqueeze(-1)
    a = torch.where(left == 0, 0.0, left * prefix_output.double())
    b = torch.where(right == 0, 0.0, right * suffix_output.double())
    output.copy_(a + b)
    if output_lse is not None:
        output_lse.copy_(total)
'''

PYPROJECT = """
[project]
name = "plug"
version = "1"

[tool.attngate]
packages = ["plug"]

[tool.attngate.gate]
tier = "quick"
wait_s = 4

[[tool.attngate.targets]]
name = "good"
callable = "plug.good:merge_attn_states"
suite = "merge_attn_states"
dtypes = ["float32"]

[[tool.attngate.targets]]
name = "bad"
callable = "plug.bad:merge_attn_states"
suite = "merge_attn_states"
dtypes = ["float32"]
"""


class Arena:
    """The scratch repository with its own home, daemon and evidence store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repo = folder / "repo"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "KILL_ROUNDS": str(folder),
        }
        for name in ("home", "run", "repo/plug"):
            (folder / name).mkdir(parents=True, mode=0o700)
        (folder / "home/.gitconfig").write_text(
            "[user]\n\tname = Case\n\temail = case@example.invalid\n[init]\n\tdefaultBranch = main\n"
        )
        (self.repo / "pyproject.toml").write_text(PYPROJECT)
        (self.repo / "plug/__init__.py").write_text("")
        (self.repo / "unstaged.txt").write_text("the user's own\n")
        self.write_kernels(0)
        self.run("git", "init", "-q", "--bare", str(folder / "remote.git"), cwd=folder)
        self.run("git", "init", "-q")
        self.run("git", "remote", "add", "origin", str(folder / "remote.git"))
        self.run("git", "add", "plug", "pyproject.toml")
        self.run("git", "commit", "-qm", "begin")
        self.run(ATTNGATE, "install")

    def write_kernels(self, number: int) -> None:
        text = KERNEL.replace("ROUND = 0", f"ROUND = {number}")
        (self.repo / "plug/good.py").write_text(text.replace("BASE", "exp"))
        (self.repo / "plug/bad.py").write_text(text.replace("BASE", "exp2"))

    def run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=cwd or self.repo, env=self.env, capture_output=True, text=True, check=True
        )

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            cwd=self.repo,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def processes(self, kind: str) -> list[psutil.Process]:
        marks = {
            "daemon": "attngate.gpu_runner.daemon",
            "candidate": "candidate",
            "judge": "judge",
            "hook": "attngate.hooks.cli",
        }
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                line = process.cmdline()
                if not any(marks[kind] in word for word in line):
                    continue
                if self.is_ours(process):
                    found.append(process)
        return found

    def is_ours(self, process: psutil.Process) -> bool:
        """True for a process of this arena; workers have a cleaned environment, but our home."""
        env = process.environ()
        return env.get("HOME") == self.env["HOME"]

    def users_files(self) -> dict[str, str]:
        """Digests of everything that belongs to the user."""
        seen = {}
        for path in sorted(self.repo.rglob("*")):
            if ".git" in path.relative_to(self.repo).parts or not path.is_file():
                continue
            seen[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        index = self.repo / ".git/index"
        seen["index"] = self.run("git", "ls-files", "-s").stdout if index.exists() else ""
        seen["head"] = self.run("git", "rev-parse", "HEAD").stdout
        seen["stash"] = self.run("git", "stash", "list").stdout
        return seen

    def pushed(self) -> str:
        return self.run("git", "for-each-ref", cwd=self.folder / "remote.git").stdout

    def store(self) -> Path | None:
        found = sorted(self.folder.glob("home/.local/state/attngate/evidence-*.sqlite"))
        return found[0] if found else None


def false_passes(store: Path | None) -> list[str]:
    """Passes that were not earned, as sentences."""
    if store is None:
        return []
    problems = []
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        for run, record, planned in db.execute("SELECT run, record, planned FROM runs"):
            kinds = Counter(
                dict(
                    db.execute("SELECT case_id, kind FROM verdicts WHERE run = ?", (run,))
                ).values()
            )
            complete = db.execute("SELECT 1 FROM completions WHERE run = ?", (run,)).fetchone()
            if complete and sum(kinds.values()) != len(json.loads(planned)):
                problems.append(f"run {run} is complete with {kinds} of {planned}")
            if "plug.bad" in record and kinds["passed"]:
                problems.append(f"run {run} of the wrong kernel has {kinds['passed']} passes")
            if '"bad"' not in record and '"good"' not in record and "plug." not in record:
                problems.append(f"run {run} does not say whose it is: {record}")
    return problems


def kill(arena: Arena, victim: str, push: subprocess.Popen[bytes]) -> bool:
    """Kill the victim; False where there was none at that moment."""
    if victim == "git":
        with contextlib.suppress(ProcessLookupError):
            os.killpg(push.pid, signal.SIGKILL)
        return True
    found = arena.processes(victim)
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return bool(found)


def play(arena: Arena, number: int, draw: random.Random) -> tuple[str, bool, list[str]]:
    """One round; the victim, whether it was there, and what is wrong afterwards."""
    victim = draw.choice(VICTIMS)
    arena.write_kernels(number)
    arena.run("git", "add", "plug")
    arena.run("git", "commit", "-qm", f"round {number}")
    before, remote = arena.users_files(), arena.pushed()
    push = arena.start("git", "push", "-q", "origin", "main")
    time.sleep(draw.uniform(0.0, LONGEST_S))
    hit = kill(arena, victim, push)
    try:
        push.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(push.pid, signal.SIGKILL)
        return victim, hit, ["the push hung"]
    problems = false_passes(arena.store())
    if arena.pushed() != remote:
        problems.append("a push with a wrong kernel went through")
    if arena.users_files() != before:
        problems.append("the user's files changed")
    return victim, hit, problems


def wait_for_disturbed_jobs(arena: Arena) -> None:
    """Let jobs end whose candidate was killed: a run that joined one would share its crash."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        status = subprocess.run(
            [ATTNGATE, "daemon", "status", "--format", "json"],
            env=arena.env,
            capture_output=True,
            text=True,
            check=False,
        )
        if status.returncode != 0 or not json.loads(status.stdout)["jobs"]:
            return
        time.sleep(0.2)


def clean_run(arena: Arena) -> list[str]:
    """A run that nobody disturbs: the correct kernel passes, the wrong one fails."""
    wait_for_disturbed_jobs(arena)
    done = subprocess.run(
        [ATTNGATE, "validate", "--all", "--format", "json", "--rev", "HEAD"],
        cwd=arena.repo,
        env=arena.env,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        report = json.loads(done.stdout)
        states = {t["name"]: t["state"] for tree in report["trees"] for t in tree["targets"]}
    except (ValueError, KeyError) as error:
        return [f"a clean run gave no report ({error!r}): {done.stdout[-300:]}{done.stderr[-300:]}"]
    good = states.get("good") in ("passed", "passed, reused")
    if done.returncode == 1 and good and states.get("bad") == "failed":
        return []
    return [f"a clean run ended with {done.returncode} and {states}"]


def rounds(count: int, seed: int, report: bool = True) -> list[str]:
    """Play rounds; what went wrong, each with its round."""
    draw = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="kill-rounds-"))
    problems: list[str] = []
    hits: Counter[str] = Counter()
    try:
        arena = Arena(folder)
        for number in range(1, count + 1):
            victim, hit, found = play(arena, number, draw)
            if number % 4 == 0 or number == count:
                found += clean_run(arena)
            hits[victim if hit else f"{victim} (none there)"] += 1
            problems += [f"round {number}, {victim} killed: {text}" for text in found]
            for text in found if report else ():
                print(f"round {number}, {victim} killed: {text}", flush=True)
            if report and number % 10 == 0:
                print(f"round {number}: {dict(hits)}; problems: {len(problems)}", flush=True)
        subprocess.run(
            [ATTNGATE, "daemon", "stop", "--force"], env=arena.env, capture_output=True, check=False
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return problems


def main() -> None:
    """Play the rounds that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    print(f"{args.rounds} rounds, seed {args.seed}", flush=True)
    problems = rounds(args.rounds, args.seed)
    for problem in problems:
        print(problem)
    print(f"{args.rounds} rounds, {len(problems)} problems")
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
