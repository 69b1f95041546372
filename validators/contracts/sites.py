"""Finds the calls that lead to a contract's entry point, wherever the name was passed through."""

from __future__ import annotations

import ast
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attngate.validators.contracts.match import Arguments
from attngate.validators.contracts.objects import Objects
from attngate.validators.index import Foreign
from attngate.validators.resolve import (
    FUNCTIONS,
    Definition,
    External,
    Module,
    Nothing,
    Partial,
    Resolver,
    Unknown,
    Value,
    last_name,
)
from attngate.validators.symbols import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from attngate.validators.contracts.schema import Build, Entry, Family
    from attngate.validators.infer import Inference
    from attngate.validators.names import FunctionNode, Names


@dataclass(frozen=True, slots=True)
class Target:
    """What a call may lead to.

    Attributes:
        path: Dotted path outside the tree.
        family: The contract file that knows it.
        choices: Builds that have the entry point, with what each says; empty where none is recorded.
        reason: Why nothing is recorded, "" where something is.
        partials: Partial applications on the way, the outermost first.
    """

    path: str
    family: Family
    choices: tuple[tuple[Build, Entry], ...]
    reason: str = ""
    partials: tuple[Partial, ...] = ()


@dataclass(frozen=True, slots=True)
class Site:
    """One call.

    Attributes:
        module: Where it stands.
        call: The call.
        targets: What it may lead to.
        doubts: What else the callee may be, as reasons; not empty means that the call is not decided.
        is_partial: True where the entry point is not called but prepared by `functools.partial`.
        forward: The call inside a function of the tree that hands this call's further keywords on.
    """

    module: Module
    call: ast.Call
    targets: tuple[Target, ...]
    doubts: tuple[str, ...] = ()
    is_partial: bool = False
    forward: Forward | None = None


@dataclass(frozen=True, slots=True)
class Forward:
    """A function that hands `**kwargs` on to an entry point.

    Attributes:
        module: Where it stands.
        function: The function.
        call: The one call that the keywords reach.
        targets: What that call may lead to.
        kept: Keywords that the function takes out before.
    """

    module: Module
    function: FunctionNode
    call: ast.Call
    targets: tuple[Target, ...]
    kept: frozenset[str]

    def reaches(self, keyword: str | None) -> bool:
        """True for a keyword that a caller passes through."""
        arguments = self.function.args
        named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        return keyword not in self.kept and keyword not in {a.arg for a in named}


@dataclass(eq=False)
class SiteFinder:
    """Scans the files that can hold such a call, following aliases and parameters into further files.

    Attributes:
        consulted: File that was scanned to the files that were looked into for it.
    """

    resolver: Resolver
    families: tuple[Family, ...]
    consulted: dict[str, set[str]] = field(default_factory=dict)
    _known: dict[str, Target] = field(default_factory=dict)
    _entry_names: dict[str, Family] = field(default_factory=dict)
    inference: Inference | None = None
    _operators: dict[str, list[Target]] = field(default_factory=dict)
    _reached: dict[str, Target] = field(default_factory=dict)
    _owners: set[str] = field(default_factory=set)
    _methods: set[str] = field(default_factory=set)
    _exported: set[str] = field(default_factory=set)
    _local: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for family in self.families:
            by_path: dict[str, list[tuple[Build, Entry]]] = {}
            for build in family.builds:
                for entry in build.entries:
                    if entry.owner:
                        self._owners.add(entry.owner)
                        self._methods.add(entry.name.rpartition(".")[2])
                    else:
                        self._entry_names[entry.name] = family
                    for path in entry.paths:
                        by_path.setdefault(path, []).append((build, entry))
            for path, choices in by_path.items():
                target = self._known[path] = Target(path, family, tuple(choices))
                build, entry = choices[0]
                if build.signatures == "target":
                    self._operators.setdefault(entry.name, []).append(target)
                if entry.reached_by:
                    self._reached[entry.reached_by] = target

    def sites(self, only: Iterable[str] | None = None) -> list[Site]:
        """Every call of an entry point in the tree, in order of path and line.

        Args:
            only: Files to look into, where what the others hold is known; None for all that can hold
                such a call. Files that these lead to are looked into as well.
        """
        waiting = (
            list(only)
            if only is not None
            else [p for p, f in self.resolver.files.items() if self._may_hold_one(f.source.text)]
        )
        found: dict[str, list[Site]] = {}
        while waiting:
            path = waiting.pop()
            words = set(self._exported)
            marked = {p: len(w) for p, w in self._local.items()}
            outer, self.resolver.consulted = self.resolver.consulted, set()
            with self._noting(path):
                self._follow_aliases(path)
                found[path] = list(self._scan(path))
            self.consulted[path].update(self.resolver.consulted)
            self.resolver.consulted |= outer
            again = [p for p, w in self._local.items() if len(w) != marked.get(p, 0)]
            fresh = [p for p in self._files_with(self._exported - words) if p != path]
            waiting += [p for p in dict.fromkeys(again + fresh) if p not in waiting]
        sites = [site for path in sorted(found) for site in found[path]]
        return sorted(sites, key=lambda s: (s.module.file.path, s.call.lineno, s.call.col_offset))

    @contextmanager
    def _noting(self, path: str) -> Iterator[None]:
        """Note the files that the inference looks into for a file."""
        noted = self.consulted.setdefault(path, set())
        if self.inference is None:
            yield
            return
        index = self.inference.index
        outer, index.used = index.used, set()
        yield
        noted |= index.used
        index.used |= outer

    @property
    def watched(self) -> set[str]:
        """Words that make a file worth a look."""
        return {*self._entry_names, *self._exported, *self._owners}

    @property
    def aliases(self) -> tuple[set[str], dict[str, set[str]]]:
        """Names that stand for entry points: those any file may see, and those of each file."""
        return self._exported, self._local

    def resume(self, exported: Iterable[str], local: Mapping[str, Iterable[str]]) -> None:
        """Begin with the names of an earlier scan; one that no longer stands for anything does no harm."""
        self._exported.update(exported)
        for path, words in local.items():
            self._local.setdefault(path, set()).update(words)

    def _may_hold_one(self, text: str) -> bool:
        """True for a file in which an entry point, or the class of one, is named."""
        return self._is_worth_a_look(text) or any(owner in text for owner in self._owners)

    def _is_worth_a_look(self, text: str) -> bool:
        """True where an entry point can come in: only its own name can begin a chain of aliases."""
        return any(name in text for name in self._entry_names)

    def _files_with(self, words: set[str]) -> list[str]:
        """Files that hold one of the words; a part of a longer word is no harm, only a look too many."""
        return [p for p, f in self.resolver.files.items() if any(w in f.source.text for w in words)]

    def _mentions(self, path: str, node: ast.AST) -> bool:
        """True where a name in the expression may stand for an entry point."""
        local = self._local.get(path, ())
        for part in ast.walk(node):
            word = _word(part)
            if word and (word in local or word in self._exported or self._is_worth_a_look(word)):
                return True
        return False

    # Where one call leads

    def target_at(self, path: str) -> Target | None:
        """The entry point at a path outside the tree."""
        return self._known.get(path)

    def leads(self, module: Module, call: ast.Call) -> list[Target | Definition | None]:
        """What a call may lead to: entry points, functions of the tree, None for what is not known."""
        found: list[Target | Definition | None] = []
        for value in self.resolver.values(module, call.func):
            target = self._target(value)
            if target is not None:
                found.append(target if target.choices else None)
            elif not isinstance(value, Nothing):
                found.append(value if isinstance(value, Definition) else None)
        if None not in found or not isinstance(call.func, ast.Attribute):
            return found
        sites = list(self._method_site(module, call, call.func))
        return [t for site in sites for t in site.targets] or found

    def forwarded(self, site: Site, forward: Forward) -> Arguments:
        """What reaches an entry point through a function that hands keywords on."""
        arguments = Arguments(site.call)
        arguments.add(forward.call, forward.call.args, forward.module.names)
        arguments.open_keywords = any(k.arg is None for k in site.call.keywords)
        for keyword in site.call.keywords:
            if keyword.arg is not None and forward.reaches(keyword.arg):
                arguments.keywords[keyword.arg] = (keyword.value, keyword)
        return arguments

    def arguments(self, module: Module, call: ast.Call, target: Target) -> Arguments:
        """What a call passes to an entry point, partial applications on the way included."""
        arguments = Arguments(call)
        for partial in reversed(target.partials):
            names = self.resolver.files[partial.file].source.names
            arguments.add(partial.call, partial.call.args[1:], names)
        arguments.add(call, call.args, module.names)
        return arguments

    # Aliases

    def _follow_aliases(self, path: str) -> None:
        """Learn the names that this file gives to an entry point, and those that others can see."""
        module = self.resolver.module_at(path)
        local = self._local.setdefault(path, set())
        for scope in module.names.scopes.values():
            for name, bindings in scope.bindings.items():
                if any(self._aliases(module, b.how, b.of) for b in bindings):
                    local.add(name)
                    self._export(scope, name)
        for node in ast.walk(module.names.tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [t.attr for t in targets if isinstance(t, ast.Attribute)]
                if names and self._aliases(module, node.value, None):
                    local.update(names)
                    self._exported.update(n for n in names if not self._is_worth_a_look(n))

    def _aliases(self, module: Module, how: ast.AST | None, of: ast.ImportFrom | None) -> bool:
        path = module.file.path
        if isinstance(how, ast.alias):
            return of is not None and (how.name in self._entry_names or how.name in self._exported)
        if not isinstance(how, ast.Name | ast.Attribute | ast.IfExp | ast.BoolOp | ast.Call):
            return False
        if not self._mentions(path, how):
            return False
        return any(self._target(v) for v in self.resolver.values(module, how))

    def _export(self, scope: Names, name: str) -> None:
        if scope.outer is None and not self._is_worth_a_look(name):
            self._exported.add(name)

    # Calls

    def _scan(self, path: str) -> Iterator[Site]:
        module = self.resolver.module_at(path)
        for call in module.names.calls:
            if self._mentions(path, call.func):
                yield from self._site(module, call, call.func)
                self._export_forwarder(module, call)
            elif isinstance(call.func, ast.Attribute) and call.func.attr in self._methods:
                yield from self._method_site(module, call, call.func)
            passed = [*call.args, *(k.value for k in call.keywords)]
            for argument in passed:
                if isinstance(argument, ast.Name | ast.Attribute) and self._mentions(
                    path, argument
                ):
                    yield from self._passed_on(module, call, argument)

    def _site(self, module: Module, call: ast.Call, func: ast.expr) -> Iterator[Site]:
        values = self.resolver.values(module, func)
        targets = tuple(t for v in values if (t := self._target(v)))
        if not targets and len(values) == 1 and isinstance(values[0], Definition):
            forward = self._forward_of(values[0])
            if forward is not None and any(forward.reaches(k.arg) for k in call.keywords):
                yield Site(module, call, forward.targets, forward=forward)
            return
        doubts = tuple(
            _doubt(v)
            for v in values
            if not self._target(v) and not isinstance(v, Nothing) and not _only_raises(v)
        )
        is_named = last_name(func) in self._entry_names
        unfollowed = [v for v in values if isinstance(v, Unknown)]
        if not targets and is_named and unfollowed and len(unfollowed) == len(doubts):
            family = self._entry_names[last_name(func)]
            targets = (Target(ast.unparse(func), family, (), unfollowed[0].reason),)
        if targets:
            yield Site(module, call, targets, doubts)

    def _export_forwarder(self, module: Module, call: ast.Call) -> None:
        """Let callers of the function around be looked at, where it hands its keywords on to the call."""
        scope = module.names.scope_of(call).node
        if isinstance(scope, FUNCTIONS) and scope.args.kwarg is not None:
            is_common = scope.name.startswith(("__", "forward"))
            if not is_common and self._forward_of(Definition(module.file.path, scope)) is not None:
                self._exported.add(scope.name)

    def _forward_of(self, value: Definition) -> Forward | None:
        """What becomes of a function's `**kwargs`, where one call of an entry point gets them all."""
        node = value.node
        if not isinstance(node, FUNCTIONS) or node.args.kwarg is None:
            return None
        module = self.resolver.module_at(value.file)
        names = module.names
        calls: list[ast.Call] = []
        kept: set[str] = set()
        for part in ast.walk(node):
            if not isinstance(part, ast.Name) or part.id != node.args.kwarg.arg:
                continue
            parent = names.parents.get(part)
            around = names.parents.get(parent) if parent is not None else None
            if (
                isinstance(parent, ast.keyword)
                and parent.arg is None
                and isinstance(around, ast.Call)
            ):
                calls.append(around)
            elif not _is_harmless(parent, around, kept):
                return None
        if len(calls) != 1:
            return None
        leads = self.leads(module, calls[0])
        targets = tuple(t for t in leads if isinstance(t, Target))
        if not targets or len(targets) != len(leads):
            return None
        return Forward(module, node, calls[0], targets, frozenset(kept))

    def _method_site(self, module: Module, call: ast.Call, func: ast.Attribute) -> Iterator[Site]:
        """A method of a component's class, where everything the object can be is such a class."""
        for end, reached in self._reached.items():
            chain = dotted(func)
            if chain.endswith(f".{end}") and reached.family.name in module.file.source.text:
                yield Site(module, call, (reached,))
                return
        if self.inference is None or func.attr not in self._methods:
            return
        values = self.inference.values(module.file, func)
        paths = {v.path for v in values if isinstance(v, Foreign)} if values else set()
        if len(paths) != len(values):
            objects = Objects(self.resolver, self.inference)
            classes = objects.classes(module, func.value)
            paths = {f"{path}.{func.attr}" for path in classes or ()}
        known = tuple(self._known[path] for path in sorted(paths) if path in self._known)
        if known and len(known) == len(paths):
            yield Site(module, call, known)

    def _passed_on(self, module: Module, call: ast.Call, argument: ast.expr) -> Iterator[Site]:
        """An entry point given to a function of the tree, or prepared by `functools.partial`."""
        targets = tuple(t for v in self.resolver.values(module, argument) if (t := self._target(v)))
        if not targets:
            return
        for callee in self.resolver.values(module, call.func):
            if isinstance(callee, External) and callee.path == "functools.partial":
                yield Site(module, call, targets, is_partial=True)
            elif isinstance(callee, Definition):
                self._mark_parameter(callee, call, argument)

    def _mark_parameter(self, callee: Definition, call: ast.Call, argument: ast.expr) -> None:
        for function in _functions(callee):
            arguments = function.args
            named = [
                a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            ]
            words = [k.arg for k in call.keywords if k.value is argument and k.arg in named]
            if argument in call.args:
                skip = 1 if callee.instance or isinstance(callee.node, ast.ClassDef) else 0
                position = call.args.index(argument) + skip
                words += named[position : position + 1]
            self._local.setdefault(callee.file, set()).update(w for w in words if w)

    def _target(self, value: Value) -> Target | None:
        partials: list[Partial] = []
        while isinstance(value, Partial):
            partials.append(value)
            value = value.of
        if isinstance(value, Definition):
            return self._own_operator(value, tuple(partials))
        if not isinstance(value, External):
            return None
        known = self._known.get(value.path)
        if known is not None:
            return Target(known.path, known.family, known.choices, "", tuple(partials))
        family = self._entry_names.get(value.path.rpartition(".")[2])
        for reexport in family.reexports if family is not None else ():
            if value.path.startswith(f"{reexport.prefix}.") and family is not None:
                return Target(value.path, family, (), reexport.reason, tuple(partials))
        return None

    def _own_operator(self, value: Definition, partials: tuple[Partial, ...]) -> Target | None:
        """The tree's own version of one of the target's operators, by its name and parameters."""
        if not isinstance(value.node, FUNCTIONS) or value.instance:
            return None
        given = [a.arg for a in (*value.node.args.posonlyargs, *value.node.args.args)]
        for target in self._operators.get(value.node.name, ()):
            entry = target.choices[0][1]
            needed = [p.name for p in entry.signature.positional if p.required]
            if given[: len(needed)] == needed:
                return Target(target.path, target.family, target.choices, "", partials)
        return None


def _is_harmless(parent: ast.AST | None, around: ast.AST | None, kept: set[str]) -> bool:
    """True where `kwargs` is only asked, or a named keyword is taken out of it or put in."""
    word = None
    if isinstance(parent, ast.Attribute) and isinstance(around, ast.Call) and around.args:
        word = around.args[0] if parent.attr in ("pop", "get", "setdefault") else None
    elif isinstance(parent, ast.Subscript):
        word = parent.slice
    elif isinstance(parent, ast.Compare):
        return True
    if not isinstance(word, ast.Constant) or not isinstance(word.value, str):
        return False
    kept.add(word.value)
    return True


def _only_raises(value: Value) -> bool:
    """True for a function that says what is missing: how it is called makes no difference."""
    if not isinstance(value, Definition) or not isinstance(value.node, FUNCTIONS):
        return False
    body = [s for s in value.node.body if not isinstance(s, ast.Expr | ast.Assign | ast.AnnAssign)]
    return [type(statement) for statement in body] == [ast.Raise]


def _functions(callee: Definition) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    if not isinstance(callee.node, ast.ClassDef):
        return [callee.node]
    return [n for n in callee.node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]


def _word(node: ast.AST) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case ast.Constant(value=str(text)):
            return text
    return ""


def _doubt(value: Value) -> str:
    match value:
        case External():
            return f"it may also be {value.path}"
        case Definition():
            return f"it may also be {value.node.name} of {value.file}"
        case Partial():
            return "it may also be another partial application"
        case Unknown():
            return value.reason
    return "it may also be a module"
