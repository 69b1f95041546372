"""What a change can affect: the static import closure of a target, inside one tree.

The closure is what Python would import, read from the source: the target's module, the packages above
it, and what these import in turn, as far as it lies in the tree. A module that is loaded at run time
all the same (a class path put together from strings) is noticed by the worker and widens the key of
the evidence to the whole tree.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from attngate.validators.source import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from attngate.validators.model import Snapshot


@dataclass(frozen=True, slots=True)
class Closure:
    """The files of a tree that importing one module reads.

    Attributes:
        module: The module asked for.
        paths: Paths in the tree, sorted; empty where the module is not in the tree.
        unresolved: Absolute names inside `packages` that no file of the tree answers to.
    """

    module: str
    paths: tuple[bytes, ...]
    unresolved: tuple[str, ...] = ()

    def digest(self, snapshot: Snapshot) -> str:
        """Identity of the closure's contents: sha256 over path, mode and object id of each file."""
        return tree_digest(snapshot, self.paths)

    def touches(self, changed: frozenset[bytes] | None) -> bool:
        """True where one of the changed paths is in the closure; None means everything changed."""
        return changed is None or not changed.isdisjoint(self.paths)


def tree_digest(snapshot: Snapshot, paths: Iterable[bytes]) -> str:
    """sha256 (hexadecimal) over the sorted (path, mode, object id) of the given paths."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        entry = snapshot.files[path]
        digest.update(b"%s\0%o\0%s\0" % (path, entry.mode, entry.oid.encode()))
    return digest.hexdigest()


class ModuleIndex:
    """Module names of a tree: which file answers to which dotted name."""

    def __init__(self, snapshot: Snapshot, import_roots: Iterable[str]) -> None:
        self._snapshot = snapshot
        self._roots = tuple(root.strip("/").encode() for root in import_roots)

    def path_of(self, module: str) -> bytes | None:
        """The file of a module or of a package's `__init__`; None where the tree has none."""
        stem = module.replace(".", "/").encode("utf-8", "surrogateescape")
        for root in self._roots:
            base = root + b"/" + stem if root else stem
            for candidate in (base + b"/__init__.py", base + b".py"):
                entry = self._snapshot.files.get(candidate)
                if entry is not None and entry.is_regular:
                    return candidate
        return None

    def imports_of(self, path: bytes, module: str) -> Iterator[str]:
        """Absolute names that the file imports, parents of each included."""
        entry = self._snapshot.files[path]
        raw = self._snapshot.read(entry.oid)
        if raw is None:
            return
        is_package = path.endswith(b"/__init__.py")
        for name in _imported_names(SOURCES.get(entry.oid, raw).tree, module, is_package):
            yield from _with_parents(name)


def import_closure(
    snapshot: Snapshot, module: str, packages: Iterable[str], import_roots: Iterable[str] = ("",)
) -> Closure:
    """The static import closure of `module` within `packages` of the tree.

    Imports under `if TYPE_CHECKING:` are left out: Python does not run them. Imports inside functions,
    in both branches of an `if` and in `try`/`except` count: which of them runs is not known here.
    """
    index = ModuleIndex(snapshot, import_roots)
    tops = frozenset(packages) | {module.partition(".")[0]}
    found: dict[str, bytes] = {}
    missing: set[str] = set()
    queue = list(_with_parents(module))
    while queue:
        name = queue.pop()
        if name in found or name in missing or name.partition(".")[0] not in tops:
            continue
        path = index.path_of(name)
        if path is None:
            missing.add(name)
            continue
        found[name] = path
        queue.extend(index.imports_of(path, name))
    unresolved = sorted(name for name in missing if name.rpartition(".")[0] not in found)
    return Closure(module, tuple(sorted(set(found.values()))), tuple(unresolved))


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        yield ".".join(parts[:end])


@lru_cache(maxsize=8192)
def _imported_names(tree: ast.Module, module: str, is_package: bool) -> tuple[str, ...]:
    package = module if is_package else module.rpartition(".")[0]
    names: list[str] = []
    for node in _run_nodes(tree):
        if isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.extend(_from_names(node, package))
        elif isinstance(node, ast.Call):
            names.extend(_literal_import(node, package))
    return tuple(dict.fromkeys(names))


def _run_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node that can run, which leaves out the bodies under `if TYPE_CHECKING:`."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, ast.If) and _is_type_checking(node.test):
            stack.extend(node.orelse)
        else:
            stack.extend(ast.iter_child_nodes(node))


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def _from_names(node: ast.ImportFrom, package: str) -> Iterator[str]:
    base = _absolute(node.module or "", node.level, package)
    if base is None:
        return
    if base:
        yield base
    for alias in node.names:
        if alias.name != "*":
            yield f"{base}.{alias.name}" if base else alias.name


def _absolute(name: str, level: int, package: str) -> str | None:
    """The absolute name of a relative import; None where it climbs out of its package."""
    if level == 0:
        return name
    parts = package.split(".") if package else []
    if level - 1 > len(parts) or not parts:
        return None
    base = parts[: len(parts) - (level - 1)]
    return ".".join([*base, name] if name else base)


def _literal_import(node: ast.Call, package: str) -> Iterator[str]:
    """`importlib.import_module("a.b")` and `__import__("a.b")` with a literal name."""
    function = (
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    )
    if function not in {"import_module", "__import__"} or not node.args:
        return
    argument = node.args[0]
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        name = argument.value
        level = len(name) - len(name.lstrip("."))
        absolute = _absolute(name.lstrip("."), level, package)
        if absolute:
            yield absolute
