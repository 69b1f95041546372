"""Which calls of a method in the target's source reach the plugin's override of it.

A call is one of the method where the base's own signature takes it. It reaches the override unless the
function that it stands in is replaced by the plugin as well.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attngate.validators.callables import Taken, misfits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.index import Index, Ref
    from attngate.validators.symbols import Class, Function

_LONGEST_CALL = 4000
_DEEPEST = 2
_RECEIVER = rb"((?:[\w.]|\(\)|\[[^\]\n]*\])*)\.%b\("
_OWN = ("self", "cls", "type(self)")


@dataclass(frozen=True, slots=True)
class Site:
    """A call that the base's signature takes: the module and line, the receiver, the call itself."""

    module: str
    line: int
    receiver: str
    call: ast.Call


@dataclass(frozen=True, slots=True)
class Callers:
    """Calls that reach an override, and those that would if their function were not replaced."""

    live: tuple[Site, ...]
    replaced: tuple[Site, ...]


def takes(module: str, function: Function) -> Taken:
    """What a caller of a method passes, the object itself left out."""
    bound = 0 if function.has_decorator("staticmethod") else 1
    params = function.params[bound:]
    return Taken(
        function.name, module, function.line, params, bool(function.star), bool(function.kwargs)
    )


def callers_of(
    index: Index, own: Ref, module: str, base: Function, depth: int = _DEEPEST
) -> Callers:
    """The target's calls of a method that the plugin's class `own` has in place of a base.

    Args:
        index: Names of the plugin and the target.
        own: The plugin's class.
        module: Module of the base class.
        base: The base's method.
        depth: How many callers of callers are asked for.
    """
    live: list[Site] = []
    replaced: list[Site] = []
    for site in _sites(index, module, base):
        reached = _reaches(index, own, site, depth)
        if reached is not None:
            (live if reached else replaced).append(site)
    return Callers(tuple(live), tuple(replaced))


def _sites(index: Index, module: str, base: Function) -> Iterator[Site]:
    if index.target is None:
        return
    taken = takes(module, base)
    pattern = re.compile(_RECEIVER % re.escape(base.name).encode())
    modules = {path: name for name, path in index.target.modules.items()}
    for path, raw in index.target.mentioning(f".{base.name}("):
        for match in pattern.finditer(raw):
            call = _call_at(raw, match.end() - 1)
            if call is not None and not any(misfits(call, taken)):
                line = raw.count(b"\n", 0, match.end()) + 1
                yield Site(modules.get(path, ""), line, match[1].decode("utf-8", "replace"), call)


def _call_at(raw: bytes, start: int) -> ast.Call | None:
    """The call whose parentheses open at `start`; the shortest text that is an expression."""
    end = start
    last = min(len(raw), start + _LONGEST_CALL)
    while True:
        end = raw.find(b")", end, last) + 1
        if not end:
            return None
        text = raw[start:end]
        if text.count(b"(") > text.count(b")"):
            continue
        try:
            made = ast.parse(b"f" + text, mode="eval").body
        except (SyntaxError, ValueError):
            continue
        return made if isinstance(made, ast.Call) else None


def _reaches(index: Index, own: Ref, site: Site, depth: int) -> bool | None:
    """True where the override answers the call, False where what calls it is replaced, None elsewhere."""
    word = site.receiver.rpartition(".")[2]
    if "super(" in site.receiver or not site.receiver or word[:1].isupper():
        return None
    around = _around(index, site)
    if site.receiver not in _OWN:
        if around is None:
            return True
        # What an object holds is hardly ever another one of its own class.
        if site.receiver.startswith("self.") and _is_below(index, own, site.module, around[0]):
            return None
        return not _is_replaced(index, site.module, *around)
    return None if around is None else _is_inherited(index, own, site, *around, depth)


def _is_inherited(
    index: Index, own: Ref, site: Site, known: Class, function: str, depth: int
) -> bool | None:
    """For a call on `self`: whether `own` still has the function around it, and anybody calls that."""
    if not _is_below(index, own, site.module, known):
        return None
    for module, each in index.lineage(own).classes:
        if module == site.module and each.name == known.name:
            break
        if function in each.methods and not _goes_on(index, module, each, function):
            return False
    if depth == 0:
        return True
    above = callers_of(index, own, site.module, known.methods[function][0], depth - 1)
    return bool(above.live) or not above.replaced


def _around(index: Index, site: Site) -> tuple[Class, str] | None:
    """The class and the method that a call stands in."""
    summary = index.summary(site.module)
    for known in summary.classes.values() if summary is not None else ():
        for name, functions in known.methods.items():
            if any(f.line <= site.line <= f.end for f in functions):
                return known, name
    return None


def _is_below(index: Index, own: Ref, module: str, base: Class) -> bool:
    return any(m == module and c.name == base.name for m, c in index.lineage(own).classes)


def _is_replaced(index: Index, module: str, known: Class, function: str) -> bool:
    """True where a class of the plugin has the method itself and does not call the target's."""
    for ref in index.derived_from(module, known.name):
        below = index.class_of(ref)
        if below is not None and function in below.methods:
            return not _goes_on(index, ref.module, below, function)
    return False


def _goes_on(index: Index, module: str, known: Class, function: str) -> bool:
    """True where a method calls the one that it overrides."""
    return any(
        re.search(rf"super\([^)]*\)\.{function}\(", index.source_lines(module, f.line, f.end))
        for f in known.methods[function]
    )
