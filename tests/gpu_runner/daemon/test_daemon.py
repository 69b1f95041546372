"""The daemon with real sockets and processes: starting, ending, being killed, being misled."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest

from attngate.gpu_runner import client, paths
from attngate.gpu_runner.client import Client, NotRunningError
from attngate.gpu_runner.errors import ForeignSocketError, RunnerError
from attngate.gpu_runner.protocol import JobState
from attngate.gpu_runner.worker.wire import VerdictKind


def test_it_starts_by_itself_in_a_session_of_its_own(place):
    with Client.connect() as first:
        process = psutil.Process(first.welcome.pid)
        assert os.getsid(process.pid) != os.getsid(0)
        assert process.cwd() == "/"
        assert not {"GIT_DIR", "PYTHONPATH"} & set(process.environ())
    mode = paths.socket_path().stat().st_mode & 0o777
    assert mode == 0o600
    assert paths.socket_path().parent.stat().st_mode & 0o777 == 0o700


def test_it_inherits_no_descriptor(place):
    read, write = os.pipe()
    os.set_inheritable(write, True)
    with Client.connect():
        os.close(write)
        assert (
            os.read(read, 1) == b""
        )  # end of file at once: the daemon does not hold the other end
    os.close(read)


def test_twenty_clients_start_one_daemon(place):
    pids = []

    def connect():
        with Client.connect() as each:
            pids.append(each.welcome.pid)

    threads = [threading.Thread(target=connect) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pids) == 20
    assert len(set(pids)) == 1


def test_stop_and_start_back_to_back(place):
    seen = set()
    for _ in range(3):
        with Client.connect() as each:
            seen.add(each.welcome.pid)
            each.stop("now")
        assert not paths.socket_path().exists()
    assert len(seen) == 3
    with pytest.raises(NotRunningError):
        Client.connect(auto_start=False)


def test_a_killed_daemon_leaves_a_socket_that_does_no_harm(place):
    with Client.connect() as first:
        killed = first.welcome.pid
        os.kill(killed, signal.SIGKILL)
    while client.is_alive():
        time.sleep(0.01)
    assert paths.socket_path().exists()
    with Client.connect() as second:
        assert second.welcome.pid != killed


def test_an_idle_daemon_ends_and_its_socket_goes_first(place, monkeypatch):
    monkeypatch.setenv("ATTNGATE_IDLE_S", "1")
    with Client.connect() as first:
        pid = first.welcome.pid
    deadline = time.monotonic() + 30
    while client.is_alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not client.is_alive()
    assert not paths.socket_path().exists()
    with Client.connect() as second:
        assert second.welcome.pid != pid


def test_a_foreign_program_at_the_socket_is_refused(place):
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(paths.socket_path()))
        foreign.listen()

        def answer():
            link, _ = foreign.accept()
            link.recv(1 << 16)
            link.sendall(b"\0\0\0\x05hello")
            link.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ForeignSocketError, match="not attngate's daemon"):
            Client.connect()
        thread.join()


def test_a_file_at_the_sockets_path_is_refused(place):
    paths.socket_path().write_text("mine")
    with pytest.raises(ForeignSocketError):
        Client.connect()
    assert paths.socket_path().read_text() == "mine"
    paths.socket_path().unlink()


def test_an_open_run_folder_is_refused(place):
    folder = place / "run" / "attngate"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(RunnerError, match="open to other users"):
        Client.connect()
    folder.chmod(0o700)


def test_a_socket_path_that_is_too_long_is_named(place, monkeypatch):
    deep = place / ("x" * 90)
    deep.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with pytest.raises(RunnerError, match="bytes; the system allows"):
        Client.connect()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place / "run"))


def test_frames_of_nonsense_hurt_only_their_sender(place):
    with Client.connect() as good:
        for frame in (
            b"\xff" * 4 + b"\0\0\1" + b"\0" * 5,
            b"\0\0\0\x02{]",
            b"\0\0\0\x0f" + b'{"op":"what?"}x',
        ):
            with socket.socket(socket.AF_UNIX) as bad:
                bad.connect(str(paths.socket_path()))
                bad.sendall(frame)
                bad.shutdown(socket.SHUT_WR)
                bad.settimeout(30)
                while bad.recv(1 << 16):  # it says why, and ends when we do
                    pass
        assert good.status().pid == good.welcome.pid


def test_a_job_passes_and_its_evidence_is_found_again(place, request_for):
    request = request_for("merge_attn_states")
    with Client.connect() as each:
        assert each.lookup([request.key]) == [None]
        (report,) = each.wait(each.submit([request]), 120)
        assert report.passed, report
        assert report.facts.planned
        assert each.lookup([request.key])[0].passed
        each.stop("now")
    with Client.connect() as again:
        assert again.lookup([request.key])[0].passed


def test_status_answers_while_a_job_runs_and_a_second_client_joins_it(place, request_for):
    request = request_for("slow")
    with Client.connect() as first, Client.connect() as second:
        ids = first.submit([request])
        assert second.submit([request_for("slow")]) == ids
        status = second.status()
        assert [job.id for job in status.jobs] == ids
        (left,) = second.cancel(ids, only_mine=True)
        assert not left.state.is_final  # the other client still wants it
        (ended,) = first.cancel(ids)
        assert ended.state in (JobState.CANCELLED, JobState.RUNNING)
        (report,) = first.wait(ids, 60)
        assert report.state is JobState.CANCELLED
        assert not report.passed


@pytest.mark.parametrize(
    ("name", "kind"),
    [("crashes", VerdictKind.CRASHED), ("leaves", VerdictKind.CRASHED)],
)
def test_a_candidate_that_dies_costs_its_cases_and_nothing_passes(place, request_for, name, kind):
    with Client.connect() as each:
        (report,) = each.wait(each.submit([request_for(name)]), 240)
        assert report.state is JobState.DONE
        assert {verdict.kind for verdict in report.verdicts} == {kind}
        assert sorted(v.case for v in report.verdicts) == sorted(report.facts.planned)
        (after,) = each.wait(each.submit([request_for("merge_attn_states", seed=1)]), 120)
        assert after.passed


def test_a_candidate_that_hangs_is_killed_at_its_deadline(place, request_for):
    with Client.connect() as each:
        (report,) = each.wait(each.submit([request_for("hangs", timeout_s=1.0)]), 240)
        assert {verdict.kind for verdict in report.verdicts} == {VerdictKind.TIMED_OUT}
    left = [p for p in psutil.process_iter() if is_worker_of(p, place)]
    assert not left


def test_a_tree_whose_files_are_not_the_manifests_is_refused(place, request_for):
    request = request_for("merge_attn_states")
    with open(os.path.join(request.job.tree_root, "plug/ops.py"), "a") as file:
        file.write("# changed after it was hashed\n")
    with Client.connect() as each:
        (report,) = each.wait(each.submit([request]), 60)
        assert report.state is JobState.FAILED
        assert "plug/ops.py" in report.problem.message
        assert each.lookup([request.key]) == [None]


def test_workers_die_with_a_killed_daemon(place, request_for):
    with Client.connect() as each:
        each.submit([request_for("hangs")])
        deadline = time.monotonic() + 60
        while not (found := [p for p in psutil.process_iter() if is_worker_of(p, place)]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(each.welcome.pid, signal.SIGKILL)
    _gone, alive = psutil.wait_procs(found, timeout=30)
    assert not alive


def is_worker_of(process, place):
    try:
        line = process.cmdline()
        return any("worker/__main__.py" in word for word in line) and str(place) in " ".join(
            str(f.path) for f in process.open_files()
        ) + json.dumps(process.environ())
    except psutil.Error:
        return False


def test_the_daemon_starts_beside_modules_that_shadow_the_library(place, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')\n")
    text = "from attngate.gpu_runner.client import Client\nwith Client.connect() as c: print(c.welcome.pid)"
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=tmp_path,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert psutil.pid_exists(int(done.stdout))
