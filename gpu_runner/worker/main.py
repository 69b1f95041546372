"""The loop of a worker process: one frame in, one frame out, until "exit" or the peer is gone.

Frames have descriptors of their own, moved out of the way of the standard ones and closed on exec, so
nothing that the user's code prints or starts can disturb them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

from attngate.gpu_runner.worker import wire

if TYPE_CHECKING:
    from collections.abc import Callable

OLDEST_PYTHON = (3, 10)
_FIRST_FRAME_FD = 32

Request = dict[str, Any]
Reply = dict[str, Any]


def main(argv: list[str]) -> NoReturn:
    """Serve one peer and end the process without running the user's exit handlers."""
    role, fd_in, fd_out = argv[0], _move_away(int(argv[1])), _move_away(int(argv[2]))
    handle = _handler(role)
    with contextlib.suppress(BrokenPipeError):
        while (request := wire.receive(fd_in)) is not None and request.get("op") != "exit":
            wire.send(fd_out, _answer(handle, request))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)


def _move_away(fd: int) -> int:
    """A copy of `fd` above the standard descriptors, not inherited by programs we start."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FRAME_FD)
    if fd > 2:
        os.close(fd)
    else:
        with open(os.devnull, "r+b") as nothing:
            os.dup2(nothing.fileno(), fd)
    return moved


def _handler(role: str) -> Callable[[Request], Reply]:
    if role == "identity" and sys.version_info >= OLDEST_PYTHON:
        from attngate.gpu_runner.worker import identity

        return identity.handle  # torch is one of the things it may be asked about, so not needed
    unusable = _unusable_interpreter()
    if unusable is not None:
        return lambda _request: unusable
    if role == "candidate":
        from attngate.gpu_runner.worker.candidate import Candidate

        return Candidate().handle
    from attngate.gpu_runner.worker.judge import Judge

    return Judge().handle


def _unusable_interpreter() -> Reply | None:
    """The reply to every request where this interpreter cannot run a validation, or None."""
    here = f"{sys.executable} (Python {sys.version.split()[0]})"
    advice = "set [tool.attngate] interpreter to the python of the environment that runs the plugin"
    if sys.version_info < OLDEST_PYTHON:
        return refusal("unsupported", f"{here} is older than Python 3.10", advice)
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name == "torch":
            message = f"the interpreter {here} has no torch"
            return refusal("unsupported", message, f"{advice}, or install torch there")
        return _broken_torch(here, error)
    except (ImportError, OSError) as error:
        return _broken_torch(here, error)
    return None


def _broken_torch(here: str, error: BaseException) -> Reply:
    advice = "run `python -c 'import torch'` with that interpreter and repair the installation"
    return refusal("unsupported", f"torch cannot be imported by {here}: {error}", advice)


def refusal(kind: str, message: str, advice: str = "", detail: str = "") -> Reply:
    """A reply that says no; `kind` is a value of `wire.VerdictKind`, or "internal" for our own bug."""
    return {"ok": False, "kind": kind, "message": message, "advice": advice, "detail": detail}


def _answer(handle: Callable[[Request], Reply], request: Request) -> Reply:
    try:
        return handle(request)
    except Exception as error:  # noqa: BLE001, RUF100 (the peer needs an answer to everything)
        message = f"{request.get('op')}: {type(error).__name__}: {error}"
        return refusal("internal", message, "", traceback.format_exc())
