"""Structural checks that every suite shares: what may change, what must be written, what must repeat.

Pure functions over bytes: `plan_runs` says what is run and what memory holds before, `fault_of` says
what is wrong with what came back, `outcomes_of` gives the rest to the suite.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from attngate.gpu_runner.worker import tensors
from attngate.gpu_runner.worker.exchange import FILL_OF_ROUND, run_id
from attngate.gpu_runner.worker.registry import Call, Outcome, OutputSpec, TensorArg
from attngate.gpu_runner.worker.wire import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_POISONED_ROLES = ("output", "workspace")


@dataclass(frozen=True)
class Fault:
    """A structural fault: the kind of verdict and what a developer needs to find it."""

    kind: VerdictKind
    message: str
    advice: str = ""


@dataclass
class Run:
    """One run of a call in one round.

    Attributes:
        id: "<call>#<round>".
        call: The call.
        round: 1 or 2.
        arguments: Flat name ("kv.1" for an item of a tuple) to (argument, storage key).
        before: Storage key to all its bytes before the run (uint8, CPU). For memory that continues
            from an earlier call this is only known when its result is; `fault_of` fills it in.
        fresh: Keys whose bytes are handed over; the others continue from the earlier call.
    """

    id: str
    call: Call
    round: int
    arguments: dict[str, tuple[TensorArg, str]]
    before: dict[str, torch.Tensor]
    fresh: set[str]

    @property
    def fill(self) -> str:
        """The poison of this round."""
        return FILL_OF_ROUND[self.round]

    @property
    def earlier(self) -> str:
        """Id of the run whose memory this one continues with, "" if none."""
        return run_id(self.call.after, self.round) if self.call.after else ""


@dataclass(frozen=True)
class Result:
    """What one run came to, read back from the candidate's files."""

    returned: dict[str, torch.Tensor]
    changed: dict[str, torch.Tensor]
    raised: tuple[str, str] | None = None
    aliases: list[list[str]] = field(default_factory=list)
    kept_changed: list[list[str]] = field(default_factory=list)


def flat_tensors(args: Any, name: str = "") -> Iterator[tuple[str, TensorArg]]:
    """All tensor arguments with their flat names; a bare tensor is an input."""
    if isinstance(args, TensorArg):
        yield name, args
    elif isinstance(args, torch.Tensor):
        yield name, TensorArg(args)
    elif isinstance(args, (tuple, list)):
        for index, item in enumerate(args):
            yield from flat_tensors(item, f"{name}.{index}")


def plan_runs(calls: Sequence[Call]) -> list[Run]:
    """The runs of a case in their order: round one of all calls, then round two.

    A call that must be refused is run once: there is nothing to compare.
    """
    keys: dict[int, str] = {}
    used: dict[str, set[str]] = {}
    runs = []
    for round_ in FILL_OF_ROUND:
        for call in calls:
            if round_ == 1 or call.expect != "refusal":
                run = _plan_run(call, round_, keys, used)
                used[run.id] = set(run.before)
                runs.append(run)
    return runs


def _plan_run(call: Call, round_: int, keys: dict[int, str], used: dict[str, set[str]]) -> Run:
    arguments: dict[str, tuple[TensorArg, str]] = {}
    before: dict[str, torch.Tensor] = {}
    for name, value in call.args.items():
        for flat, argument in flat_tensors(value, name):
            key = storage_key(argument.tensor, keys)
            arguments[flat] = (argument, key)
            before.setdefault(key, tensors.storage_bytes(argument.tensor).clone())
    for argument, key in arguments.values():
        if argument.role in _POISONED_ROLES:
            _poison_argument(argument, before[key], FILL_OF_ROUND[round_])
    continued = used.get(run_id(call.after, round_), set()) if call.after else set()
    fresh = set(before) if call.refill else set(before) - continued
    return Run(run_id(call.id, round_), call, round_, arguments, before, fresh)


def storage_key(tensor: torch.Tensor, keys: dict[int, str]) -> str:
    """The same key for tensors that share a storage."""
    address = tensor.untyped_storage().data_ptr() or -id(tensor)
    return keys.setdefault(address, f"s{len(keys)}")


def view_in(argument: TensorArg, raw: torch.Tensor) -> torch.Tensor:
    """The argument's view over other bytes of its storage."""
    t = argument.tensor
    return tensors.view_of(raw, t.dtype, tuple(t.shape), t.stride(), int(t.storage_offset()))


def _poison_argument(argument: TensorArg, raw: torch.Tensor, fill: str) -> None:
    view = view_in(argument, raw)
    pattern = tensors.poison(torch.empty(view.shape, dtype=view.dtype), fill)
    mask = argument.may_write
    view.copy_(pattern if mask is None else _choose(mask, pattern, view))


def _choose(mask: torch.Tensor, yes: torch.Tensor, no: torch.Tensor) -> torch.Tensor:
    return torch.where(mask, tensors.bits(yes), tensors.bits(no)).view(yes.dtype)


def fault_of(
    runs: Sequence[Run], results: dict[str, Result], *, deterministic: bool = True
) -> Fault | None:
    """The first structural fault of a case, None if there is none.

    Args:
        runs: From `plan_runs`.
        results: By run id; a run is missing only after a refusal that ended the case.
        deterministic: False if the target declares that equal calls may differ in their bits.
    """
    after: dict[str, dict[str, torch.Tensor]] = {}
    for run in runs:
        for key in set(run.before) - run.fresh:
            run.before[key] = after[run.earlier][key]
        result = results[run.id]
        after[run.id] = {**run.before, **result.changed}
        fault = _fault_of_run(run, result, after[run.id])
        if fault is not None:
            return fault
    return _fault_between_rounds(runs, results, after, deterministic=deterministic)


def _fault_of_run(run: Run, result: Result, after: dict[str, torch.Tensor]) -> Fault | None:
    if result.raised is None and run.call.expect == "refusal":
        return Fault(
            VerdictKind.ACCEPTED_UNSUPPORTED,
            f"call {run.call.id!r} must be refused before anything is computed, and returned",
            "raise an exception that names the unsupported argument",
        )
    return (
        _written_outside(run, after)
        or (None if result.raised else _wrong_outputs(run, result, after))
        or _shared_memory(run, result)
    )


def _written_outside(run: Run, after: dict[str, torch.Tensor]) -> Fault | None:
    for key, now in after.items():
        changed = now != run.before[key]
        if not bool(changed.any()):
            continue
        changed &= ~_may_change(run, key)
        if bool(changed.any()):
            return _name_change(run, key, changed)
    return None


def _may_change(run: Run, key: str) -> torch.Tensor:
    """Boolean mask over the bytes of a storage: where some writable argument may be written."""
    allowed = torch.zeros_like(run.before[key])
    for argument, its_key in run.arguments.values():
        if its_key == key and argument.role != "input":
            bits = tensors.bits(view_in(argument, allowed))
            everywhere = torch.ones(bits.shape, dtype=torch.bool)
            mask = everywhere if argument.may_write is None else argument.may_write
            bits.masked_fill_(mask, 255 if bits.dtype == torch.uint8 else -1)
    return allowed != 0


def _name_change(run: Run, key: str, changed: torch.Tensor) -> Fault:
    """Say which argument the changed bytes belong to, or how far outside they lie."""
    first = int(changed.nonzero()[0])
    owners = [(n, a) for n, (a, its_key) in run.arguments.items() if its_key == key]
    for name, argument in owners:
        hit = (tensors.bits(view_in(argument, changed.to(torch.uint8) * 255))) != 0
        if bool(hit.any()):
            kind = VerdictKind.CHANGED_INPUT
            what = "an input" if argument.role == "input" else "outside what may be written"
            if argument.role != "input":
                kind = VerdictKind.WROTE_OUTSIDE
            where = position(hit)
            message = f"call {run.call.id!r} changed {name} at {where} ({what})"
            return Fault(kind, f"{message}; {count_of(hit)}")
    names = ", ".join(name for name, _ in owners)
    distance = _distance(owners[0][1], first)
    kinds = {argument.role for _, argument in owners}
    kind = VerdictKind.CHANGED_INPUT if kinds == {"input"} else VerdictKind.WROTE_OUTSIDE
    total = int(changed.sum())
    return Fault(
        kind,
        f"call {run.call.id!r} changed {total} bytes of the memory around {names}, the first "
        f"{distance}",
        "look at the bounds of the stores and at the strides they assume",
    )


def _distance(argument: TensorArg, byte: int) -> str:
    size, t = argument.tensor.element_size(), argument.tensor
    start = int(t.storage_offset()) * size
    reach = sum((n - 1) * s for n, s in zip(t.shape, t.stride())) + 1  # noqa: B905 (equal lengths)
    end = start + reach * size
    if byte < start:
        return f"{start - byte} bytes before its first element"
    if byte >= end:
        return f"{byte - end} bytes after its last element"
    return f"in a gap between its elements, {byte - start} bytes after its first"


def _wrong_outputs(run: Run, result: Result, after: dict[str, torch.Tensor]) -> Fault | None:
    for spec in run.call.outputs:
        tensor = output_of(run, result, after, spec)
        if tensor is None:
            if spec.optional:
                continue
            message = f"call {run.call.id!r} returned no output {spec.name!r}"
            return Fault(VerdictKind.WRONG_SHAPE, f"{message}; expected shape {list(spec.shape)}")
        if tuple(tensor.shape) != tuple(spec.shape):
            return Fault(
                VerdictKind.WRONG_SHAPE,
                f"output {spec.name!r} of call {run.call.id!r} has shape {list(tensor.shape)}, "
                f"expected {list(spec.shape)}",
            )
        if tensors.dtype_name(tensor.dtype) not in spec.dtypes:
            return Fault(
                VerdictKind.WRONG_DTYPE,
                f"output {spec.name!r} of call {run.call.id!r} is "
                f"{tensors.dtype_name(tensor.dtype)}, expected {' or '.join(spec.dtypes)}",
            )
    return None


def output_of(
    run: Run, result: Result, after: dict[str, torch.Tensor], spec: OutputSpec
) -> torch.Tensor | None:
    """The tensor of an output, returned or in place; None if it was not given."""
    if not spec.argument:
        return result.returned.get(spec.name)
    if spec.argument not in run.arguments:
        return None
    argument, key = run.arguments[spec.argument]
    return view_in(argument, after[key])


def _shared_memory(run: Run, result: Result) -> Fault | None:
    in_place = {spec.argument for spec in run.call.outputs if spec.argument}
    allowed = {run.arguments[name][1] for name in in_place if name in run.arguments}
    for output, what, which in result.aliases:
        if what == "storage" and which in allowed:
            continue
        owners = [name for name, (_, key) in run.arguments.items() if key == which]
        other = f"argument {', '.join(owners)}" if owners else f"the earlier result {which}"
        return Fault(
            VerdictKind.WROTE_OUTSIDE,
            f"output {output!r} of call {run.call.id!r} shares memory with {other}",
            "return memory of the call's own: callers keep results and reuse inputs",
        )
    for earlier, output in result.kept_changed:
        return Fault(
            VerdictKind.WROTE_OUTSIDE,
            f"call {run.call.id!r} overwrote {output!r}, which call {earlier} had returned",
            "return memory of the call's own, not a buffer that the next call reuses",
        )
    return None


def _fault_between_rounds(
    runs: Sequence[Run],
    results: dict[str, Result],
    after: dict[str, dict[str, torch.Tensor]],
    *,
    deterministic: bool,
) -> Fault | None:
    for first in runs:
        second = next((r for r in runs if r.call is first.call and r.round == 2), None)
        if first.round != 1 or second is None:
            continue
        if results[first.id].raised or results[second.id].raised:
            continue
        for name, one, two, mask in _comparable(first, second, results, after):
            fault = _fault_between(first.call.id, name, (one, two), mask, deterministic)
            if fault is not None:
                return fault
    return None


_Comparable = tuple[str, torch.Tensor, torch.Tensor, "torch.Tensor | None"]


def _comparable(
    first: Run,
    second: Run,
    results: dict[str, Result],
    after: dict[str, dict[str, torch.Tensor]],
) -> Iterator[_Comparable]:
    """(name, round one, round two, mask of what counts) of each output and writable argument."""
    for spec in first.call.outputs:
        one = results[first.id].returned.get(spec.name)
        two = results[second.id].returned.get(spec.name)
        if not spec.argument and one is not None and two is not None and one.shape == two.shape:
            yield f"output {spec.name!r}", one, two, spec.must_write
    for name, (argument, key) in first.arguments.items():
        if argument.role in ("output", "inout"):
            mask = argument.must_write if argument.must_write is not None else argument.may_write
            one = view_in(argument, after[first.id][key])
            two = view_in(argument, after[second.id][key])
            yield f"argument {name!r}", one, two, mask


def _fault_between(
    call: str,
    name: str,
    rounds: tuple[torch.Tensor, torch.Tensor],
    mask: torch.Tensor | None,
    deterministic: bool,
) -> Fault | None:
    one, two = (tensors.bits(t.contiguous()) for t in rounds)
    differs = one != two
    if rounds[0].is_complex():
        differs = differs.any(-1)
    if mask is not None:
        differs &= mask
    if not bool(differs.any()):
        return None
    untouched = differs & _is_poison(rounds[0], "nan") & _is_poison(rounds[1], "big")
    if bool(untouched.any()):
        message = f"call {call!r} left {name} unwritten at {position(untouched)}"
        return Fault(VerdictKind.LEFT_UNWRITTEN, f"{message}; {count_of(untouched)}")
    reads = differs & _nonfinite(rounds[0]) & ~_nonfinite(rounds[1])
    if bool(reads.any()):
        message = f"{name} of call {call!r} depends on what its memory held, at {position(reads)}"
        advice = "an element is read before it is written: initialise the accumulator or workspace"
        return Fault(VerdictKind.LEFT_UNWRITTEN, f"{message}; {count_of(reads)}", advice)
    if not deterministic:
        return None
    return Fault(
        VerdictKind.NONDETERMINISTIC,
        f"{name} of call {call!r} has other bits when the same call is made again, first at "
        f"{position(differs)}; {count_of(differs)}",
        "look for a dependence on earlier calls, on uninitialised memory, or on the order of "
        "atomic additions; declare `deterministic = false` only if the interface allows it",
    )


def _is_poison(tensor: torch.Tensor, fill: str) -> torch.Tensor:
    plain = tensor.contiguous()
    pattern = tensors.poison(torch.empty_like(plain), fill)
    same = tensors.bits(plain) == tensors.bits(pattern)
    return same.all(-1) if tensor.is_complex() else same


def _nonfinite(tensor: torch.Tensor) -> torch.Tensor:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return torch.zeros(tensor.shape, dtype=torch.bool)
    wide = tensor if tensor.is_complex() else tensor.double()
    return ~torch.isfinite(wide)


def position(mask: torch.Tensor) -> str:
    """Index of the first true element, as one writes it: "[3, 0, 17]"."""
    return str(mask.nonzero()[0].tolist())


def count_of(mask: torch.Tensor) -> str:
    """How many elements are meant: "12 of 4096 elements"."""
    return f"{int(mask.sum())} of {mask.numel()} elements"


def outcomes_of(runs: Sequence[Run], results: dict[str, Result], round_: int) -> dict[str, Outcome]:
    """What the suite's judge sees of one round, by call id.

    A call that has no second round (a refusal) is given as it was in the first.
    """
    found: dict[str, Outcome] = {}
    for run in runs:
        if run.round in (1, round_):
            found[run.call.id] = _outcome(run, results[run.id])
    return found


def _outcome(run: Run, result: Result) -> Outcome:
    after = {**run.before, **result.changed}
    outputs = {}
    for spec in run.call.outputs:
        tensor = output_of(run, result, after, spec)
        if tensor is not None and result.raised is None:
            outputs[spec.name] = tensor
    arguments = {name: view_in(a, after[key]) for name, (a, key) in run.arguments.items()}
    return Outcome(run.call.id, outputs, arguments, result.raised)
