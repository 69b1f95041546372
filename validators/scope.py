"""Which paths of a tree a check is about."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


class Scope:
    """Paths by globs in gitignore's syntax; without `include` every path is in.

    Args:
        include: Globs of paths in scope.
        exclude: Globs of paths out of scope; they win.
    """

    def __init__(self, include: tuple[str, ...], exclude: tuple[str, ...]) -> None:
        self._include = include
        self._exclude = exclude

    def holds(self, path: str) -> bool:
        """True for a path in scope."""
        if self._include and not self._included.match_file(path):
            return False
        return not (self._exclude and self._excluded.match_file(path))

    @cached_property
    def _included(self) -> GitIgnoreSpec:
        return _spec(self._include)

    @cached_property
    def _excluded(self) -> GitIgnoreSpec:
        return _spec(self._exclude)


def _spec(globs: tuple[str, ...]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(globs)
