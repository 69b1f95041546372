"""ATT201: names that are imported from the target and are not there."""

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


@rule("ATT201", "missing-target-name")
def missing_target_name(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A module or name is imported that the target vLLM does not have.

    Why:
        vLLM moves and renames modules between releases. The import fails when the backend is loaded,
        which may be long after the plugin was: with the first model that needs it.

    Instead:
        Import it from where the target has it; the finding names the new place where there is one. For
        several targets, put the imports into `try` and `except ImportError`.
    """
    for missed in missed_imports(file, context):
        if not context.index.is_own(missed.gone.module):
            yield _target_hit(missed, file, context.index)


def _target_hit(missed: MissedImport, file: SourceFile, index: Index) -> Hit:
    target = index.target
    assert target is not None
    gone = missed.gone
    moved = _moved_to(index, gone, missed.alias.name)
    what = f"`{gone.name}`" if gone.name else "the module"
    advice = f"Import it from {moved[0]}." if moved else "Look up what replaced it in the target."
    if len(moved) > 1:
        advice = f"Import it from one of {', '.join(moved)}."
    origin = index.place(moved[0], target.line_of(moved[0], missed.alias.name)) if moved else ""
    return Hit(
        file.at(missed.line, 1),
        f"{what} is not in {gone.module} of {target.label}"
        if gone.name
        else f"{target.label} has no module {gone.module}",
        advice=advice,
        expected=f"{missed.alias.name} in {' or '.join(moved)}" if moved else "",
        observed=ast.unparse(missed.node)[:200],
        origin=origin or target.label,
    )


def _moved_to(index: Index, gone: Missing, name: str) -> list[str]:
    """Modules of the target that define the name now, the most similar path first."""
    target = index.target
    assert target is not None
    if not gone.name and name.startswith(gone.module):
        return _same_file(index, gone.module)
    modules = [m for m in target.defining.get(name, ()) if m != gone.module]
    old = set(gone.module.split("."))
    return sorted(modules, key=lambda m: (-len(old & set(m.split("."))), m))[:3]


def _same_file(index: Index, module: str) -> list[str]:
    target = index.target
    assert target is not None
    last = module.rpartition(".")[2]
    return target.by_last_word.get(last, [])[:3]
