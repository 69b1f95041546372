"""Wrong kernels as data: a correct kernel's file with one line changed.

A mutant names the correct kernel, the text to find in it (exactly once) and what stands there instead.
So the difference between right and wrong is in plain sight, and a new mutant is a few lines of data.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
FUNCTIONS = {
    "merge_attn_states": "merge_attn_states",
    "flash_attn_varlen": "flash_attn_varlen_func",
}


@dataclass(frozen=True)
class Mutant:
    """One wrong kernel.

    Attributes:
        name: Unique, in words.
        kind: Class of the fault: A empty sets, B LSE, C sinks, D window and causal, E soft cap, scale
            and bias, F paging, G strides and geometry, L poison, P precision.
        suite: The suite that must refuse it.
        base: The correct kernel's module.
        old: Text of that module, found exactly once.
        new: What replaces it.
        options: What a target with this kernel declares beyond the defaults of the tests.
    """

    name: str
    kind: str
    suite: str
    base: str
    old: str
    new: str
    options: dict[str, Any] = field(default_factory=dict)

    def source(self) -> str:
        """The wrong module's text; raises ValueError if `old` is not there exactly once."""
        text = (FOLDER / f"{self.base}.py").read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {text.count(self.old)} places in {self.base}, not 1")
        return text.replace(self.old, self.new)

    def build(self, folder: Path) -> Callable[..., Any]:
        """The wrong callable, imported from a file in `folder`."""
        module_name = "mutant_" + self.name.replace("-", "_")
        path = folder / f"{module_name}.py"
        path.write_text(self.source())
        return getattr(load(module_name, path), FUNCTIONS[self.suite])


def load(name: str, path: Path) -> Any:
    """Import a file under a name of our choice."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def correct(base: str, suite: str) -> Callable[..., Any]:
    """A correct kernel of this folder."""
    return getattr(load(base, FOLDER / f"{base}.py"), FUNCTIONS[suite])
