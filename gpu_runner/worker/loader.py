"""Import of the plugin from the exported tree, and the proof that nothing came from elsewhere.

Three things work together:

* `TreeFinder`, first in `sys.meta_path`, resolves the plugin's packages inside the tree's import
  roots only. Sources are compiled from bytes whose git blob id equals the manifest's; byte code files
  are never read. Extension modules and declared generated files come from the confirmed installation
  after their sha256 was compared.
* `Witness`, an audit hook, notices source files of the plugin that are run or read from outside the
  tree without an import (`exec`, `runpy`, `spec_from_file_location`, a library opened by path), files
  of the tree that are run or read at all, and files that belong to neither tree nor environment.
* `TreeImports.check` looks at every entry of `sys.modules` that belongs to the plugin, whoever put it
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
import site
import sys
import sysconfig
import threading
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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
        opened: Paths in the tree of files that were read other than as a module's source.
        strangers: Files of Python code that ran, of neither the tree nor the environment.
        violations: (module or action, path) in the order seen.
    """

    def __init__(self, job: wire.Job) -> None:
        self.job = job
        self.root = os.path.realpath(job.tree_root)
        self.roots = [os.path.normpath(os.path.join(self.root, r)) for r in job.import_roots]
        self.packages = set(job.packages)
        self.sources: dict[str, str] = {}
        self.mixed: dict[str, tuple[str, str]] = {}
        self.opened: set[str] = set()
        self.strangers: dict[str, None] = {}
        self.violations: list[tuple[str, str]] = []
        self._libraries: dict[str, str] = {}
        self._environment = _environment_folders()
        self.witness = Witness(self)
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
        self.witness.start()

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

    def read_stand_in(self, path: str) -> bytes:
        """The bytes of a confirmed source; raises ImportedElsewhereError on another sha256."""
        relative = self._libraries[os.path.realpath(path)]
        data = Path(path).read_bytes()
        if hashlib.sha256(data).hexdigest() != self.job.installed[relative][1]:
            self.violations.append((relative, path))
            raise ImportedElsewhereError(f"{path} changed since it was confirmed", path=path)
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

    def is_stand_in(self, path: str) -> bool:
        """True for a confirmed file of the installation."""
        return os.path.realpath(path) in self._libraries

    def is_environment(self, path: str) -> bool:
        """True for a file of the interpreter, of its site-packages or of the worker itself."""
        return os.path.realpath(path).startswith(self._environment)

    def modules(self) -> list[list[str]]:
        """[name, absolute origin, path in the tree or relative to the import root] of each module."""
        found = []
        for name, module in self._loaded():
            origin = os.path.realpath(next(iter(_files_of(module)), ""))
            where = self.sources.get(origin) or self._libraries.get(origin)
            if where is not None:
                found.append([name, origin, where])
        return sorted(found)

    def outside_closure(self) -> list[str]:
        """Tree paths of what was loaded or read that the static import closure did not contain."""
        return sorted({*self.sources.values(), *self.opened} - {*self.job.closure, ""})

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
            wrong = next((path for path in files if not self.is_accepted(path)), "")
            return wrong or self._foreign_code(name, module, self._is_foreign_file)
        for path in _read(module, "__path__", ()):
            if self.relative(os.path.realpath(path)) is None:
                return str(path)
        return self._foreign_code(name, module, lambda path: not self.is_accepted(path))

    def _foreign_code(
        self, name: str, module: ModuleType, is_foreign: Callable[[str], bool]
    ) -> str:
        """The first foreign file that a function or method, which calls itself the module's, is of."""
        for value in list(_read(module, "__dict__", {}).values()):
            members = list(vars(value).values()) if isinstance(value, type) else [value]
            for member in members:
                code = _code_of(member) if getattr(value, "__module__", "") == name else None
                if code is not None and is_foreign(code.co_filename):
                    return code.co_filename
        return ""

    def _is_foreign_file(self, path: str) -> bool:
        """True for a file that may not define what a module with a proven file of its own holds.

        Code without a file (of `dataclasses` and such) passes, and so do the wrappers that decorators
        of the environment put around a function.
        """
        real = os.path.realpath(path)
        if path[:1] == "<" or self.is_accepted(real) or not os.path.isfile(real):
            return False
        return self.witness.is_plugins(real) or not (
            self.is_environment(real) or self.relative(real) is not None
        )

    def _forget_bare_namespaces(self) -> None:
        """Namespace packages that start-up files registered hold no code; ours take their place."""
        for name, module in list(self._loaded()):
            if not _files_of(module) and not self._foreign_code(name, module, bool):
                del sys.modules[name]


def _read(module: Any, name: str, default: Any) -> Any:
    """An attribute of whatever lies in `sys.modules`, without the code that may compute it."""
    try:
        value = object.__getattribute__(module, name)
    except Exception:  # a property of the plugin's may raise anything
        return default
    return default if value is None else value


def _files_of(module: Any) -> list[str]:
    spec = _read(module, "__spec__", None)
    origin = getattr(spec, "origin", None) if getattr(spec, "has_location", False) else None
    found = (_read(module, "__file__", None), origin)
    return [os.fspath(path) for path in found if isinstance(path, (str, os.PathLike))]


def _code_of(value: Any) -> CodeType | None:
    """The code that a function, method, partial or decorated function finally runs."""
    for _ in range(32):
        inner = next(
            (
                each
                for name in ("__wrapped__", "__func__", "func", "fget")
                if (each := _read(value, name, None)) is not None
            ),
            None,
        )
        if inner is None or (isinstance(value, FunctionType) and inner is value):
            break
        value = inner
    return value.__code__ if isinstance(value, FunctionType) else None


def _environment_folders() -> tuple[str, ...]:
    """Folders, with a separator behind, whose content the environment's record stands for."""
    known = [*sysconfig.get_paths().values(), *site.getsitepackages(), sys.base_prefix]
    known += [sys.base_exec_prefix, sys.prefix, os.path.dirname(os.path.abspath(__file__))]
    return tuple(sorted({os.path.realpath(path).rstrip(os.sep) + os.sep for path in known}))


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
        if self._imports.is_stand_in(path):
            return self.source_to_code(self._imports.read_stand_in(path), path)
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
    """Audit hook that records files of Python code which are run, read or opened.

    A file outside the tree counts as the plugin's when it lies where a copy of the plugin would have
    it: "<anywhere>/plugin/ops/x.py" where the tree has plugin/ops/, unless <anywhere> is itself a
    package, whose subpackages may have any name.
    """

    def __init__(self, imports: TreeImports) -> None:
        self._imports = imports
        self._busy = threading.local()

    def start(self) -> None:
        """Watch this process from now on; Python has no way to remove an audit hook."""
        paths = [
            path
            for path in _import_paths(self._imports.job)
            if path.partition("/")[0].removesuffix(".py") in self._imports.packages
        ]
        self._folders = tuple({"/" + os.path.dirname(path) for path in paths} - {"/"})
        self._files = tuple("/" + path for path in paths if "/" not in path)
        sys.addaudithook(self._event)

    def _event(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in _ACTIONS or getattr(self._busy, "now", False):
            return
        path = getattr(args[0], "co_filename", None) if event == "exec" else args[0]
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str) or path[:1] in ("", "<"):
            return
        self._busy.now = True  # what follows opens files itself
        try:
            self._look(event, os.path.realpath(path), args)
        finally:
            self._busy.now = False

    def _look(self, event: str, real: str, args: tuple[Any, ...]) -> None:
        inside = self._imports.relative(real)
        if event == "exec" and inside is not None:
            with contextlib.suppress(ImportedElsewhereError, OSError):  # the first is in the record
                self._imports.read_source(real)
        elif inside is not None:
            if not _is_only_written(args) and os.path.isfile(real):
                self._imports.opened.add(inside)
        elif _CODE_FILE.search(real) and self.is_plugins(real):
            if not self._imports.is_accepted(real):
                self._imports.violations.append((f"{_ACTIONS[event]} of a file", real))
        elif event == "exec" and not self._imports.is_environment(real):
            self._imports.strangers[real] = None

    def is_plugins(self, real: str) -> bool:
        """True for a path outside the tree that a copy of the plugin would have."""
        folder = os.path.dirname(real)
        places = [folder[: -len(known)] for known in self._folders if folder.endswith(known)]
        places += [real[: -len(known)] for known in self._files if real.endswith(known)]
        return any(not os.path.isfile(os.path.join(p, "__init__.py")) for p in places)


_CODE_FILE = re.compile(r"\.(py|pyc|pyd|so(\.\d+)*)$")
_ACTIONS = {"exec": "exec", "open": "open", "ctypes.dlopen": "dlopen"}


def _is_only_written(args: tuple[Any, ...]) -> bool:
    """True for an "open" event whose file cannot be read through what is opened."""
    flags = args[2] if len(args) > 2 and isinstance(args[2], int) else 0
    return flags & os.O_ACCMODE == os.O_WRONLY


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
