"""Errors of the runner that a user can act on.

`gpu_runner` knows nothing of the command line; the `hooks` package turns these into exit codes.
"""

from __future__ import annotations


class RunnerError(Exception):
    """Something that the validation needs is missing, refused or not ready.

    Attributes:
        message: What is wrong and where.
        advice: What to do about it, "" when the message already says so.
    """

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


class ProgramMissingError(RunnerError):
    """A program could not be started: absent, not executable, or not for this machine."""


class ConnectionLostError(RunnerError):
    """The daemon went away while a request was open."""


class ForeignSocketError(RunnerError):
    """What lies or listens at the socket's path is not this user's daemon."""


class MalformedMessageError(RunnerError):
    """A peer sent something that is not a message of this protocol."""
