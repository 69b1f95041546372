"""Local modifications that a sync with a new target lost.

Four versions of one file are compared statement by statement: the target's that the plugin's file was
made from, the plugin's before the sync, the target's of now, and the plugin's of now. What the plugin
had changed and what is now as the target has it, although the target never took the change, was lost.
Comments, blank lines and layout do not count, nor do imports, docstrings and log lines.

A plugin's files often come from a state of the target between two releases. What only differs from the
release that is compared with is therefore no local change; one has to name the plugin, in a comment
beside it or in words of its own.
"""

from __future__ import annotations

import ast
import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attngate.validators.context import SourceFile
from attngate.validators.index import Index
from attngate.validators.model import display_path
from attngate.validators.source import SOURCES, is_python, read_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attngate.validators.context import Context
    from attngate.validators.model import Snapshot
    from attngate.validators.target import TargetTree

_BESIDE = 3
_LOGS = ("logger.", "print(", "warnings.", "logging.")


@dataclass(frozen=True, slots=True)
class Statement:
    """A simple statement, or the head of one that holds others, without its layout."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Loss:
    """One lost modification.

    Attributes:
        path: The plugin's file.
        line: Where in the file of now the modification would stand.
        lost: Statements that the plugin had of its own; empty where it had left some of the target's out.
        back: Statements of the target that are back.
        base_line: Where the modification stood before.
    """

    path: str
    line: int
    lost: tuple[str, ...]
    back: tuple[str, ...]
    base_line: int


def losses(context: Context) -> Iterator[Loss]:
    """Every lost modification in the files in scope; none without a previous target and a base."""
    options = context.options
    previous, base, target = options.previous, options.sync_base, options.target
    if previous is None or base is None or target is None:
        return
    before = _files(base)
    index = Index(before, options.import_roots, previous)
    elsewhere = _Elsewhere(context)
    marks = _marks(context)
    for path in sorted(context.in_scope):
        if path in before and before[path].source.raw != context.files[path].source.raw:
            twin_now = context.index.counterpart(context.index.module_of(path))
            twin_before = index.counterpart(index.module_of(path))
            if twin_now and twin_before:
                comparison = _Comparison(
                    path,
                    _statements_of(previous, twin_before),
                    statements(before[path].source.tree),
                    _statements_of(target, twin_now),
                    statements(context.files[path].source.tree),
                    _marked_lines(before[path], marks),
                    marks,
                    _own_names(before[path], index),
                )
                yield from comparison.losses(elsewhere)


def _marks(context: Context) -> re.Pattern[str]:
    """What betrays the plugin's own hand: its prefix of class names, and its name without the target's."""
    target = context.options.target
    of_target = target.package if target is not None else ""
    words = {context.index.prefix}
    for package in context.index.own_packages:
        words.update(part for part in package.split("_") if part != of_target)
    found = sorted(word for word in words if len(word) > 3)
    return re.compile("|".join(map(re.escape, found)) or r"(?!)", re.IGNORECASE)


def _marked_lines(file: SourceFile, marks: re.Pattern[str]) -> frozenset[int]:
    """Lines close to a comment that names the plugin."""
    found: set[int] = set()
    for number, line in enumerate(file.source.lines, start=1):
        if marks.search(line.partition("#")[2]):
            found.update(range(number - _BESIDE, number + _BESIDE + 1))
    return frozenset(found)


def _own_names(file: SourceFile, index: Index) -> frozenset[str]:
    """Names that a file imports from the plugin itself."""
    symbols = file.symbols
    names = symbols.names.items() if symbols is not None else ()
    return frozenset(
        name
        for name, bounds in names
        if any(b.kind == "from" and index.is_own(b.module) for b in bounds)
    )


def _files(snapshot: Snapshot) -> dict[str, SourceFile]:
    found: dict[str, SourceFile] = {}
    for key, entry in snapshot.files.items():
        raw = snapshot.read(entry.oid) if entry.is_regular and is_python(key) else None
        if raw is not None:
            path = display_path(key)
            found[path] = SourceFile.of(path, key, SOURCES.get(entry.oid, raw))
    return found


def _statements_of(target: TargetTree, module: str) -> list[Statement]:
    raw = target.read(target.modules[module])
    return statements(read_source(raw or b"").tree)


def statements(tree: ast.AST) -> list[Statement]:
    """Statements of a file in order, those inside others after the head of these."""
    found: list[Statement] = []
    _collect(tree, found)
    return found


def _collect(node: ast.AST, found: list[Statement]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            found.append(Statement(_head(child), child.lineno))
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            _collect(child, found)


def _head(node: ast.stmt) -> str:
    """The text of a statement without the block below it."""
    text = ast.unparse(node)
    blocks = getattr(node, "body", None)
    if not isinstance(blocks, list):
        return text
    first = ast.unparse(blocks[0]).split("\n")[0] if blocks else ""
    lines = text.split("\n")
    end = next((i for i, line in enumerate(lines) if line.strip() == first and i), len(lines))
    return "\n".join(lines[:end])


class _Elsewhere:
    """Statements of all files of the plugin of now: what moved to another file is not lost."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: set[str] | None = None

    def __contains__(self, text: str) -> bool:
        if self._known is None:
            files = [self._context.files[path] for path in self._context.in_scope]
            self._known = {s.text for file in files for s in statements(file.source.tree)}
        return text in self._known


@dataclass(frozen=True, slots=True)
class _Comparison:
    path: str
    previous: Sequence[Statement]
    base: Sequence[Statement]
    target: Sequence[Statement]
    now: Sequence[Statement]
    marked: frozenset[int]
    marks: re.Pattern[str]
    own_names: frozenset[str]

    def losses(self, elsewhere: _Elsewhere) -> Iterator[Loss]:
        """Each local change of the base that is the target's text again."""
        old, base = [s.text for s in self.previous], [s.text for s in self.base]
        target, now = {s.text for s in self.target}, [s.text for s in self.now]
        present = set(now)
        matcher = difflib.SequenceMatcher(None, old, base, autojunk=False)
        for kind, i1, i2, j1, j2 in matcher.get_opcodes():
            if kind == "equal":
                continue
            theirs = [t for t in old[i1:i2] if _counts(t)]
            own = [t for t in base[j1:j2] if _counts(t)]
            lost = [t for t in own if t not in present and t not in target and t not in elsewhere]
            back = [t for t in theirs if t in present and t not in base]
            around = all(t in present for t in (*old[max(i1 - 1, 0) : i1], *old[i2 : i2 + 1]))
            words = _new_words(own, theirs) if theirs else set()
            is_own = self.marks.search(" ".join(words)) or words & self.own_names
            if not is_own and self.marked.isdisjoint(self._lines(j1, j2)):
                continue
            if self._is_lost(theirs, own, lost, back, around=around):
                yield self._loss(lost, back, i1, j1, now)

    def _lines(self, j1: int, j2: int) -> list[int]:
        """Lines of the base that a change covers; the line it stands before, for a deletion."""
        return [s.line for s in self.base[j1 : max(j2, j1 + 1)]]

    @staticmethod
    def _is_lost(
        theirs: list[str], own: list[str], lost: list[str], back: list[str], *, around: bool
    ) -> bool:
        if (
            theirs and own
        ):  # replaced: the target's words are back, and none of the plugin's is left
            return len(lost) == len(own) and len(back) == len(theirs)
        if own:  # inserted: what stood around it is still there
            return len(lost) == len(own) and around
        return bool(theirs) and len(back) == len(theirs)  # left out: it is back

    def _loss(self, lost: list[str], back: list[str], i1: int, j1: int, now: list[str]) -> Loss:
        anchor = back[0] if back else (self.previous[i1 - 1].text if i1 else "")
        position = now.index(anchor) if anchor in now else 0
        base_line = self.base[min(j1, len(self.base) - 1)].line if self.base else 1
        line = self.now[position].line if self.now else 1
        return Loss(self.path, line, tuple(lost), tuple(back), base_line)


def _new_words(own: Sequence[str], theirs: Sequence[str]) -> set[str]:
    """Words of the plugin's statements that the target's do not have."""
    return set(re.findall(r"\w+", " ".join(own))) - set(re.findall(r"\w+", " ".join(theirs)))


def _counts(text: str) -> bool:
    """False for what changes nothing: imports, docstrings, log lines and the like."""
    if text.startswith(("import ", "from ", '"', "'", "pass", "...", *_LOGS)):
        return False
    return bool(text.strip())
