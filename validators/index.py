"""Who defines a name: the modules of the plugin and of the target as one space of names.

Everything rests on summaries (`symbols.py`). A lookup follows imports and re-exports to the end and
says plainly when it cannot: `Open` carries the reason, and no rule may make a finding of it.
"""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from attngate.validators.known_bases import members_of_known
from attngate.validators.source import read_source
from attngate.validators.symbols import dotted
from attngate.validators.target import is_built

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from attngate.validators.context import SourceFile
    from attngate.validators.scope import Scope
    from attngate.validators.symbols import Bound, Class, Function, Summary
    from attngate.validators.target import TargetTree

Key = TypeVar("Key")
Answer = TypeVar("Answer")
_MODULE_NAMES = frozenset(
    [
        "__name__", "__file__", "__doc__", "__path__", "__spec__", "__package__", "__loader__",
        "__dict__", "__builtins__", "__annotations__", "__cached__", "__version__", "__all__",
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ref:
    """A thing that is defined: kind "class", "function", "value" or "module"."""

    kind: str
    module: str
    name: str = ""

    def __str__(self) -> str:
        """Its dotted path."""
        return f"{self.module}.{self.name}" if self.name else self.module


@dataclass(frozen=True, slots=True)
class Foreign:
    """A module, or a name in one, that belongs neither to the plugin nor to the target."""

    path: str


@dataclass(frozen=True, slots=True)
class Missing:
    """A name that its module does not define, or a module that is not there (name "")."""

    module: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Open:
    """What cannot be followed, and why."""

    reason: str


Found = Ref | Foreign | Missing | Open


@dataclass(frozen=True, slots=True)
class Lineage:
    """A class and its bases in the order of lookup.

    Attributes:
        classes: Module and summary of each class that is known.
        foreign: Dotted paths of bases outside, known ones (`known_bases`) and unknown ones.
        complete: True where every base is known, so that a name that none has does not exist.
    """

    classes: tuple[tuple[str, Class], ...]
    foreign: tuple[str, ...]
    complete: bool


@dataclass(eq=False)
class Index:
    """Names of a plugin's tree and of its target.

    Args:
        files: The plugin's Python files by path.
        import_roots: Folders of the tree that stand on sys.path.
        target: The target's source; None where there is none, and its names are then foreign.
        generated: Files of the tree that the build writes, so that their absence says nothing.
        kept: Summaries by module of the target that were read before.

    Attributes:
        used: Files of the tree whose summaries the answers so far rest on.
        read: Files of the tree whose very text they rest on.
    """

    files: Mapping[str, SourceFile]
    import_roots: tuple[str, ...]
    target: TargetTree | None
    generated: Scope | None = None
    kept: dict[str, Summary] = field(default_factory=dict)
    _paths: dict[str, str] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _packages: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    _summaries: dict[str, Summary | None] = field(default_factory=dict)
    _lineages: dict[Ref, tuple[Lineage, set[str]]] = field(default_factory=dict)
    _twins: dict[str, str] = field(default_factory=dict)
    _below: dict[tuple[str, str], tuple[list[Ref], set[str]]] = field(default_factory=dict)
    _found: dict[tuple[str, str], tuple[tuple[Found, ...], set[str]]] = field(default_factory=dict)
    _active: set[object] = field(default_factory=set)

    def __post_init__(self) -> None:
        for path in self.files:
            for name in _module_names(path, self.import_roots):
                self._paths.setdefault(name, path)
                self._names.setdefault(path, name)
                while "." in name:
                    name = name.rpartition(".")[0]  # noqa: PLW2901 (each step is the next package up)
                    self._packages.add(name)

    # Modules

    def module_of(self, path: str) -> str:
        """Name of the module in a file of the tree; its path where it is none."""
        return self._names.get(path, path)

    def path_of(self, module: str) -> str:
        """Path of a module's file, in the tree or from the target's folder; "" where it has none."""
        if module in self._paths:
            return self._paths[module]
        return self.target.modules.get(module, "") if self.target is not None else ""

    def is_tree(self, module: str) -> bool:
        """True for a module or package of the plugin's tree."""
        return module in self._paths or module in self._packages

    def is_own(self, module: str) -> bool:
        """True for what belongs to the plugin by its name, existing or not."""
        return module.partition(".")[0] in self.own_packages

    def is_target(self, module: str) -> bool:
        """True for a module or package of the target."""
        target = self.target
        return target is not None and (module in target.modules or module in target.packages)

    def has_module(self, module: str) -> bool:
        """True for a module or package of either."""
        return self.is_tree(module) or self.is_target(module)

    def is_built(self, module: str) -> bool:
        """True for a module that only an installation has."""
        if is_built(module):
            return True
        path = module.replace(".", "/")
        candidates = [f"{path}.py", f"{path}.so", f"{path}/__init__.py"]
        return self.generated is not None and any(map(self.generated.holds, candidates))

    def is_package(self, module: str) -> bool:
        """True for a module that holds others."""
        path = self.path_of(module)
        return not path or path.endswith(("__init__.py", "__init__.pyi"))

    def summary(self, module: str) -> Summary | None:
        """What a module defines; None where it has no file or does not compile."""
        path = self._paths.get(module)
        if path is not None:
            self.used.add(path)
        if module not in self._summaries:
            self._summaries[module] = self._read(module)
        return self._summaries[module]

    def remembered(
        self, table: dict[Key, tuple[Answer, set[str]]], key: Key, work_out: Callable[[], Answer]
    ) -> Answer:
        """An answer that is worked out once; each use of it counts as use of the files behind it."""
        known = table.get(key)
        if known is None:
            outer, self.used = self.used, set()
            try:
                answer = work_out()
            finally:
                inner, self.used = self.used, outer
            known = table[key] = (answer, inner)
        self.used |= known[1]
        return known[0]

    def _read(self, module: str) -> Summary | None:
        path = self._paths.get(module)
        if path is not None:
            return self.files[path].symbols
        if self.target is None or module not in self.target.modules:
            return None
        if module not in self.kept:
            raw = self.target.read(self.target.modules[module])
            if raw is None:
                return None
            source = read_source(raw)
            symbols = source.symbols
            if not source.parses:
                return None
            self.kept[module] = symbols
        return self.kept[module]

    @cached_property
    def own_packages(self) -> frozenset[str]:
        """Top-level names of the tree."""
        return frozenset(name.partition(".")[0] for name in self._paths)

    @cached_property
    def tree_modules(self) -> tuple[str, ...]:
        """Every module of the tree."""
        return tuple(self._paths)

    def absolute(self, module: str, written: str) -> str:
        """The module that an import statement of `module` means, leading dots resolved."""
        level = len(written) - len(written.lstrip("."))
        if not level:
            return written
        parts = module.split(".")
        keep = len(parts) - level + (1 if self.is_package(module) and self.path_of(module) else 0)
        return ".".join(filter(None, [*parts[: max(keep, 0)], written[level:]]))

    def place(self, module: str, line: int) -> str:
        """A line of a module in a user's words, with the target's name where it is the target's."""
        path = self.path_of(module) or module
        where = f"{path} line {line}"
        if module in self._paths or self.target is None:
            return where
        return f"{self.target.label}, {where}"

    # Names

    def lookup(self, module: str, name: str) -> tuple[Found, ...]:
        """Everything that `name` in a module can be; more than one under conditions.

        Args:
            module: Dotted module name.
            name: A name of it, without dots.
        """
        key = (module, name)
        if key in self._active:
            return (Open("the name leads back to itself"),)
        self._active.add(key)
        try:
            return self.remembered(
                self._found, key, lambda: tuple(dict.fromkeys(self._lookup(module, name)))
            )
        finally:
            self._active.discard(key)

    def plainly_defines(self, module: str, name: str) -> bool:
        """True where the target's module defines the name at its top level: seen without parsing it."""
        return self.target is not None and module in self.target.defining.get(name, ())

    def _lookup(self, module: str, name: str) -> Iterator[Found]:
        if not self._is_ours(module):
            yield Foreign(f"{module}.{name}")
            return
        if not self.has_module(module) and self.is_built(module):
            yield Open(f"{module} is made by the build")
            return
        if not self.has_module(module):
            yield Missing(module)
            return
        summary = self.summary(module)
        if summary is None:
            yield from self._without_summary(module, name)
            return
        if self.is_replaced(Ref("module", module), name):
            yield Open(f"the plugin sets {module}.{name}")
            return
        bounds = summary.names.get(name)
        if bounds:
            for bound in bounds:
                yield from self._bound(module, name, bound)
        else:
            yield from self._unbound(module, name, summary)

    def _is_ours(self, module: str) -> bool:
        top = module.partition(".")[0]
        return top in self.own_packages or (self.target is not None and self.target.owns(module))

    def _without_summary(self, module: str, name: str) -> Iterator[Found]:
        full = f"{module}.{name}"
        if self.has_module(full):
            yield Ref("module", full)
        elif self.path_of(module):
            yield Open(f"{module} does not compile")
        elif self.is_built(full):
            yield Open(f"{full} is made by the build")
        else:
            yield Missing(module, name)

    def _bound(self, module: str, name: str, bound: Bound) -> Iterator[Found]:
        match bound.kind:
            case "class" if self.is_target(module) and name in self.patched:
                yield Open(f"the plugin replaces {name}")
            case "class":
                yield Ref("class", module, name)
            case "def":
                yield Ref("function", module, name)
            case "import":
                yield self.module_ref(bound.module)
            case "from":
                source = self.absolute(module, bound.module)
                if source == module and bound.name == name:
                    yield from self._unbound(module, name, None)
                else:
                    yield from self.lookup(source, bound.name)
            case "value" if bound.name.partition(".")[0] != name:
                found = self.resolve(module, bound.name)
                yield from found or [Ref("value", module, name)]
            case _:
                yield Ref("value", module, name)

    def module_ref(self, module: str) -> Found:
        """A module by its dotted name."""
        if self.has_module(module):
            return Ref("module", module)
        if not self._is_ours(module):
            return Foreign(module)
        if not self.has_module(module) and self.is_built(module):
            return Open(f"{module} is made by the build")
        return Missing(module)

    def _unbound(self, module: str, name: str, summary: Summary | None) -> Iterator[Found]:
        full = f"{module}.{name}"
        if self.has_module(full):
            yield Ref("module", full)
            return
        if self.is_built(full):
            yield Open(f"{full} is made by the build")
            return
        if summary is None or name in _MODULE_NAMES:
            yield Ref("value", module, name)
            return
        yield from self._starred(module, name, summary)

    def _starred(self, module: str, name: str, summary: Summary) -> Iterator[Found]:
        doubts: list[Found] = []
        for star in reversed(summary.stars):
            found = self.lookup(self.absolute(module, star), name)
            if not any(isinstance(f, Missing) for f in found):
                if all(isinstance(f, Ref) for f in found):
                    yield from found
                    return
                doubts += found
        reads = summary.getattr_reads
        if summary.is_open:
            doubts.append(Open(f"{module} adds names while it runs"))
        elif reads is not None:
            doubts += self._by_getattr(module, name, summary, reads)
        yield from doubts or [Missing(module, name)]

    def _by_getattr(
        self, module: str, name: str, summary: Summary, reads: tuple[str, ...]
    ) -> Iterator[Found]:
        """A module `__getattr__` that looks into tables has the names of these tables."""
        tables = [summary.tables[r] for r in reads if r in summary.tables]
        if any(name in table for table in tables):
            yield Ref("value", module, name)
        elif not tables:
            yield Open(f"{module} has a __getattr__")

    def resolve(self, module: str, path: str) -> tuple[Found, ...]:
        """What a dotted name written in a module can be, members of classes included."""
        first, *rest = path.split(".")
        found = self.lookup(module, first)
        if all(isinstance(f, Missing) for f in found) and hasattr(builtins, first):
            found = (Foreign(f"builtins.{first}"),)
        for name in rest:
            found = tuple(dict.fromkeys(f for each in found for f in self.member(each, name)))
        return found

    def member(self, owner: Found, name: str) -> tuple[Found, ...]:
        """What an attribute of something is: of a module a name, of a class a nested class."""
        match owner:
            case Ref(kind="module"):
                return self.lookup(owner.module, name)
            case Ref(kind="class"):
                summary = self.summary(owner.module)
                nested = f"{owner.name}.{name}"
                if summary is not None and nested in summary.classes:
                    return (Ref("class", owner.module, nested),)
                return (Open(f"{name} of the class {owner}"),)
            case Foreign():
                return (Foreign(f"{owner.path}.{name}"),)
            case Missing() | Open():
                return (owner,)
        return (Open(f"{name} of {owner}"),)

    # Classes

    def class_of(self, ref: Ref) -> Class | None:
        """The summary of a class."""
        summary = self.summary(ref.module)
        return summary.classes.get(ref.name) if summary is not None else None

    def functions_of(self, ref: Ref) -> list[Function]:
        """The definitions of a function at module level."""
        summary = self.summary(ref.module)
        return summary.functions.get(ref.name, []) if summary is not None else []

    def lineage(self, ref: Ref) -> Lineage:
        """A class with all its bases."""
        if ref in self._active:
            return Lineage((), (), complete=False)
        self._active.add(ref)
        try:
            return self.remembered(self._lineages, ref, lambda: self._lineage(ref))
        finally:
            self._active.discard(ref)

    def _lineage(self, ref: Ref) -> Lineage:
        own = self.class_of(ref)
        if own is None:
            return Lineage((), (str(ref),), complete=False)
        classes: list[tuple[str, Class]] = []
        foreign: list[str] = []
        complete = not own.is_open
        for base in own.bases:
            found = self.base(ref.module, base)
            if not found or len(found) > 1:
                complete = False
            for each in found:
                if isinstance(each, Ref) and each.kind == "class":
                    above = self.lineage(each)
                    classes += above.classes
                    foreign += above.foreign
                    complete = complete and above.complete
                else:
                    path = each.path if isinstance(each, Foreign) else "?"
                    foreign.append(path)
                    complete = complete and members_of_known(path) is not None
        for keyword in own.keywords:
            name, _, text = keyword.partition("=")
            if name == "metaclass" and not self._is_plain_metaclass(ref.module, text):
                complete = False
        ordered = list(dict.fromkeys(reversed([(m, id(c)) for m, c in classes])))
        by_id = {id(c): (m, c) for m, c in classes}
        rest = [by_id[i] for _, i in reversed(ordered)]
        return Lineage(((ref.module, own), *rest), tuple(dict.fromkeys(foreign)), complete)

    def is_dynamic(self, ref: Ref) -> bool:
        """True for a class whose objects answer for names that no statement names."""
        dynamic = {"__getattr__", "__getattribute__"}
        return any(dynamic & known.methods.keys() for _, known in self.lineage(ref).classes)

    def _is_plain_metaclass(self, module: str, text: str) -> bool:
        if text.rpartition(".")[2] in ("ABCMeta", "EnumMeta", "EnumType", "type"):
            return True
        found = self.base(module, text)
        if len(found) != 1 or not isinstance(found[0], Ref) or found[0].kind != "class":
            return False
        meta = self.class_of(found[0])
        return meta is not None and not {"__getattr__", "__getattribute__", "__call__"} & set(
            meta.methods
        )

    def base(self, module: str, text: str) -> tuple[Found, ...]:
        """What the text of a base class means; empty for an expression that is not followed."""
        path = dotted_base(text)
        return self.resolve(module, path) if path else ()

    def foreign_members(self, path: str) -> frozenset[str] | None:
        """Members of a base class outside both, None where they are not known."""
        return members_of_known(path)

    @cached_property
    def _by_base(self) -> dict[str, list[tuple[str, str]]]:
        found: dict[str, list[tuple[str, str]]] = {}
        for module, path in self._paths.items():
            for name, words in self.files[path].facts.classes:
                for word in set(words):
                    found.setdefault(word, []).append((module, name))
        return found

    def derived_from(self, module: str, name: str) -> list[Ref]:
        """Classes of the plugin below a class, at any distance."""
        return self.remembered(
            self._below, (module, name), lambda: list(self._derived_from(module, name))
        )

    def _derived_from(self, module: str, name: str) -> Iterator[Ref]:
        waiting, seen = [name.rpartition(".")[2]], set[tuple[str, str]]()
        while waiting:
            for where, child in self._by_base.get(waiting.pop(), ()):
                if (where, child) in seen:
                    continue
                seen.add((where, child))
                ref = Ref("class", where, child)
                above = self.lineage(ref).classes[1:]
                if any(m == module and c.name == name for m, c in above):
                    yield ref
                    waiting.append(child)

    def is_overridden(self, owner: Ref, method: str) -> bool:
        """True where a class of the plugin below `owner` has a method of its own by that name."""
        return any(
            known is not None and method in known.methods
            for ref in self.derived_from(owner.module, owner.name)
            for known in [self.class_of(ref)]
        )

    def subclass_has(self, owner: Ref, name: str) -> bool:
        """True where a class below `owner`, the plugin's or the target's, has the attribute."""
        for ref in self.derived_from(owner.module, owner.name):
            known = self.class_of(ref)
            if known is not None and (name in known.methods or name in known.attributes):
                return True
        return self.target is not None and self._target_subclass_has(owner, name)

    def _target_subclass_has(self, owner: Ref, name: str) -> bool:
        """The same below the target's classes; found by the text of class statements."""
        assert self.target is not None
        short = owner.name.rpartition(".")[2]
        waiting, seen = [short], {short}
        while waiting:
            word = waiting.pop()
            for module, child in self.target.derived.get(word, ()):
                known = self.class_of(Ref("class", module, child))
                if known is not None and (name in known.methods or name in known.attributes):
                    return True
                if child not in seen:
                    seen.add(child)
                    waiting.append(child)
        return False

    def is_left_abstract(self, module: str, base: str, method: str) -> bool:
        """True where the target itself has a class at the end of a line that leaves the method out."""
        if self.target is None or not self.is_target(module):
            return False
        for where, name in self.target.derived.get(base.rpartition(".")[2], ()):
            ref = Ref("class", where, name)
            known = self.class_of(ref)
            if known is None or name in self.target.derived:
                continue
            lineage = self.lineage(ref)
            if not any(c.name == base and m == module for m, c in lineage.classes):
                continue
            if not any(method in c.methods for m, c in lineage.classes if c.name != base):
                return True
        return False

    # Counterparts

    def counterpart(self, module: str) -> str:
        """The target's module that a module of the plugin stands for, "" where there is none.

        It has the same path below its own package; else, where only one module of the target has the
        same file name and defines one of the same classes or functions, it is that one.
        """
        if module not in self._twins:
            self._twins[module] = self._counterpart(module)
        return self._twins[module]

    def _counterpart(self, module: str) -> str:
        target = self.target
        below = module.partition(".")[2]
        if target is None or not below or module not in self._paths:
            return ""
        same = f"{target.package}.{below}"
        if same in target.modules:
            return same
        last = module.rpartition(".")[2]
        names = self._defined_words(module)
        found = [
            m
            for m in target.by_last_word.get(last, ())
            if any(m in target.defining.get(n, ()) for n in names)
        ]
        if not found:
            found = self._by_class(module)
        return found[0] if len(found) == 1 else ""

    def _defined_words(self, module: str) -> list[str]:
        """Classes and functions at a module's top level, by the text alone."""
        return list(self.files[self._paths[module]].facts.defines)

    def _by_class(self, module: str) -> list[str]:
        """The target's one module that defines a class like one of the plugin's."""
        found: set[str] = set()
        for name, _ in self.files[self._paths[module]].facts.classes if self.target else ():
            found.update(self.target.defining.get(self.target_name(name), ()))  # type: ignore[union-attr]
        return sorted(found)

    @cached_property
    def prefix(self) -> str:
        """What the plugin puts before class names of the target ("Maca"), "" where it does not."""
        count: dict[str, int] = {}
        defining = self.target.defining if self.target is not None else {}
        for path in self._names:
            for name, _ in self.files[path].facts.classes:
                for cut in range(3, min(len(name) - 3, 12)) if name not in defining else ():
                    if name[cut].isupper() and name[cut:] in defining:
                        count[name[:cut]] = count.get(name[:cut], 0) + 1
        return max(count, key=count.__getitem__) if count and max(count.values()) > 1 else ""

    def target_name(self, name: str) -> str:
        """The name that a class of the plugin would have in the target."""
        return name.removeprefix(self.prefix) if self.prefix else name

    def is_broken_in_target(self, module: str, base: str, method: str, taken: set[str]) -> bool:
        """True where the target's own subclasses do not keep to the base's signature either.

        Args:
            module: Module of the base class.
            base: Name of the base class.
            method: The method.
            taken: Parameters that an override of the plugin lacks.
        """
        if self.target is None or self.is_tree(module):
            return False
        for where, name in self.target.derived.get(base.rpartition(".")[2], ()):
            known = self.class_of(Ref("class", where, name))
            functions = known.methods.get(method) if known is not None else None
            if not functions or functions[0].kwargs or functions[0].star:
                continue
            names = {p.name for p in functions[0].params}
            if taken - names or not taken:
                return True
        return False

    def is_called_only_by(
        self, module: str, base: Class, method: str, overridden: set[str]
    ) -> bool:
        """True where only methods of the base that are overridden too call one of its methods."""
        if self.target is None or self.is_tree(module):
            return False
        own = self.target.modules.get(module, "")
        if any(path != own for path, _ in self.target.mentioning(f".{method}(")):
            return False
        callers = {
            name
            for name, functions in base.methods.items()
            for f in functions
            if name != method and f".{method}(" in self.source_lines(module, f.line, f.end)
        }
        return callers <= overridden

    def twins_of(self, source: str) -> list[str]:
        """Modules of the plugin that stand for one of the target."""
        return self._by_counterpart.get(source, [])

    @cached_property
    def _by_counterpart(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for module in self.tree_modules:
            twin = self.counterpart(module)
            if twin:
                found.setdefault(twin, []).append(module)
        return found

    def source_lines(self, module: str, first: int, last: int) -> str:
        """Lines of a module's source, 1-based and inclusive."""
        path = self._paths.get(module)
        if path is not None:
            self.read.add(path)
            return "\n".join(self.files[path].source.lines[first - 1 : last])
        if self.target is None or module not in self.target.modules:
            return ""
        raw = self.target.read(self.target.modules[module]) or b""
        return b"\n".join(raw.splitlines()[first - 1 : last]).decode("utf-8", "replace")

    @cached_property
    def operators(self) -> frozenset[str]:
        """Custom operators that Python code of the plugin or the target registers."""
        found: set[str] = set()
        for module, path in self._paths.items():
            if self.files[path].facts.registers:
                summary = self.summary(module)
                found.update(n for n, _ in summary.operators) if summary is not None else None
        if self.target is not None:
            found |= self.target.operators
        return frozenset(found)

    def is_used_outside(self, module: str, name: str, own: Ref, *, called: bool) -> bool:
        """True where the target takes an attribute of what may be an object of `own`.

        What stands in `module` itself is not counted, nor an attribute of a class that is named, nor
        one of `self` in a module that has no base of `own`.
        """
        if self.target is None:
            return False
        bases = {m for m, _ in self.lineage(own).classes}
        ending = rb"\(" if called else rb"\b"
        pattern = re.compile(rb"(\(\)|\w+|\])\.%b%b" % (re.escape(name).encode(), ending))
        modules = {path: name for name, path in self.target.modules.items()}
        for path, raw in self.target.mentioning(f".{name}(" if called else f".{name}"):
            where = modules.get(path, "")
            owners = {found[1] for found in pattern.finditer(raw)} if where != module else set()
            if where not in bases:
                owners -= {b"self", b"cls", b"()"}
            if any(not word[:1].isupper() for word in owners):
                return True
        return False

    def passes_keyword(self, method: str, keyword: str) -> bool:
        """True where the target calls a method of that name with the keyword."""
        if self.target is None:
            return False
        pattern = re.compile(rb"\.%b\([^)]*\b%b\s*=[^=]" % (method.encode(), keyword.encode()))
        return any(pattern.search(raw) for _, raw in self.target.mentioning(f".{method}(", keyword))

    def counterpart_text(self, path: str) -> str:
        """Source of the target's module that a file stands for, "" without one."""
        twin = self.counterpart(self.module_of(path))
        if not twin or self.target is None:
            return ""
        return (self.target.read(self.target.modules[twin]) or b"").decode("utf-8", "replace")

    def counterpart_says(self, path: str, text: str) -> bool:
        """True where the target's own module has the same words: what it does is no drift."""
        return text in self.counterpart_text(path)

    @cached_property
    def borrowed(self) -> frozenset[str]:
        """Classes of the tree whose functions are given to another class: `self` is that one's then."""
        return frozenset(name for path in self._names for name in self.files[path].facts.borrowed)

    def is_replaced(self, owner: Ref, name: str) -> bool:
        """True where a file of the tree may assign to that attribute of a module or a class."""
        return name in self.patched and any(
            self._sets(path, prefix, owner)
            for path in self._names
            if name in self.files[path].facts.patched
            for prefix in self._patching(path, name)
        )

    def _patching(self, path: str, name: str) -> Iterator[str]:
        """What stands before the name where a file assigns to it."""
        summary = self.summary(self.module_of(path))
        for each in summary.patched if summary is not None else ():
            if each.endswith(f".{name}"):
                yield each[: -len(name) - 1]

    def _sets(self, path: str, prefix: str, owner: Ref) -> bool:
        if prefix.partition(".")[0] in ("self", "cls"):
            return False
        found = self.resolve(self.module_of(path), prefix)
        if owner in found or str(owner) == prefix:
            return True
        # An import inside a function is not seen: what a name means there is told by the name alone.
        is_known = all(isinstance(f, Ref | Foreign) for f in found)
        return not is_known and (owner.kind == "module" or prefix.endswith(owner.name))

    @cached_property
    def patched(self) -> frozenset[str]:
        """Last words of attributes that some file of the tree assigns from outside."""
        return frozenset(name for path in self._names for name in self.files[path].facts.patched)


def dotted_base(text: str) -> str:
    """The dotted name in a base class as written: `Impl[Metadata]` is `Impl`; "" for a call."""
    head = text.partition("[")[0].strip()
    if head.replace(".", "").replace("_", "").isalnum():
        return head
    try:
        return dotted(ast.parse(head, mode="eval").body)
    except SyntaxError:
        return ""


def _module_names(path: str, roots: tuple[str, ...]) -> Iterator[str]:
    for root in roots:
        prefix = f"{root.strip('/')}/" if root.strip("/.") else ""
        if path.startswith(prefix):
            stem = path.removeprefix(prefix).rpartition(".")[0].removesuffix("__init__")
            name = stem.strip("/").replace("/", ".")
            if name:
                yield name
