"""ATT212: an attention operator that is missing from the list its siblings are in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile


@rule("ATT212", "unlisted-operator", over="tree")
def unlisted_operator(context: Context) -> Iterator[Hit]:
    """The plugin adds some of its attention operators to a list of the target and leaves out another.

    Why:
        The compiler splits its graph at the operators of that list. One that is not in it is captured
        into the graph with its metadata, and replay then works with the values of the capture.

    Instead:
        Add every operator of the family, under the name it is registered with.
    """
    listed = list(_listed(context))
    yield from _versions_of_listed(context, {name for _, _, name in listed})
    stems = {name.rpartition("::")[2].partition(".")[0] for _, _, name in listed}
    for path, file in sorted(context.files.items()) if stems else ():
        symbols = file.symbols if path in context.in_scope and file.facts.registers else None
        for name, line in symbols.operators if symbols is not None else ():
            family = _family(name, stems)
            if family:
                where = next(w for w in listed if w[2].rpartition("::")[2].startswith(family))
                yield _hit(file, line, name, family, where)


def _versions_of_listed(context: Context, added: set[str]) -> Iterator[Hit]:
    """The plugin's versions of operators that are in the target's own list."""
    target = context.index.target
    theirs = target.listed_operators if target is not None else {}
    own = {name.rpartition("::")[2] for name in added}
    for path in sorted(context.in_scope):
        file = context.files[path]
        symbols = file.symbols if theirs and file.facts.registers else None
        for name, line in symbols.operators if symbols is not None else ():
            same = [t for t in theirs if len(t) > _LONG and name != t and name.endswith(f"_{t}")]
            if same and name not in own and not any(name.startswith(o) for o in own):
                place = theirs[max(same, key=len)]
                yield Hit(
                    file.at(line),
                    f"the operator {name} is registered and not in the list that holds {same[0]}",
                    advice="Add it to the target's list of attention operators when the platform is set up.",
                    origin=f"{target.label if target is not None else ''}, {place}",
                )


_LONG = 8


def _listed(context: Context) -> Iterator[tuple[str, int, str]]:
    """Operator names that the plugin adds to a list of operators: path, line, name."""
    for path, file in context.files.items():
        symbols = file.symbols if file.facts.lists else None
        for name, line in symbols.listed if symbols is not None else ():
            yield path, line, name


def _family(name: str, stems: set[str]) -> str:
    """The listed operator whose name begins like this one's, "" for none or where it is listed."""
    if name in stems:
        return ""
    return next((s for s in sorted(stems) if name.startswith(s) or s.startswith(name)), "")


def _hit(file: SourceFile, line: int, name: str, family: str, where: tuple[str, int, str]) -> Hit:
    place = f"{where[0]} line {where[1]}"
    return Hit(
        file.at(line),
        f"the operator {name} is registered and not in the list that holds {family}",
        advice=f"Add it where {family} is added: {place}.",
        origin=place,
    )
