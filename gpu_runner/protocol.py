"""What a client and the daemon say to each other.

One frame is one JSON object, a request or a reply. The field "op" of a request and "is" of a reply
name its kind. `Hello`, `Status` and `Stop` and their replies only ever gain fields, so that any
client can ask any daemon what it is, and end it.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from attngate.gpu_runner.errors import MalformedMessageError
from attngate.gpu_runner.evidence.key import JobKey  # noqa: TC001 - msgspec reads it at run time
from attngate.gpu_runner.worker.wire import Job, Verdict, VerdictKind

PROTOCOL_VERSION = 1
MAX_MESSAGE = 64 * 1024 * 1024

JobId = str

# What a second run could answer differently although nothing of the key changed: a busy machine.
_WORTH_REPEATING = frozenset(
    {
        VerdictKind.CANCELLED,
        VerdictKind.CRASHED,
        VerdictKind.NOT_RUNNABLE,
        VerdictKind.OUT_OF_MEMORY,
        VerdictKind.TIMED_OUT,
    }
)


class JobState(str, Enum):
    """Where a job stands. Only DONE has a verdict for every planned case."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"

    @property
    def is_final(self) -> bool:
        """True where nothing more will happen to the job."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a client asks for it.

    Attributes:
        job: What the workers are told. The daemon sets `id` and replaces `tree_root`, which must be
            a folder directly below `paths.trees_folder()`; the daemon owns that folder from then on.
        interpreter: Absolute path of the Python that runs the workers.
        key: What the verdicts will count for.
        environment: Variables for the workers, see `spawn.worker_environment`.
        subject: What is validated, in a user's words, for the queue's display.
    """

    job: Job
    interpreter: str
    key: JobKey
    environment: dict[str, str] = {}
    subject: str = ""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job could not be carried out. Not a statement about the user's kernel.

    Attributes:
        kind: A verdict kind's value that the judge or the loader gave, or "could_not_check".
        message: What is wrong.
        advice: What to do about it.
        detail: A traceback or the end of the workers' output.
    """

    kind: str
    message: str
    advice: str = ""
    detail: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a run established besides its verdicts.

    Attributes:
        suite_version: Version of the suite that planned the cases.
        planned: Ids of every case that the run had to answer.
        left_out: (what, why) of what the suite did not plan.
        signature: The callable's signature as it was loaded.
        modules: (name, origin, path in the tree) of the plugin's modules in the candidate.
        mixed: (path, installed path, sha256) of files taken from the confirmed installation.
        outside_closure: Paths of plugin modules that were loaded from outside the static closure.
        disclosures: Sentences that belong in every report of this run.
        scope: "closure", or "whole tree" where `outside_closure` widened the key.
        device: "cpu" or "cuda".
    """

    suite_version: int = 0
    planned: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    signature: str = ""
    modules: tuple[tuple[str, str, str], ...] = ()
    mixed: tuple[tuple[str, str, str], ...] = ()
    outside_closure: tuple[str, ...] = ()
    disclosures: tuple[str, ...] = ()
    scope: str = "closure"
    device: str = ""


class JobEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """A finished, complete run that the store holds for a key.

    Attributes:
        key: Digest of the key it was found under.
        verdicts: One for each of `facts.planned`, in that order.
        facts: See `Facts`.
        recorded_at: Seconds since 1970, UTC.
        seconds: How long the run took.
    """

    key: str
    verdicts: tuple[Verdict, ...]
    facts: Facts
    recorded_at: float
    seconds: float

    @property
    def passed(self) -> bool:
        """True only if there is a case and every planned case has passed."""
        return all_passed(self.facts.planned, self.verdicts)

    @property
    def worth_repeating(self) -> bool:
        """True where a verdict may owe to the moment: a crash, a deadline, memory, the device."""
        return any(verdict.kind in _WORTH_REPEATING for verdict in self.verdicts)


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """Where one job stands.

    Attributes:
        id: The job.
        state: See `JobState`.
        target: Name of the target.
        suite: Its suite.
        tier: Its tier.
        subject: As in the request.
        tree: Object id of the tree.
        device: "cpu" or "cuda".
        clients: Who asked for it.
        position: Jobs before it on its kind of device, 0 for a running one.
        age: Seconds since it was submitted.
        seconds: Seconds that it has been, or was, running.
        verdicts: Of the cases that are finished.
        facts: See `Facts`; empty until the plan is there.
        problem: Why it failed, None otherwise.
        key: Digest of the key that its verdicts are kept under, "" where they are not kept.
        log: Path of the workers' output.
    """

    id: JobId
    state: JobState
    target: str = ""
    suite: str = ""
    tier: str = ""
    subject: str = ""
    tree: str = ""
    device: str = ""
    clients: tuple[str, ...] = ()
    position: int = 0
    age: float = 0.0
    seconds: float = 0.0
    verdicts: tuple[Verdict, ...] = ()
    facts: Facts = Facts()
    problem: Problem | None = None
    key: str = ""
    log: str = ""

    @property
    def passed(self) -> bool:
        """True only for a finished job of which every planned case has passed."""
        return self.state is JobState.DONE and all_passed(self.facts.planned, self.verdicts)


def all_passed(planned: tuple[str, ...], verdicts: tuple[Verdict, ...]) -> bool:
    """True if there is a planned case and each has a verdict, all of them passes."""
    if not planned or sorted(planned) != sorted(verdict.case for verdict in verdicts):
        return False
    return all(verdict.kind is VerdictKind.PASSED for verdict in verdicts)


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="hello"):
    """The first request on a connection.

    Attributes:
        protocol: `PROTOCOL_VERSION` of the client.
        version: Version of its package.
        code: Digest of its runner sources.
        client: Who it is, in a user's words ("attngate gate, process 4711").
        token: Random text that names this client, for "jobs that only I asked for".
    """

    protocol: int
    version: str
    code: str
    client: str
    token: str


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="submit"):
    """Queue jobs. A job that is already queued or running under the same key is joined."""

    jobs: tuple[JobRequest, ...]


class Lookup(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="lookup"):
    """Ask for evidence, first under each key, then under the key it widens to."""

    keys: tuple[JobKey, ...]


class Wait(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="wait"):
    """Follow jobs until all are final or the time is up: `Progress` frames, then `Reports`."""

    ids: tuple[JobId, ...]
    timeout_s: float


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="cancel"):
    """Cancel jobs; with `only_mine`, only those that no other client has asked for."""

    ids: tuple[JobId, ...]
    only_mine: bool = False


class Status(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="status"):
    """Ask what the daemon is and what it is doing."""


class Logs(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="logs"):
    """Ask for the last lines of a job's log, or of the daemon's for an empty `id`."""

    id: JobId = ""
    lines: int = 100


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="stop"):
    """End the daemon.

    Attributes:
        when: "now" cancels what is queued or running; "drained" finishes it first and takes nothing
            new; "idle" does nothing unless there is no job.
    """

    when: str = "now"


Request = Hello | Submit | Lookup | Wait | Cancel | Status | Logs | Stop


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="welcome"):
    """The answer to `Hello`.

    Attributes:
        protocol: `PROTOCOL_VERSION` of the daemon.
        version: Version of its package.
        code: Digest of its runner sources when it started.
        interpreter: The Python that runs it.
        pid: Its process.
        started_at: Seconds since 1970, UTC.
        jobs: How many jobs are queued or running.
        warnings: What the user should know, as in every reply.
    """

    protocol: int
    version: str
    code: str
    interpreter: str
    pid: int
    started_at: float
    jobs: int
    warnings: tuple[str, ...] = ()


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="accepted"):
    """The answer to `Submit`: an id for each job, in order."""

    ids: tuple[JobId, ...]
    warnings: tuple[str, ...] = ()


class Found(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="found"):
    """The answer to `Lookup`: evidence or None for each key, in order."""

    evidence: tuple[JobEvidence | None, ...]
    warnings: tuple[str, ...] = ()


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="progress"):
    """Sent while a client waits, when something changed and now and then."""

    reports: tuple[JobReport, ...]
    warnings: tuple[str, ...] = ()


class Reports(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="reports"):
    """The last answer to `Wait`, and the answer to `Cancel`."""

    reports: tuple[JobReport, ...]
    warnings: tuple[str, ...] = ()


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A place where one job at a time runs."""

    name: str
    device: str
    job: JobId = ""


class StatusReply(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="status"):
    """The answer to `Status`; fields are as in `Welcome`."""

    protocol: int
    version: str
    code: str
    interpreter: str
    pid: int
    started_at: float
    clients: tuple[str, ...] = ()
    slots: tuple[Slot, ...] = ()
    jobs: tuple[JobReport, ...] = ()
    finished: tuple[JobReport, ...] = ()
    idle_exit_s: float = 0.0
    ending: bool = False
    log: str = ""
    evidence: str = ""
    warnings: tuple[str, ...] = ()


class LogLines(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="log"):
    """The answer to `Logs`."""

    path: str
    lines: tuple[str, ...]
    warnings: tuple[str, ...] = ()


class Stopping(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="stopping"):
    """The answer to `Stop`, sent once the socket is gone. `stopping` is False for a busy "idle"."""

    stopping: bool
    pid: int
    jobs: int
    warnings: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="refused"):
    """The request was not carried out."""

    message: str
    advice: str = ""
    warnings: tuple[str, ...] = ()


Reply = (
    Welcome | Accepted | Found | Progress | Reports | StatusReply | LogLines | Stopping | Refused
)


class _StatusCore(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="status"):
    protocol: int
    version: str
    code: str
    interpreter: str
    pid: int
    started_at: float


_status_core = msgspec.json.Decoder(_StatusCore)
_encoder = msgspec.json.Encoder()
_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_replies: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


def encode(message: Request | Reply) -> bytes:
    """A message as the content of one frame."""
    return _encoder.encode(message)


def decode_request(frame: bytes) -> Request:
    """The request in a frame; raises MalformedMessageError naming what does not fit."""
    try:
        return _requests.decode(frame)
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise MalformedMessageError(
            f"not a request of protocol {PROTOCOL_VERSION}: {error}"
        ) from None


def decode_reply(frame: bytes) -> Reply:
    """The reply in a frame; raises MalformedMessageError naming what does not fit."""
    try:
        return _replies.decode(frame)
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise MalformedMessageError(
            f"not a reply of protocol {PROTOCOL_VERSION}: {error}"
        ) from None


def status_of_other_version(frame: bytes) -> StatusReply:
    """The part of a `StatusReply` that every version has; raises MalformedMessageError."""
    try:
        return msgspec.convert(_status_core.decode(frame), StatusReply, from_attributes=True)
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise MalformedMessageError(f"not a daemon's status: {error}") from None


def to_builtins(value: Any) -> Any:
    """A message or a part of one as plain JSON data, for reports."""
    return msgspec.to_builtins(value)
