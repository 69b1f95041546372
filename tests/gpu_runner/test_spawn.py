"""Processes end with their groups, share nothing, and get a cleaned environment."""

import os
import signal
import sys
import time

import psutil
import pytest

from attngate.gpu_runner import spawn
from attngate.gpu_runner.errors import ProgramMissingError

ENV = {"PATH": os.environ["PATH"]}


def has_ended(pid, within_s=10.0):
    """True once a process runs no more; who reaps an orphan, and when, is the system's business."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def python(text, **options):
    return spawn.run([sys.executable, "-I", "-c", text], cwd="/", env=ENV, **options)


def test_output_and_status_come_back():
    done = python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert not done.timed_out


def test_stdin_is_given():
    assert python("print(input())", stdin=b"hello\n").stdout == b"hello\n"


def test_a_deadline_ends_the_whole_group(tmp_path):
    note = tmp_path / "child"
    text = (
        "import subprocess, sys, time\n"
        "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(c.pid)); time.sleep(600)"
    )
    done = python(text, timeout_s=2)
    assert done.timed_out
    assert has_ended(int(note.read_text()))


def test_a_process_that_ignores_signals_is_killed():
    text = (
        "import signal, time\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(600)"
    )
    process = spawn.start([sys.executable, "-I", "-c", text], cwd="/", env=ENV)
    time.sleep(0.5)
    assert process.end(grace_s=0.2) == -signal.SIGKILL


@pytest.mark.parametrize("guarded", [False, True])
def test_a_missing_program_is_named(guarded):
    with pytest.raises(ProgramMissingError, match="no-such-program"):
        spawn.start(["no-such-program"], cwd="/", env=ENV, die_with_parent=guarded)


def test_no_descriptor_is_inherited_but_those_given():
    kept, given = os.pipe()
    for descriptor in (kept, given):
        os.set_inheritable(descriptor, True)
    text = "import os\nfor n in range(3, 64):\n try: os.fstat(n); print(n)\n except OSError: pass"
    process = spawn.start(
        [sys.executable, "-I", "-c", text], cwd="/", env=ENV, stdout=-1, pass_fds=[given]
    )
    out, _ = process.communicate()
    os.close(kept)
    os.close(given)
    assert [int(word) for word in out.split()] == [given]


def test_a_guarded_process_dies_with_its_parent(tmp_path):
    note = tmp_path / "pid"
    text = (
        "import sys, time\nfrom attngate.gpu_runner import spawn\n"
        "p = spawn.start([sys.executable, '-c', 'import time; time.sleep(600)'], cwd='/', env={}, "
        f"die_with_parent=True)\nopen({str(note)!r}, 'w').write(str(p.pid)); time.sleep(600)"
    )
    parent = spawn.start([sys.executable, "-c", text], cwd="/", env=ENV)
    deadline = time.monotonic() + 20
    while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    child = int(note.read_text())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert has_ended(child)


def test_environments():
    env = {
        "PATH": "p", "HOME": "h", "GIT_DIR": "g", "PYTHONPATH": "x", "CUDA_VISIBLE_DEVICES": "0",
        "MACA_PATH": "m", "SECRET_TOKEN": "s", "ATTNGATE_IDLE_S": "1", "XDG_RUNTIME_DIR": "r",
    }  # fmt: skip
    worker = spawn.worker_environment(env)
    assert set(worker) == {"PATH", "HOME", "CUDA_VISIBLE_DEVICES", "MACA_PATH"}
    assert set(spawn.results_environment(env)) == {"CUDA_VISIBLE_DEVICES", "MACA_PATH"}
    daemon = spawn.daemon_environment(env)
    assert {"ATTNGATE_IDLE_S", "XDG_RUNTIME_DIR"} <= set(daemon)
    assert not {"GIT_DIR", "PYTHONPATH", "SECRET_TOKEN"} & set(daemon)
