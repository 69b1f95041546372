"""A real daemon of its own for each test, and trees with callables of every temper."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from attngate.gpu_runner import client, paths
from attngate.gpu_runner.client import Client
from attngate.gpu_runner.evidence.key import (
    KEY_VERSION,
    EvidenceKey,
    JobKey,
    declaration_digest,
    tool_digest,
    tree_closure,
)
from attngate.gpu_runner.protocol import JobRequest
from attngate.gpu_runner.worker.wire import Job, Target

CALLABLES = """
import os, sys, time
import torch


def merge_attn_states(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None):
    p, s = prefix_lse.double(), suffix_lse.double()
    p = torch.where(p.isinf(), -torch.inf, p)
    s = torch.where(s.isinf(), -torch.inf, s)
    total = torch.logaddexp(p, s)
    none = total == -torch.inf
    a = torch.where(none, 0.0, torch.exp(p - total)).T.unsqueeze(-1)
    b = torch.where(none, 0.0, torch.exp(s - total)).T.unsqueeze(-1)
    output.copy_(
        torch.where(a == 0, 0.0, a * prefix_output.double())
        + torch.where(b == 0, 0.0, b * suffix_output.double())
    )
    if output_lse is not None:
        output_lse.copy_(total)


def crashes(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None):
    os.kill(os.getpid(), 11)


def hangs(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None):
    time.sleep(600)


def leaves(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None):
    os._exit(0)


def slow(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None):
    time.sleep(0.2)
    merge_attn_states(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse)
"""


@pytest.fixture
def place(monkeypatch):
    """A short folder for the socket, and homes of our own; the daemon ends with the test."""
    folder = Path(tempfile.mkdtemp(prefix="ag-"))
    for name, variable in (("run", "XDG_RUNTIME_DIR"), ("state", "XDG_STATE_HOME")):
        (folder / name).mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(folder / name))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    yield folder
    if client.is_alive():
        with Client.connect(auto_start=False) as last:
            last.stop("now")
    shutil.rmtree(paths.trees_folder().parent, ignore_errors=True)
    shutil.rmtree(folder)


@pytest.fixture
def request_for(place):
    """Make a job request for one of the callables above."""

    def make(name: str, *, seed: int = 0, timeout_s: float = 60.0, only: tuple[str, ...] = ()):
        folder = Path(tempfile.mkdtemp(dir=paths.trees_folder()))
        (folder / "plug").mkdir()
        (folder / "plug/__init__.py").write_text("")
        (folder / "plug/ops.py").write_text(CALLABLES)
        target = Target(
            name, f"plug.ops:{name}", "merge_attn_states", options={"dtypes": ["float32"]}
        )
        job = Job(
            id="",
            target=target,
            tier="quick",
            tree_root=str(folder),
            packages=("plug",),
            manifest={f"plug/{p.name}": blob_id(p) for p in (folder / "plug").iterdir()},
            closure=("plug/__init__.py", "plug/ops.py"),
            case_timeout_s=timeout_s,
            only=only,
            seed=seed,
        )
        closure = tree_closure([(path, 0o100644, oid) for path, oid in job.manifest.items()])
        key = EvidenceKey(
            version=KEY_VERSION,
            tree_closure=closure,
            contract="",
            suite=target.suite,
            declaration=declaration_digest(target),
            tool=tool_digest(),
            environment=f"test {seed} {only}",
            tier="quick",
        )
        environment = {"PATH": os.environ["PATH"]}
        return JobRequest(
            job=job, interpreter=sys.executable, key=JobKey(key, closure), environment=environment
        )

    return make


def blob_id(path: Path) -> str:
    import hashlib

    raw = path.read_bytes()
    return hashlib.sha1(b"blob %d\0%s" % (len(raw), raw)).hexdigest()
