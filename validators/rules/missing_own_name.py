"""ATT202: names that the plugin imports from itself and does not have."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.imports import missed_imports
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.imports import MissedImport
    from attngate.validators.index import Index, Missing


@rule("ATT202", "missing-own-name")
def missing_own_name(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A module or name of the plugin itself is imported that the plugin does not have.

    Why:
        A class that was renamed in one file and not in the other, or a function that was left out of a
        commit, is an ImportError for whoever loads that file.

    Instead:
        Define the name, or import the one that is there.
    """
    for missed in missed_imports(file, context):
        if context.index.is_own(missed.gone.module):
            yield _own_hit(missed, file, context.index)


def _own_hit(missed: MissedImport, file: SourceFile, index: Index) -> Hit:
    gone = missed.gone
    near = _similar(index, gone)
    advice = f"Meant is perhaps `{near}`." if near else "Define it there, or import what is there."
    message = (
        f"{gone.module} does not define `{gone.name}`"
        if gone.name
        else f"the plugin has no module {gone.module}"
    )
    path = index.path_of(gone.module)
    return Hit(
        file.at(missed.line, 1),
        message,
        advice=advice,
        observed=ast.unparse(missed.node)[:200],
        origin=path or file.path,
    )


def _similar(index: Index, gone: Missing) -> str:
    from difflib import get_close_matches

    if not gone.name:
        found = get_close_matches(gone.module, index.tree_modules, 1, 0.85)
        return found[0] if found else ""
    summary = index.summary(gone.module)
    names = list(summary.names) if summary is not None else []
    ending = [n for n in names if n.endswith(gone.name) or gone.name.endswith(n)]
    close = get_close_matches(gone.name, names, 1, 0.7)
    return (ending or close or [""])[0]
