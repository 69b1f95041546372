"""The way from a backend's registration to the kernels behind it, hop by hop.

Everything is read from the source: entry points, decorators and path strings that register a class,
places that select it, the classes that its methods return, the layers that bind these, and the calls of
their methods (`follow.py`), down to a component's entry point, a Triton kernel, a torch operator or a
function of the target. What cannot be followed ends in a hop that says why.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING

from attngate.validators.conditions import tags_of
from attngate.validators.follow import Follower, function_at
from attngate.validators.hops import EntryPoint, Hop, paths_of_plugin
from attngate.validators.index import Ref
from attngate.validators.model import Level
from attngate.validators.registrations import Registrations

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.symbols import Class, Function

__all__ = ["Asked", "EntryPoint", "Hop", "find", "trace"]

_ENTRY_METHODS = (
    "__init__", "build", "build_for_cudagraph_capture", "build_for_drafting", "update_block_table",
    "forward", "forward_mha", "forward_mqa", "do_kv_cache_update", "do_rope_and_kv_cache_update",
    "process_weights_after_loading",
)  # fmt: skip
_GIVES_CLASS = {"get_builder_cls": "builder", "get_impl_cls": "implementation"}
_DECORATED = re.compile(
    r"^@[\w.]*register\w*\(?[^\n]*?(?:(\w+)\.)?(\w+)\)?[ \t]*\nclass (\w+)", re.MULTILINE
)
_PARTS = re.compile(rb"\.(get_builder_cls|get_impl_cls)\(\)")
_FUNCTION = re.compile(rb"^([ \t]*)(?:async[ \t]+)?(def|class)[ \t]+(\w+)", re.MULTILINE)
_MOST = 8


@dataclass(frozen=True, slots=True)
class Asked:
    """What a name stands for: classes and functions of the plugin, or names that are close to it."""

    found: tuple[Ref, ...]
    close: tuple[str, ...] = ()


def find(context: Context, name: str) -> Asked:
    """The plugin's classes and functions that a user can mean.

    Args:
        context: The tree.
        name: A member of an enum as backends are registered ("FLASH_ATTN"), a class, with or without the
            plugin's prefix, a module, a function, or the dotted path of one of these. The first of these
            that fits counts, backends before other classes.
    """
    word = name.lower()
    last = word.rpartition(".")[2]
    everywhere = paths_of_plugin(context)
    holding = [p for p in everywhere if _may_hold(context, p, last)]
    # The plugin's prefix is worked out from every file, and most names are given as they are.
    for paths, plain in ((holding, False), (everywhere, True)):
        names = _Names(context, paths, plain=plain)
        for table in (names.members, names.classes, names.modules, names.functions):
            found = tuple(dict.fromkeys(table.get(word, ())))
            if found:
                backends = tuple(ref for ref in found if _is_backend(context, ref))
                return Asked(backends or found)
    return Asked((), tuple(names.spelt[w] for w in get_close_matches(word, names.spelt, 5, 0.6)))


def _may_hold(context: Context, path: str, word: str) -> bool:
    return word in path.lower() or word in context.files[path].source.text.lower()


class _Names:
    """Words by which things of the plugin can be asked for, lower case, in groups.

    Args:
        context: The tree.
        paths: Files to look into.
        plain: True for classes without the plugin's prefix, too.
    """

    def __init__(self, context: Context, paths: list[str], *, plain: bool) -> None:
        self.members: dict[str, list[Ref]] = {}
        self.classes: dict[str, list[Ref]] = {}
        self.modules: dict[str, list[Ref]] = {}
        self.functions: dict[str, list[Ref]] = {}
        self.spelt: dict[str, str] = {}
        self._context = context
        self._plain = plain
        for path in paths:
            self._file(path)
        for member, where in Registrations(context).members():
            module, _, known = where.rpartition(".")
            if context.index.is_tree(module):
                self._member(member, Ref("class", module, known))

    def _file(self, path: str) -> None:
        index = self._context.index
        file = self._context.files[path]
        module = index.module_of(path)
        classes = {name for name, _ in file.facts.classes} & set(file.facts.defines)
        for name in classes:
            plain = index.target_name(name) if self._plain else name
            for word in (name, plain, f"{module}.{name}"):
                self._add(self.classes, word, Ref("class", module, name))
        for match in _DECORATED.finditer(file.source.text):
            self._member(f"{match[1] or ''}.{match[2]}", Ref("class", module, match[3]))
        functions = [Ref("function", module, f) for f in file.facts.defines if f not in classes]
        for ref in functions:
            self._add(self.functions, ref.name, ref)
            self._add(self.functions, str(ref), ref)
        backends = [Ref("class", module, c) for c in sorted(classes) if c.endswith("Backend")]
        for ref in backends or functions:
            self._add(self.modules, module, ref)
            self._add(self.modules, module.rpartition(".")[2], ref)

    def _member(self, member: str, ref: Ref) -> None:
        plain = member.rpartition(".")[2]
        if plain.isupper():
            self._add(self.members, member, ref)
            self._add(self.members, plain, ref)

    def _add(self, table: dict[str, list[Ref]], word: str, ref: Ref) -> None:
        table.setdefault(word.lower(), []).append(ref)
        self.spelt.setdefault(word.lower(), word)


def _is_backend(context: Context, ref: Ref) -> bool:
    known = context.index.class_of(ref) if ref.kind == "class" else None
    return known is not None and bool(_GIVES_CLASS.keys() & known.methods.keys())


def trace(context: Context, ref: Ref, entry_points: Sequence[EntryPoint] = ()) -> Hop:
    """The way from where a class or function is registered to the kernels behind it.

    Args:
        context: The tree.
        ref: What to trace, as `find` gives it.
        entry_points: Entry points of the distribution that the tree builds.
    """
    return _Tracer(context, entry_points).of(ref)


@dataclass(eq=False)
class _Tracer:
    context: Context
    entry_points: Sequence[EntryPoint]

    @cached_property
    def follower(self) -> Follower:
        return Follower(self.context)

    def of(self, ref: Ref) -> Hop:
        made = self._function(ref) if ref.kind == "function" else self._class(ref)
        cut = dict.fromkeys(self.follower.cut)
        if not cut:
            return made
        names = ", ".join(list(cut)[:_MOST])
        note = (
            f"not followed, so many calls below: {names}{' and more' if len(cut) > _MOST else ''}"
        )
        end = Hop("unknown", "the rest", made.place, origin="", level=Level.UNTESTED, note=note)
        return replace(made, steps=(*made.steps, end))

    def _function(self, ref: Ref) -> Hop:
        index = self.context.index
        function = index.functions_of(ref)[-1]
        steps = self.follower.body(ref.module, function, None)
        place = index.place(ref.module, function.line)
        return Hop("function", ref.name, place, steps=steps, note="" if steps else _NOTHING)

    def _class(self, ref: Ref) -> Hop:
        index = self.context.index
        known = index.class_of(ref)
        assert known is not None
        registered = Registrations(self.context, self.entry_points).of(ref)
        parts = tuple(self._parts(ref))
        kind = "backend" if parts else "class"
        if not parts:
            parts = tuple(self._methods(ref))
        note = "" if parts else _NOTHING
        place = index.place(ref.module, known.line)
        return Hop(kind, ref.name, place, note=note, steps=(*registered, *parts))

    # Parts of a backend

    def _parts(self, ref: Ref) -> Iterator[Hop]:
        for method, kind in _GIVES_CLASS.items():
            holder = self._holder(ref, method)
            if holder is None:
                continue
            module, function, owner = holder
            place = self.context.index.place(module, function.line)
            returned = self._returned_class(module, function, owner)
            if returned is None:
                note = f"what {method} returns cannot be followed"
                yield Hop("unknown", method, place, origin="", level=Level.UNTESTED, note=note)
                continue
            yield self._part(kind, returned, f"by {method}, {place}")
            if kind == "implementation":
                yield from self._layers(returned)

    def _part(self, kind: str, ref: Ref, note: str) -> Hop:
        index = self.context.index
        line = getattr(index.class_of(ref), "line", 1)
        steps = tuple(self._methods(ref))
        if kind == "builder":
            steps = (*self._taken(b"get_builder_cls"), *steps)
        origin = self.follower.origin(ref.module)
        place = index.place(ref.module, line)
        return Hop(kind, ref.name, place, origin=origin, note=note, steps=steps)

    def _holder(self, ref: Ref, method: str) -> tuple[str, Function, Class] | None:
        for module, known in self.context.index.lineage(ref).classes:
            functions = known.methods.get(method)
            if functions and not functions[-1].is_abstract and not functions[-1].only_raises:
                return module, functions[-1], known
        return None

    def _returned_class(self, module: str, function: Function, owner: Class) -> Ref | None:
        file = self.follower.file_of(module, function, owner)
        node = function_at(file, function.line) if file is not None else None
        for part in ast.walk(node) if node is not None else ():
            if isinstance(part, ast.Return) and isinstance(part.value, ast.Name | ast.Attribute):
                assert file is not None
                for value in self.context.inference.values(file, part.value):
                    if isinstance(value, Ref) and value.kind == "class":
                        return value
        return None

    def _methods(self, ref: Ref) -> Iterator[Hop]:
        """The methods that the target calls, inherited ones too, where they lead to a kernel."""
        self.follower.receiver = ref
        lineage = self.context.index.lineage(ref).classes
        names = [n for n in _ENTRY_METHODS if any(n in c.methods for _, c in lineage)]
        own = getattr(self.context.index.class_of(ref), "methods", {})
        names += [n for n in own if n.startswith("forward") and n not in names]
        if not any(n in own for n in names if not n.startswith("__")):
            names += [n for n in own if not n.startswith("_")]
        for name in dict.fromkeys(names):
            for module, known in lineage:
                functions = known.methods.get(name)
                if functions:
                    yield from self._method(module, known, functions[-1])
                    break

    def _method(self, module: str, known: Class, function: Function) -> Iterator[Hop]:
        steps = self.follower.method(module, function, known)
        if not steps:
            return
        place = self.context.index.place(module, function.line)
        note = "" if self.context.index.is_tree(module) else "inherited"
        yield Hop(
            "method", f"{known.name}.{function.name}", place, (), tags_of([], [function.name]),
            self.follower.origin(module), note=note, steps=steps,
        )  # fmt: skip

    # Layers

    def _layers(self, implementation: Ref) -> Iterator[Hop]:
        """Layers that make the implementation and call its methods."""
        lineage = self.context.index.lineage(implementation).classes
        has = {name for _, known in lineage for name in known.methods}
        for module, layer, function in self._binders(b"get_impl_cls"):
            known = self.context.index.class_of(Ref("class", module, layer))
            if known is None or "impl" not in known.attributes:
                continue
            hop = self._layer(module, known, function, has)
            if hop is not None:
                yield hop

    def _layer(self, module: str, known: Class, line: int, has: set[str]) -> Hop | None:
        index = self.context.index
        follower = self.follower
        follower.receiver = Ref("class", module, known.name)
        follower.bound, follower.methods = "impl", frozenset(has)
        steps = [
            Hop(
                "method", f"{known.name}.{name}", index.place(module, f.line), (), (),
                follower.origin(module), steps=made,
            )
            for name in ("forward", "process_weights_after_loading")
            for f in known.methods.get(name, ())[-1:]
            if (made := follower.method(module, f, known))
        ]  # fmt: skip
        called = {n.rpartition(".")[2] for s in steps for n in _bound_names(s)}
        forwards = {name for name in called if name.startswith("forward")}
        if not forwards & has:
            return None
        note = "makes the implementation that get_impl_cls gives"
        if index.is_tree(module) and not self._is_used(module, known.name):
            note += "; no other file of the tree names this class"
        return Hop(
            "layer", known.name, index.place(module, line), (), (), follower.origin(module), note=note,
            steps=tuple(steps),
        )  # fmt: skip

    def _is_used(self, module: str, name: str) -> bool:
        own = self.context.index.path_of(module)
        word = re.compile(rf"\b{re.escape(name)}\b")
        return any(word.search(f.source.text) for p, f in self.context.files.items() if p != own)

    def _taken(self, method: bytes) -> Iterator[Hop]:
        """Places of the target and the tree that ask a backend for its class."""
        index = self.context.index
        for module, raw in self._asking(method):
            for match in _PARTS.finditer(raw):
                if match[1] == method:
                    line = raw.count(b"\n", 0, match.start()) + 1
                    name = _around(raw, match.start())[0]
                    yield Hop("binding", f"{method.decode()}() in {name}", index.place(module, line),
                              origin=self.follower.origin(module))  # fmt: skip

    def _binders(self, method: bytes) -> Iterator[tuple[str, str, int]]:
        """Module, class and line where a class asks a backend for its part."""
        for module, raw in self._asking(method):
            for match in _PARTS.finditer(raw):
                _, owner = _around(raw, match.start())
                if match[1] == method and owner:
                    yield module, owner, raw.count(b"\n", 0, match.start()) + 1

    def _asking(self, method: bytes) -> Iterator[tuple[str, bytes]]:
        index = self.context.index
        text = f".{method.decode()}()"
        for path in paths_of_plugin(self.context):
            file: SourceFile = self.context.files[path]
            if text in file.source.text:
                yield index.module_of(path), file.source.text.encode()
        if index.target is not None:
            by_path = {path: module for module, path in index.target.modules.items()}
            yield from ((by_path[p], raw) for p, raw in index.target.mentioning(text))


_NOTHING = "no call in it leads to a kernel"


def _around(raw: bytes, offset: int) -> tuple[str, str]:
    """Names of the function and of the class around a place of a source, by indentation alone."""
    start = raw.rfind(b"\n", 0, offset) + 1
    indent = len(raw[start:offset]) - len(raw[start:offset].lstrip())
    function = owner = ""
    for match in reversed(list(_FUNCTION.finditer(raw, 0, start))):
        if len(match[1]) < indent:
            indent = len(match[1])
            if match[2] == b"class":
                owner = match[3].decode()
                break
            function = match[3].decode()
        if indent == 0:
            break
    return (f"{owner}.{function}".strip("."), owner)


def _bound_names(hop: Hop) -> Iterator[str]:
    if hop.kind == "binding":
        yield hop.name
    for step in hop.steps:
        yield from _bound_names(step)
