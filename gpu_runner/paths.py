"""Where the runner keeps its things: run folder, state, cache, trees and job folders.

Every folder is private: a real folder (no link) that belongs to this user, mode 0700 whatever the
umask. Anything else at such a path is refused rather than used or repaired.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import sys
from pathlib import Path

from attngate.gpu_runner.errors import RunnerError

SOCKET_PATH_LIMIT = 103 if sys.platform == "darwin" else 107
_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - a private folder is made below it
_SHARED_RUN_FOLDER = Path("/tmp")  # noqa: S108 - the same
_ROOM_FOR_TENSORS = 1 << 30


def private_folder(path: Path) -> Path:
    """Make `path` where it is absent, and return it if it is a private folder of this user.

    Raises:
        RunnerError: It is a link, something else, another user's, or open to others; or it could
            not be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.mkdir(mode=0o700)
            path.chmod(0o700)
        except FileExistsError:
            pass
        status = path.lstat()
    except OSError as error:
        raise RunnerError(f"cannot make the folder {path}: {error.strerror}") from error
    _require_private(path, status)
    return path


def _require_private(path: Path, status: os.stat_result) -> None:
    advice = f"remove or rename it: attngate makes {path} by itself, with mode 0700"
    if not stat.S_ISDIR(status.st_mode):
        raise RunnerError(f"{path} is not a folder of its own (a link or a file)", advice)
    if status.st_uid != os.getuid():
        raise RunnerError(f"{path} belongs to user {status.st_uid}, not to you", advice)
    if stat.S_IMODE(status.st_mode) & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise RunnerError(f"{path} is open to other users (mode {mode:o})", advice)


def run_folder() -> Path:
    """Folder of the socket and the locks: below XDG_RUNTIME_DIR, else /tmp/attngate-<uid>."""
    configured = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(configured) and os.access(configured, os.W_OK | os.X_OK):
        return private_folder(Path(configured) / "attngate")
    return private_folder(_SHARED_RUN_FOLDER / f"attngate-{os.getuid()}")


def socket_path() -> Path:
    """The daemon's socket; one for each user, host and state folder.

    Raises:
        RunnerError: The path is longer than a socket's name may be, or its folder is not private.
    """
    name = hashlib.sha256(os.fsencode(state_location())).hexdigest()[:16]
    path = run_folder() / f"{name}.sock"
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_LIMIT:
        raise RunnerError(
            f"the socket path {path} has {length} bytes; the system allows {SOCKET_PATH_LIMIT}",
            "set XDG_RUNTIME_DIR to a shorter folder, or unset it",
        )
    return path


def life_lock() -> Path:
    """The file whose lock the daemon holds as long as it lives."""
    return socket_path().with_suffix(".lock")


def start_lock() -> Path:
    """The file whose lock a client holds while it starts the daemon."""
    return socket_path().with_suffix(".start")


def state_location() -> Path:
    """Where state belongs by configuration; it may not exist or not be writable."""
    return _base("XDG_STATE_HOME", ".local/state") / "attngate"


def cache_location() -> Path:
    """Where caches belong by configuration; it may not exist or not be writable."""
    return _base("XDG_CACHE_HOME", ".cache") / "attngate"


def _base(variable: str, below_home: str) -> Path:
    configured = os.environ.get(variable, "")
    if os.path.isabs(configured):
        return Path(configured)
    return Path(os.environ.get("HOME") or "/nonexistent") / below_home


def evidence_database() -> Path:
    """The evidence store of this host; a home on a network file system is shared by hosts."""
    host = hashlib.sha256(platform.node().encode()).hexdigest()[:12]
    return state_location() / f"evidence-{host}.sqlite"


def log_folder() -> Path:
    """Folder of the daemon's and the jobs' logs: in the state folder, else in the run folder."""
    try:
        folder = private_folder(state_location()) / "logs"
        if os.access(folder.parent, os.W_OK | os.X_OK):
            return private_folder(folder)
    except RunnerError:
        pass
    return private_folder(run_folder() / "logs")


def daemon_log() -> Path:
    """The daemon's log."""
    return log_folder() / "daemon.log"


def job_log(job_id: str) -> Path:
    """What the workers of a job wrote to their standard output and error."""
    return log_folder() / f"job-{job_id}.log"


def trees_folder() -> Path:
    """Where a client puts an exported tree that it hands over; on a memory file system if any."""
    return private_folder(_memory_folder() / "trees")


def jobs_folder() -> Path:
    """Parent of the private folders in which judge and candidate exchange tensors.

    Containers often have a tiny memory file system; the disk is used where it is short of room.
    """
    memory = _memory_folder()
    if shutil.disk_usage(memory).free >= _ROOM_FOR_TENSORS:
        return private_folder(memory / "jobs")
    try:
        return private_folder(private_folder(cache_location()) / "jobs")
    except RunnerError:
        return private_folder(memory / "jobs")


def _memory_folder() -> Path:
    # Of one daemon alone: another one, with another socket, would take these files for leftovers.
    mark = hashlib.sha256(os.fsencode(socket_path())).hexdigest()[:16]
    name = f"attngate-{os.getuid()}-{mark}"
    if os.path.isdir(_MEMORY_FOLDER) and os.access(_MEMORY_FOLDER, os.W_OK | os.X_OK):
        return private_folder(_MEMORY_FOLDER / name)
    return private_folder(run_folder() / "spool")
