"""What becomes of a result, and where an argument comes from: facts that no signature shows.

A log-sum-exp is followed from the call that returns it, through local names, transposes and slices, and
through functions of the tree that hand it on, to the call that takes it. Arithmetic on it, a reshaping
or a way that is not followed ends in "not known", and what is not known is never a problem.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from attngate.validators.contracts.match import (
    Arguments,
    Breach,
    Problem,
    bind,
    literal,
    possible_returns,
)
from attngate.validators.resolve import FUNCTIONS, Definition, last_name, self_assignments, short
from attngate.validators.symbols import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.contracts.basis import Basis
    from attngate.validators.contracts.schema import Entry, Lse, Wanted
    from attngate.validators.contracts.sites import Site, SiteFinder, Target
    from attngate.validators.names import Binding, FileNames, Names
    from attngate.validators.resolve import Module

_DEPTH = 12
_LSE = ("lse", "softmax_lse")
_KEEPS = frozenset(["contiguous", "clone", "float", "to", "detach", "double", "cpu", "cuda"])
_RESHAPES = frozenset(
    ["squeeze", "unsqueeze", "view", "reshape", "flatten", "unflatten", "expand", "repeat"]
)
_DIMENSIONS = {"heads": "H", "total_q": "T", "tokens": "T", "q": "T", "batch": "B"}
_ALLOCATES = frozenset(["empty", "zeros", "ones", "full", "new_empty", "new_zeros"])
_TENSOR_ATTRIBUTES = frozenset(
    [
        "size", "shape", "copy_", "dtype", "device", "stride", "to", "clone", "view", "numel",
        "fill_", "contiguous", "data_ptr", "ndim", "dim", "reshape", "cpu", "cuda", "zero_",
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind:
    """What a log-sum-exp is: its base, its dimensions ("H", "T", "B"), and where it comes from."""

    base: str
    dims: tuple[str, ...]
    origin: str


class Builds(Protocol):
    """Knows which builds count for a target."""

    def bases(self, target: Target) -> list[Basis]:
        """Everything a call of the target has to be compared with."""


@dataclass(eq=False)
class Flow:
    """Follows results and arguments of contract calls.

    Args:
        finder: Knows where calls lead.
        builds: Knows which builds count.
    """

    finder: SiteFinder
    builds: Builds

    # Log-sum-exps

    def wrong_lse(self, site: Site, arguments: Arguments, entry: Entry) -> Iterator[Problem]:
        """Log-sum-exps of another base or layout than the call takes."""
        if not entry.wants:
            return
        passed = bind(arguments, entry.signature)
        for name, wanted in entry.wants.items():
            value = passed.get(name)
            kinds = self._trace(site.module, value, _DEPTH) if value is not None else None
            if kinds:
                yield from _mismatch(entry, name, wanted, kinds, passed, value)  # type: ignore[arg-type]

    def _trace(  # noqa: PLR0911 (one form of expression each)
        self, module: Module, node: ast.expr, depth: int, element: int | None = None
    ) -> list[Kind] | None:
        """Everything the expression can be; None where one of it is not known."""
        if depth <= 0:
            return None
        match node:
            case ast.Name():
                return self._name(module, node, depth, element)
            case ast.IfExp():
                return _all(
                    self._trace(module, part, depth - 1, element)
                    for part in (node.body, node.orelse)
                )
            case ast.Tuple() if element is not None and element < len(node.elts):
                return self._trace(module, node.elts[element], depth - 1)
            case ast.Subscript():
                return self._subscript(module, node, depth, element)
            case ast.Attribute(attr="T" | "mT"):
                return _each(self._trace(module, node.value, depth - 1), _swapped)
            case ast.BinOp(op=ast.Mult() | ast.Div()):
                return _each(self._trace(module, node.left, depth - 1), _scaled)
            case ast.Call():
                return self._call(module, node, depth, element)
        return None

    def _name(
        self, module: Module, node: ast.Name, depth: int, element: int | None
    ) -> list[Kind] | None:
        names = module.names
        scope = names.scope_of(node)
        if node.id not in scope.bindings or _is_changed(scope, node.id):
            return None
        found: list[list[Kind] | None] = []
        for binding in names.reaching(node.id, scope, names.statement_of(node)):
            if not isinstance(binding.how, ast.expr):
                return None
            if binding.element is not None and element is not None:
                return None
            chosen = binding.element if binding.element is not None else element
            found.append(self._trace(module, binding.how, depth - 1, chosen))
        return _all(found)

    def _subscript(
        self, module: Module, node: ast.Subscript, depth: int, element: int | None
    ) -> list[Kind] | None:
        known, index = literal(node.slice)
        if known and type(index) is int and element is None:
            return self._trace(module, node.value, depth - 1, index)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if all(isinstance(part, ast.Slice) for part in parts):
            return self._trace(module, node.value, depth - 1, element)
        return None

    def _call(
        self, module: Module, node: ast.Call, depth: int, element: int | None
    ) -> list[Kind] | None:
        if isinstance(node.func, ast.Attribute) and element is None:
            word = node.func.attr
            if word in _KEEPS:
                return self._trace(module, node.func.value, depth - 1)
            if word in _RESHAPES:
                kinds = self._trace(module, node.func.value, depth - 1)
                return _each(kinds, lambda kind: replace(kind, dims=()))
            if word in ("transpose", "t", "permute", "swapaxes"):
                order = [literal(a)[1] for a in node.args]
                kinds = self._trace(module, node.func.value, depth - 1)
                return _each(kinds, lambda kind: _reordered(kind, word, order))
        return self._produced(module, node, depth, element)

    def _produced(
        self, module: Module, node: ast.Call, depth: int, element: int | None
    ) -> list[Kind] | None:
        found: list[list[Kind] | None] = []
        for lead in self.finder.leads(module, node):
            if isinstance(lead, Definition):
                found.append(self._returned(lead, depth, element))
                continue
            if lead is None:
                return None
            arguments = self.finder.arguments(module, node, lead)
            for basis in self.builds.bases(lead):
                kind = _kind(
                    basis.entry, arguments, element, f"{module.file.path} line {node.lineno}"
                )
                found.append([kind] if kind is not None else None)
        return _all(found)

    def _returned(self, lead: Definition, depth: int, element: int | None) -> list[Kind] | None:
        """What a function of the tree returns, every way out."""
        if not isinstance(lead.node, FUNCTIONS):
            return None
        module = self.finder.resolver.module_at(lead.file)
        scope = module.names.scopes[lead.node]
        values = [
            part.value
            for part in ast.walk(lead.node)
            if isinstance(part, ast.Return) and module.names.scope_of(part) is scope
        ]
        if not values or any(value is None for value in values):
            return None
        return _all(self._trace(module, v, depth - 3, element) for v in values if v is not None)

    # Buffers

    def wrong_rows(
        self, site: Site, arguments: Arguments, entry: Entry, ruling: Basis
    ) -> Iterator[Problem]:
        """A buffer for the result that is allocated by another rule than the build's."""
        rows = ruling.entry.rows
        if rows is None or not rows.by:
            return
        count = bind(arguments, entry.signature).get(rows.of)
        if count is None:
            return
        names = site.module.names
        for buffer in _keepers(site.call, names):
            for allocation in self._allocations(site.module, buffer):
                first = _first_dimension(allocation)
                if first is not None and _is_same(first, count, names):
                    yield Problem(
                        Breach.ROWS,
                        "rows",
                        allocation,
                        rows.seen,
                        f"`{short(buffer)}` keeps what {ruling.entry.name} returns, and has "
                        f"`{short(first)}` rows; {ruling.build.id} returns as many as {rows.by} says",
                        expected=f"{rows.by}({short(count)})"
                        + (f" + {rows.more}" * bool(rows.more)),
                        observed=short(allocation),
                        advice=f"Allocate by {rows.by}.",
                    )

    def _allocations(self, module: Module, buffer: ast.expr) -> Iterator[ast.Call]:
        values: list[ast.expr] = []
        if isinstance(buffer, ast.Attribute):
            owner = self.finder.resolver.class_of_self(module, buffer.value)
            values = list(self_assignments(owner, buffer.attr)) if owner is not None else []
        elif isinstance(buffer, ast.Name):
            values = [b.how for b in _bindings(buffer, module.names) if isinstance(b.how, ast.expr)]
        for value in values:
            if isinstance(value, ast.Call) and last_name(value.func) in _ALLOCATES:
                yield value

    # Objects

    def object_uses(self, site: Site, entry: Entry) -> Iterator[Problem]:
        """What is no tensor in this build and is used as one."""
        if not entry.objects or len(entry.returns) != 1:
            return
        names = site.module.names
        values = entry.returns[0].values
        for position, name in _unpacked(site.call, names):
            value = values[position] if position < len(values) else ""
            kind = entry.objects.get(value)
            use = next(_tensor_uses(name, names), None) if kind is not None else None
            if use is not None:
                node, done = use
                what = "None" if kind == "None" else f"a {kind}"
                yield Problem(
                    Breach.OBJECT,
                    value,
                    node,
                    entry.returns[0].seen,
                    f"{entry.name} returns {what} as `{name.id}` here, and {done}",
                    expected=", ".join(entry.objects.get(v, v) for v in values),
                    observed=short(node),
                    advice="Hand the object to the kernel as it is; it fills it at the first call.",
                )


def _mismatch(
    entry: Entry,
    name: str,
    wanted: Wanted,
    kinds: list[Kind],
    passed: dict[str, ast.expr],
    value: ast.expr,
) -> Iterator[Problem]:
    base = _base(wanted, passed)
    origins = " or ".join(dict.fromkeys(kind.origin for kind in kinds))
    if base and all(kind.base and kind.base != base for kind in kinds):
        other = f" unless {wanted.natural_if} says otherwise" if wanted.natural_if else ""
        yield Problem(
            Breach.LSE,
            f"base of {name}",
            value,
            entry.parameters_seen,
            f"{entry.name} takes `{name}` with base {base}{other}, and it has base {kinds[0].base}: "
            f"it comes from {origins}",
            expected=f"base {base}",
            observed=f"{name}={short(value)}",
            advice=_conversion(wanted, kinds[0].base),
        )
    taken = [_dims(layout) for layout in (wanted.layout, *wanted.also)]
    if all(kind.dims and kind.dims not in taken for kind in kinds):
        yield Problem(
            Breach.LSE,
            f"layout of {name}",
            value,
            entry.parameters_seen,
            f"{entry.name} takes `{name}` as {wanted.layout}, and it is {_words(kinds[0].dims)}: "
            f"it comes from {origins}",
            expected=wanted.layout,
            observed=f"{name}={short(value)}",
            advice="Transpose it, and make it contiguous.",
        )


def _conversion(wanted: Wanted, has: str) -> str:
    by_hand = "multiply by ln 2" if has == "2" else "divide by ln 2"
    if wanted.natural_if:
        return f"Pass {wanted.natural_if}={has == 'e'} where the target has it, or {by_hand} first."
    return f"{by_hand.capitalize()} first."


def _base(of: Wanted | Lse, passed: dict[str, ast.expr]) -> str:
    """The base, "" where an option decides that is not visible."""
    option = passed.get(of.natural_if) if of.natural_if else None
    if option is None:
        return of.base
    known, value = literal(option)
    return ("e" if value else "2") if known else ""


def _kind(entry: Entry, arguments: Arguments, element: int | None, place: str) -> Kind | None:
    """What a returned element is; None where it is no log-sum-exp, or may be none."""
    lse = entry.lse
    if lse is None or element is None:
        return None
    passed = bind(arguments, entry.signature)
    rows = [r for r in possible_returns(arguments, entry, passed) if len(r.values) > 1]
    if not rows or any(r.values[element : element + 1] not in [(n,) for n in _LSE] for r in rows):
        return None
    origin = f"{entry.name} in {place}"
    if arguments.open_keywords or any(name in passed for name in lse.unless):
        return Kind("", (), origin)
    return Kind(_base(lse, passed), _dims(lse.layout), origin)


def _dims(layout: str) -> tuple[str, ...]:
    found = [_DIMENSIONS.get(word.strip(), "") for word in layout.strip("[]").split(",")]
    if "" in found:
        return ()
    # In decode a sequence is one token, so that two dimensions can be called either way.
    return tuple("T" if d == "B" and len(found) == 2 else d for d in found)


def _words(dims: tuple[str, ...]) -> str:
    names = {"H": "heads", "T": "tokens", "B": "batch"}
    return f"[{', '.join(names[d] for d in dims)}]"


def _swapped(kind: Kind) -> Kind:
    return replace(kind, dims=kind.dims[::-1] if len(kind.dims) == 2 else ())


def _scaled(kind: Kind) -> Kind:
    return replace(kind, base="")


def _reordered(kind: Kind, word: str, order: list[object]) -> Kind:
    if word == "t":
        return _swapped(kind)
    count = len(kind.dims)
    places = [p % count for p in order if type(p) is int and count and -count <= p < count]
    if len(places) != len(order) or not count:
        return replace(kind, dims=())
    if word == "permute":
        return (
            replace(kind, dims=tuple(kind.dims[p] for p in places))
            if len(places) == count
            else (replace(kind, dims=()))
        )
    if len(places) != 2:
        return replace(kind, dims=())
    dims = list(kind.dims)
    dims[places[0]], dims[places[1]] = dims[places[1]], dims[places[0]]
    return replace(kind, dims=tuple(dims))


def _each(kinds: list[Kind] | None, change: object) -> list[Kind] | None:
    return [change(kind) for kind in kinds] if kinds is not None else None  # type: ignore[operator]


def _all(found: object) -> list[Kind] | None:
    together: list[Kind] = []
    for kinds in found:  # type: ignore[attr-defined]
        if kinds is None:
            return None
        together += kinds
    return together or None


def _is_changed(scope: Names, name: str) -> bool:
    """True where the value behind a name is changed in place somewhere in the function."""
    for node in ast.walk(scope.node):
        if isinstance(node, ast.AugAssign) and dotted(node.target) == name:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            word = node.func.attr
            if word.endswith("_") and not word.endswith("__") and dotted(node.func.value) == name:
                return True
    return False


# Buffers


def _keepers(call: ast.Call, names: FileNames) -> Iterator[ast.expr]:
    """What the result is copied into: `b[...] = call`, `b.copy_(call)`, also by way of a local name."""
    for value in (call, *_loads_of_result(call, names)):
        parent = names.parents.get(value)
        if isinstance(parent, ast.Assign) and value is parent.value:
            yield from (_stripped(t) for t in parent.targets if isinstance(t, ast.Subscript))
        if isinstance(parent, ast.Call) and value in parent.args:
            func = parent.func
            if isinstance(func, ast.Attribute) and func.attr == "copy_":
                yield _stripped(func.value)


def _loads_of_result(call: ast.Call, names: FileNames) -> Iterator[ast.Name]:
    parent = names.parents.get(call)
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
        return
    target = parent.targets[0]
    if isinstance(target, ast.Name):
        yield from _loads(target, names)


def _loads(target: ast.Name, names: FileNames) -> Iterator[ast.Name]:
    """Uses of a name in its function that only this binding reaches."""
    scope = names.scope_of(target)
    statement = names.statement_of(target)
    found = [
        node
        for node in ast.walk(scope.node)
        if isinstance(node, ast.Name)
        and node.id == target.id
        and isinstance(node.ctx, ast.Load)
        and names.scope_of(node) is scope
    ]
    for node in sorted(found, key=lambda n: (n.lineno, n.col_offset)):
        reaching = names.reaching(node.id, scope, names.statement_of(node))
        if reaching and all(b.statement is statement for b in reaching):
            yield node


def _stripped(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _first_dimension(call: ast.Call) -> ast.expr | None:
    """The expression of the first dimension without what is added to it."""
    if not call.args:
        return None
    shape = call.args[0]
    first = shape.elts[0] if isinstance(shape, ast.Tuple | ast.List) and shape.elts else shape
    while isinstance(first, ast.BinOp) and isinstance(first.op, ast.Add):
        if isinstance(first.right, ast.Constant):
            first = first.left
        elif isinstance(first.left, ast.Constant):
            first = first.right
        else:
            return None
    return None if isinstance(first, ast.Starred) else first


def _is_same(one: ast.expr, other: ast.expr, names: FileNames) -> bool:
    return ast.dump(_followed(one, names)) == ast.dump(_followed(other, names))


def _followed(node: ast.expr, names: FileNames) -> ast.expr:
    """What a local name stands for, where it is bound once."""
    for _ in range(_DEPTH):
        bindings = _bindings(node, names) if isinstance(node, ast.Name) else []
        if len(bindings) != 1 or bindings[0].element is not None:
            break
        if not isinstance(bindings[0].how, ast.expr):
            break
        node = bindings[0].how
    return node


def _bindings(node: ast.Name, names: FileNames) -> list[Binding]:
    scope = names.scope_of(node)
    if node.id not in scope.bindings:
        return []
    return names.reaching(node.id, scope, names.statement_of(node))


# Objects


def _unpacked(call: ast.Call, names: FileNames) -> Iterator[tuple[int, ast.Name]]:
    """Local names that single returned values are bound to, with their position."""
    parent = names.parents.get(call)
    if isinstance(parent, ast.Subscript) and parent.value is call:
        known, index = literal(parent.slice)
        outer = names.parents.get(parent)
        if known and type(index) is int and isinstance(outer, ast.Assign):
            yield from ((index, t) for t in outer.targets if isinstance(t, ast.Name))
    elif isinstance(parent, ast.Assign):
        for target in parent.targets:
            if isinstance(target, ast.Tuple | ast.List):
                if any(isinstance(part, ast.Starred) for part in target.elts):
                    continue
                parts = enumerate(target.elts)
                yield from ((i, part) for i, part in parts if isinstance(part, ast.Name))


def _tensor_uses(target: ast.Name, names: FileNames) -> Iterator[tuple[ast.expr, str]]:
    """Uses of a name that only a tensor can stand, each with what is done."""
    for node in _loads(target, names):
        parent = names.parents.get(node)
        if isinstance(parent, ast.Attribute) and parent.attr in _TENSOR_ATTRIBUTES:
            yield parent, f"`.{parent.attr}` of it is taken"
        elif isinstance(parent, ast.Subscript) and parent.value is node:
            yield parent, "it is indexed"
        elif isinstance(parent, ast.Call) and node in parent.args:
            func = dotted(parent.func)
            if func.endswith(".copy_") or func.startswith("torch."):
                yield parent, f"it is passed to `{short(parent.func)}`"
        elif isinstance(parent, ast.Assign) and node is parent.value:
            into = [t for t in parent.targets if isinstance(t, ast.Subscript)]
            yield from [(node, "it is copied into a tensor")] * bool(into)
