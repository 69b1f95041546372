"""ATT225: `super(Class, self)` with a class that `self` does not come from."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.index import Ref
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile


@rule("ATT225", "wrong-super")
def wrong_super(file: SourceFile, context: Context) -> Iterator[Hit]:
    """`super(Class, self)` names a class that is neither the one around nor one of its bases.

    Why:
        It is a TypeError as soon as the line runs: "obj must be an instance or subtype of type".

    Instead:
        Write `super()`, or name the base whose initialiser is meant to be passed by.
    """
    for call in file.source.names.calls:
        if not (
            isinstance(call.func, ast.Name) and call.func.id == "super" and len(call.args) == 2
        ):
            continue
        owner = context.inference.class_around(file, call)
        found = context.inference.values(file, call.args[0])
        named = found[0]
        if owner is None or len(found) != 1 or not isinstance(named, Ref) or named.kind != "class":
            continue
        lineage = context.index.lineage(owner)
        ours = {(module, known.name) for module, known in lineage.classes}
        if lineage.complete and (named.module, named.name) not in ours:
            yield Hit(
                file.at_node(call),
                f"{owner.name} does not derive from {named.name}, which `super` is given",
                advice="Write `super()`, or name a base of the class.",
                observed=ast.unparse(call),
            )
