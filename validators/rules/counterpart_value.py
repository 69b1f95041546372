"""ATT220: class attributes that differ in kind, or lack a value, from the target's version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.index import Ref
from attngate.validators.model import Severity
from attngate.validators.registry import rule
from attngate.validators.twins import twin_classes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.index import Index, Lineage
    from attngate.validators.symbols import Attribute
    from attngate.validators.twins import TwinClass

_DISPLAYS = ("List", "Tuple", "Dict", "Set", "ListComp")


@rule("ATT220", "counterpart-value", Severity.WARNING)
def counterpart_value(file: SourceFile, context: Context) -> Iterator[Hit]:
    """An attribute holds a list where the target's version holds one value, or lists fewer capabilities.

    Why:
        The target's code reads the attribute as its own class sets it. A list where it expects a tensor
        breaks the binding of caches; a value that is missing from a list of supported ones turns away
        what the kernel could do.

    Instead:
        Set what the target sets, or say why this class differs in a comment that suppresses this.
    """
    index = context.index
    for twin in twin_classes(index, file.path):
        for name, own in twin.own.attributes.items():
            theirs = twin.theirs.attributes.get(name)
            if theirs:
                yield from _compare(file, index, twin, own[0], theirs)
        yield from _lacking(file, index, twin)


def _lacking(file: SourceFile, index: Index, twin: TwinClass) -> Iterator[Hit]:
    """Values in the class body of the target's version that the plugin's class neither has nor inherits."""
    own = Ref("class", index.module_of(twin.path), twin.own.name)
    lineage = index.lineage(own)
    if any(known is twin.theirs for _, known in lineage.classes):
        return
    for name, theirs in twin.theirs.attributes.items():
        value = theirs[0].value if not theirs[0].method else ""
        if (
            not value
            or name.startswith(("__", "forward"))
            or "dataclass" in " ".join(twin.theirs.decorators)
        ):
            continue
        holders = [(m, c.attributes[name][0]) for m, c in lineage.classes if name in c.attributes]
        if any(index.is_tree(module) for module, _ in holders):
            continue
        inherited = holders[0][1].value if holders else ""
        if inherited == value or _is_only_for(index, lineage, name):
            continue
        if index.is_used_outside(twin.module, name, own, called=False):
            what = f"inherits {inherited or 'no value'} for" if holders else "has no"
            yield Hit(
                file.at(twin.own.line),
                f"{twin.own.name} {what} `{name}`, which the target's {twin.theirs.name} sets to {value[:60]}",
                advice="Set it, or say why the inherited value is right.",
                origin=index.place(twin.module, theirs[0].line),
                severity=Severity.NOTE,
            )


def _is_only_for(index: Index, lineage: Lineage, name: str) -> bool:
    """True for a private value that the bases read only in methods that the plugin has its own of."""
    if not name.startswith("_"):
        return False
    ours = {n for m, c in lineage.classes if index.is_tree(m) for n in c.methods}
    readers = {
        method
        for module, known in lineage.classes
        if not index.is_tree(module)
        for method, functions in known.methods.items()
        for f in functions
        if re.search(rf"\b(self|cls)\.{name}\b", index.source_lines(module, f.line, f.end))
    }
    return bool(readers) and readers <= ours


def _compare(
    file: SourceFile, index: Index, twin: TwinClass, own: Attribute, theirs: list[Attribute]
) -> Iterator[Hit]:
    origin = index.place(twin.module, theirs[0].line)
    where = file.at(own.line)
    if own.kind in _DISPLAYS and all(t.kind == "Call" for t in theirs) and own.method:
        yield Hit(
            where,
            f"`{own.name}` is a {own.kind.lower()} here and one value in the target's {twin.theirs.name}",
            advice="Set it as the target does: its code reads it that way.",
            expected=theirs[0].value[:120],
            observed=own.value[:120],
            origin=origin,
        )
    elif own.name.startswith("supported_") and not own.method and own.kind == "List":
        missing = sorted(_words(theirs[0].value) - _words(own.value))
        if missing and theirs[0].kind == "List":
            yield Hit(
                where,
                f"`{own.name}` lacks {', '.join(missing)}, which the target's {twin.theirs.name} lists",
                advice="Add what the kernel can do, or say why it cannot.",
                expected=theirs[0].value[:160],
                observed=own.value[:160],
                origin=origin,
                severity=Severity.NOTE,
            )


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w.]+", text))
