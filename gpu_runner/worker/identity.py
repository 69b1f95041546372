"""What an entry point of an installed component really is, found by importing it in this process.

The process is one of its own and holds nothing else: an import that fails, or a component that ends
the process, costs this answer and no validation. Two requests are served:

    describe  {"paths": [dotted path...]}   the first that leads somewhere is described; see `describe`
    try       {"path", "positions": n, "keywords": [name...]}   would this combination be taken?

A combination is tried on a Python callable by binding placeholders to its signature: nothing of the
component runs. An operator of torch is called with tensors of the meta device, which hold no data and
start no kernel, and where it has no such implementation with small ones of the CPU.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import mmap
import os
import sys
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_TEXT = 200
_FLAGS = 100
_EXTENSIONS = tuple(importlib.machinery.EXTENSION_SUFFIXES)
_PLATFORMS = "vllm.platform_plugins"
_SHAPE = (
    1,
    2,
    8,
    16,
)  # what every attention operator of torch takes for a query, a key and a value
_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "position",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "either",
    inspect.Parameter.VAR_POSITIONAL: "positions",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_KEYWORD: "keywords",
}


class NotThereError(Exception):
    """A path that leads nowhere; `kind` is "absent" where everything before its end was imported."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Answer one request; raises ValueError on one that is not known."""
    if request["op"] == "describe":
        return {"ok": True, **describe(list(request["paths"]))}
    if request["op"] == "try":
        outcome = attempt(request["path"], request["positions"], request["keywords"])
        return {"ok": True, **outcome}
    raise ValueError(f"there is no request {request['op']!r}")


def describe(paths: list[str]) -> dict[str, Any]:
    """The identity of the first path that leads to something.

    Returns:
        JSON data. "found" is False where none leads anywhere; "errors" then has a row for each, and
        the kind "absent" says that its module was imported and has no such name. Otherwise "path",
        "distribution", "version", "file", "extension", "module", "qualname", "signature" (None where
        there is none), "schema" of an operator, "wrapped", "doc", "platform" and "flags".
    """
    errors = []
    for path in paths:
        try:
            value = resolve(path)
        except NotThereError as error:
            errors.append({"path": path, "kind": error.kind, "message": str(error)})
            continue
        return {"found": True, "path": path, **_identity(path, value)}
    return {"found": False, "errors": errors}


def resolve(path: str) -> Any:
    """The object at a dotted path, importing modules on the way; raises NotThereError."""
    parts = path.split(".")
    value: Any = _import(parts[0])
    for position, part in enumerate(parts[1:], start=2):
        value = _step(value, part, ".".join(parts[:position]))
    return value


def _step(value: Any, part: str, path: str) -> Any:
    try:
        return getattr(value, part)
    except Exception as error:  # noqa: BLE001, RUF100 (a module's own hook may raise anything)
        trouble = error
    if isinstance(value, ModuleType) and _has_module(path):
        return _import(path)
    if isinstance(trouble, AttributeError):
        raise NotThereError("absent", f"{path.rpartition('.')[0]} has no {part}")
    raise NotThereError("broken", f"{path}: {_said(trouble)}")


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            raise NotThereError("absent", f"there is no module {name}") from error
        raise NotThereError("broken", f"import {name}: {_said(error)}") from error
    except (Exception, SystemExit) as error:
        raise NotThereError("broken", f"import {name}: {_said(error)}") from error


def _has_module(path: str) -> bool:
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        return importlib.util.find_spec(path) is not None
    return False


def _said(error: BaseException) -> str:
    return _short(f"{type(error).__name__}: {error}")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TEXT else line[: _TEXT - 3] + "..."


def _identity(path: str, value: Any) -> dict[str, Any]:
    operator = _operator(value)
    extension = _extension(value) if operator is None else _library_of(operator)
    module = getattr(value, "__module__", None) or ""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or ""
    file = None if operator is not None else _file(value, module)
    return {
        **_distribution(extension or file, path.partition(".")[0]),
        "file": file,
        "extension": extension,
        "module": str(module),
        "qualname": str(name if operator is None else operator._schema.name),  # noqa: SLF001
        "signature": _parameters(path, value),
        "schema": str(operator._schema) if operator is not None else None,  # noqa: SLF001
        "returned": len(operator._schema.returns) if operator is not None else None,  # noqa: SLF001
        "wrapped": hasattr(value, "__wrapped__"),
        "doc": _first_line(value),
        "platform": _platform(path),
        "flags": _flags({str(module), path.partition(".")[0]}),
    }


def _operator(value: Any) -> Any:
    """The overload of a torch operator that a call without further words takes, else None."""
    torch = sys.modules.get("torch")
    operators = getattr(torch, "_ops", None)
    if operators is None:
        return None
    if isinstance(value, operators.OpOverload):
        return value
    if not isinstance(value, operators.OpOverloadPacket):
        return None
    names = value.overloads()
    return getattr(value, "default" if "default" in names else names[0])


def _file(value: Any, module: str) -> str | None:
    with contextlib.suppress(TypeError, OSError):
        return inspect.getsourcefile(inspect.unwrap(value)) or inspect.getfile(value)
    file = getattr(sys.modules.get(module), "__file__", None)
    return str(file) if file else None


def _extension(value: Any) -> str | None:
    """The compiled module that a built-in function comes from."""
    module = sys.modules.get(str(getattr(value, "__module__", "")))
    file = getattr(module, "__file__", None) or ""
    return file if file.endswith(_EXTENSIONS) and not isinstance(value, FunctionType) else None


def _library_of(operator: Any) -> str | None:
    """The only loaded library beside torch's own that holds an operator's name; None if not certain."""
    torch = sys.modules["torch"]
    namespace, _, name = operator._schema.name.partition("::")  # noqa: SLF001
    if namespace == "aten":
        return str(torch._C.__file__)  # noqa: SLF001
    modules = {str(getattr(m, "__file__", None) or "") for m in list(sys.modules.values())}
    libraries = {f for f in modules if f.endswith(_EXTENSIONS)} | set(torch.ops.loaded_libraries)
    found = sorted(f for f in libraries if _holds(f, name.encode()))
    return found[0] if len(found) == 1 else None


def _holds(file: str, word: bytes) -> bool:
    with (
        contextlib.suppress(OSError, ValueError),  # an empty file has no mapping
        open(file, "rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return content.find(word) >= 0
    return False


def _distribution(file: str | None, package: str) -> dict[str, Any]:
    """Name and version of the distribution that a file or, failing that, a package belongs to."""
    names = _distributions_of(package)
    owners = [n for n in names if file and _lists(n, file)] or names
    if len(set(owners)) != 1:
        return {"distribution": None, "version": None}
    return {"distribution": owners[0], "version": importlib.metadata.version(owners[0])}


def _distributions_of(package: str) -> list[str]:
    with contextlib.suppress(Exception):  # metadata that cannot be read names no distribution
        return importlib.metadata.packages_distributions().get(package, [])
    return []


def _lists(name: str, file: str) -> bool:
    wanted = os.path.realpath(file)
    listed = importlib.metadata.files(name) or []
    return any(os.path.realpath(str(f.locate())) == wanted for f in listed if f.name in wanted)


def _parameters(path: str, value: Any) -> list[dict[str, Any]] | None:
    operator = _operator(value)
    if operator is not None:
        return [_schema_parameter(argument) for argument in operator._schema.arguments]  # noqa: SLF001
    signature = _signature(path, value)
    if signature is None:
        return None
    return [
        {
            "name": parameter.name,
            "kind": _KINDS[parameter.kind],
            "default": None if parameter.default is parameter.empty else _text(parameter.default),
        }
        for parameter in signature.parameters.values()
    ]


def _schema_parameter(argument: Any) -> dict[str, Any]:
    default = _text(argument.default_value) if argument.has_default_value() else None
    kind = "keyword" if argument.kwarg_only else "either"
    return {"name": argument.name, "kind": kind, "default": default}


def _signature(path: str, value: Any) -> inspect.Signature | None:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    if _is_method(path, value):
        first = next(iter(signature.parameters), None)
        kept = [p for name, p in signature.parameters.items() if name != first]
        return signature.replace(parameters=kept)
    return signature


def _is_method(path: str, value: Any) -> bool:
    """True for a plain function of a class: a caller has an object and passes no `self`."""
    if not isinstance(value, FunctionType):
        return False
    with contextlib.suppress(NotThereError):
        owner = resolve(path.rpartition(".")[0])
        static = inspect.getattr_static(owner, path.rpartition(".")[2], None)
        return isinstance(owner, type) and isinstance(static, FunctionType)
    return False


def _text(value: Any) -> str:
    try:
        return _short(repr(value))
    except Exception as error:  # noqa: BLE001, RUF100 (a default's own repr)
        return f"<{type(value).__name__}: {type(error).__name__}>"


def _first_line(value: Any) -> str:
    text = getattr(value, "__doc__", None)
    lines = text.strip().splitlines() if isinstance(text, str) else []
    return _short(lines[0]) if lines else ""


def _platform(path: str) -> dict[str, Any]:
    """VLLM's platform plugins: those installed, and the active one where vLLM is imported anyway."""
    declared: list[str] = []
    with contextlib.suppress(Exception):
        found = importlib.metadata.entry_points(group=_PLATFORMS)
        declared = sorted(f"{e.name} = {e.value}" for e in found)
    return {"declared": declared, "active": _active_platform(path)}


def _active_platform(path: str) -> str | None:
    platforms = sys.modules.get("vllm.platforms")
    if platforms is None:
        return None
    chosen = vars(platforms).get("_current_platform")
    if chosen is None and path.partition(".")[0] == "vllm":
        with contextlib.suppress(Exception):
            chosen = platforms.current_platform
    kind = type(chosen)
    return None if chosen is None else f"{kind.__module__}.{kind.__qualname__}"


def _flags(modules: set[str]) -> dict[str, bool]:
    """Module-level booleans: what a component says of itself and of its device."""
    found: dict[str, bool] = {}
    for name in sorted(modules):
        content = vars(sys.modules[name]) if name in sys.modules else {}
        found.update({f"{name}.{k}": v for k, v in content.items() if isinstance(v, bool)})
    return dict(list(found.items())[:_FLAGS])


def attempt(path: str, positions: int, keywords: list[str]) -> dict[str, Any]:
    """Whether a combination of arguments is taken.

    Args:
        path: Dotted path.
        positions: How many arguments are passed by position.
        keywords: Names of those passed by keyword.

    Returns:
        "outcome": "taken", "refused", "unknown" (there is no signature) or "failed" (an operator that
        got as far as running, and could not); "message"; "device" the operator ran on, or "";
        "returned", how many values came back from an operator.
    """
    try:
        value = resolve(path)
    except NotThereError as error:
        return _outcome("unknown", str(error))
    operator = _operator(value)
    if operator is not None:
        return _call_operator(operator, positions, keywords)
    signature = _signature(path, value)
    if signature is None:
        return _outcome("unknown", "it has no signature")
    try:
        signature.bind(*range(positions), **dict.fromkeys(keywords))
    except TypeError as error:
        return _outcome("refused", str(error))
    return _outcome("taken")


def _outcome(
    outcome: str, message: str = "", device: str = "", returned: int | None = None
) -> dict[str, Any]:
    return {
        "outcome": outcome,
        "message": _short(message),
        "device": device,
        "returned": returned,
    }


def _call_operator(operator: Any, positions: int, keywords: list[str]) -> dict[str, Any]:
    arguments = {argument.name: argument for argument in operator._schema.arguments}  # noqa: SLF001
    unknown = [name for name in keywords if name not in arguments]
    outcome = _outcome("unknown")
    for device in ("meta", "cpu"):
        values = [_example(a, device) for a in list(arguments.values())[:positions]]
        words = {k: _example(arguments[k], device) if k in arguments else None for k in keywords}
        outcome = _called(functools.partial(operator, *values, **words), device)
        if outcome["outcome"] == "taken":
            return outcome
        if (
            unknown and f"argument '{unknown[0]}'" in outcome["message"]
        ):  # torch names the keyword that it refuses
            return {**outcome, "outcome": "refused"}
    return outcome


def _called(call: Callable[[], Any], device: str) -> dict[str, Any]:
    try:
        result = call()
    except Exception as error:  # noqa: BLE001, RUF100 (whatever an operator says is data)
        return _outcome("failed", _said(error), device)
    count = len(result) if isinstance(result, (tuple, list)) else 1
    return _outcome("taken", device=device, returned=count)


def _example(argument: Any, device: str) -> Any:
    """A value for an operator's argument: its default, None where that is allowed, else by type."""
    if argument.has_default_value():
        return argument.default_value
    kind = str(argument.type)
    if kind.startswith("Optional"):
        return None
    if kind == "Tensor":
        return sys.modules["torch"].zeros(_SHAPE, device=device)
    examples: dict[str, Any] = {"bool": False, "float": 0.0, "int": _SHAPE[2]}
    return examples.get(kind, _SHAPE[2])
