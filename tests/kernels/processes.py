"""Runs a kernel as a user's plugin: a generated tree, and fresh candidate and judge processes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mutants import FUNCTIONS

from attngate.gpu_runner.worker import wire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from mutants import Mutant

WORKER = Path(__file__).resolve().parents[2] / "gpu_runner" / "worker" / "__main__.py"


class Process:
    """One worker process; ask it, and leave the block to end it."""

    def __init__(self, role: str) -> None:
        to_read, self._to = os.pipe()
        self._from, from_write = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-B", str(WORKER), role, str(to_read), str(from_write)],
            pass_fds=(to_read, from_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        )
        os.close(to_read)
        os.close(from_write)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._to)
        os.close(self._from)
        self._process.wait(timeout=60)

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """The reply to one request."""
        wire.send(self._to, {"op": op, **fields})
        reply = wire.receive(self._from)
        if reply is None:
            raise AssertionError(f"the process ended at {op}")
        return reply


def write_tree(root: Path, source: str) -> dict[str, str]:
    """A plugin with one module; returns its manifest (path to git blob id)."""
    files = {"plugin/__init__.py": "", "plugin/kernels.py": source}
    manifest = {}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        blob = b"blob %d\0" % len(text.encode()) + text.encode()
        manifest[path] = hashlib.sha1(blob).hexdigest()
    return manifest


def verdicts(
    source: str, suite: str, options: dict[str, Any], tier: str = "default"
) -> Iterator[wire.Verdict]:
    """The verdicts on the suite's function in a module with this source, case by case."""
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        manifest = write_tree(root / "tree", source)
        target = wire.Target("t", f"plugin.kernels:{FUNCTIONS[suite]}", suite, options=options)
        job = wire.Job(
            "j",
            target,
            tier=tier,
            tree_root=str(root / "tree"),
            packages=("plugin",),
            manifest=manifest,
            closure=tuple(manifest),
        ).to_json()
        (root / "job").mkdir()
        folder = str(root / "job")
        candidate = stack.enter_context(Process("candidate"))
        judge = stack.enter_context(Process("judge"))
        loaded = candidate.ask("load", job=job, folder=folder)
        assert loaded["ok"], loaded
        planned = judge.ask("plan", job=job, folder=folder, features=loaded["features"])
        assert planned["ok"], planned
        for case in (each["id"] for each in planned["cases"]):
            calls = judge.ask("prepare", case=case)["calls"]
            outcome = candidate.ask("run", case=case, calls=calls)
            reply = judge.ask("judge", case=case, outcome=outcome)
            yield wire.verdict_from_json(reply["verdict"])


def print_sample(mutants: list[Mutant], options: dict[str, Any]) -> int:
    """Print what refuses each mutant in real processes; 1 if one survives."""
    survivors = 0
    for mutant in mutants:
        found = verdicts(mutant.source(), mutant.suite, {**options, **mutant.options})
        killer = next((each for each in found if each.kind.is_failure), None)
        survivors += killer is None
        what = f"{killer.kind.value:15} {killer.case}" if killer else "SURVIVES"
        print(f"{mutant.kind}  {mutant.name:42} {what}", flush=True)
    return 1 if survivors else 0
