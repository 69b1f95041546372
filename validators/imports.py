"""Import statements of the plugin that do not find what they name."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attngate.validators.guards import is_guarded_import, is_typing_only
from attngate.validators.index import Missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.index import Index


@dataclass(frozen=True, slots=True)
class MissedImport:
    """One name of an import statement, and what is not there."""

    node: ast.Import | ast.ImportFrom
    alias: ast.alias
    gone: Missing

    @property
    def line(self) -> int:
        """The line of the name itself: an import may go over many."""
        return self.alias.lineno


def missed_imports(file: SourceFile, context: Context) -> Iterator[MissedImport]:
    """Imports that run and find nothing; those that a `try` guards are meant to fail."""
    index = context.index
    module = index.module_of(file.path)
    names = file.source.names
    for node in names.imports:
        if is_guarded_import(names, node) or is_typing_only(names, node):
            continue
        for alias in node.names:
            gone = _gone(index, module, node, alias)
            if gone is not None:
                yield MissedImport(node, alias, gone)


def _gone(
    index: Index, module: str, node: ast.Import | ast.ImportFrom, alias: ast.alias
) -> Missing | None:
    """What the import does not find; None where it does, or where another file is at fault."""
    if isinstance(node, ast.Import):
        found = index.module_ref(alias.name)
        return found if isinstance(found, Missing) else None
    source = index.absolute(module, "." * node.level + (node.module or ""))
    if alias.name == "*":
        star = index.module_ref(source)
        return star if isinstance(star, Missing) else None
    if index.plainly_defines(source, alias.name):
        return None
    every = index.lookup(source, alias.name)
    gone = [f for f in every if isinstance(f, Missing)]
    if len(gone) < len(every):
        return None
    return gone[0] if gone[0].module == source else None
