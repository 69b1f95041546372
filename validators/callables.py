"""Which arguments a function, a method or a class takes, and what a call does not fit in it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attngate.validators.index import Ref
from attngate.validators.infer import Method

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.index import Index, Lineage
    from attngate.validators.infer import Value
    from attngate.validators.symbols import Attribute, Class, Function, Param

_TRANSPARENT = frozenset(
    ["staticmethod", "classmethod", "abstractmethod", "override", "final", "cache", "lru_cache",
     "no_grad", "inference_mode", "wraps", "overload", "deprecated", "record_function"]
)  # fmt: skip
_KEEPS_CLASS = re.compile(r"(^|\.)(dataclass|final|runtime_checkable|total_ordering|register\w*)\b")
_DATACLASS = re.compile(r"(^|\.)dataclass\b")


@dataclass(frozen=True, slots=True)
class Taken:
    """What a callable takes.

    Attributes:
        what: The callable in a user's words.
        module: Module of its definition.
        line: Line of its definition.
        params: The parameters that a caller passes.
        star: True with `*args`.
        kwargs: True with `**kwargs`.
    """

    what: str
    module: str
    line: int
    params: tuple[Param, ...]
    star: bool
    kwargs: bool

    def __str__(self) -> str:
        """The parameter list as Python writes it, without annotations."""
        parts: list[str] = []
        for param in self.params:
            if param.kind == "k" and not self.star and "*" not in parts:
                parts.append("*")
            parts.append(param.name if param.default is None else f"{param.name}={param.default}")
        parts += ["*args"] * self.star + ["**kwargs"] * self.kwargs
        text = f"({', '.join(parts)})"
        return text if len(text) <= 300 else text[:297] + "..."


def taken_by(index: Index, value: Value) -> list[Taken] | None:
    """What a value takes when it is called: one for each definition; None where that is not known."""
    if isinstance(value, Ref) and value.kind == "function":
        found = index.functions_of(value)
        return [_of(value.module, f, 0, value.name) for f in found] if _plain(found) else None
    if isinstance(value, Method):
        function = value.function
        name = f"{value.owner.name}.{function.name}"
        return (
            [_of(value.owner.module, function, value.skips, name)] if _plain([function]) else None
        )
    if isinstance(value, Ref) and value.kind == "class":
        made = _constructor(index, value)
        return None if made is None else [made]
    return None


def _plain(functions: list[Function]) -> bool:
    return bool(functions) and all(
        d.rpartition(".")[2] in _TRANSPARENT for f in functions for d in f.decorators
    )


def _of(module: str, function: Function, skips: int, name: str) -> Taken:
    positional = [p for p in function.params if p.kind != "k"]
    skipped = {id(p) for p in positional[:skips]}
    params = tuple(p for p in function.params if id(p) not in skipped)
    return Taken(name, module, function.line, params, bool(function.star), bool(function.kwargs))


# Constructors


def _constructor(index: Index, ref: Ref) -> Taken | None:  # noqa: PLR0911 (one a way of construction)
    lineage = index.lineage(ref)
    own = index.class_of(ref)
    if own is None or not all(_KEEPS_CLASS.search(d) for d in own.decorators):
        return None
    for module, known in lineage.classes:
        if "__new__" in known.methods or any(k.startswith("metaclass") for k in known.keywords):
            return None
        if "__init__" in known.methods:
            functions = known.methods["__init__"]
            if len(functions) > 1 or not _plain(functions):
                return None
            return _of(module, functions[0], 1, ref.name)
        if any(_DATACLASS.search(d) for d in known.decorators):
            return _dataclass(ref, lineage, known)
    if "typing.NamedTuple" in lineage.foreign and own.bases and len(lineage.classes) == 1:
        return _fields(ref, own, [own])
    return _without(ref, own, lineage)


def _without(ref: Ref, own: Class, lineage: Lineage) -> Taken | None:
    """A class without an initialiser takes nothing, where all its bases are plain."""
    plain = {"abc.ABC", "typing.Generic", "typing.Protocol", "builtins.object"}
    if not lineage.complete or not set(lineage.foreign) <= plain:
        return None
    return Taken(ref.name, ref.module, own.line, (), star=False, kwargs=False)


def _dataclass(ref: Ref, lineage: Lineage, first: Class) -> Taken | None:
    """The initialiser that `@dataclass` writes; None where a base may add fields."""
    if not lineage.complete or any("init=False" in d for d in first.decorators):
        return None
    start = next(i for i, (_, c) in enumerate(lineage.classes) if c is first)
    parents = [c for _, c in lineage.classes[start:]]
    made = [c for c in reversed(parents) if any(_DATACLASS.search(d) for d in c.decorators)]
    return _fields(ref, first, made)


def _fields(ref: Ref, own: Class, classes: list[Class]) -> Taken:
    from attngate.validators.symbols import Param

    params: dict[str, Param] = {}
    for known in classes:
        only_keyword = any("kw_only=True" in d for d in known.decorators)
        for name, attributes in known.attributes.items():
            noted = [a for a in attributes if a.annotation and not a.method]
            if not noted or name in known.methods:
                continue
            if noted[0].annotation.rpartition(".")[2] == "KW_ONLY":
                only_keyword = True
            elif _is_field(noted[0]):
                kind = "k" if only_keyword or "kw_only=True" in noted[0].value else "e"
                params[name] = Param(name, kind, _default(noted[0]), noted[0].annotation)
    ordered = sorted(params.values(), key=lambda p: p.kind == "k")
    return Taken(ref.name, ref.module, own.line, tuple(ordered), star=False, kwargs=False)


def _is_field(attribute: Attribute) -> bool:
    head = attribute.annotation.strip("\"'").partition("[")[0].rpartition(".")[2]
    return head != "ClassVar" and not re.search(r"\bfield\(.*\binit=False", attribute.value)


def _default(attribute: Attribute) -> str | None:
    if not attribute.value:
        return None
    if re.match(r"(\w+\.)?[fF]ield\(", attribute.value):
        return "..." if re.search(r"\bdefault(_factory)?\s*=", attribute.value) else None
    return attribute.value[:40]


# Calls


@dataclass(frozen=True, slots=True)
class Misfit:
    """What does not fit: `kind` is "keyword", "positions", "missing" or "twice"."""

    kind: str
    node: ast.expr | ast.keyword
    name: str


def misfits(call: ast.Call, taken: Taken) -> Iterator[Misfit]:
    """What a call passes that is not taken, and what is required and not passed."""
    is_open = any(isinstance(a, ast.Starred) for a in call.args)
    hidden = any(k.arg is None for k in call.keywords)
    positional = [p for p in taken.params if p.kind != "k"]
    given = [a for a in call.args if not isinstance(a, ast.Starred)]
    if len(given) > len(positional) and not taken.star:
        yield Misfit("positions", given[len(positional)], str(len(positional)))
    named = {p.name: p for p in taken.params if p.kind != "p"}
    for keyword in call.keywords:
        if keyword.arg is None:
            continue
        if keyword.arg not in named and not taken.kwargs:
            yield Misfit("keyword", keyword, keyword.arg)
    first_star = next((i for i, a in enumerate(call.args) if isinstance(a, ast.Starred)), None)
    filled = {p.name for p in positional[: len(given) if first_star is None else first_star]}
    passed = {k.arg for k in call.keywords if k.arg is not None}
    for name in sorted(filled & passed & named.keys()):
        keyword = next(k for k in call.keywords if k.arg == name)
        yield Misfit("twice", keyword, name)
    if is_open or hidden:
        return
    missing = [p.name for p in taken.params if p.default is None and p.name not in filled | passed]
    if missing:
        yield Misfit("missing", call, ", ".join(missing))
