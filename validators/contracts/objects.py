"""Which of a component's classes an object is an instance of, where annotations do not say it.

Beyond what `infer.py` tells, an object is followed through parameters to the calls that pass it, through
functions without annotations to what they return, through dictionaries whose annotation names what they
hold, and through attributes of `self`. One way that is not followed makes the whole answer "not known".
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attngate.validators.index import Foreign
from attngate.validators.infer import Instance, NoneValue
from attngate.validators.resolve import (
    FUNCTIONS,
    Definition,
    argument_for,
    last_name,
    self_assignments,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from attngate.validators.infer import Inference
    from attngate.validators.resolve import Module, Resolver

_DEPTH = 12
_MAPPINGS = frozenset(["dict", "Dict", "defaultdict", "DefaultDict", "Mapping", "OrderedDict"])


@dataclass(eq=False)
class Objects:
    """Follows objects to the classes of components.

    Args:
        resolver: Follows names and callers.
        inference: What annotations and constructors say.
    """

    resolver: Resolver
    inference: Inference
    _active: set[tuple[str, ast.expr]] = field(default_factory=set)

    def classes(self, module: Module, node: ast.expr, depth: int = _DEPTH) -> set[str] | None:
        """Dotted paths of the classes the object can be an instance of, None where that is not known."""
        key = (module.file.path, node)
        if key in self._active:
            return set()
        if depth <= 0:
            return None
        said = self._said(module, node)
        if said is not None:
            return said
        self._active.add(key)
        try:
            return self._followed(module, node, depth - 1)
        finally:
            self._active.discard(key)

    def _said(self, module: Module, node: ast.expr) -> set[str] | None:
        """What annotations and constructors say, None where they leave something open."""
        found: set[str] = set()
        for value in self.inference.values(module.file, node):
            if isinstance(value, Instance) and isinstance(value.of, Foreign):
                found.add(value.of.path)
            elif not isinstance(value, NoneValue):
                return None
        # An attribute that begins as None may be anything that is assigned later.
        return found or (set() if isinstance(node, ast.Constant) else None)

    def _followed(self, module: Module, node: ast.expr, depth: int) -> set[str] | None:
        match node:
            case ast.Name():
                return self._name(module, node, depth)
            case ast.Attribute():
                return self._attribute(module, node, depth)
            case ast.IfExp():
                return self._together(module, (node.body, node.orelse), depth)
            case ast.Subscript():
                return self._held(module, node.value)
            case ast.Call():
                return self._result(module, node, depth)
        return None

    def _together(self, module: Module, nodes: Iterable[ast.expr], depth: int) -> set[str] | None:
        found: set[str] = set()
        for node in nodes:
            classes = self.classes(module, node, depth)
            if classes is None:
                return None
            found |= classes
        return found

    def _name(self, module: Module, node: ast.Name, depth: int) -> set[str] | None:
        scope = module.names.scope_of(node)
        if node.id not in scope.bindings:
            return None
        found: set[str] = set()
        for binding in module.names.reaching(node.id, scope, module.names.statement_of(node)):
            if isinstance(binding.how, ast.arg):
                classes = self._passed(module, scope.node, binding.how, depth)
            elif isinstance(binding.how, ast.expr) and binding.element is None:
                classes = self.classes(module, binding.how, depth)
            else:
                return None
            if classes is None:
                return None
            found |= classes
        return found

    def _passed(
        self, module: Module, function: ast.AST, argument: ast.arg, depth: int
    ) -> set[str] | None:
        """What every call in the tree passes for a parameter of a function outside a class."""
        outer = module.names.parents.get(function)
        if not isinstance(function, FUNCTIONS) or not isinstance(outer, ast.Module):
            return None
        if argument.annotation is not None:
            return None
        found: set[str] = set()
        for caller, call in self.resolver.callers(module, function):
            passed = argument_for(call, function, argument.arg, bound=False)
            classes = self.classes(caller, passed, depth) if passed is not None else None
            if classes is None:
                return None
            found |= classes
        return found or None

    def _attribute(self, module: Module, node: ast.Attribute, depth: int) -> set[str] | None:
        owner = self.resolver.class_of_self(module, node.value)
        if owner is None or any(_annotations(owner, node.attr)):
            return None
        return self._together(module, self_assignments(owner, node.attr), depth)

    def _held(self, module: Module, node: ast.expr) -> set[str] | None:
        """What a dictionary holds, by the annotation of the attribute."""
        if not isinstance(node, ast.Attribute):
            return None
        owner = self.resolver.class_of_self(module, node.value)
        for noted in _annotations(owner, node.attr) if owner is not None else ():
            if not isinstance(noted, ast.Subscript) or last_name(noted.value) not in _MAPPINGS:
                return None
            parts = noted.slice.elts if isinstance(noted.slice, ast.Tuple) else []
            if len(parts) != 2:
                return None
            index = self.inference.index
            name = index.module_of(module.file.path)
            values = list(self.inference.annotated(name, module.file, parts[1]))
            paths = {
                v.of.path for v in values if isinstance(v, Instance) and isinstance(v.of, Foreign)
            }
            return paths if len(paths) == len(values) else None
        return None

    def _result(self, module: Module, node: ast.Call, depth: int) -> set[str] | None:
        """What a dictionary gives out, or what functions of the tree without an annotation return."""
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in ("get", "setdefault", "pop"):
            return self._held(module, func.value)
        found: set[str] = set()
        for callee in self.resolver.values(module, node.func):
            if not isinstance(callee, Definition) or not isinstance(callee.node, FUNCTIONS):
                return None
            if callee.node.returns is not None or callee.node.decorator_list:
                return None
            inner = self.resolver.module_at(callee.file)
            classes = self._together(inner, _returned(inner, callee.node), depth)
            if classes is None:
                return None
            found |= classes
        return found or None


def _returned(module: Module, function: ast.AST) -> Iterator[ast.expr]:
    scope = module.names.scopes[function]
    for part in ast.walk(function):
        if isinstance(part, ast.Return) and module.names.scope_of(part) is scope:
            yield part.value if part.value is not None else ast.Constant(None)


def _annotations(owner: ast.ClassDef, name: str) -> Iterator[ast.expr]:
    """Annotations that a class and its methods give an attribute."""
    for node in ast.walk(owner):
        if isinstance(node, ast.AnnAssign) and last_name(node.target) == name:
            yield node.annotation
