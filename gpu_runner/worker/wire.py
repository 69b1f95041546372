"""What crosses between the daemon, the candidate and the judge.

Plain data and length-prefixed JSON frames over inherited file descriptors. This module is read by
Python 3.10 in the user's interpreter as well as by the daemon, so it uses the standard library only.
Tensors never travel in a frame: they lie as raw bytes in files of the job's private folder, and a
frame names them.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

MAX_FRAME = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")


class VerdictKind(str, Enum):
    """What a case came to. Only PASSED is a pass; the last three are neither pass nor fail."""

    PASSED = "passed"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    WRONG_VALUES = "wrong_values"
    NONFINITE = "nonfinite"
    NONDETERMINISTIC = "nondeterministic"
    WROTE_OUTSIDE = "wrote_outside"
    LEFT_UNWRITTEN = "left_unwritten"
    CHANGED_INPUT = "changed_input"
    IMPORTED_ELSEWHERE = "imported_elsewhere"
    RAISED = "raised"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    ACCEPTED_UNSUPPORTED = "accepted_unsupported"
    CANCELLED = "cancelled"
    UNSUPPORTED = "unsupported"
    NOT_RUNNABLE = "not_runnable"

    @property
    def is_failure(self) -> bool:
        """True where the callable was run, or refused to load, and is at fault."""
        return self not in _NEITHER and self is not VerdictKind.PASSED


_NEITHER = frozenset({VerdictKind.CANCELLED, VerdictKind.UNSUPPORTED, VerdictKind.NOT_RUNNABLE})


@dataclass(frozen=True)
class Measurement:
    """How far one output was from the float64 reference.

    Attributes:
        output: Name of the output ("out", "lse").
        rule: The rule that was closest to its limit ("R1", "R2", "R3", "R4").
        worst: Error over limit at the worst element or block; at most 1.0 in a pass.
        max_abs: Largest absolute error, in the output's own unit.
        rms_rel: RMS of the error over RMS of the reference; None where not measured.
        elements: How many elements were compared.
        nonfinite: How many elements were not finite where the reference is.
        position: Where the worst one is, in words ("row 17, request 2, head 3, channel 5").
        hint: Likely cause where the pattern tells it ("" otherwise).
    """

    output: str
    rule: str
    worst: float
    max_abs: float
    elements: int
    nonfinite: int = 0
    rms_rel: float | None = None
    position: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Verdict:
    """The outcome of one case. `passed` cannot be built without a measurement."""

    case: str
    kind: VerdictKind
    message: str = ""
    advice: str = ""
    measurements: tuple[Measurement, ...] = ()
    seconds: float = 0.0
    detail: str = ""

    def __post_init__(self) -> None:
        if self.kind is VerdictKind.PASSED and not self.measurements:
            raise ValueError(f"{self.case}: a pass needs at least one measurement")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; the inverse is `verdict_from_json`."""
        data = asdict(self)
        data["kind"] = self.kind.value
        return data


def verdict_from_json(data: dict[str, Any]) -> Verdict:
    """Build a Verdict from `Verdict.to_json` data; raises TypeError or ValueError on other shapes."""
    fields = dict(data)
    fields["kind"] = VerdictKind(fields["kind"])
    fields["measurements"] = tuple(Measurement(**m) for m in fields.get("measurements", ()))
    return Verdict(**fields)


@dataclass(frozen=True)
class Target:
    """A user's callable and the suite it is held to.

    Attributes:
        name: The name in `[[tool.attngate.targets]]`.
        callable: "module:attribute".
        suite: Name of a suite.
        requires: "cpu" or "cuda".
        adapter: Path in the tree of the user's adapter file, or "".
        options: The other keys of the table (dtypes, head_dims, lse, ...), as JSON data.
    """

    name: str
    callable: str
    suite: str
    requires: str = "cpu"
    adapter: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """All that a worker may know; no reference outputs.

    Attributes:
        id: Job id, unique in the daemon's life.
        target: What to call.
        tier: "quick", "default" or "full".
        tree: Object id of the exported tree.
        tree_root: Absolute folder of the exported tree.
        import_roots: Folders under `tree_root` that go on sys.path ("" for the root, "src").
        packages: Top-level packages of the plugin: their Python modules must come from the tree.
        manifest: Path, relative to `tree_root`, to git blob id (sha1 or sha256 by length) of every
            Python file of `packages` in the tree, so that what was imported is known byte for byte.
        closure: Paths of the target's static import closure.
        generated: Path globs that may come from the confirmed installation.
        installed: Installed files that stand in for extensions and generated files: path relative to
            the import root to (absolute installed path, sha256).
        entry_points: Group to list of [name, value], synthesised from the tree's own metadata.
        distribution: [name, version] of the plugin's distribution, for the synthesised metadata.
        device: "cpu" or "cuda".
        contract: Contract id and version that chose conventions, "" where none did.
        case_timeout_s: Deadline for one case in the candidate.
        job_timeout_s: Deadline for the whole job.
        only: Case ids to run; empty means all of the tier.
        seed: Base seed of the inputs.
    """

    id: str
    target: Target
    tier: str = "default"
    tree: str = ""
    tree_root: str = ""
    import_roots: tuple[str, ...] = ("",)
    packages: tuple[str, ...] = ()
    manifest: dict[str, str] = field(default_factory=dict)
    closure: tuple[str, ...] = ()
    generated: tuple[str, ...] = ()
    installed: dict[str, tuple[str, str]] = field(default_factory=dict)
    entry_points: dict[str, list[list[str]]] = field(default_factory=dict)
    distribution: tuple[str, str] = ("", "")
    device: str = "cpu"
    contract: str = ""
    case_timeout_s: float = 60.0
    job_timeout_s: float = 900.0
    only: tuple[str, ...] = ()
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; the inverse is `job_from_json`."""
        return asdict(self)


def job_from_json(data: dict[str, Any]) -> Job:
    """Build a Job from `Job.to_json` data; raises TypeError on unknown or missing fields."""
    fields = dict(data)
    fields["target"] = Target(**fields["target"])
    for name in ("import_roots", "packages", "closure", "generated", "only", "distribution"):
        if name in fields:
            fields[name] = tuple(fields[name])
    fields["installed"] = {k: (v[0], v[1]) for k, v in fields.get("installed", {}).items()}
    return Job(**fields)


class FrameError(Exception):
    """A frame was malformed or larger than `MAX_FRAME`."""


def send(fd: int, message: dict[str, Any]) -> None:
    """Write one frame to `fd`; raises FrameError over the size cap, OSError when the peer is gone."""
    payload = json.dumps(message, allow_nan=False).encode()
    if len(payload) > MAX_FRAME:
        raise FrameError(f"frame of {len(payload)} bytes is over the cap of {MAX_FRAME}")
    data = memoryview(_LENGTH.pack(len(payload)) + payload)
    while data:
        data = data[os.write(fd, data) :]


def receive(fd: int) -> dict[str, Any] | None:
    """Read one frame; None when the peer closed in an orderly way. Blocks; raises FrameError."""
    head = _read_exactly(fd, _LENGTH.size)
    if head is None:
        return None
    (size,) = _LENGTH.unpack(head)
    if size > MAX_FRAME:
        raise FrameError(f"frame of {size} bytes is over the cap of {MAX_FRAME}")
    body = _read_exactly(fd, size) if size else b""
    if body is None:
        raise FrameError("the peer closed in the middle of a frame")
    message = json.loads(body)
    if not isinstance(message, dict):
        raise FrameError("a frame must be a JSON object")
    return message


def _read_exactly(fd: int, size: int) -> bytes | None:
    parts: list[bytes] = []
    missing = size
    while missing:
        part = os.read(fd, min(missing, 1 << 20))
        if not part:
            if parts:
                raise FrameError("the peer closed in the middle of a frame")
            return None
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
