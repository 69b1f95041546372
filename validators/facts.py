"""What is asked of every file of a tree, found by its text alone and kept under its object id.

Rules ask some questions of the whole tree: who patches this attribute, which classes name that base,
where is a component imported. Answers come from here, so that a file that did not change is not read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLASS = re.compile(r"^[ \t]*class[ \t]+(\w+)[ \t]*(?:\(([^)]*)\))?[ \t]*:", re.MULTILINE)
_DEFINES = re.compile(r"^(?:class|def|async def)[ \t]+(\w+)", re.MULTILINE)
# An attribute that is assigned, and what stands between the first name and it.
_PATCHES = re.compile(
    r"^[ \t]*(\w+)(\.[\w.()\[\]]*)?\.(\w+)[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE
)
_SETS = re.compile(
    r"(?<![\w.])setattr\(\s*([\w.]+)\s*,\s*(?:[\"'](\w+)[\"']|(?![\"']))", re.MULTILINE
)
_BORROWS = re.compile(
    r"^[ \t]*[\w.]+\.\w+[ \t]*=[ \t]*\(?[ \t\n]*([A-Z]\w*)\.\w+\b(?!\()", re.MULTILINE
)
# An import of a module whose last word begins with an underscore, as extensions are called.
_PRIVATE = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(_\w+)|import[ \t]+([\w.]+\._\w+))",
    re.MULTILINE,
)
_COMPONENT = re.compile(
    r"^[ \t]*(?:from|import)[ \t]+(flash_attn|flash_mla|deep_gemm)\b", re.MULTILINE
)
_OPTIONAL = ("flash_mla", "deep_gemm", "flashinfer", "tilelang")
_REGISTERS = ("custom_op", ".define(", "triton_op", ".impl(")


class Facts(msgspec.Struct, frozen=True, array_like=True):
    """One file.

    Attributes:
        classes: Each class with the words of its bases.
        defines: Classes and functions at the top level.
        patched: Attributes that are assigned on something else than `self` and `cls`.
        borrowed: Classes of which a member is assigned to an attribute, or to which attributes are given
            under names that are worked out.
        private: Extension modules that are imported, dotted.
        components: Components that are imported, each with the first line.
        optional: True where the name of an optional component occurs.
        registers: True where custom operators may be registered.
        lists: True where operator names may be added to a list.
        marked: True where a comment speaks to attngate.
    """

    classes: tuple[tuple[str, tuple[str, ...]], ...]
    defines: tuple[str, ...]
    patched: tuple[str, ...]
    borrowed: tuple[str, ...]
    private: tuple[str, ...]
    components: tuple[tuple[str, int], ...]
    optional: bool
    registers: bool
    lists: bool
    marked: bool

    def shared(self) -> tuple[object, ...]:
        """The part that other files' findings can depend on, line numbers left out."""
        names = tuple(name for name, _ in self.components)
        return (self.classes, self.defines, self.patched, self.borrowed, self.private, names)


def facts_of(text: str) -> Facts:
    """The facts of a source."""
    return Facts(
        classes=tuple((m[1], tuple(re.findall(r"\w+", m[2] or ""))) for m in _CLASS.finditer(text)),
        defines=tuple(_DEFINES.findall(text)),
        patched=tuple(sorted(set(_patched(text)))),
        borrowed=tuple(sorted({*_BORROWS.findall(text), *_filled(text)})),
        private=tuple(_private(text)),
        components=tuple(_components(text)),
        optional=any(name in text for name in _OPTIONAL),
        registers=any(word in text for word in _REGISTERS),
        lists="_ops" in text and "::" in text,
        marked="attngate:" in text,
    )


def _patched(text: str) -> Iterator[str]:
    for match in _PATCHES.finditer(text):
        if match[2] or match[1] not in ("self", "cls"):
            yield match[3]
    for owner, name in _SETS.findall(text):
        if name and owner not in ("self", "cls"):
            yield name


def _filled(text: str) -> Iterator[str]:
    for owner, name in _SETS.findall(text):
        if not name and owner not in ("self", "cls"):
            yield owner.rpartition(".")[2]


def _private(text: str) -> Iterator[str]:
    for match in _PRIVATE.finditer(text):
        yield match[3] or f"{match[1]}.{match[2]}"


def _components(text: str) -> Iterator[tuple[str, int]]:
    seen: set[str] = set()
    for match in _COMPONENT.finditer(text):
        if match[1] not in seen:
            seen.add(match[1])
            yield match[1], text.count("\n", 0, match.start()) + 1
