"""Names that only one generation of a component has, and the files that are written for it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from attngate.validators.contracts.load import all_builds
from attngate.validators.guards import is_guarded_import, is_typing_only

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attngate.validators.context import SourceFile
    from attngate.validators.contracts.schema import Build


@dataclass(eq=False)
class Tells:
    """Asks a tree for which generation it is written.

    Args:
        files: Every Python file of the tree by path.
    """

    files: Mapping[str, SourceFile] = field(repr=False)

    def names(self, build: Build) -> bool:
        """True where a file imports one of the build's own names without a way around."""
        modules = {e.paths[0].partition(".")[0] for e in build.entries}
        return any(
            _imports(self.files[path], modules, name)
            for name in build.tells
            for path in self._mentions[name]
        )

    def rests_on(self, build: Build) -> set[str]:
        """Files that were asked for a build."""
        return {path for name in build.tells for path in self._mentions[name]}

    @property
    def words(self) -> set[str]:
        """Every name that tells something."""
        return {name for build in all_builds() for name in build.tells}

    @cached_property
    def _mentions(self) -> dict[str, list[str]]:
        return {
            word: [p for p, f in self.files.items() if word in f.source.text] for word in self.words
        }


def _imports(file: SourceFile, modules: set[str], name: str) -> bool:
    names = file.source.names
    for statement in names.imports:
        if not isinstance(statement, ast.ImportFrom) or statement.level:
            continue
        if (statement.module or "").partition(".")[0] not in modules:
            continue
        if any(alias.name == name for alias in statement.names):
            return not is_guarded_import(names, statement) and not is_typing_only(names, statement)
    return False
