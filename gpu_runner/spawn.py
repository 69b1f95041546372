"""The one door to other processes.

Every process gets its own process group and no descriptor that it was not given, so that ending it
ends its children too and a daemon never keeps a caller's pipe open.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from attngate.gpu_runner.errors import ProgramMissingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

GUARD = Path(__file__).parent / "guard.py"
GRACE_S = 2.0

_PLAIN_NAMES = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
)
_BUILD_NAMES = frozenset(
    {
        "CC",
        "CXX",
        "CPATH",
        "C_INCLUDE_PATH",
        "CPLUS_INCLUDE_PATH",
        "LIBRARY_PATH",
        "LD_LIBRARY_PATH",
        "MKL_NUM_THREADS",
        "OMP_NUM_THREADS",
    }
)
_DEVICE_PREFIXES = (
    "CUDA_",
    "CUBRIDGE_",
    "MACA_",
    "MCCL_",
    "MCPYTORCH_",
    "MXLOG_",
    "MX_",
    "NCCL_",
    "NVIDIA_",
    "PYTORCH_",
    "TORCH_",
    "TRITON_",
    "VLLM_",
)


@dataclass(frozen=True)
class Completed:
    """What a finished process left.

    Attributes:
        returncode: Exit status; negative for the signal that ended it.
        stdout: Everything it wrote there.
        stderr: Everything it wrote there.
        seconds: Wall-clock time it took.
        timed_out: True where it was ended by the deadline; `returncode` is then the signal.
    """

    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float
    timed_out: bool = False


class Process(subprocess.Popen[bytes]):
    """A process that leads its own group. `end` is the only way in which it should be reaped."""

    def has_ended(self) -> bool:
        """True once the process itself has ended; leaves it unreaped, so that its group stays ours."""
        if self.returncode is not None:
            return True
        try:
            state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return state is not None

    def end(self, grace_s: float = 0.0) -> int:
        """End the whole group and reap the process.

        With a grace time the group gets INT, then TERM, each for `grace_s` seconds at most, before
        KILL; without one it is killed at once. What is left of the group is killed in any case.

        Returns:
            The exit status; negative for the signal that ended the process.
        """
        if grace_s > 0:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._signal_group(number)
                if self.ended_within(grace_s):
                    break
        self._signal_group(signal.SIGKILL)
        return self.wait()

    def ended_within(self, seconds: float) -> bool:
        """Wait at most so long for the process to end; True if it did."""
        deadline = time.monotonic() + seconds
        while not self.has_ended():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def _signal_group(self, number: signal.Signals) -> None:
        if self.returncode is None:  # once reaped, the number may belong to someone else
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


def start(
    argv: Sequence[str | bytes | os.PathLike[str]],
    *,
    cwd: str | bytes,
    env: Mapping[str, str],
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
    pass_fds: Iterable[int] = (),
    die_with_parent: bool = False,
) -> Process:
    """Start a process in a group of its own.

    Args:
        argv: Program and arguments; no shell is involved.
        cwd: Folder it starts in.
        env: Its whole environment.
        stdin: Descriptor, file or `subprocess` constant; by default empty.
        stdout: As `stdin`; by default thrown away.
        stderr: As `stdin`; by default thrown away.
        pass_fds: Descriptors it inherits besides these three; every other one is closed.
        die_with_parent: On Linux, have the kernel kill it when this process dies in any way. The
            thread that calls must live as long as the process may.

    Raises:
        ProgramMissingError: The program or the folder is absent or cannot be executed.
    """
    words = [os.fspath(part) for part in argv]
    program = words[0]
    if die_with_parent and sys.platform == "linux":
        _require_program(program, env)
        words = [sys.executable, "-I", "-S", "-B", str(GUARD), str(os.getpid()), *words]
    try:
        return Process(
            words,
            cwd=cwd,
            env=dict(env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=tuple(pass_fds),
            close_fds=True,
            process_group=0,
        )
    except OSError as error:
        raise _missing(program, error) from error


def run(
    argv: Sequence[str | bytes | os.PathLike[str]],
    *,
    cwd: str | bytes,
    env: Mapping[str, str],
    timeout_s: float | None = None,
    stdin: bytes = b"",
) -> Completed:
    """Run a process to its end and collect what it wrote.

    At the deadline, and when this process is interrupted, its whole group is ended (INT, TERM,
    KILL).

    Raises:
        ProgramMissingError: The program or the folder is absent or cannot be executed.
    """
    began = time.monotonic()
    process = start(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    timed_out = False
    try:
        out, err = process.communicate(stdin or None, timeout_s)
    except subprocess.TimeoutExpired:
        timed_out = True
        process.end(GRACE_S)
        out, err = process.communicate()
    except BaseException:
        process.end(GRACE_S)
        raise
    return Completed(process.returncode, out, err, time.monotonic() - began, timed_out)


def detach(argv: Sequence[str | os.PathLike[str]], *, env: Mapping[str, str], log: str) -> None:
    """Start a background process that shares nothing with this one but the log.

    The first of the two forks is made here, with a new session, the root folder, umask 077, no
    inherited descriptor, and the log as output. The program must make the second one at once and
    let its parent exit with 0; that parent is waited for here.

    Raises:
        ProgramMissingError: The program cannot be executed, or its first process failed.
        OSError: The log cannot be opened.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with open(descriptor, "ab") as output:
        try:
            first = subprocess.Popen(
                [os.fspath(part) for part in argv],
                cwd="/",
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                close_fds=True,
                start_new_session=True,
                umask=0o077,
            )
        except OSError as error:
            raise _missing(os.fspath(argv[0]), error) from error
    if first.wait() != 0:
        raise ProgramMissingError(
            f"the background process ended with status {first.returncode} before it was ready",
            f"its output is in {log}",
        )


def worker_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The part of `env` that a worker gets: an allow-list without anything of git or Python."""
    return {name: value for name, value in env.items() if _is_for_workers(name)}


def results_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The part of `env` that can change a numerical result, and so belongs into evidence keys.

    PATH, HOME and the like are left out: git prepends to PATH in a hook, and a verdict must not
    depend on whether it was asked for by a hook or by hand.
    """
    kept = worker_environment(env)
    return {name: kept[name] for name in sorted(kept) if not _is_plain(name)}


def daemon_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The part of `env` that the daemon gets: the workers' part, its folders and its settings."""
    own = {name: value for name, value in env.items() if name.startswith(("ATTNGATE_", "XDG_"))}
    return {**worker_environment(env), **own}


def _is_plain(name: str) -> bool:
    return name in _PLAIN_NAMES or name.startswith("LC_")


def _is_for_workers(name: str) -> bool:
    return _is_plain(name) or name in _BUILD_NAMES or name.startswith(_DEVICE_PREFIXES)


def _require_program(program: str | bytes, env: Mapping[str, str]) -> None:
    """Fail as `start` would: behind the guard an absent program would only be an exit status."""
    text = os.fsdecode(program)
    for candidate in _candidates(text, env):
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return
    raise ProgramMissingError(f"cannot run {text}: there is no such executable file")


def _candidates(program: str, env: Mapping[str, str]) -> Iterator[str]:
    if os.sep in program:
        yield program
        return
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        yield os.path.join(folder or ".", program)


def _missing(program: str | bytes, error: OSError) -> ProgramMissingError:
    what = os.fsdecode(program)
    named = os.fsdecode(error.filename) if error.filename else what
    about = what if named == what else f"{what} ({named})"
    return ProgramMissingError(f"cannot run {about}: {error.strerror or error}")
