"""Who registers an operator of torch.ops: Python code, C++ sources of the tree, or an extension."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from attngate.validators.conditions import conditions_of, texts_of
from attngate.validators.hops import Hop, paths_of_plugin
from attngate.validators.model import Level

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile

_NATIVE = (b".cpp", b".cc", b".cxx")
_MOST = 4
_MAY_REGISTER = "may register it when it is imported; it is not looked into"


@dataclass(frozen=True, slots=True)
class InPython:
    """A Python function that stands behind an operator."""

    module: str
    function: str
    line: int


@dataclass(eq=False)
class Operators:
    """Registrations of operators that the tree and the target show.

    Attributes:
        context: The tree.
        _told: Namespaces whose extensions were named already.
    """

    context: Context
    _told: set[str] = field(default_factory=set)

    def in_python(self, name: str) -> InPython | None:
        """The Python function behind "namespace.name"; None where Python code registers none."""
        plain = re.escape(name.rpartition(".")[2])
        quoted = rf"[\"'](?:\w+::)?{plain}(?:\([^\"']*)?[\"']"
        call = re.compile(
            rf"register_custom_op\(\s*(?:op_name\s*=\s*)?{quoted}\s*,\s*(?:op_func\s*=\s*)?(\w+)"
        )
        above = re.compile(rf"custom_op\(\s*{quoted}[^\n]*\n(?:[^\n]*\n){{0,3}}?def (\w+)")
        for module, text in self._registering(name.rpartition(".")[2]):
            match = call.search(text) or above.search(text)
            if match:
                return InPython(module, match[1], text.count("\n", 0, match.start()) + 1)
        return None

    def _registering(self, word: str) -> Iterator[tuple[str, str]]:
        """Modules whose text may register the operator, the tree's first."""
        index = self.context.index
        for module in index.tree_modules:
            file = self.context.files[index.path_of(module)]
            if file.facts.registers and word in file.source.text:
                yield module, file.source.text
        if index.target is not None:
            by_path = {path: module for module, path in index.target.modules.items()}
            for path, raw in index.target.mentioning(word, "custom_op("):
                yield by_path[path], raw.decode("utf-8", "replace")

    def native(self, name: str) -> tuple[Hop, ...]:
        """C++ sources of the tree that register an operator, and extensions that may."""
        namespace, _, plain = name.rpartition(".")
        found = list(self._sources(plain))
        if namespace not in self._told:
            self._told.add(namespace)
            found += list(self._extensions(namespace))[:_MOST]
        return tuple(found)

    def _sources(self, plain: str) -> Iterator[Hop]:
        pattern = re.compile(
            rb"\b(def|impl)\(\s*\"(?:\w+::)?%b\b[^\n]*" % re.escape(plain).encode()
        )
        for path, raw in self._bindings.items():
            for match in pattern.finditer(raw):
                line = raw.count(b"\n", 0, match.start()) + 1
                what = "declared" if match[1] == b"def" else "bound to a kernel"
                yield Hop("extension", plain, f"{path} line {line}", note=f"{what} in the tree")

    @cached_property
    def _bindings(self) -> dict[str, bytes]:
        """C++ files of the tree that register operators, with their bytes."""
        found: dict[str, bytes] = {}
        snapshot = self.context.snapshot
        for key in snapshot.files:
            if key.endswith(_NATIVE):
                raw = snapshot.blob(key) or b""
                if b"TORCH_LIBRARY" in raw:
                    found[key.decode("utf-8", "replace")] = raw
        return found

    def _extensions(self, namespace: str) -> Iterator[Hop]:
        """Imports of extension modules that are called like the namespace: `pkg._C` for `_C_utils`."""
        stem = namespace.partition("_C")[0]
        for path in paths_of_plugin(self.context):
            file = self.context.files[path]
            words = [w for w in file.facts.private if _is_extension(w.rpartition(".")[2], stem)]
            if words and "_C" in namespace:
                yield from _imports(file, set(words))


def _is_extension(last: str, stem: str) -> bool:
    return "_C" in last and last.partition("_C")[0] == stem


def _imports(file: SourceFile, modules: set[str]) -> Iterator[Hop]:
    names = file.source.names
    for node in names.imports:
        for alias in node.names:
            name = alias.name
            if module := getattr(node, "module", None):
                name = f"{module}.{alias.name}"
            if name in modules:
                yield _extension(file, node, name)


def _extension(file: SourceFile, node: ast.Import | ast.ImportFrom, name: str) -> Hop:
    conditions = texts_of(conditions_of(file.source.names, node))
    place = f"{file.path} line {node.lineno}"
    return Hop(
        "extension", name, place, conditions, origin="imported", level=Level.UNTESTED,
        note=_MAY_REGISTER,
    )  # fmt: skip
