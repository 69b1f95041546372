"""What a callable takes, and whether a convention's call fits it.

An adapter is one file in this folder with two functions:

    fit(target, options) -> Fit          raises DoesNotFitError
    call(target, arguments, fit) -> dict of canonical outputs

`arguments` are the canonical ones of the suite; an output that the callable writes in place is not in
the returned dict, because the judge reads it from the argument's memory.
"""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class DoesNotFitError(Exception):
    """The callable cannot be called as the suite would; carries the advice for the user."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


@dataclass(frozen=True)
class Parameters:
    """A callable's parameters as far as Python can tell.

    Attributes:
        names: All named parameters, in order.
        required: Those without a default.
        positional: Those that can be given by position, in order.
        open_ended: True if it takes `**kwargs`, so that its real parameters are not known.
        text: The signature as written.
    """

    names: tuple[str, ...]
    required: tuple[str, ...]
    positional: tuple[str, ...]
    open_ended: bool
    text: str

    def accepts(self, name: str) -> bool:
        """True if `name` can be given as a keyword."""
        return name in self.names or self.open_ended


@dataclass(frozen=True)
class Fit:
    """How a target will be called.

    Attributes:
        convention: Name of the calling convention.
        parameters: What the callable takes.
        features: Optional features of the convention that it has.
        disclosures: What a report must say about the call.
    """

    convention: str
    parameters: Parameters
    features: frozenset[str] = frozenset()
    disclosures: tuple[str, ...] = field(default=())


def parameters_of(target: Callable[..., Any]) -> Parameters:
    """The parameters of a Python callable or of a torch operator; open-ended where unknown."""
    schema = getattr(getattr(target, "default", target), "_schema", None)
    if schema is not None:
        return _of_schema(schema)
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return Parameters((), (), (), open_ended=True, text="(not known to Python)")
    named = [p for p in signature.parameters.values() if p.kind not in _VARIADIC]
    kinds = {p.kind for p in signature.parameters.values()}
    return Parameters(
        tuple(p.name for p in named if p.kind is not inspect.Parameter.POSITIONAL_ONLY),
        tuple(p.name for p in named if p.default is inspect.Parameter.empty),
        tuple(p.name for p in named if p.kind in _BY_POSITION),
        inspect.Parameter.VAR_KEYWORD in kinds,
        str(signature),
    )


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _of_schema(schema: Any) -> Parameters:
    arguments = list(schema.arguments)
    return Parameters(
        tuple(a.name for a in arguments),
        tuple(a.name for a in arguments if not a.has_default_value()),
        tuple(a.name for a in arguments if not a.kwarg_only),
        open_ended=False,
        text=str(schema),
    )


def check(
    suite: str, called_with: Sequence[str], known: Iterable[str], parameters: Parameters
) -> None:
    """Refuse a callable that lacks a parameter of the convention or requires one it does not have.

    Args:
        suite: The suite (and convention) for the message.
        called_with: Names that every call gives.
        known: All names that the convention can give.
        parameters: What the callable takes.

    Raises:
        DoesNotFitError: names the missing and the unknown parameters.
    """
    lacking = [name for name in called_with if not parameters.accepts(name)]
    unknown = [name for name in parameters.required if name not in set(known)]
    if not lacking and not unknown:
        return
    faults = []
    if lacking:
        faults.append("it takes no " + ", ".join(_with_closest(n, parameters) for n in lacking))
    if unknown:
        faults.append("it requires " + ", ".join(unknown) + ", which the suite does not give")
    raise DoesNotFitError(
        f"the callable does not fit suite {suite}: {'; '.join(faults)}. "
        f"The suite calls it with {', '.join(called_with)}; it takes {parameters.text}",
        "name the suite whose convention the callable follows, or give the target an adapter "
        "(a Python file in the repository with `call(target, arguments)`)",
    )


def _with_closest(name: str, parameters: Parameters) -> str:
    close = difflib.get_close_matches(name, parameters.names, n=1)
    return f"{name} (closest: {close[0]})" if close else name


def features(
    parameters: Parameters, optional: Mapping[str, str], standard: Iterable[str]
) -> frozenset[str]:
    """Features of the convention that the callable has.

    Args:
        parameters: What it takes.
        optional: Feature to the parameter that brings it.
        standard: Features that belong to the convention's own signature; `**kwargs` is taken to pass
            these on, and nothing else.
    """
    known = set(standard) if parameters.open_ended else set()
    return frozenset(f for f, name in optional.items() if name in parameters.names or f in known)
