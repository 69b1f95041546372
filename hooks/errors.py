"""Errors a user can act on, and the exit codes.

An error says what is wrong, where, and what to do. Anything else that escapes is our own bug:
exit 3 with a crash log.
"""

from __future__ import annotations

EXIT_PASS = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_INTERNAL = 3
EXIT_COULD_NOT_CHECK = 4
EXIT_INTERRUPTED = 130

_PRECEDENCE = (
    EXIT_INTERRUPTED,
    EXIT_INTERNAL,
    EXIT_USAGE,
    EXIT_FINDINGS,
    EXIT_COULD_NOT_CHECK,
    EXIT_PASS,
)


class AttngateError(Exception):
    """An error with an exit code and advice.

    Attributes:
        message: What is wrong and where.
        advice: What to do about it, "" when the message already says so.
        exit_code: One of the table above.
    """

    exit_code = EXIT_USAGE

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


class UsageError(AttngateError):
    """The command line or the configuration cannot be used (exit 2)."""


class CouldNotCheckError(AttngateError):
    """Something needed for the check is missing or not ready (exit 4)."""

    exit_code = EXIT_COULD_NOT_CHECK


class RefusedError(AttngateError):
    """The subject itself cannot be checked: conflicts, unreadable objects (exit 1)."""

    exit_code = EXIT_FINDINGS


def worst(codes: list[int]) -> int:
    """The exit code that stands for several: 130 > 3 > 2 > 1 > 4 > 0."""
    return min(codes, key=_PRECEDENCE.index, default=EXIT_PASS)
