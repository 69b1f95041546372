"""Local modifications that a sync with a new target lost, over all files of a tree.

`modifications.py` compares the versions of one file. Here is what it takes to have them: which file of
the target a copy was made from before and now, and where else in the plugin a change may have moved.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attngate.validators.context import SourceFile
from attngate.validators.index import Index
from attngate.validators.model import display_path
from attngate.validators.modifications import Comparison, Copy, Hand
from attngate.validators.source import SOURCES, is_python, read_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attngate.validators.context import Context
    from attngate.validators.model import Snapshot
    from attngate.validators.modifications import Loss
    from attngate.validators.target import TargetTree

_LEAST_MARK = 4
# Anybody's: a name from one of these says nothing of who wrote it.
_COMMON = frozenset(["", "numpy", "torch", "triton", *sys.stdlib_module_names])


@dataclass(frozen=True, slots=True)
class FileLoss:
    """One lost modification with its files.

    Attributes:
        path: The plugin's file of now.
        base_path: The plugin's file before the sync.
        loss: What was lost.
    """

    path: str
    base_path: str
    loss: Loss


def losses(context: Context) -> tuple[FileLoss, ...]:
    """Every lost modification in the files in scope; none without a previous target and a base."""
    options = context.options
    if options.previous is None or options.sync_base is None or options.target is None:
        return ()
    return tuple(_Sync(context, options.previous, options.sync_base, options.target).losses())


class _Sync:
    def __init__(
        self, context: Context, previous: TargetTree, base: Snapshot, target: TargetTree
    ) -> None:
        self._context = context
        self._previous = previous
        self._target = target
        self._before = _files(base)
        self._index_before = Index(self._before, context.options.import_roots, previous)
        self._prefix = self._index_before.prefix or context.index.prefix
        self._texts: dict[str, frozenset[str]] = {}

    def losses(self) -> Iterator[FileLoss]:
        for path in sorted(self._context.in_scope):
            base_path = self._base_path(path)
            if base_path:
                for loss in self._compare(path, base_path):
                    yield FileLoss(path, base_path, loss)

    def _base_path(self, path: str) -> str:
        """The file before the sync that became this one, "" for none or an unchanged one."""
        before, now = self._before, self._context.files
        if path in before:
            return path if before[path].source.raw != now[path].source.raw else ""
        name = path.rpartition("/")[2]
        moved = [p for p in before if p.rpartition("/")[2] == name and p not in now]
        defines = set(now[path].facts.defines)
        alike = [p for p in moved if defines.intersection(before[p].facts.defines)]
        return alike[0] if len(alike) == 1 else ""

    def _compare(self, path: str, base_path: str) -> Iterator[Loss]:
        index, earlier = self._context.index, self._index_before
        twin = index.counterpart(index.module_of(path))
        twin_before = earlier.counterpart(earlier.module_of(base_path))
        if not twin or not twin_before:
            return
        package = index.module_of(path).partition(".")[0]
        base = Copy(self._before[base_path].source, self._prefix)
        now = Copy(self._context.files[path].source, self._prefix)
        if not base.source.parses or not now.source.parses:
            return
        comparison = Comparison(
            _target_copy(self._previous, twin_before),
            base,
            _target_copy(self._target, twin),
            now,
            Hand(self._marks(package), _own_names(earlier, base_path, twin_before)),
            _own_names(index, path, twin),
        )
        for loss in comparison.losses():
            if not self._is_elsewhere(loss, package, path):
                yield loss

    def _marks(self, package: str) -> re.Pattern[str]:
        """The plugin's prefix of class names, and its name without the target's."""
        words = {self._prefix, *package.split("_")} - {self._target.package}
        found = sorted(word for word in words if len(word) >= _LEAST_MARK)
        return re.compile("|".join(map(re.escape, found)) or r"(?!)", re.IGNORECASE)

    def _is_elsewhere(self, loss: Loss, package: str, path: str) -> bool:
        """True for what another file of the plugin has now."""
        files = self._context.files
        others = [p for p in files if p != path and _is_below(package, p, self._context)]
        if loss.whole:
            name = loss.lost[0]
            is_wanted = not (loss.inner or loss.back) or any(
                _mentions(files[p], name) for p in (path, *others)
            )
            return not is_wanted or any(name in files[p].facts.defines for p in others)
        return bool(loss.lost) and all(
            any(self._holds(p, text) for p in others) for text in loss.lost
        )

    def _holds(self, path: str, text: str) -> bool:
        file = self._context.files[path]
        words = set(re.findall(r"\w+", text))
        if not all(word in file.source.text for word in words):
            return False
        if path not in self._texts:
            self._texts[path] = Copy(file.source, self._prefix).texts
        return text in self._texts[path]


def _own_names(index: Index, path: str, twin: str) -> frozenset[str]:
    """Names that a copy has from the plugin, or from packages that the target's file leaves alone."""
    symbols, theirs = index.files[path].symbols, index.summary(twin)
    if symbols is None or theirs is None:
        return frozenset()
    used = {b.module.partition(".")[0] for bounds in theirs.names.values() for b in bounds}
    used.add(index.target.package if index.target is not None else "")
    return frozenset(
        name
        for name, bounds in symbols.names.items()
        for bound in bounds
        if name not in theirs.names and bound.kind in ("from", "import")
        if bound.module.partition(".")[0] not in used | _COMMON
    )


def _is_below(package: str, path: str, context: Context) -> bool:
    return context.index.module_of(path).partition(".")[0] == package


def _mentions(file: SourceFile, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", file.source.text) is not None


def _files(snapshot: Snapshot) -> Mapping[str, SourceFile]:
    found: dict[str, SourceFile] = {}
    for key, entry in snapshot.files.items():
        raw = snapshot.read(entry.oid) if entry.is_regular and is_python(key) else None
        if raw is not None:
            path = display_path(key)
            found[path] = SourceFile.of(path, key, SOURCES.get(entry.oid, raw))
    return found


def _target_copy(target: TargetTree, module: str) -> Copy:
    return Copy(read_source(target.read(target.modules[module]) or b""))
