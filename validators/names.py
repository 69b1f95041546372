"""Names of one file: which statements bind a name, and which of them reach a place.

Purely syntactic: nothing here knows what a value is. A name inside a function sees the bindings that
can reach the statement it stands in; a name of an outer scope sees those that are left at its end.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
ScopeNode = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LEAVES_BLOCK = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True, eq=False)
class Binding:
    """One place that gives a name a value.

    Attributes:
        name: The name.
        how: The syntax that binds it: an alias, an assigned expression, a definition, a parameter; None
            for what is not followed (loops, `with`, unpacking, deletion).
        statement: The statement it stands in.
        of: For `from ... import name`, the statement with the module; else None.
        element: Position in a tuple that is unpacked, None for a plain assignment.
    """

    name: str
    how: ast.AST | None
    statement: ast.AST
    of: ast.ImportFrom | None = None
    element: int | None = None


@dataclass(eq=False)
class Names:
    """The names that one scope binds."""

    node: ScopeNode
    outer: Names | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    stars: list[ast.ImportFrom] = field(default_factory=list)
    elsewhere: dict[str, str] = field(default_factory=dict)

    @property
    def is_class(self) -> bool:
        """True for a class body, whose names its methods do not see."""
        return isinstance(self.node, ast.ClassDef)

    def module(self) -> Names:
        """The outermost scope."""
        return self if self.outer is None else self.outer.module()


class FileNames:
    """The scopes of a file, and who is whose parent in its syntax tree."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, Names] = {}
        self.calls: list[ast.Call] = []
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.attributes: list[ast.Attribute] = []
        self.strings: list[ast.Constant] = []
        self.loads: list[ast.Name] = []
        self.comparisons: list[ast.Compare] = []
        self.asserted: list[ast.Assert] = []
        self.module = Names(tree, None)
        self.scopes[tree] = self.module
        _Binder(self).fill(tree, self.module)

    def scope_of(self, node: ast.AST) -> Names:
        """The scope in which an expression or statement is evaluated."""
        child, parent = node, self.parents.get(node)
        while parent is not None:
            if isinstance(parent, SCOPES) and _is_inside(parent, child):
                return self.scopes[parent]
            child, parent = parent, self.parents.get(parent)
        return self.module

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement that holds a node."""
        found: ast.AST | None = node
        while found is not None and not isinstance(found, ast.stmt):
            found = self.parents.get(found)
        return found

    def precedes(self, statement: ast.stmt, node: ast.AST) -> bool:
        """True where a statement stands before a node in the same block, or in one around it."""
        for block in _blocks(self.parents[statement]):
            if statement in block:
                later = block[block.index(statement) + 1 :]
                found: ast.AST | None = node
                while found is not None and found not in later:
                    found = self.parents.get(found)
                return found is not None
        return False

    def reaching(self, name: str, scope: Names, place: ast.AST | None) -> list[Binding]:
        """The bindings of `name` in `scope` that can reach a place; None for the scope's end.

        Without one that provably comes last all candidates are returned, in order of the text.
        """
        candidates = scope.bindings.get(name, [])
        if len(candidates) < 2:
            return candidates
        found: list[Binding] = []
        for bindings, is_last in self._backwards(candidates, scope, place):
            found.extend(b for b in bindings if b not in found)
            if is_last:
                break
        else:
            found.extend(b for b in candidates if isinstance(b.how, ast.arg) and b not in found)
        return sorted(found or candidates, key=candidates.index)

    def _backwards(
        self, candidates: list[Binding], scope: Names, place: ast.AST | None
    ) -> Iterator[tuple[list[Binding], bool]]:
        """Groups of bindings from `place` towards the scope's start, and whether one must have run."""
        if place is None:
            body = getattr(scope.node, "body", [])
            yield from self._before(body if isinstance(body, list) else [], candidates)
            return
        node: ast.AST = place
        while node is not scope.node:
            parent = self.parents[node]
            for block in _blocks(parent):
                if node in block:
                    yield from self._before(block[: block.index(node)], candidates)  # type: ignore[arg-type]
            yield from self._inside_of(parent, node, candidates)
            header = [b for b in candidates if b.statement is parent]
            if header:
                yield header, isinstance(parent, ast.With | ast.AsyncWith | ast.ExceptHandler)
            node = parent

    def _inside_of(
        self, parent: ast.AST, node: ast.AST, candidates: list[Binding]
    ) -> Iterator[tuple[list[Binding], bool]]:
        """What a loop or a `try` around the place adds: a later round, or a part that ran before."""
        if isinstance(parent, ast.For | ast.AsyncFor | ast.While):
            yield self._within(parent, candidates), False
        elif isinstance(parent, ast.Try) and node not in parent.body:
            before = [b for s in parent.body for b in self._within(s, candidates)]
            yield before, node in parent.orelse and _surely_binds(parent.body, before)

    def _before(
        self, block: list[ast.stmt], candidates: list[Binding]
    ) -> Iterator[tuple[list[Binding], bool]]:
        for statement in reversed(block):
            within = self._within(statement, candidates)
            if within:
                yield within, _surely_binds([statement], within)

    def _within(self, statement: ast.AST, candidates: list[Binding]) -> list[Binding]:
        return [b for b in candidates if self._holds(statement, b.statement)]

    def _holds(self, outer: ast.AST, inner: ast.AST | None) -> bool:
        while inner is not None:
            if inner is outer:
                return True
            inner = self.parents.get(inner)
        return False


def _is_inside(scope: ast.AST, child: ast.AST) -> bool:
    """False for decorators, defaults, annotations and bases: they belong to the scope around."""
    if isinstance(scope, ast.Module):
        return True
    body = scope.body  # type: ignore[attr-defined]
    return child in body if isinstance(body, list) else child is body


def _blocks(node: ast.AST) -> list[list[ast.AST]]:
    names = ("body", "orelse", "finalbody")
    return [b for b in (getattr(node, name, None) for name in names) if isinstance(b, list)]


def _surely_binds(block: list[ast.stmt], bindings: list[Binding]) -> bool:
    """True where running the block to its end must have run one of the bindings."""
    statements = {
        b.statement for b in bindings if not isinstance(b.statement, ast.For | ast.AsyncFor)
    }
    return any(_statement_binds(s, statements, bindings) for s in block)


def _statement_binds(node: ast.stmt, statements: set[ast.AST], bindings: list[Binding]) -> bool:
    if node in statements:
        return True
    if isinstance(node, ast.If):
        return all(_ends(b) or _surely_binds(b, bindings) for b in (node.body, node.orelse))
    if isinstance(node, ast.With | ast.AsyncWith):
        return _surely_binds(node.body, bindings)
    if isinstance(node, ast.Try):
        handled = all(_ends(h.body) or _surely_binds(h.body, bindings) for h in node.handlers)
        tried = _surely_binds(node.body + node.orelse, bindings)
        return (tried and handled) or _surely_binds(node.finalbody, bindings)
    return False


def _ends(block: list[ast.stmt]) -> bool:
    return bool(block) and isinstance(block[-1], _LEAVES_BLOCK)


def _children(node: ast.AST) -> list[ast.AST]:
    """The nodes below one in order of the text; `ast.iter_child_nodes` takes three times as long."""
    found: list[ast.AST] = []
    for value in node.__dict__.values():
        if type(value) is list:
            found += [part for part in value if isinstance(part, ast.AST)]
        elif isinstance(value, ast.AST) and type(value) not in _CONTEXTS:
            found.append(value)
    return found


_CONTEXTS = frozenset([ast.Load, ast.Store, ast.Del])
_OWN_SCOPE = frozenset([ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef])
_BINDS = frozenset(
    [
        ast.Import,
        ast.ImportFrom,
        ast.Assign,
        ast.AnnAssign,
        ast.NamedExpr,
        ast.ExceptHandler,
        ast.Global,
        ast.Nonlocal,
        ast.MatchAs,
        ast.MatchStar,
    ]
)


class _Binder:
    """Fills the scopes of a file, one statement at a time."""

    def __init__(self, names: FileNames) -> None:
        self._names = names

    def fill(self, node: ast.AST, scope: Names) -> None:
        parents = self._names.parents
        for child in _children(node):
            parents[child] = node
            self._visit(child, scope)

    def _visit(self, node: ast.AST, scope: Names) -> None:  # noqa: C901 (the hot loop)
        kind = type(node)
        if kind is ast.Constant:
            if type(node.value) is str:  # type: ignore[attr-defined]
                self._names.strings.append(node)  # type: ignore[arg-type]
            return
        if kind is ast.Name:
            self._named(node, scope)  # type: ignore[arg-type]
            return
        if kind in _OWN_SCOPE:
            if kind is ast.ClassDef:
                self._class(node, scope)  # type: ignore[arg-type]
            else:
                self._function(node, scope)  # type: ignore[arg-type]
            return
        if kind is ast.Call:
            self._names.calls.append(node)  # type: ignore[arg-type]
        elif kind is ast.Attribute:
            self._names.attributes.append(node)  # type: ignore[arg-type]
        elif kind is ast.Compare:
            self._names.comparisons.append(node)  # type: ignore[arg-type]
        elif kind is ast.Assert:
            self._names.asserted.append(node)  # type: ignore[arg-type]
        elif kind in _BINDS:
            self._bind(node, scope)
        self.fill(node, scope)

    def _named(self, node: ast.Name, scope: Names) -> None:
        if type(node.ctx) is ast.Load:
            self._names.loads.append(node)
        elif not self._is_followed(node):
            self._add(scope, node.id, None, self._names.statement_of(node) or node)

    def _function(self, node: FunctionNode | ast.Lambda, scope: Names) -> None:
        inner = self._names.scopes[node] = Names(node, scope)
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        for argument in [*named, *filter(None, [arguments.vararg, arguments.kwarg])]:
            self._add(inner, argument.arg, argument if argument in named else None, node)
        if not isinstance(node, ast.Lambda):
            self._add(scope, node.name, node, node)
        for child in _children(node):
            self._names.parents[child] = node
            self._visit(child, inner if _is_inside(node, child) else scope)

    def _class(self, node: ast.ClassDef, scope: Names) -> None:
        inner = self._names.scopes[node] = Names(node, scope)
        self._add(scope, node.name, node, node)
        for child in _children(node):
            self._names.parents[child] = node
            self._visit(child, inner if _is_inside(node, child) else scope)

    def _bind(self, node: ast.AST, scope: Names) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self._names.imports.append(node)
                self._import(node, scope)
            case ast.Assign():
                for target in node.targets:
                    self._target(target, node.value, node, scope)
            case ast.AnnAssign() if node.value is not None:
                self._target(node.target, node.value, node, scope)
            case ast.NamedExpr():
                self._target(node.target, node.value, node, scope)
            case ast.ExceptHandler(name=str(name)):
                self._add(scope, name, None, node)
            case _:
                self._declare(node, scope)

    def _declare(self, node: ast.AST, scope: Names) -> None:
        if isinstance(node, ast.Global | ast.Nonlocal):
            kind = "global" if isinstance(node, ast.Global) else "nonlocal"
            scope.elsewhere.update(dict.fromkeys(node.names, kind))
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name is not None:
            self._add(scope, node.name, None, self._names.statement_of(node) or node)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Names) -> None:
        of = node if isinstance(node, ast.ImportFrom) else None
        for alias in node.names:
            if alias.name == "*" and of is not None:
                scope.stars.append(of)
            else:
                name = alias.name if of is not None else alias.name.partition(".")[0]
                self._add(scope, alias.asname or name, alias, node, of=of)

    def _target(self, target: ast.expr, value: ast.expr, node: ast.AST, scope: Names) -> None:
        statement = self._names.statement_of(node) or node
        if isinstance(target, ast.Name):
            self._add(scope, target.id, value, statement)
        elif isinstance(target, ast.Tuple | ast.List):
            for position, part in enumerate(target.elts):
                if isinstance(part, ast.Name):
                    self._add(scope, part.id, value, statement, element=position)

    def _is_followed(self, node: ast.Name) -> bool:
        """True for a stored name that `_target` has already bound."""
        parent = self._names.parents[node]
        if isinstance(parent, ast.Tuple | ast.List):
            parent = self._names.parents[parent]
            return isinstance(parent, ast.Assign)
        return isinstance(parent, ast.Assign | ast.NamedExpr | ast.AnnAssign)

    def _add(
        self,
        scope: Names,
        name: str,
        how: ast.AST | None,
        statement: ast.AST,
        *,
        of: ast.ImportFrom | None = None,
        element: int | None = None,
    ) -> None:
        where = scope.elsewhere.get(name)
        if where == "global":
            scope = scope.module()
        elif where == "nonlocal" and scope.outer is not None:
            scope = scope.outer
        scope.bindings.setdefault(name, []).append(Binding(name, how, statement, of, element))
