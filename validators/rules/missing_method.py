"""ATT204: classes that do not implement what their base requires."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.index import Ref
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.index import Index, Lineage
    from attngate.validators.symbols import Class


@rule("ATT204", "missing-method")
def missing_method(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A class of the plugin leaves an abstract method of its base without an implementation.

    Why:
        Such a class cannot be instantiated: `TypeError: Can't instantiate abstract class`. A hook that
        the target renamed is the usual reason: the old method is still there and nobody calls it.

    Instead:
        Implement the method that the finding names, with the signature of the base.
    """
    index = context.index
    module = index.module_of(file.path)
    summary = index.summary(module)
    for known in summary.classes.values() if summary is not None else ():
        lineage = index.lineage(Ref("class", module, known.name))
        if _is_abstract(known) or index.derived_from(module, known.name):
            continue
        if not lineage.complete or known.name.endswith(("Base", "Mixin")):
            continue
        for where, base, name in _unimplemented(lineage):
            if index.is_left_abstract(where, base.name, name):
                continue
            yield _hit(file, index, known, where, base, name)


def _is_abstract(known: Class) -> bool:
    declared = any(f.is_abstract for functions in known.methods.values() for f in functions)
    return declared or any(b.rpartition(".")[2] in ("ABC", "Protocol") for b in known.bases)


def _unimplemented(lineage: Lineage) -> Iterator[tuple[str, Class, str]]:
    seen: set[str] = set()
    for module, known in lineage.classes:
        for name, functions in known.methods.items():
            if name not in seen and functions[-1].is_abstract:
                yield module, known, name
            seen.add(name)
        seen.update(known.attributes)


def _hit(file: SourceFile, index: Index, known: Class, module: str, base: Class, name: str) -> Hit:
    line = base.methods[name][-1].line
    return Hit(
        file.at(known.line),
        f"{known.name} does not implement `{name}`, which is abstract in {base.name}",
        advice=f"Define `{name}`: without it the class cannot be instantiated.",
        origin=index.place(module, line),
    )
