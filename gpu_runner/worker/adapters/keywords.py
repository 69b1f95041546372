"""The plain adapter: canonical names are the callable's own, given by keyword.

A returned tensor is the output "out"; of a returned tuple the first is "out" and the second "lse"; a
returned dict is taken as it is. Used by suites whose canonical names are
those of the public interface, and written in a few lines so that it can be read as the example of an
adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attngate.gpu_runner.worker.adapters.signature import Fit, parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def fit(target: Callable[..., Any], options: Mapping[str, Any]) -> Fit:
    """Any callable fits; every named parameter counts as a feature."""
    del options
    parameters = parameters_of(target)
    return Fit("keywords", parameters, frozenset(parameters.names))


def call(target: Callable[..., Any], arguments: dict[str, Any], fit: Fit) -> dict[str, Any]:
    """Call by keyword and name what comes back."""
    del fit
    return named(target(**arguments), ("out", "lse"))


def named(result: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Give canonical names to what a callable returned; None means that it wrote in place."""
    if result is None:
        return {}
    if isinstance(result, dict):
        return result
    if isinstance(result, (tuple, list)):
        return dict(zip(names, result))  # noqa: B905 (more or fewer are the judge's to see)
    return {names[0]: result}
