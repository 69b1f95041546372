"""What a user's interpreter has installed, read from its files and never imported.

Only the files of a component's own package are read. A function that cannot be seen as Python (a
compiled module, a name bound to something else) has an unknown signature, never an unsupported one.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attngate.validators.context import SourceFile
from attngate.validators.model import display_path
from attngate.validators.pins import normalised
from attngate.validators.resolve import Definition, Resolver, Unknown, Value, last_name
from attngate.validators.signatures import signature_of
from attngate.validators.source import is_python, read_source

if TYPE_CHECKING:
    from attngate.validators.contracts.schema import Build
    from attngate.validators.signatures import Signature

_KEEP_SIGNATURE = frozenset(["no_grad", "inference_mode", "disable", "allow_in_graph", "wraps"])


@dataclass(frozen=True, slots=True)
class InstalledCallable:
    """An entry point as its source defines it: signature, file and line of the definition."""

    signature: Signature
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class InstalledComponent:
    """A component as it lies in a site-packages folder.

    Attributes:
        component: Name as contracts call it.
        version: Version of the distribution, "" where no metadata says.
        folder: The site-packages folder.
        callables: Entry points whose signature is known.
        unknown: Entry points whose signature is not, each with the reason.
        missing: Entry points that their module certainly does not define.
    """

    component: str
    version: str
    folder: str = ""
    callables: Mapping[str, InstalledCallable] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()


class FolderFiles(Mapping[str, SourceFile]):
    """The Python files of some packages below a folder, each read when it is looked at."""

    def __init__(self, folder: str, modules: set[str]) -> None:
        self._folder = folder
        self._read: dict[str, SourceFile] = {}
        self._paths = sorted({p for m in modules for p in _files_of(folder, m)})

    def __getitem__(self, path: str) -> SourceFile:
        """The file at a path below the folder."""
        if path not in self._paths:
            raise KeyError(path)
        if path not in self._read:
            with open(os.path.join(self._folder, path), "rb") as stream:
                raw = stream.read()
            self._read[path] = SourceFile.of(path, os.fsencode(path), read_source(raw))
        return self._read[path]

    def __iter__(self) -> Iterator[str]:
        """Paths below the folder, sorted."""
        return iter(self._paths)

    def __len__(self) -> int:
        """Number of files."""
        return len(self._paths)


def read_components(folders: list[str], builds: list[Build]) -> dict[str, InstalledComponent]:
    """What the folders hold of the components that the builds describe.

    Args:
        folders: site-packages folders in the order of `sys.path`; the first that has a component wins.
        builds: Contract builds, for the components, their distributions and entry points.
    """
    found: dict[str, InstalledComponent] = {}
    by_component: dict[str, list[Build]] = {}
    for build in builds:
        by_component.setdefault(build.component, []).append(build)
    for component, described in by_component.items():
        for folder in folders:
            installed = read_component(folder, component, described)
            if installed is not None:
                found[component] = installed
                break
    return found


def read_component(folder: str, component: str, builds: list[Build]) -> InstalledComponent | None:
    """One component as it lies in a folder, None where the folder does not have it."""
    paths: dict[str, list[str]] = {}
    for entry in (e for b in builds for e in b.entries):
        paths.setdefault(entry.name, []).extend(
            p for p in entry.paths if p not in paths[entry.name]
        )
    owners = {e.name: e.owner for b in builds for e in b.entries}
    files = FolderFiles(
        folder,
        {
            p.rsplit(".", 2 if owners[name] else 1)[0]
            for name, group in paths.items()
            for p in group
            if "." not in owners[name]
        },
    )
    version = distribution_version(folder, [d for b in builds for d in b.distributions])
    if not files and not version:
        return None
    resolver = Resolver(files)
    callables: dict[str, InstalledCallable] = {}
    unknown: dict[str, str] = {}
    missing: set[str] = set()
    for name, group in paths.items():
        seen = _look_up(resolver, folder, group, owners[name])
        if isinstance(seen, InstalledCallable):
            callables[name] = seen
        elif seen is None:
            missing.add(name)
        else:
            unknown[name] = seen
    return InstalledComponent(component, version, folder, callables, unknown, frozenset(missing))


def _look_up(
    resolver: Resolver, folder: str, paths: list[str], owner: str
) -> InstalledCallable | str | None:
    """An entry point's definition, why it is unknown, or None where its module has no such name."""
    if "." in owner:
        return "it belongs to an object that is made when the component runs"
    for path in paths:
        module, _, name = path.rpartition(".")
        if owner:
            module, _, name = module.rpartition(".")
        if resolver.path_of(module) is None:
            continue
        values = list(resolver.member(module, name))
        if len(values) == 1 and isinstance(values[0], Definition):
            return _callable(resolver, values[0], folder, path.rpartition(".")[2] if owner else "")
        if _is_missing(resolver, module, name, values):
            return None
        reasons = [v.reason for v in values if isinstance(v, Unknown)]
        return (
            reasons[0] if reasons else "it is bound to more than one thing, or outside the package"
        )
    return "its module has no Python source"


def _callable(
    resolver: Resolver, definition: Definition, folder: str, method: str
) -> InstalledCallable | str:
    """A function, a method of a class, or a class's initialiser."""
    node = definition.node
    is_method = isinstance(node, ast.ClassDef)
    if isinstance(node, ast.ClassDef):
        name = method or "__init__"
        found = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == name]
        if not found:
            return (
                "it is a class" if not method else f"class {node.name} has no `{method}` of its own"
            )
        node = found[-1]
    elif method:
        return "it is no class"
    module = resolver.module_at(definition.file)
    changing = [
        d
        for d in node.decorator_list
        if _decorator(d) not in _KEEP_SIGNATURE and not resolver.keeps_signature(module, d)
    ]
    if changing:
        return f"the decorator `{ast.unparse(changing[0])}` may change its signature"
    file = os.path.join(folder, definition.file)
    return InstalledCallable(signature_of(node.args, bound=is_method), file, node.lineno)


def _decorator(node: ast.expr) -> str:
    return last_name(node.func if isinstance(node, ast.Call) else node)


def _is_missing(resolver: Resolver, module: str, name: str, values: list[Value]) -> bool:
    """True where nothing in the module can give it the name: no binding, star import or hook."""
    path = resolver.path_of(module)
    if path is None:
        return False
    scope = resolver.module_at(path).names.module
    is_open = scope.stars or name in scope.bindings or "__getattr__" in scope.bindings
    return not is_open and all(isinstance(v, Unknown) for v in values)


def _files_of(folder: str, module: str) -> Iterator[str]:
    """Python files that define a module or lie beside it in its package, as paths below the folder."""
    relative = module.replace(".", "/")
    single = f"{relative}.py"
    if os.path.isfile(os.path.join(folder, single)):
        yield single
    try:
        names = sorted(os.listdir(os.path.join(folder, relative)))
    except OSError:
        return
    # Without __init__.py the folder is shared by several distributions and identifies none of them.
    if "__init__.py" in names:
        yield from (f"{relative}/{n}" for n in names if is_python(os.fsencode(n)))


def distribution_version(folder: str, distributions: list[str]) -> str:
    """Version of the first of the distributions that the folder has metadata of, else ""."""
    wanted = {normalised(d) for d in distributions}
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ""
    for name in names:
        stem, dot, kind = name.rpartition(".")
        if dot and kind in ("dist-info", "egg-info") and normalised(stem.split("-")[0]) in wanted:
            return _metadata_version(os.path.join(folder, name)) or _version_in(stem)
    return ""


def _metadata_version(path: str) -> str:
    for name in ("METADATA", "PKG-INFO"):
        try:
            with open(os.path.join(path, name), encoding="utf-8", errors="replace") as stream:
                for line in stream:
                    if not line.strip():
                        break
                    key, _, value = line.partition(":")
                    if key.lower() == "version":
                        return value.strip()
        except OSError:
            continue
    return ""


def _version_in(stem: str) -> str:
    parts = stem.split("-")
    return parts[1] if len(parts) > 1 else ""


def describe(component: InstalledComponent) -> str:
    """The component in a user's words, for messages."""
    version = component.version or "of unknown version"
    return (
        f"installed {component.component} {version} ({display_path(os.fsencode(component.folder))})"
    )
