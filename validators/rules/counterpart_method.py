"""ATT218: methods that the target's own class has, is called with, and the plugin's does not have."""

from __future__ import annotations

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
    from attngate.validators.twins import TwinClass

_PLATFORM_PATHS = frozenset(f"forward_{name}" for name in ("cuda", "hip", "xpu", "cpu", "tpu"))


@rule("ATT218", "counterpart-method", Severity.WARNING)
def counterpart_method(file: SourceFile, context: Context) -> Iterator[Hit]:
    """The target calls a method that its own class defines and the plugin's version of it does not.

    Why:
        A class that was taken over from the target does not follow when the target adds a method. The
        plugin's then answers with the base's default, or not at all.

    Instead:
        Add the method, or state why the default is right in a comment that suppresses this.
    """
    index = context.index
    for twin in twin_classes(index, file.path):
        for name, default in _lacking(index, twin):
            theirs = twin.theirs.methods[name][0]
            if default:
                words = f"inherits `{name}` from {default}, where {twin.theirs.name} has its own"
            else:
                words = f"has no `{name}`, which {twin.theirs.name} defines"
            yield Hit(
                file.at(twin.own.line),
                f"{twin.own.name} {words} and the target calls it",
                advice=f"Define `{name}`, or say why the default is right.",
                origin=index.place(twin.module, theirs.line),
            )


def _lacking(index: Index, twin: TwinClass) -> Iterator[tuple[str, str]]:
    own = Ref("class", index.module_of(twin.path), twin.own.name)
    lineage = index.lineage(own)
    if any(known is twin.theirs for _, known in lineage.classes):
        return
    for name, functions in twin.theirs.methods.items():
        if name.startswith("_") or functions[0].is_abstract:
            continue
        holder = next(
            ((m, c) for m, c in lineage.classes if name in c.methods or name in c.attributes), None
        )
        if holder is not None and index.is_tree(holder[0]):
            continue
        if holder is None and (twin.is_sibling or not _is_known(index, lineage.foreign)):
            continue  # no base of both has it, so nobody calls it on whatever stands for that base
        if not index.is_used_outside(twin.module, name, own, called=True):
            continue
        if _is_switched_off(lineage, name) or _is_of_another_platform(lineage, name):
            continue
        if holder is None:
            yield name, ""
        elif holder[1].name != twin.theirs.name:
            yield name, holder[1].name


def _is_switched_off(lineage: Lineage, name: str) -> bool:
    """True where the class says by `supports_<name> = False` that the method is not to be called."""
    said = next(
        (c.attributes[f"supports_{name}"] for _, c in lineage.classes if f"supports_{name}" in c.attributes),
        [],
    )  # fmt: skip
    return bool(said) and all(a.value == "False" and not a.method for a in said)


def _is_of_another_platform(lineage: Lineage, name: str) -> bool:
    """True for a path that the target's dispatch does not take where a class has `forward_oot`."""
    return name in _PLATFORM_PATHS and any(
        "forward_oot" in c.methods for _, c in lineage.classes[:1]
    )


def _is_known(index: Index, foreign: tuple[str, ...]) -> bool:
    return all(index.foreign_members(path) is not None for path in foreign)
