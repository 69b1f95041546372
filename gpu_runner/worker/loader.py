"""Import of the plugin from the exported tree, and the proof that nothing came from elsewhere.

Three things work together:

* `TreeFinder`, first in `sys.meta_path`, resolves the plugin's packages inside the tree's import
  roots only. Sources are compiled from bytes whose git blob id equals the manifest's; byte code files
  are never read. Extension modules and declared generated files come from the confirmed installation
  after their sha256 was compared.
* `Witness`, an audit hook, notices source files of the plugin that are run or read from outside the
  tree without an import: `exec`, `runpy`, `spec_from_file_location`, a library opened by path.
* `TreeImports.verify` looks at every entry of `sys.modules` that belongs to the plugin, whoever put it
  there: start-up files of site-packages, finders of an editable installation, the plugin itself.

The tree's metadata is written into a private folder that is first on `sys.path`, so entry points and
versions are the tree's, and those of an installed copy of the same distribution are hidden.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import importlib.machinery
import importlib.util
import os
import re
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from attngate.gpu_runner.worker import wire

_EXTENSIONS = tuple(importlib.machinery.EXTENSION_SUFFIXES)
_STANDARD_FINDERS = (
    importlib.machinery.BuiltinImporter,
    importlib.machinery.FrozenImporter,
    importlib.machinery.PathFinder,
)


class ImportedElsewhereError(ImportError):
    """A module of the plugin did not, or would not, come from the tree's own bytes."""


def blob_id(data: bytes, like: str) -> str:
    """Git's object id of a blob with this content, in the hash that `like` is written in."""
    algorithm = hashlib.sha256 if len(like) == 64 else hashlib.sha1
    return algorithm(b"blob %d\0" % len(data) + data).hexdigest()


class TreeImports:
    """What is known of the plugin's modules, and what was seen to be wrong.

    Attributes:
        root: Real path of the exported tree.
        packages: Top-level names that must come from the tree.
        sources: Real path of each verified source that was loaded, to its path in the tree.
        mixed: Path relative to the import root to (installed path, sha256), for what stood in.
        violations: (module or action, path) in the order seen.
    """

    def __init__(self, job: wire.Job) -> None:
        self.job = job
        self.root = os.path.realpath(job.tree_root)
        self.roots = [os.path.normpath(os.path.join(self.root, r)) for r in job.import_roots]
        self.packages = set(job.packages)
        self.sources: dict[str, str] = {}
        self.mixed: dict[str, tuple[str, str]] = {}
        self.violations: list[tuple[str, str]] = []
        self._libraries: dict[str, str] = {}
        top = job.target.callable.partition(":")[0].partition(".")[0]
        if top and any(_portion(root, top) for root in self.roots):
            self.packages.add(top)

    def install(self, folder: str) -> None:
        """Take over the imports of the plugin in this process; `folder` gets the metadata.

        Raises:
            ImportedElsewhereError: the plugin was imported before we could (by a start-up file).
        """
        self._forget_bare_namespaces()
        self.check()
        sys.meta_path[:] = [
            f if f in _STANDARD_FINDERS else _NotForPlugin(f, self.packages) for f in sys.meta_path
        ]
        sys.meta_path.insert(0, TreeFinder(self))
        sys.path.extend(root for root in self.roots if root not in sys.path)
        if self.job.distribution[0]:
            sys.path.insert(0, write_metadata(self.job, folder))
        importlib.invalidate_caches()
        Witness(self).start()

    def owns(self, name: str) -> bool:
        """True if a module of this name belongs to the plugin."""
        return name.partition(".")[0] in self.packages

    def relative(self, path: str) -> str | None:
        """The path in the tree of a file in it, else None."""
        inside = os.path.relpath(path, self.root)
        return None if inside.startswith("..") else inside.replace(os.sep, "/")

    def read_source(self, path: str) -> bytes:
        """The bytes of a source in the tree; raises ImportedElsewhereError on another blob id."""
        relative = self.relative(os.path.realpath(path))
        expected = self.job.manifest.get(relative or "")
        data = Path(path).read_bytes()
        if expected is None or blob_id(data, expected) != expected:
            self.violations.append((relative or path, path))
            why = "is not a file of the tree" if expected is None else "is not the tree's version"
            raise ImportedElsewhereError(f"{path} {why}", path=path)
        self.sources[os.path.realpath(path)] = relative or ""
        return data

    def installed_file(self, relative: str) -> str | None:
        """The confirmed installed file that stands in for `relative`; its digest is checked here."""
        known = self.job.installed.get(relative)
        is_library = relative.endswith(_EXTENSIONS)
        declared = any(fnmatch.fnmatch(relative, glob) for glob in self.job.generated)
        if known is None or not (is_library or declared):
            return None
        path, expected = known
        self._libraries[os.path.realpath(path)] = relative
        if _sha256(path) != expected:
            del self._libraries[os.path.realpath(path)]
            self.violations.append((relative, path))
            raise ImportedElsewhereError(f"{path} changed since it was confirmed", path=path)
        self.mixed[relative] = known
        return path

    def is_accepted(self, path: str) -> bool:
        """True for a file whose bytes were verified: a source of the tree or a confirmed stand-in."""
        real = os.path.realpath(path)
        return real in self.sources or real in self._libraries

    def modules(self) -> list[list[str]]:
        """[name, absolute origin, path in the tree or relative to the import root] of each module."""
        found = []
        for name, module in self._loaded():
            origin = os.path.realpath(getattr(module, "__file__", None) or "")
            where = self.sources.get(origin) or self._libraries.get(origin)
            if where is not None:
                found.append([name, origin, where])
        return sorted(found)

    def outside_closure(self) -> list[str]:
        """Tree paths of loaded sources that the static import closure did not contain."""
        return sorted(set(self.sources.values()) - set(self.job.closure))

    def check(self) -> None:
        """Look at everything that is loaded now; raises ImportedElsewhereError with the first fault."""
        for name, module in self._loaded():
            wrong = self._why_not(name, module)
            if wrong:
                self.violations.append((name, wrong))
        if self.violations:
            name, path = self.violations[0]
            raise ImportedElsewhereError(f"{name} came from {path}, not from the tree", path=path)

    def _loaded(self) -> Iterator[tuple[str, ModuleType]]:
        for name, module in sorted(sys.modules.items()):
            if self.owns(name) and module is not None:
                yield name, module

    def _why_not(self, name: str, module: ModuleType) -> str:
        """Where an unproven module came from, "" if it is proven."""
        files = _files_of(module)
        if files:
            return next((path for path in files if not self.is_accepted(path)), "")
        for path in getattr(module, "__path__", None) or ():
            if self.relative(os.path.realpath(path)) is None:
                return str(path)
        return self._foreign_code(name, module)

    def _foreign_code(self, name: str, module: ModuleType) -> str:
        """A module made at run time has no file: its own functions must be written in proven ones."""
        for value in list(vars(module).values()):
            if isinstance(value, FunctionType) and value.__module__ == name:
                path = value.__code__.co_filename
                if not self.is_accepted(path):
                    return path
        return ""

    def _forget_bare_namespaces(self) -> None:
        """Namespace packages that start-up files registered hold no code; ours take their place."""
        for name, module in list(self._loaded()):
            if not _files_of(module) and not self._foreign_code(name, module):
                del sys.modules[name]


def _files_of(module: ModuleType) -> list[str]:
    spec = getattr(module, "__spec__", None)
    origin = getattr(spec, "origin", None) if getattr(spec, "has_location", False) else None
    return [str(path) for path in (getattr(module, "__file__", None), origin) if path]


def _sha256(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def _portion(folder: str, name: str) -> str:
    """What `folder` has under `name`: a package's __init__.py, a module, a folder, or ""."""
    base = os.path.join(folder, name)
    for path in (os.path.join(base, "__init__.py"), base + ".py"):
        if os.path.isfile(path):
            return path
    return base if os.path.isdir(base) else ""


class TreeFinder(MetaPathFinder):
    """Resolves modules of the plugin inside the import roots of the tree."""

    def __init__(self, imports: TreeImports) -> None:
        self._imports = imports

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module of the plugin; None for other modules and for missing submodules."""
        del target
        if not self._imports.owns(fullname):
            return None
        folders = self._imports.roots if path is None else self._inside(path)
        spec = self._source(fullname, folders) or self._installed(fullname, folders)
        spec = spec or self._namespace(fullname, folders)
        if spec is None and path is None:
            # Another finder would answer with the installed copy.
            message = f"No module named {fullname!r} in the tree"
            raise ModuleNotFoundError(message, name=fullname)
        return spec

    def _inside(self, path: Iterable[str]) -> list[str]:
        return [p for p in path if self._imports.relative(os.path.realpath(p)) is not None]

    def _source(self, fullname: str, folders: list[str]) -> importlib.machinery.ModuleSpec | None:
        for folder in folders:
            found = _portion(folder, fullname.rpartition(".")[2])
            if found.endswith(".py"):
                package = [os.path.dirname(found)] if found.endswith("__init__.py") else None
                loader = TreeLoader(self._imports, fullname, found)
                return importlib.util.spec_from_file_location(
                    fullname, found, loader=loader, submodule_search_locations=package
                )
        return None

    def _installed(
        self, fullname: str, folders: list[str]
    ) -> importlib.machinery.ModuleSpec | None:
        for base in self._relative_bases(fullname, folders):
            for suffix in (*_EXTENSIONS, ".py", "/__init__.py"):
                path = self._imports.installed_file(base + suffix)
                if path is not None:
                    return self._stand_in(fullname, path)
        return None

    def _relative_bases(self, fullname: str, folders: list[str]) -> Iterator[str]:
        name = fullname.rpartition(".")[2]
        for folder in folders:
            for root in self._imports.roots:
                inside = os.path.relpath(os.path.join(folder, name), root)
                if not inside.startswith(".."):
                    yield inside.replace(os.sep, "/")

    def _stand_in(self, fullname: str, path: str) -> importlib.machinery.ModuleSpec | None:
        if path.endswith(_EXTENSIONS):
            extension = importlib.machinery.ExtensionFileLoader(fullname, path)
            return importlib.util.spec_from_file_location(fullname, path, loader=extension)
        return importlib.util.spec_from_file_location(
            fullname, path, loader=TreeLoader(self._imports, fullname, path)
        )

    def _namespace(
        self, fullname: str, folders: list[str]
    ) -> importlib.machinery.ModuleSpec | None:
        name = fullname.rpartition(".")[2]
        portions = [os.path.join(f, name) for f in folders if os.path.isdir(os.path.join(f, name))]
        if not portions:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = portions
        return spec


class TreeLoader(importlib.machinery.SourceFileLoader):
    """Compiles a source from verified bytes; neither reads nor writes byte code files."""

    def __init__(self, imports: TreeImports, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._imports = imports

    def get_code(self, fullname: str) -> CodeType:
        """The code of the module; raises ImportedElsewhereError if the bytes are not the tree's."""
        path = self.get_filename(fullname)
        if self._imports.is_accepted(path) and self._imports.relative(path) is None:
            return self.source_to_code(Path(path).read_bytes(), path)
        return self.source_to_code(self._imports.read_source(path), path)


class _NotForPlugin(MetaPathFinder):
    """A finder that site-packages registered, kept away from the plugin's names."""

    def __init__(self, finder: Any, packages: set[str]) -> None:
        self._finder = finder
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] in self._packages:
            return None
        find = getattr(self._finder, "find_spec", None)
        return find(fullname, path, target) if find else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


class Witness:
    """Audit hook that records plugin files outside the tree which are run, read or opened.

    A file counts as the plugin's when it lies in a folder named like a package folder of the tree
    ("<anywhere>/plugin/ops/x.py" where the tree has plugin/ops/).
    """

    def __init__(self, imports: TreeImports) -> None:
        self._imports = imports
        self._folders = {
            os.path.dirname(path)
            for path in _import_paths(imports.job)
            if path.partition("/")[0].removesuffix(".py") in imports.packages
        } - {""}

    def start(self) -> None:
        """Watch this process from now on; Python has no way to remove an audit hook."""
        sys.addaudithook(self._event)

    def _event(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "exec":
            self._look("exec", getattr(args[0], "co_filename", None))
        elif event == "open":
            self._look("open", args[0])
        elif event == "ctypes.dlopen":
            self._look("dlopen", args[0])

    def _look(self, action: str, path: object) -> None:
        if not isinstance(path, str) or not path.endswith((".py", ".so")) or path[0] == "<":
            return
        real = os.path.realpath(path)
        if self._imports.is_accepted(real) or not self._is_plugins(real):
            return
        if self._imports.relative(real) is None:
            self._imports.violations.append((f"{action} of a file", real))
        elif action == "exec":
            with contextlib.suppress(ImportedElsewhereError):  # it is in the record
                self._imports.read_source(real)

    def _is_plugins(self, real: str) -> bool:
        folder = os.path.dirname(real)
        return any(folder.endswith("/" + known) for known in self._folders)


def _import_paths(job: wire.Job) -> Iterator[str]:
    """Paths of the manifest and of the stand-ins, relative to their import root."""
    prefixes = [root.strip("/") + "/" if root.strip("/.") else "" for root in job.import_roots]
    for path in job.manifest:
        for prefix in prefixes:
            if path.startswith(prefix):
                yield path[len(prefix) :]
    yield from job.installed


def write_metadata(job: wire.Job, folder: str) -> str:
    """Write the distribution's metadata as the tree has it; returns the folder for sys.path."""
    name, version = job.distribution
    base = Path(folder) / "metadata"
    info = base / f"{re.sub(r'[-_.]+', '_', name)}-{version or '0'}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version or '0'}\n"
    (info / "METADATA").write_text(head, encoding="utf-8")
    (info / "top_level.txt").write_text("\n".join(job.packages) + "\n", encoding="utf-8")
    lines = []
    for group, entries in sorted(job.entry_points.items()):
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries), ""]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    return str(base)
