"""The suite API: what a suite is given, what it hands back, and how a name finds its suite.

A suite is one file `suites/<name>.py` with one class under `@suite("<name>", version=1)`:

    @suite("merge_attn_states", version=1)
    class MergeAttnStates:
        adapter = "merge_attn_states"

        def plan(self, declaration): ...              # -> (cases, left_out)
        def prepare(self, case, declaration, rng): ...  # -> calls
        def judge(self, case, declaration, calls, outcomes): ...  # -> Verdict

It runs in the judge process only and never sees the candidate; what crosses is bytes. The three
methods must be pure: the same case and `rng` state give the same calls, because `judge` may be
called in another process than `prepare`.

What happens to the calls of one case
-------------------------------------
Every `Call` with `expect="output"` is run twice, in the order first round (every call once), second
round (every call once more). Each run gets its arguments fresh from bytes. Between the rounds
everything that the callable is documented to overwrite differs in content: arguments with the roles
"output" and "workspace", and the memory of fresh allocations made during the call, hold NaN in round
one and 1e4 in round two. `guards` then checks, the same for every suite:

* shape and dtype of each output (`wrong_shape`, `wrong_dtype`);
* the storages of inputs are bit for bit unchanged, guard bands included (`changed_input`);
* writable arguments changed only where they may (`wrote_outside`);
* each output is fully written and does not depend on what the memory held (`left_unwritten`);
* the same bits in both rounds (`nondeterministic`), unless the target declares
  `deterministic = false`, in which case both rounds go to the suite's `judge`;
* outputs that share memory with an input or with an earlier result, and results that a later call
  overwrote (`wrote_outside`).

Only when all of these hold does the suite's `judge` see the outcomes, so it may assume the expected
shapes and dtypes, and need not look at the rounds. "Right again on a second call with the same shapes
and other contents" is the suite's: return two calls with other contents from `prepare` and judge both.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from attngate.gpu_runner.worker import wire

TIERS = ("quick", "default", "full")
ROLES = ("input", "output", "inout", "workspace")
EXPECTATIONS = ("output", "refusal", "either")


@dataclass(frozen=True)
class Declaration:
    """What the target says of itself, and what its signature shows.

    Attributes:
        target: Name of the target.
        suite: Name of the suite.
        options: The target's own keys (dtypes, head_dims, lse, ...), JSON data; a missing key means
            the convention's default. A suite must ignore keys it does not know.
        device: "cpu" or "cuda": where the candidate runs. The judge always computes on the CPU.
        tier: "quick", "default" or "full".
        features: Optional features that the callable's signature has ("s_aux", "softcap",
            "block_table", ...; the adapter names them), or None while that is not known.
    """

    target: str
    suite: str
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    tier: str = "default"
    features: frozenset[str] | None = None


@dataclass(frozen=True)
class CaseSpec:
    """One case of a suite: small, readable, and reproducible from its id.

    Attributes:
        id: Readable and unique in the suite, without the suite's name: "gqa-b2-hq8-hk2-s1023-d128-bf16".
            The driver puts "<suite>/" in front in everything that leaves the worker.
        dtype: Torch name of the dtype in which the callable computes ("bfloat16"). On a CPU with
            Triton kernels the candidate checks that this dtype can be computed at all.
        axes: What the case varies, as JSON data; `prepare` must need nothing else but the declaration.
        tier: The smallest tier that includes the case; the driver leaves out the larger ones.
        needs: Features of the signature without which the case cannot be called; the driver leaves
            such cases out with a reason, so a plan simply names them.
        device: "any", or "cuda" for a case that makes sense on a GPU only.
    """

    id: str
    dtype: str
    axes: dict[str, Any] = field(default_factory=dict)
    tier: str = "default"
    needs: tuple[str, ...] = ()
    device: str = "any"

    def __post_init__(self) -> None:
        if self.tier not in TIERS:
            raise ValueError(f"case {self.id}: tier {self.tier!r} is none of {', '.join(TIERS)}")


@dataclass(frozen=True)
class TensorArg:
    """A tensor argument and what the callable may do with its memory.

    The whole storage behind `tensor` crosses to the candidate byte for byte and is rebuilt there with
    the same dtype, shape, stride and storage offset. So a guard band, poison between pages, a
    non-contiguous or an offset view is made by building an ordinary CPU view; nothing else has to be
    said. Arguments of one call whose tensors share a storage share it in the candidate too (K and V
    as two views of one cache). `tensors.guarded` builds a view between two guard bands.

    Attributes:
        tensor: A CPU tensor (a view, usually). For the roles "output" and "workspace" its elements are
            overwritten by the poison of the round; the rest of its storage stays as given.
        role: "input": no byte of the storage may change. "output": write-only, content is poisoned.
            "inout": content matters and may be changed where `may_write` says. "workspace": scratch,
            poisoned, never judged, only what lies outside is protected.
        may_write: Boolean mask of `tensor`'s shape, None for everywhere. Elements outside it, and all
            bytes of the storage outside the view, must keep their bits.
        must_write: For role "output": boolean mask of the elements that must be written, None for
            every element that may be written.
    """

    tensor: torch.Tensor
    role: str = "input"
    may_write: torch.Tensor | None = None
    must_write: torch.Tensor | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"role {self.role!r} is none of {', '.join(ROLES)}")


@dataclass(frozen=True)
class OutputSpec:
    """One canonical output that a call must give.

    Attributes:
        name: Canonical name in the suite ("out", "lse").
        shape: Exact shape.
        dtypes: Torch names of the dtypes that are right ("float32",).
        argument: Name of the argument that holds it after an in-place call; "" when it is returned.
            For a returned output the adapter's canonical name is `name`.
        must_write: For a returned output: boolean mask of the elements that count, None for all. The
            others are not compared (padding that the contract leaves undefined).
        optional: True if the callable may leave it out (None); then it is absent in the outcome.
    """

    name: str
    shape: tuple[int, ...]
    dtypes: tuple[str, ...]
    argument: str = ""
    must_write: torch.Tensor | None = None
    optional: bool = False


@dataclass(frozen=True)
class Call:
    """One call of the target, in canonical terms; the adapter turns it into the real call.

    Attributes:
        id: Unique in the case ("first", "other contents").
        args: Canonical name to value. A value is a `TensorArg`, a bare CPU tensor (an input), None,
            bool, int, float (infinities allowed), str, a torch dtype, or a tuple or list of these;
            tuples stay tuples and lists stay lists in the candidate. Leave a name out to take the
            callable's own default. The adapter of the suite documents the names.
        outputs: What must come back, judged structurally by `guards`.
        expect: "output": must return; an exception is the verdict `raised`. "refusal": must raise a
            Python exception; returning is `accepted_unsupported`. "either": may raise, which makes the
            case `unsupported` with the exception's words; if it returns it is judged as any output.
        after: Id of an earlier call of the case whose memory this call continues with: an argument
            whose `TensorArg.tensor` shares its storage with an argument of that call (the same torch
            storage, not an equal one) is the same live memory in the candidate, with what the earlier
            call left in it. "" for fresh memory.
        refill: With `after`: True to overwrite the shared memory with this call's bytes first, so that
            addresses stay and contents change (warm-up, capture, replay).
    """

    id: str
    args: Mapping[str, Any]
    outputs: Sequence[OutputSpec] = ()
    expect: str = "output"
    after: str = ""
    refill: bool = False

    def __post_init__(self) -> None:
        if self.expect not in EXPECTATIONS:
            raise ValueError(f"call {self.id}: expect {self.expect!r} is none of {EXPECTATIONS}")


@dataclass(frozen=True)
class Outcome:
    """What one call of one round came to; what `Suite.judge` reads.

    Attributes:
        call: Id of the call.
        outputs: Canonical name to CPU tensor, for returned and for in-place outputs alike, with the
            expected shape and dtype; an optional output that was left out is absent.
        arguments: Argument name to its view after the call (same shape, stride, dtype), for every
            tensor argument, so that a suite can look at caches and workspaces.
        raised: (type name, message) if the call raised, which only "refusal" and "either" calls may
            have done when the suite's judge is reached; else None.
    """

    call: str
    outputs: Mapping[str, torch.Tensor] = field(default_factory=dict)
    arguments: Mapping[str, torch.Tensor] = field(default_factory=dict)
    raised: tuple[str, str] | None = None


LeftOut = tuple[str, str]
"""What was not planned, and why: ("sinks", "the callable takes no s_aux")."""


class Suite(Protocol):
    """What `@suite` decorates. `name`, `version` and `adapter` are set by the decorator if absent."""

    name: str
    version: int
    adapter: str

    def plan(self, declaration: Declaration) -> tuple[list[CaseSpec], list[LeftOut]]:
        """All cases of all tiers for this declaration, and what it leaves out and why.

        Raises:
            DeclarationError: a key of the table has a value that the suite cannot use.
        """
        ...

    def prepare(self, case: CaseSpec, declaration: Declaration, rng: torch.Generator) -> list[Call]:
        """The calls of one case; `rng` is a CPU generator seeded from the job's seed and the case id."""
        ...

    def judge(
        self,
        case: CaseSpec,
        declaration: Declaration,
        calls: Sequence[Call],
        outcomes: Mapping[str, Outcome],
    ) -> wire.Verdict:
        """Compare the outcomes (by call id) with the suite's reference on the calls' own inputs.

        `calls` is what `prepare` returned, freshly computed from the same seed. Return a Verdict with
        `case=case.id` (the driver completes the id and the time); `passed` needs measurements. Never
        raise for bad numbers: an exception here is our own fault and makes the job fail.
        """
        ...


class DeclarationError(Exception):
    """A target's table asks for what a suite cannot do; message and advice reach the user."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


_suites: dict[str, Suite] = {}
_Class = TypeVar("_Class", bound=type)


def suite(name: str, *, version: int, adapter: str = "") -> Callable[[_Class], _Class]:
    """Register the decorated class, which is instantiated once without arguments.

    Args:
        name: Name of the suite, the same as its file's.
        version: Raise it whenever cases, inputs or limits change: it is part of the evidence key.
        adapter: Module in `adapters/` that makes the call; the suite's name by default.
    """

    def register(cls: _Class) -> _Class:
        instance = cls()
        instance.name = name
        instance.version = version
        instance.adapter = adapter or getattr(cls, "adapter", "") or name
        _suites[name] = instance
        return cls

    return register


def available() -> list[str]:
    """Names of all suites there are: the registered ones and the files of `suites/`."""
    folder = Path(__file__).parent / "suites"
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    return sorted(files | set(_suites))


def find(name: str) -> Suite:
    """The suite of that name, its file loaded on first use; raises DeclarationError if there is none."""
    if name not in _suites:
        if name not in available():
            raise _unknown(name)
        importlib.import_module(f"attngate.gpu_runner.worker.suites.{name}")
    if name not in _suites:
        raise DeclarationError(f"suites/{name}.py registers no suite named {name!r}")
    return _suites[name]


def _unknown(name: str) -> DeclarationError:
    from difflib import get_close_matches

    close = get_close_matches(name, available(), n=1)
    advice = f"did you mean {close[0]!r}? " if close else ""
    return DeclarationError(
        f"there is no suite {name!r}", f"{advice}suites: {', '.join(available())}"
    )
