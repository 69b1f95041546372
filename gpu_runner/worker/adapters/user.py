"""An adapter that the user wrote, for a callable that follows no public convention.

It is a Python file of the repository, named by `adapter = "tools/my_adapter.py"` in the target's table.
It must define

    def call(target, arguments):
        '''Call `target` and return {canonical output name: tensor}.

        arguments: the suite's canonical arguments, by name, on the validation device; tensors that
        the suite expects to be written in place are among them.
        '''

and may define `FEATURES`, a collection of the suite's optional features that the callable has. Cases
that need other features are left out, and the report says so.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from attngate.gpu_runner.worker.adapters.signature import DoesNotFitError, Fit, parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ADVICE = "an adapter defines `call(target, arguments)` and returns the outputs by name"


class UserAdapter:
    """The adapter in one file; behaves like a module of this folder.

    Raises:
        DoesNotFitError: there is no such file in the tree, or it defines no `call`.
    """

    def __init__(self, tree_root: str, relative: str) -> None:
        self._name = relative
        root = os.path.realpath(tree_root)
        path = os.path.realpath(os.path.join(root, relative))
        if os.path.commonpath([root, path]) != root or not os.path.isfile(path):
            message = f"there is no adapter {relative} in the tree"
            raise DoesNotFitError(message, "adapter is a path of a committed or staged file")
        self._module = ModuleType("attngate_user_adapter")
        self._module.__file__ = path
        exec(compile(Path(path).read_bytes(), path, "exec"), vars(self._module))  # noqa: S102
        if not callable(getattr(self._module, "call", None)):
            raise DoesNotFitError(f"the adapter {relative} defines no function `call`", _ADVICE)

    def fit(self, target: Callable[..., Any], options: Mapping[str, Any]) -> Fit:
        """The features are what the file says."""
        del options
        features = frozenset(getattr(self._module, "FEATURES", ()))
        fit = Fit("adapter", parameters_of(target), features)
        return replace(fit, disclosures=(f"called through the repository's adapter {self._name}",))

    def call(self, target: Callable[..., Any], arguments: dict[str, Any], fit: Fit) -> Any:
        """The file's own `call`."""
        del fit
        return self._module.call(target, arguments)
