"""Classes of the plugin and the classes of the target that they were made from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attngate.validators.index import Ref

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.index import Index
    from attngate.validators.symbols import Class


@dataclass(frozen=True, slots=True)
class TwinClass:
    """A class with its counterpart; `module` is the target's, `path` the plugin's file.

    `is_sibling` where they have the same base and no more than the end of the name in common.
    """

    path: str
    own: Class
    module: str
    theirs: Class
    is_sibling: bool = False


def twin_classes(index: Index, path: str) -> Iterator[TwinClass]:
    """Classes of a file with their counterparts in the target.

    A counterpart has the same name, the plugin's prefix left out, in the module that the file stands
    for; else it is the target's one class with the same direct base and the same end of the name.
    """
    module = index.module_of(path)
    summary = index.summary(module)
    twin = index.counterpart(module)
    theirs = index.summary(twin) if twin else None
    for name, own in summary.classes.items() if summary is not None else ():
        plain = index.target_name(name)
        other = (
            theirs.classes.get(name) or theirs.classes.get(plain) if theirs is not None else None
        )
        if other is not None and _is_alike(own, other):
            yield TwinClass(path, own, twin, other)
        else:
            found = _sibling(index, module, own, plain)
            if found is not None:
                yield TwinClass(path, own, *found, is_sibling=True)


def _is_alike(own: Class, other: Class, least: int = 1) -> bool:
    """True for classes that have methods in common, where the plugin's has any."""
    methods = own.methods.keys()
    shared = methods & other.methods.keys()
    same_bases = {b.rpartition(".")[2].partition("[")[0] for b in own.bases} & {
        b.rpartition(".")[2].partition("[")[0] for b in other.bases
    }
    in_common = len(shared) >= least and len(shared) * 2 >= len(methods)
    return in_common or (bool(same_bases) and least == 1)


_SHARED = 3


def _sibling(index: Index, module: str, own: Class, plain: str) -> tuple[str, Class] | None:
    target = index.target
    if target is None or plain == own.name:
        return None
    bases = {
        found
        for text in own.bases
        for found in index.base(module, text)
        if isinstance(found, Ref) and not index.is_tree(found.module)
    }
    found: list[tuple[str, Class]] = []
    for base in bases:
        for where, name in target.derived.get(base.name, ()):
            known = index.class_of(Ref("class", where, name))
            word = name.removesuffix(plain)
            is_one_word = name.endswith(plain) and re.fullmatch(r"[A-Z]+[a-z0-9]*", word)
            if known is not None and is_one_word and _is_alike(own, known, _SHARED):
                found.append((where, known))
    return found[0] if len(found) == 1 else None
