"""Real worker processes over real pipes, and real trees with git blob ids."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from attngate.gpu_runner.worker import wire

WORKER = Path(__file__).resolve().parents[3] / "gpu_runner" / "worker"


class Worker:
    """One worker process and its two pipes."""

    def __init__(self, role: str, folder: Path = WORKER, python: str = sys.executable, **env: str):
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self.process = subprocess.Popen(
            [python, "-I", "-B", str(folder / "__main__.py"), role, str(to_read), str(from_write)],
            pass_fds=(to_read, from_write),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **env},
        )
        os.close(to_read)
        os.close(from_write)
        self._to, self._from = to_write, from_read

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        wire.send(self._to, {"op": op, **fields})
        reply = wire.receive(self._from)
        assert reply is not None, f"the worker ended: {self.output()}"
        return reply

    def end(self) -> tuple[int, str]:
        wire.send(self._to, {"op": "exit"})
        self.close()
        return self.process.returncode, self.output()

    def output(self) -> str:
        self.process.wait(timeout=60)
        self._log.seek(0)
        return self._log.read().decode()

    def close(self) -> None:
        if self._to >= 0:
            os.close(self._to)
            os.close(self._from)
            self._to = self._from = -1
        self.process.wait(timeout=60)


class Tree:
    """An exported tree in a folder, and the job fields that describe it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.manifest: dict[str, str] = {}

    def write(self, files: dict[str, str], listed: bool = True) -> Tree:
        for path, text in files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)
            if listed and path.endswith(".py"):
                data = text.encode()
                self.manifest[path] = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        return self

    def job(self, callable_: str = "plugin.ops:run", suite: str = "tiny", **fields: Any):
        target = {"name": "t", "callable": callable_, "suite": suite, "requires": "cpu"}
        target |= {key: fields.pop(key) for key in ("adapter", "options") if key in fields}
        return {
            "id": "j1",
            "target": target,
            "tree_root": str(self.root),
            "packages": ["plugin"],
            "manifest": self.manifest,
            "closure": list(self.manifest),
            **fields,
        }


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "tree")


@pytest.fixture(scope="module")
def worker_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the worker that also has the suite of tests/gpu_runner/worker/tiny_suite.py."""
    folder = tmp_path_factory.mktemp("copy") / "worker"
    shutil.copytree(WORKER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(__file__).parent / "tiny_suite.py", folder / "suites" / "tiny.py")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The private folder of a job."""
    (tmp_path / "job").mkdir()
    return tmp_path / "job"
