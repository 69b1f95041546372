"""The source of the target vLLM: a folder that holds the package, read lazily and never imported."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Table = TypeVar("Table")
# Made by a build, so that no source holds them: versions, extensions, and packages copied in.
_BUILT = re.compile(r"\w+\.(.+\.)?(_version|_[a-z0-9_]*C[A-Za-z0-9_]*|_rust\w*)(\..*)?$")
_COPIED = re.compile(r"vllm\.(cumem_allocator|spinloop|vllm_flash_attn|third_party)(\..*)?$")
_DEFINES = re.compile(
    rb"^(?:class|def|async def)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]+)?=[^=]", re.MULTILINE
)

_ASSIGNS = re.compile(
    rb"^[ \t]*(?!(?:self|cls)\.\w+[ \t]*[:=])[\w.()\[\]]+\.(\w+)[ \t]*(?::[^=\n]+)?=(?!=)",
    re.MULTILINE,
)
_OPERATOR = re.compile(rb"register_custom_op\(\s*(?:op_name\s*=\s*)?[\"']([\w:]+)[\"']")
_LISTED = re.compile(rb"_attention_ops[^=\n]*=\s*\[([^\]]*)\]")
_CLASS = re.compile(rb"^class[ \t]+(\w+)[ \t]*\(([^)]*)\)", re.MULTILINE)


@dataclass(eq=False)
class TargetTree:
    """The target's Python files.

    Attributes:
        folder: Folder that holds the package.
        version: Version in a user's words, "" where it is not known.
        package: Top-level package.
        tables: Tables over all files that were made before, encoded; new ones are added.
    """

    folder: str
    version: str = ""
    package: str = "vllm"
    tables: dict[str, msgspec.Raw] = field(default_factory=dict, repr=False)
    _texts: dict[str, bytes | None] = field(default_factory=dict, repr=False)
    _mentioning: dict[tuple[str, ...], list[tuple[str, bytes]]] = field(
        default_factory=dict, repr=False
    )

    @property
    def label(self) -> str:
        """The target in a user's words."""
        return (
            f"{self.package} {self.version}" if self.version else f"{self.package} in {self.folder}"
        )

    @cached_property
    def files(self) -> dict[str, tuple[int, int]]:
        """Every Python file below the package by its path from `folder`, with size and time (ns)."""
        return dict(sorted(_python_files(self.folder, self.package)))

    @cached_property
    def modules(self) -> dict[str, str]:
        """Module name to path; a package stands for its `__init__.py`."""
        found: dict[str, str] = {}
        for path in self.files:
            stem = path[: path.rindex(".")].removesuffix("/__init__")
            found.setdefault(stem.replace("/", "."), path)
        return found

    @cached_property
    def packages(self) -> frozenset[str]:
        """Every folder with Python files below it, as a package name."""
        found: set[str] = set()
        for module in self.modules:
            while "." in module:
                module = module.rpartition(".")[0]  # noqa: PLW2901 (each step is the next package up)
                found.add(module)
        return frozenset(found)

    @cached_property
    def by_last_word(self) -> dict[str, list[str]]:
        """Last word of a module's name to the modules that end in it."""
        found: dict[str, list[str]] = {}
        for module in self.modules:
            found.setdefault(module.rpartition(".")[2], []).append(module)
        return found

    @cached_property
    def fingerprint(self) -> str:
        """Identity of all files by path, size and time: what a remembered summary is kept under."""
        digest = hashlib.sha256(os.fsencode(self.folder))
        for path, (size, time_ns) in self.files.items():
            digest.update(f"{path}\0{size}\0{time_ns}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def owns(self, module: str) -> bool:
        """True for the package and what lies below its name, existing or not."""
        return module == self.package or module.startswith(f"{self.package}.")

    def read(self, path: str) -> bytes | None:
        """Bytes of a file by its path from `folder`; None where it cannot be read."""
        if path not in self._texts:
            try:
                with open(os.path.join(self.folder, path), "rb") as file:
                    self._texts[path] = file.read()
            except OSError:
                self._texts[path] = None
        return self._texts[path]

    def mentioning(self, *words: str) -> list[tuple[str, bytes]]:
        """Files that hold all the words, with their bytes."""
        if words not in self._mentioning:
            wanted = [word.encode() for word in words]
            texts = [(path, self.read(path) or b"") for path in self.files]
            found = [(p, raw) for p, raw in texts if wanted[0] in raw]
            self._mentioning[words] = [
                (p, raw) for p, raw in found if all(word in raw for word in wanted)
            ]
        return self._mentioning[words]

    def _table(self, name: str, kind: type[Table], build: Callable[[], Table]) -> Table:
        """A table over all files; built once for a fingerprint where somebody keeps `tables`."""
        if name in self.tables:
            return msgspec.msgpack.decode(self.tables[name], type=kind)
        table = build()
        self.tables[name] = msgspec.Raw(msgspec.msgpack.encode(table))
        return table

    @cached_property
    def defining(self) -> dict[str, tuple[str, ...]]:
        """Name of a class, function or value at module level to the modules that define it."""
        return self._table("defining", dict[str, tuple[str, ...]], self._defining)

    def _defining(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {}
        for module, path in self.modules.items():
            for match in _DEFINES.finditer(self.read(path) or b""):
                name = (match[1] or match[2]).decode()
                modules = found.setdefault(name, [])
                if not modules or modules[-1] != module:
                    modules.append(module)
        return {name: tuple(modules) for name, modules in found.items()}

    @cached_property
    def derived(self) -> dict[str, list[tuple[str, str]]]:
        """Last word of a base class to module and name of the classes that name it as one."""
        return self._table("derived", dict[str, list[tuple[str, str]]], self._derived)

    def _derived(self) -> dict[str, list[tuple[str, str]]]:
        found: dict[str, list[tuple[str, str]]] = {}
        for module, path in self.modules.items():
            for match in _CLASS.finditer(self.read(path) or b""):
                for word in set(re.findall(rb"\w+", match[2])):
                    found.setdefault(word.decode(), []).append((module, match[1].decode()))
        return found

    def assigns(self, name: str) -> bool:
        """True where a file gives the attribute to an object other than `self`."""
        return name in self._assigned

    @cached_property
    def _assigned(self) -> frozenset[str]:
        return self._table("assigned", frozenset[str], self._find_assigned)

    def _find_assigned(self) -> frozenset[str]:
        found: set[bytes] = set()
        for path in self.files:
            found.update(_ASSIGNS.findall(self.read(path) or b""))
        return frozenset(name.decode() for name in found)

    @cached_property
    def operators(self) -> frozenset[str]:
        """Names of the custom operators that the target's Python code registers."""
        return self._table("operators", frozenset[str], self._find_operators)

    def _find_operators(self) -> frozenset[str]:
        found: set[bytes] = set()
        for _, raw in self.mentioning("register_custom_op("):
            found.update(_OPERATOR.findall(raw))
        return frozenset(name.decode() for name in found)

    @cached_property
    def listed_operators(self) -> dict[str, str]:
        """Operators at which the target's compiler splits its graph, to the place of the list."""
        found: dict[str, str] = {}
        for path, raw in self.mentioning("_attention_ops"):
            for match in _LISTED.finditer(raw):
                line = raw.count(b"\n", 0, match.start()) + 1
                for name in re.findall(rb"[\"'](?:\w+::)?(\w+)[\"']", match[1]):
                    found[name.decode()] = f"{path} line {line}"
        return found

    def line_of(self, module: str, name: str) -> int:
        """Line on which a module defines a name at its top level, 1 where it does not."""
        raw = self.read(self.modules.get(module, "")) or b""
        pattern = rb"^(?:class|def|async def)[ \t]+%b\b|^%b[ \t]*[:=]" % (
            name.encode(),
            name.encode(),
        )
        match = re.search(pattern, raw, re.MULTILINE)
        return raw.count(b"\n", 0, match.start()) + 1 if match else 1


def _python_files(folder: str, below: str) -> Iterator[tuple[str, tuple[int, int]]]:
    try:
        entries = list(os.scandir(os.path.join(folder, below)))
    except OSError:
        return
    for entry in entries:
        path = f"{below}/{entry.name}"
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _python_files(folder, path)
        elif entry.name.endswith((".py", ".pyi")):
            status = entry.stat()
            yield path, (status.st_size, status.st_mtime_ns)


def is_built(module: str) -> bool:
    """True for the name of a module that only an installation has: its absence says nothing."""
    return _BUILT.match(module) is not None or _COPIED.match(module) is not None
