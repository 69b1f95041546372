"""ATT003."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from attngate.validators.context import Context, Hit
from attngate.validators.model import MODE_GITLINK, Location, Severity, display_path
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

_MODULES = b".gitmodules"


@rule("ATT003", "unusable-entry", Severity.WARNING, over="tree")
def unusable_entry(context: Context) -> Iterator[Hit]:
    """A path that differs from another in case only, or a submodule without a .gitmodules entry.

    Why:
        A file system that ignores case keeps one of the two paths, so a checkout there tests another
        tree than the one that was committed. A submodule without an entry in `.gitmodules` is mostly a
        clone that was added by accident: nobody else can fetch it.

    Instead:
        Rename one of the paths. Take the clone out of the index (`git rm --cached PATH`) or add it with
        `git submodule add`.
    """
    yield from _case_pairs(context)
    yield from _lost_submodules(context)


def _case_pairs(context: Context) -> Iterator[Hit]:
    by_folded: dict[str, list[str]] = defaultdict(list)
    for key in context.snapshot.files:
        path = display_path(key)
        by_folded[path.casefold()].append(path)
    for paths in by_folded.values():
        for path in paths[1:]:
            yield Hit(
                Location(path, 1),
                f"the path differs from {paths[0]} in case only",
                advice="Rename one of them: some file systems keep only one.",
            )


def _lost_submodules(context: Context) -> Iterator[Hit]:
    links = [k for k, e in context.snapshot.files.items() if e.mode == MODE_GITLINK]
    declared = _declared_paths(context.snapshot.blob(_MODULES) or b"") if links else set()
    for key in links:
        if key not in declared:
            yield Hit(
                Location(display_path(key), 1),
                "a submodule without an entry in .gitmodules: others cannot fetch it",
                advice=f"Use `git rm --cached {display_path(key)}`, or add it with `git submodule add`.",
            )


def _declared_paths(modules: bytes) -> set[bytes]:
    """Values of `path` in .gitmodules; quoted ones are unquoted."""
    found: set[bytes] = set()
    for line in modules.splitlines():
        name, equals, value = line.partition(b"=")
        if equals and name.strip().lower() == b"path":
            found.add(value.strip().strip(b'"').rstrip(b"/"))
    return found
