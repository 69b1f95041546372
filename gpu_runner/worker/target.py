"""From "module:attribute" to the callable, with a clear reason where that fails."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

from attngate.gpu_runner.worker.loader import ImportedElsewhereError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from attngate.gpu_runner.worker.loader import TreeImports

_TAIL_LINES = 24
_OURS = os.path.dirname(os.path.abspath(__file__))


class LoadError(Exception):
    """The callable cannot be had; `kind` is a value of `wire.VerdictKind`."""

    def __init__(self, kind: str, message: str, advice: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.advice = advice
        self.detail = detail


def resolve(imports: TreeImports) -> Callable[..., Any]:
    """Import the target's module and walk to its attribute; raises LoadError."""
    text = imports.job.target.callable
    module_name, colon, attribute = text.partition(":")
    parts = [*module_name.split("."), *attribute.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise LoadError(
            "unsupported",
            f"callable {text!r} is not of the form module:attribute",
            'write it like "plugin.attention:flash_attn_varlen_func"',
        )
    found: Any = _import(imports, module_name)
    for depth, name in enumerate(attribute.split(".")):
        found = _attribute(found, name, module_name, attribute.split(".")[:depth])
    if not callable(found):
        message = f"{text} is a {type(found).__name__}, which cannot be called"
        raise LoadError("unsupported", message, "name a function or a callable object")
    return found  # type: ignore[no-any-return]


def _import(imports: TreeImports, name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportedElsewhereError:
        raise
    except ModuleNotFoundError as error:
        raise _not_found(imports, name, error) from error
    except KeyboardInterrupt:
        raise
    except SystemExit as error:
        message = f"importing {name} called sys.exit({error.code!r})"
        advice = "a module must be importable without ending the process"
        raise LoadError("raised", message, advice, tail(error)) from error
    except BaseException as error:
        message = f"importing {name} raised {described(error)}"
        raise LoadError("raised", message, "", tail(error)) from error


def _not_found(imports: TreeImports, name: str, error: ModuleNotFoundError) -> LoadError:
    missing = error.name or ""
    if name == missing or name.startswith(missing + "."):
        known = _module_names(imports) if imports.owns(name) else sorted(sys.modules)
        where = "the tree" if imports.owns(name) else f"the tree or {sys.executable}"
        advice = f"correct `callable`{_closest(name, known)}"
        return LoadError("unsupported", f"there is no module {missing} in {where}", advice)
    if imports.owns(missing):
        message = f"importing {name} failed: there is no module {missing} in the tree"
        advice = (
            "commit the file, or declare it with `generated` if it only exists in the installation"
        )
        return LoadError("raised", message, advice, tail(error))
    return LoadError(
        "unsupported",
        f"importing {name} needs module {missing}, which {sys.executable} does not have",
        "install it there, or set [tool.attngate] interpreter to the environment of the plugin",
        tail(error),
    )


def _module_names(imports: TreeImports) -> list[str]:
    names = []
    for root in imports.job.import_roots:
        prefix = root.strip("/") + "/" if root.strip("/.") else ""
        for path in imports.job.manifest:
            if path.startswith(prefix) and path.endswith(".py"):
                dotted = path[len(prefix) : -3].replace("/", ".")
                names.append(dotted.removesuffix(".__init__"))
    return names


def _attribute(owner: Any, name: str, module: str, above: list[str]) -> Any:
    path = ":".join([module, ".".join(above)]) if above else module
    try:
        return getattr(owner, name)
    except AttributeError as error:
        advice = f"correct `callable`{_closest(name, dir(owner))}"
        raise LoadError("unsupported", f"{path} has no attribute {name}", advice) from error
    except Exception as error:
        message = f"reading {name} of {path} raised {described(error)}"
        raise LoadError("raised", message, "", tail(error)) from error


def _closest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"; closest: {', '.join(close)}" if close else ""


def described(error: BaseException) -> str:
    """Type and first line of an exception's message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def tail(error: BaseException) -> str:
    """The last lines of the traceback, without the worker's own and importlib's frames."""
    text = traceback.TracebackException.from_exception(error)
    text.stack[:] = [
        frame for frame in text.stack if not frame.filename.startswith((_OURS, "<frozen importlib"))
    ]
    return "\n".join("".join(text.format()).rstrip().splitlines()[-_TAIL_LINES:])
