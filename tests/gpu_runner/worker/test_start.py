"""Worker processes start under each Python there is, and say clearly what they cannot do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from attngate.gpu_runner.worker import wire

from .conftest import WORKER, Worker


def pythons():
    """3.10 to 3.13 on PATH and beside this interpreter's installation, and this interpreter."""
    found = {os.path.realpath(sys.executable): sys.executable}
    folders = [Path(p) for p in os.environ["PATH"].split(os.pathsep)]
    folders += Path(sys.base_prefix).parent.glob("3.*/bin")
    for folder in folders:
        for minor in range(10, 14):
            path = folder / f"python3.{minor}"
            if path.is_file() and "shims" not in path.parts:
                found.setdefault(os.path.realpath(path), str(path))
    return sorted(found.values())


def has_torch(python):
    code = "import importlib.util as u; print(u.find_spec('torch') is not None)"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "True"


@pytest.mark.parametrize("role", ["judge", "candidate"])
@pytest.mark.parametrize("python", pythons())
def test_both_roles_answer_under_each_python(tree, folder, python, role):
    tree.write({"plugin/ops.py": "def run(x): return x"})
    op = "plan" if role == "judge" else "load"
    worker = Worker(role, python=python)
    job = tree.job("plugin.ops:run", "nosuch")
    reply = worker.ask(op, job=job, folder=str(folder))
    assert (reply["ok"], reply["kind"]) == (False, "unsupported")
    if has_torch(python):
        assert reply["message"] == "there is no suite 'nosuch'"
    else:
        assert f"the interpreter {python} (Python 3." in reply["message"]
        assert reply["message"].endswith("has no torch")
        assert "set [tool.attngate] interpreter" in reply["advice"]
    assert worker.end()[0] == 0


def test_an_old_python_is_told_so():
    old = sorted(Path(sys.base_prefix).parent.glob("3.9.*/bin/python3.9"))
    for python in old:
        worker = Worker("judge", python=str(python))
        assert "is older than Python 3.10" in worker.ask("plan")["message"]
        worker.end()


def test_the_source_keeps_to_python_310():
    """vermin sees syntax and standard library names that 3.10 does not have."""
    argv = [
        sys.executable,
        "-c",
        "import vermin; vermin.main()",
        "--no-tips",
        "--eval-annotations",
        "-t=3.10-",
    ]
    files = [str(p) for p in WORKER.rglob("*.py")]
    done = subprocess.run([*argv, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_closed_peer_ends_the_worker():
    worker = Worker("judge")
    worker.close()
    assert worker.process.returncode == 0


def test_our_own_fault_is_answered_and_survived():
    worker = Worker("candidate")
    reply = worker.ask("load", job={"id": "j"}, folder="/nowhere")
    assert (reply["ok"], reply["kind"]) == (False, "internal")
    assert "Traceback" in reply["detail"]
    assert worker.ask("run", case="x", calls="y")["kind"] == "internal"
    assert worker.end()[0] == 0


def test_frames_may_use_the_standard_descriptors():
    """Started with the frames on 0 and 1, a plugin's print still goes nowhere near them."""
    argv = [sys.executable, "-I", "-B", str(WORKER / "__main__.py"), "candidate", "0", "1"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        wire.send(process.stdin.fileno(), {"op": "run", "case": "x", "calls": "y"})
        assert wire.receive(process.stdout.fileno())["kind"] == "internal"
        process.stdin.close()
        assert process.stdout.read() == b""
