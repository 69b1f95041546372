"""ATT214: initialisers that pass their base class by."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.index import Ref
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.index import Index
    from attngate.validators.symbols import Class


@rule("ATT214", "skipped-initialiser")
def skipped_initialiser(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A class skips its base's initialiser and lacks attributes that inherited code reads.

    Why:
        `super(Base, self).__init__()` starts behind `Base`. What the base sets has to be copied by
        hand then, and the next release sets one attribute more: the inherited methods that read it
        fail, or take a default that means something else.

    Instead:
        Call `super().__init__(...)` and change afterwards what has to differ.
    """
    index = context.index
    names = file.source.names
    for call in names.calls:
        base = _skipped(file, context, call)
        owner = context.inference.class_around(file, call)
        if base is None or owner is None or base == owner:
            continue
        missing = sorted(_unset(index, owner, base))
        if missing:
            yield _hit(file, index, call, base, missing)


def _skipped(file: SourceFile, context: Context, call: ast.Call) -> Ref | None:
    """The class that `super(Base, self).__init__(...)` leaves out."""
    func = call.func
    if not (isinstance(func, ast.Attribute) and func.attr == "__init__"):
        return None
    inner = func.value
    if not (isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name)):
        return None
    if inner.func.id != "super" or len(inner.args) != 2:
        return None
    found = context.inference.values(file, inner.args[0])
    first = found[0]
    return first if len(found) == 1 and isinstance(first, Ref) and first.kind == "class" else None


def _unset(index: Index, owner: Ref, base: Ref) -> Iterator[str]:
    """Attributes that the skipped initialiser sets and the plugin's class does not."""
    own = index.class_of(owner)
    above = index.class_of(base)
    if own is None or above is None:
        return
    behind = index.lineage(base).classes[1:]
    for name, attributes in above.attributes.items():
        if any(a.method == "__init__" for _, c in behind for a in c.attributes.get(name, ())):
            continue  # what is called instead sets it
        is_set = any(a.method == "__init__" for a in attributes)
        in_body = any(not a.method and a.value for a in attributes)
        if is_set and not in_body and name not in own.attributes and name not in own.methods:
            yield name


def _hit(file: SourceFile, index: Index, call: ast.Call, base: Ref, missing: list[str]) -> Hit:
    above = index.class_of(base)
    init: Class | None = above
    line = (
        init.methods["__init__"][0].line if init is not None and "__init__" in init.methods else 1
    )
    return Hit(
        file.at_node(call),
        f"the initialiser of {base.name} is skipped, and {', '.join(f'`{m}`' for m in missing)} "
        f"{'is' if len(missing) == 1 else 'are'} never set",
        advice="Call `super().__init__(...)`, or set what the base sets.",
        origin=index.place(base.module, line),
    )
