"""The shapes of the workers' answers. Whatever does not fit is malformed; nothing is guessed."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from attngate.gpu_runner.daemon.executors.pipe import MalformedFrameError
from attngate.gpu_runner.worker.wire import Verdict, VerdictKind

INTERNAL = "internal"
_SHORT, _LONG = 4000, 20000
_T = TypeVar("_T", bound=msgspec.Struct)


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The candidate's answer to "load"."""

    signature: str
    modules: tuple[tuple[str, str, str], ...] = ()
    outside_closure: tuple[str, ...] = ()
    mixed: tuple[tuple[str, str, str], ...] = ()
    disclosures: tuple[str, ...] = ()
    features: tuple[str, ...] | None = None


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the candidate's answer to "run" that concerns the daemon."""

    outside_closure: tuple[str, ...] = ()
    mixed: tuple[tuple[str, str, str], ...] = ()


class PlannedCase(msgspec.Struct, frozen=True, kw_only=True):
    """One case of a plan."""

    id: str
    axes: dict[str, Any] = {}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The judge's answer to "plan"."""

    suite_version: int
    cases: tuple[PlannedCase, ...]
    left_out: tuple[tuple[str, str], ...] = ()


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The judge's answer to "prepare": the name of the file of calls."""

    calls: str


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The judge's answer to "judge"."""

    verdict: Verdict


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Any answer with "ok": false."""

    kind: str
    message: str
    advice: str = ""
    detail: str = ""

    @property
    def verdict_kind(self) -> VerdictKind | None:
        """The kind of verdict that this means; None where it means a fault of ours."""
        return None if self.kind == INTERNAL else VerdictKind(self.kind)


def read(reply: dict[str, Any], kind: type[_T]) -> _T | Refusal:
    """A reply as `kind`, or as the refusal that it is.

    Raises:
        MalformedFrameError: It is neither, or a refusal that claims to be a pass.
    """
    ok = reply.get("ok")
    if ok is True:
        return _converted(reply, kind)
    if ok is not False:
        raise MalformedFrameError('an answer has no "ok"')
    refusal = _converted(reply, Refusal)
    refusals = {kind.value for kind in VerdictKind} - {"passed", "cancelled"} | {INTERNAL}
    if refusal.kind not in refusals:
        raise MalformedFrameError(f"an answer refuses with {refusal.kind[:40]!r}")
    return Refusal(
        kind=refusal.kind,
        message=refusal.message[:_SHORT],
        advice=refusal.advice[:_SHORT],
        detail=refusal.detail[-_LONG:],
    )


def _converted(reply: dict[str, Any], kind: type[_T]) -> _T:
    try:
        return msgspec.convert(reply, kind)
    except (msgspec.ValidationError, ValueError, TypeError, RecursionError) as error:
        raise MalformedFrameError(f"an answer does not fit: {error}") from None
