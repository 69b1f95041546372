"""The process that runs the user's code: loads the target once, then runs cases that others judge.

It knows no reference and decides nothing about numbers. It reports what was returned, what changed in
memory, what shares memory with what, and where the plugin's modules came from.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from attngate.gpu_runner.worker import exchange, registry, tensors, triton_interpreter, wire
from attngate.gpu_runner.worker.adapters.signature import DoesNotFitError, Fit
from attngate.gpu_runner.worker.adapters.user import UserAdapter
from attngate.gpu_runner.worker.allocations import PoisonAllocations, prime_allocator
from attngate.gpu_runner.worker.loader import ImportedElsewhereError, TreeImports
from attngate.gpu_runner.worker.main import refusal
from attngate.gpu_runner.worker.target import LoadError, described, resolve, tail

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_DEVICE_LOST = 71
_ELSEWHERE_ADVICE = (
    "the plugin must be imported from the tree: remove the start-up file, path entry or finder that "
    "brings the other copy, or declare the file with `generated` if only the installation has it"
)


class Candidate:
    """Answers "load" and "run"; see `exchange` for the files of a run."""

    def __init__(self) -> None:
        self._loaded: _Loaded | None = None
        self._asked = False

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one frame."""
        if request["op"] == "load":
            return self._load(wire.job_from_json(request["job"]), request["folder"])
        if request["op"] == "run" and self._loaded is not None:
            return self._loaded.run(request["case"], request["calls"])
        return refusal("internal", f"the candidate cannot {request['op']!r} now")

    def _load(self, job: wire.Job, folder: str) -> dict[str, Any]:
        if self._asked:
            return refusal("internal", "a candidate loads one target only")
        self._asked = True
        if job.device == "cuda" and not torch.cuda.is_available():
            return _no_device()
        imports = TreeImports(job)
        try:
            self._loaded = load(job, imports, folder)
            imports.check()
        except (ImportedElsewhereError, LoadError) as error:
            if imports.violations or isinstance(error, ImportedElsewhereError):
                return _elsewhere(imports, error)
            return refusal(error.kind, error.message, error.advice, error.detail)
        except (DoesNotFitError, registry.DeclarationError) as error:
            return refusal("unsupported", error.message, error.advice)
        return self._loaded.reply()


def _no_device() -> dict[str, Any]:
    return refusal(
        "not_runnable",
        f"the target requires a CUDA device, and torch {torch.__version__} of {sys.executable} "
        "finds none",
        "run on a machine with the device, or look at its driver and at CUDA_VISIBLE_DEVICES",
    )


def _elsewhere(imports: TreeImports, error: Exception) -> dict[str, Any]:
    if imports.violations:
        listed = [f"{name} from {path}" for name, path in dict.fromkeys(imports.violations)]
        message = f"not from the tree: {'; '.join(listed[:5])}"
        more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
        return refusal("imported_elsewhere", message + more, _ELSEWHERE_ADVICE)
    return refusal("imported_elsewhere", str(error), _ELSEWHERE_ADVICE)


def load(job: wire.Job, imports: TreeImports, folder: str) -> _Loaded:
    """Import the target from the tree and fit its adapter; raises as `Candidate` expects."""
    imports.install(folder)
    target = resolve(imports)
    adapter = adapter_of(job)
    fit = adapter.fit(target, job.target.options)
    return _Loaded(job, imports, folder, target, adapter, fit)


def adapter_of(job: wire.Job) -> Any:
    """The repository's own adapter or the suite's; raises LoadError or DoesNotFitError."""
    if job.target.adapter:
        try:
            return UserAdapter(job.tree_root, job.target.adapter)
        except DoesNotFitError:
            raise
        except Exception as error:
            message = f"the adapter {job.target.adapter} raised {described(error)}"
            raise LoadError("raised", message, "", tail(error)) from error
    name = registry.find(job.target.suite).adapter
    return importlib.import_module(f"attngate.gpu_runner.worker.adapters.{name}")


@dataclass
class _Loaded:
    """The target, ready to be called."""

    job: wire.Job
    imports: TreeImports
    folder: str
    target: Callable[..., Any]
    adapter: Any
    fit: Fit

    def reply(self) -> dict[str, Any]:
        """What is known after loading."""
        return {
            "ok": True,
            "signature": self.fit.parameters.text,
            "convention": self.fit.convention,
            "features": sorted(self.fit.features),
            "disclosures": self._disclosures(),
            "modules": self.imports.modules(),
            **self._origins(),
        }

    def _origins(self) -> dict[str, Any]:
        return {
            "outside_closure": self.imports.outside_closure(),
            "mixed": [[name, *where] for name, where in sorted(self.imports.mixed.items())],
        }

    def _disclosures(self) -> list[str]:
        found = list(self.fit.disclosures)
        found += [
            f"Python code of neither the tree nor the interpreter's environment ran: {path}"
            for path in self.imports.strangers
        ]
        module = self.job.target.callable.partition(":")[0]
        if not self.imports.owns(module):
            origin = getattr(sys.modules.get(module), "__file__", None) or "no file"
            found.append(f"the target's module {module} is not of the tree: it came from {origin}")
        if triton_interpreter.is_interpreting() and "triton" in sys.modules:
            found.append("Triton kernels ran in Triton's CPU interpreter")
        if self.fit.parameters.open_ended:
            found.append("the callable takes **kwargs, so its optional features are assumed")
        return found

    def run(self, case: str, calls_file: str) -> dict[str, Any]:
        """Run all calls of one case."""
        calls = exchange.read_json(os.path.join(self.folder, calls_file))
        missing = [name for name in calls["needs"] if name not in self.fit.features]
        if missing:
            return refusal("unsupported", f"{case}: the callable takes no {', '.join(missing)}")
        triton_interpreter.count_launches()
        before, started = triton_interpreter.launches(), time.monotonic()
        reply = _CaseRun(self, calls, calls_file.removesuffix(".json")).reply()
        triton_interpreter.count_launches()
        launched = triton_interpreter.launches() - before
        why = triton_interpreter.why_not_runnable(calls["dtype"], launched)
        if why:
            reply = refusal("not_runnable", why, "run this case on a GPU")
        try:
            self.imports.check()
        except ImportedElsewhereError as error:
            reply = _elsewhere(self.imports, error)
        return {**reply, "seconds": time.monotonic() - started, **self._origins()}


@dataclass(frozen=True)
class _Kept:
    """A result of an earlier call, and what it held when it was returned."""

    run: str
    name: str
    tensor: torch.Tensor
    bits: torch.Tensor


@dataclass
class _CaseRun:
    """The runs of one case, one after the other; results stay alive until the last has ended."""

    loaded: _Loaded
    calls: dict[str, Any]
    prefix: str
    pools: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    kept: list[_Kept] = field(default_factory=list)

    def reply(self) -> dict[str, Any]:
        results = []
        for call in self.calls["calls"]:
            try:
                results.append(self._one(call))
            except _StopError as stop:
                return stop.reply
        name = f"{self.prefix}-results.json"
        exchange.write_json({"results": results}, os.path.join(self.loaded.folder, name))
        return {"ok": True, "outputs": name}

    def _one(self, call: dict[str, Any]) -> dict[str, Any]:
        stem = f"{self.prefix}-run{len(self.pools)}"
        storages = self.pools[call["id"]] = self._storages(call)
        before = {key: raw.to("cpu", copy=True) for key, raw in storages.items()}
        arguments = {
            name: exchange.decode(arg, lambda t: exchange.build_view(t, storages[t["storage"]]))
            for name, arg in call["args"].items()
        }
        returned, raised = self._call(call, arguments)
        result = {
            "id": call["id"],
            "raised": raised,
            "returned": self._written(stem, returned),
            "storages_after": self._changed(stem, storages, before),
            "aliases": self._aliases(returned, storages),
            "kept_changed": self._kept_changed(),
        }
        self._keep(call["id"], returned, storages)
        return result

    def _storages(self, call: dict[str, Any]) -> dict[str, torch.Tensor]:
        live = self.pools.get(call["after"], {})
        found = {}
        for key, where in call["storages"].items():
            if key in live and not call["refill"]:
                found[key] = live[key]
                continue
            path = os.path.join(self.loaded.folder, where["file"])
            raw = exchange.read_bytes(path, where["bytes"])
            if key in live:
                found[key] = live[key].copy_(raw)
            else:
                found[key] = _on_device(raw, self.loaded.job.device)
        return found

    def _call(
        self, call: dict[str, Any], arguments: dict[str, Any]
    ) -> tuple[dict[str, torch.Tensor], dict[str, str] | None]:
        device = self.loaded.job.device
        sizes = [k.tensor.untyped_storage().nbytes() for k in self.kept]
        try:
            prime_allocator(sizes, call["fill"], device)
            with PoisonAllocations(call["fill"]):
                loaded = self.loaded
                returned = loaded.adapter.call(loaded.target, arguments, loaded.fit)
            _wait_for(device)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return {}, self._raised(call, error)
        return _tensors_of(returned), None

    def _raised(self, call: dict[str, Any], error: BaseException) -> dict[str, str]:
        if _device_is_lost(self.loaded.job.device):
            # Nothing after this can be trusted, nor blamed on a later case: a crash.
            print(f"the device is unusable after {call['id']}:\n{tail(error)}", file=sys.stderr)
            sys.stderr.flush()
            os._exit(EXIT_DEVICE_LOST)
        if _is_out_of_memory(error):
            message = f"call {call['call']!r} ran out of memory: {described(error)}"
            raise _StopError(refusal("out_of_memory", message, "", tail(error))) from error
        if call["expect"] == "output":
            message = f"call {call['call']!r} raised {described(error)}"
            raise _StopError(refusal("raised", message, "", tail(error))) from error
        return {"type": type(error).__name__, "message": str(error)[:2000]}

    def _written(self, stem: str, returned: dict[str, torch.Tensor]) -> dict[str, Any]:
        entries = {}
        for index, (name, tensor) in enumerate(returned.items()):
            file = f"{stem}-out{index}.bin"
            entries[name] = exchange.write_tensor(tensor, self.loaded.folder, file)
        return entries

    def _changed(
        self, stem: str, storages: dict[str, torch.Tensor], before: dict[str, torch.Tensor]
    ) -> dict[str, str]:
        files = {}
        for key, raw in storages.items():
            now = raw.to("cpu")
            if not torch.equal(now, before[key]):
                files[key] = f"{stem}-after-{key}.bin"
                exchange.write_bytes(now, os.path.join(self.loaded.folder, files[key]))
        return files

    def _aliases(
        self, returned: dict[str, torch.Tensor], storages: dict[str, torch.Tensor]
    ) -> list[list[str]]:
        found = []
        for name, tensor in returned.items():
            found += [
                [name, "storage", key] for key, raw in storages.items() if _overlap(tensor, raw)
            ]
            found += [
                [name, "result", f"{old.name} of {old.run}"]
                for old in self.kept
                if _overlap(tensor, old.tensor)
            ]
        return found

    def _kept_changed(self) -> list[list[str]]:
        return [
            [old.run, old.name]
            for old in self.kept
            if not torch.equal(tensors.bits(_plain(old.tensor)), old.bits)
        ]

    def _keep(
        self, run: str, returned: dict[str, torch.Tensor], storages: dict[str, torch.Tensor]
    ) -> None:
        for name, tensor in returned.items():
            if not any(_overlap(tensor, raw) for raw in storages.values()):
                bits = tensors.bits(_plain(tensor)).clone()
                self.kept.append(_Kept(run, name, tensor, bits))


class _StopError(Exception):
    """The case ends with this reply."""

    def __init__(self, reply: dict[str, Any]) -> None:
        super().__init__(reply["message"])
        self.reply = reply


def _tensors_of(returned: Any) -> dict[str, torch.Tensor]:
    if not isinstance(returned, dict):
        message = f"the adapter returned a {type(returned).__name__}, not a dict of outputs"
        advice = "return {canonical output name: tensor}"
        raise _StopError(refusal("raised", message, advice))
    return {str(name): value for name, value in returned.items() if isinstance(value, torch.Tensor)}


def _on_device(raw: torch.Tensor, device: str) -> torch.Tensor:
    """In memory that torch allocated itself, so that alignment is what a real caller has."""
    return raw.clone() if device == "cpu" else raw.to(device)


def _wait_for(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def _device_is_lost(device: str) -> bool:
    if device != "cuda":
        return False
    with contextlib.suppress(Exception):
        torch.cuda.synchronize()
        return False
    return True


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu").contiguous()


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if the storages behind two tensors share bytes on the same device."""
    if one.device != other.device:
        return False
    a, b = one.untyped_storage(), other.untyped_storage()
    first = max(a.data_ptr(), b.data_ptr())
    last = min(a.data_ptr() + a.nbytes(), b.data_ptr() + b.nbytes())
    return first < last
