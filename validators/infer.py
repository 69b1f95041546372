"""What an expression of the plugin is: a module, a class, a function, or an instance of a class.

Types come from annotations, constructors and what class bodies and initialisers assign, nothing else.
An expression has every value it may have; `Open` stands for what is not known, and one `Open` among
them is enough for a rule to say nothing.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from attngate.validators.index import Foreign, Found, Missing, Open, Ref
from attngate.validators.symbols import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import SourceFile
    from attngate.validators.index import Index, Lineage
    from attngate.validators.names import Binding, Names
    from attngate.validators.symbols import Attribute, Class, Function

_DEPTH = 25


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of a class; `exact` where its class is known and not only a base of it."""

    of: Ref | Foreign
    exact: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """A method as it is reached: `skips` parameters are already passed (self, cls)."""

    owner: Ref
    function: Function
    skips: int
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Super:
    """`super()` in a method of a class: the lookup begins behind it."""

    of: Ref
    instance: bool = True


@dataclass(frozen=True, slots=True)
class NoneValue:
    """None."""


Value = Found | Instance | Method | Super | NoneValue
OPEN = Open("not followed")


@dataclass(eq=False)
class Inference:
    """Values of the expressions of the plugin's files."""

    index: Index
    _known: dict[tuple[str, ast.expr], tuple[Value, ...]] = field(default_factory=dict)
    _passing: dict[tuple[str, ast.expr], tuple[Value, ...]] = field(default_factory=dict)
    _active: set[object] = field(default_factory=set)
    _cut: bool = False

    def values(self, file: SourceFile, node: ast.expr) -> tuple[Value, ...]:
        """Every value an expression may have, each once; never empty."""
        key = (file.path, node)
        if key in self._known:
            return self._known[key]
        if key in self._passing:
            self._cut = True
            return self._passing[key]
        if key in self._active or len(self._active) > _DEPTH:
            self._cut = True
            return (OPEN,)
        outer_cut, self._cut = self._cut, False
        self._active.add(key)
        try:
            found = tuple(dict.fromkeys(self._evaluate(file, node))) or (OPEN,)
        finally:
            self._active.discard(key)
        # What was cut short holds for this question only; asking it again within the question would
        # take exponential time where names are bound over and over.
        (self._passing if self._cut else self._known)[key] = found
        self._cut = self._cut or outer_cut
        if not self._active:
            self._passing.clear()
            self._cut = False
        return found

    def _evaluate(self, file: SourceFile, node: ast.expr) -> Iterator[Value]:
        match node:
            case ast.Name():
                yield from self._name(file, node)
            case ast.Attribute():
                for base in self.values(file, node.value):
                    yield from self.member(base, node.attr)
            case ast.Call():
                yield from self._call(file, node)
            case ast.IfExp():
                yield from self.values(file, node.body)
                yield from self.values(file, node.orelse)
            case ast.NamedExpr() | ast.Await():
                yield from self.values(file, node.value)
            case ast.BoolOp(op=ast.Or()):
                for part in node.values:
                    yield from self.values(file, part)
            case ast.Constant(value=None):
                yield NoneValue()
            case _:
                yield OPEN

    # Names

    def _name(self, file: SourceFile, node: ast.Name) -> Iterator[Value]:
        names = file.source.names
        scope: Names | None = names.scope_of(node)
        start = scope
        while scope is not None:
            where = scope.elsewhere.get(node.id)
            if where == "global":
                scope = scope.module()
            if node.id in scope.bindings and not (scope.is_class and scope is not start):
                if scope.outer is None:
                    yield from self._global(file, node.id)
                    return
                narrowed = self._narrowed(file, node, scope)
                if narrowed:
                    yield from narrowed
                    return
                place = names.statement_of(node) if scope is start else None
                for binding in names.reaching(node.id, scope, place):
                    yield from self._binding(file, binding, scope)
                return
            scope = scope.outer
        yield from self._global(file, node.id)

    def _narrowed(self, file: SourceFile, node: ast.Name, scope: Names) -> list[Value]:
        """The class that `assert isinstance(name, Class)` above the place promises."""
        names = file.source.names
        found: list[Value] = []
        for statement in names.asserted:
            test = statement.test
            if not isinstance(test, ast.Call) or dotted(test.func) != "isinstance":
                continue
            if len(test.args) != 2 or dotted(test.args[0]) != node.id:
                continue
            if names.scope_of(statement) is not scope or statement.lineno >= node.lineno:
                continue
            if not names.precedes(statement, node):
                continue
            if any(_is_between(b.statement, statement, node) for b in scope.bindings[node.id]):
                continue
            found = [
                self._instance_of(v) if isinstance(v, Ref | Foreign) else OPEN
                for v in self.values(file, test.args[1])
            ]
        return found

    def _global(self, file: SourceFile, name: str) -> Iterator[Value]:
        module = self.index.module_of(file.path)
        for found in self.index.lookup(module, name):
            if isinstance(found, Missing) and found.name == name and hasattr(builtins, name):
                yield Foreign(f"builtins.{name}")
            elif found == Ref("value", module, name):
                yield from self._module_value(file, name)
            else:
                yield from self._imported_value(found)

    def _imported_value(self, found: Found) -> Iterator[Value]:
        if isinstance(found, Ref) and found.kind == "value":
            yield from self.value_of(found)
        else:
            yield found

    def value_of(self, ref: Ref) -> tuple[Value, ...]:
        """What a module-level value is, by its annotation (below TYPE_CHECKING too) or constructor."""
        summary = self.index.summary(ref.module)
        bounds = summary.names.get(ref.name, []) if summary is not None else []
        noted = next((b.annotation for b in bounds if b.annotation), "")
        if noted:
            return tuple(self.annotation_text(ref.module, noted))
        if bounds and all(b.kind == "call" for b in bounds):
            found = [f for b in bounds for f in self.index.resolve(ref.module, b.name)]
            if found and all(isinstance(f, Ref) and f.kind == "class" for f in found):
                return tuple(Instance(f, exact=True) for f in found if isinstance(f, Ref))
        return (Open(f"the value {ref}"),)

    def _module_value(self, file: SourceFile, name: str) -> Iterator[Value]:
        scope = file.source.names.module
        for binding in scope.bindings.get(name, ()):
            yield from self._binding(file, binding, scope)

    def _binding(self, file: SourceFile, binding: Binding, scope: Names) -> Iterator[Value]:
        how = binding.how
        module = self.index.module_of(file.path)
        statement = binding.statement
        match how:
            case ast.alias() if binding.of is None:
                name = how.name if how.asname else how.name.partition(".")[0]
                yield self.index.module_ref(name)
            case ast.alias() if binding.of is not None:
                written = "." * binding.of.level + (binding.of.module or "")
                source = self.index.absolute(module, written)
                for found in self.index.lookup(source, how.name):
                    yield from self._imported_value(found)
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield self._defined(file, how, scope)
            case ast.arg():
                yield from self._parameter(file, how, scope)
            case ast.expr() if binding.element is None:
                if isinstance(statement, ast.AnnAssign) and statement.value is how:
                    yield from self.annotated(module, file, statement.annotation)
                else:
                    yield from self.values(file, how)
            case _:
                yield OPEN

    def _defined(self, file: SourceFile, node: ast.stmt, scope: Names) -> Value:
        module = self.index.module_of(file.path)
        name = node.name  # type: ignore[attr-defined]
        if scope.outer is None:
            return Ref("class" if isinstance(node, ast.ClassDef) else "function", module, name)
        return Open(f"{name} is defined inside a function or class")

    def _parameter(self, file: SourceFile, node: ast.arg, scope: Names) -> Iterator[Value]:
        owner = self.owner_of(file, scope)
        function = scope.node
        module = self.index.module_of(file.path)
        if owner is not None and isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            first = (function.args.posonlyargs + function.args.args)[:1]
            decorators = {dotted(d).rpartition(".")[2] for d in function.decorator_list}
            if first and first[0] is node and "staticmethod" not in decorators:
                is_class = "classmethod" in decorators or function.name in (
                    "__new__",
                    "__init_subclass__",
                    "__class_getitem__",
                )
                yield owner if is_class else Instance(owner)
                return
        if node.annotation is not None:
            yield from self.annotated(module, file, node.annotation)
        else:
            yield OPEN

    def owner_of(self, file: SourceFile, scope: Names) -> Ref | None:
        """The module-level class whose method a function scope is."""
        outer = scope.outer
        if outer is None or not isinstance(outer.node, ast.ClassDef):
            return None
        names = [outer.node.name]
        above = outer.outer
        while above is not None and isinstance(above.node, ast.ClassDef):
            names.append(above.node.name)
            above = above.outer
        if above is None or above.outer is not None:
            return None
        return Ref("class", self.index.module_of(file.path), ".".join(reversed(names)))

    def class_around(self, file: SourceFile, node: ast.AST) -> Ref | None:
        """The class in one of whose methods a node stands, functions inside the method included."""
        scope: Names | None = file.source.names.scope_of(node)
        while scope is not None:
            owner = self.owner_of(file, scope)
            if owner is not None:
                return owner
            scope = scope.outer
        return None

    # Annotations

    def annotated(self, module: str, file: SourceFile | None, node: ast.expr) -> Iterator[Value]:
        """Instances that an annotation allows."""
        match node:
            case ast.Constant(value=str(text)):
                yield from self.annotation_text(module, text)
            case ast.Constant(value=None):
                yield NoneValue()
            case ast.BinOp(op=ast.BitOr()):
                yield from self.annotated(module, file, node.left)
                yield from self.annotated(module, file, node.right)
            case ast.Subscript():
                yield from self._generic(module, file, node)
            case ast.Name() | ast.Attribute():
                path = dotted(node)
                for found in self.index.resolve(module, path) if path else ():
                    yield self._instance_of(found)
            case _:
                yield OPEN

    def _instance_of(self, found: Found) -> Value:
        if isinstance(found, Ref):
            return Instance(found) if found.kind == "class" else Open(f"the annotation {found}")
        if isinstance(found, Foreign) and found.path.rpartition(".")[2][:1].isupper():
            return Instance(found)
        return Open("an annotation from elsewhere")

    def annotation_text(self, module: str, text: str) -> Iterator[Value]:
        """The same for an annotation that is text."""
        node = _parsed(text)
        if node is None:
            yield OPEN
        else:
            yield from self.annotated(module, None, node)

    def _generic(
        self, module: str, file: SourceFile | None, node: ast.Subscript
    ) -> Iterator[Value]:
        head = dotted(node.value).rpartition(".")[2]
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if head in ("Optional", "Union"):
            if head == "Optional":
                yield NoneValue()
            for part in parts:
                yield from self.annotated(module, file, part)
        elif head in ("ClassVar", "Final", "Annotated", "Required", "NotRequired"):
            yield from self.annotated(module, file, parts[0])
        elif head in ("type", "Type") and isinstance(parts[0], ast.Name | ast.Attribute):
            for found in self.index.resolve(module, dotted(parts[0])):
                is_class = isinstance(found, Ref) and found.kind == "class"
                yield found if is_class else OPEN
        else:
            yield from self.annotated(module, file, node.value)

    # Members

    def member(self, owner: Value, name: str) -> Iterator[Value]:
        """What an attribute of a value is; `Missing` only where the owner is fully known."""
        match owner:
            case Ref(kind="class"):
                yield from self.class_member(owner, name, instance=False)
            case Instance(of=Ref()):
                yield from self.class_member(owner.of, name, instance=True, exact=owner.exact)  # type: ignore[arg-type]
            case Instance(of=Foreign()):
                yield Foreign(f"{owner.of.path}.{name}")  # type: ignore[union-attr]
            case Super():
                yield from self._behind(owner, name)
            case Ref(kind="module"):
                for found in self.index.lookup(owner.module, name):
                    yield from self._imported_value(found)
            case Foreign():
                yield Foreign(f"{owner.path}.{name}")
            case NoneValue():
                return
            case _:
                yield OPEN

    def class_member(
        self, ref: Ref, name: str, *, instance: bool, exact: bool = False
    ) -> Iterator[Value]:
        """What a class's attribute is, inherited ones included."""
        lineage = self.index.lineage(ref)
        yield from self._in_lineage(ref, lineage, lineage.classes, name, instance, exact)

    def _behind(self, owner: Super, name: str) -> Iterator[Value]:
        lineage = self.index.lineage(owner.of)
        rest = lineage.classes[1:]
        yield from self._in_lineage(owner.of, lineage, rest, name, owner.instance, exact=True)

    def _in_lineage(
        self,
        ref: Ref,
        lineage: Lineage,
        classes: tuple[tuple[str, Class], ...],
        name: str,
        instance: bool,
        exact: bool,
    ) -> Iterator[Value]:
        for module, known in classes:
            methods = known.methods.get(name)
            if self.index.is_replaced(Ref("class", module, known.name), name):
                yield Open(f"the plugin sets {known.name}.{name}")
                return
            if methods:
                yield from self._methods(Ref("class", module, known.name), methods, instance, exact)
                return
            attributes = known.attributes.get(name)
            if attributes:
                yield from self._attribute_values(module, known, attributes)
                return
        yield Missing(str(ref), name) if lineage.complete else OPEN

    def _methods(
        self, owner: Ref, methods: list[Function], instance: bool, exact: bool
    ) -> Iterator[Value]:
        for function in methods:
            if any(d.rpartition(".")[2] in _PROPERTIES for d in function.decorators):
                if not instance:
                    yield OPEN
                elif function.annotation:
                    yield from self.annotation_text(owner.module, function.annotation)
                else:
                    yield OPEN
            elif function.has_decorator("setter") or function.has_decorator("overload"):
                yield OPEN
            else:
                bound = instance or function.has_decorator("classmethod")
                is_static = function.has_decorator("staticmethod")
                yield Method(owner, function, 0 if is_static or not bound else 1, exact)

    def _attribute_values(
        self, module: str, owner: Class, attributes: list[Attribute]
    ) -> Iterator[Value]:
        noted = [a for a in attributes if a.annotation]
        if noted:
            yield from self.annotation_text(module, noted[0].annotation)
            return
        nested = f"{owner.name}.{attributes[0].name}"
        if nested in (self.index.summary(module).classes if self.index.summary(module) else {}):  # type: ignore[union-attr]
            yield Ref("class", module, nested)
            return
        for attribute in attributes:
            for value in self._assigned(module, owner, attribute):
                yield OPEN if not attribute.method and self._is_descriptor(value) else value

    def _is_descriptor(self, value: Value) -> bool:
        """True for an object that answers for another one where a class holds it."""
        return (
            isinstance(value, Instance)
            and isinstance(value.of, Ref)
            and any("__get__" in known.methods for _, known in self.index.lineage(value.of).classes)
        )

    def _assigned(self, module: str, owner: Class, attribute: Attribute) -> Iterator[Value]:
        """The value of `self.x = ...`: a parameter's annotation, or a class that is called."""
        if attribute.kind == "Constant" and attribute.value == "None":
            yield NoneValue()
        elif attribute.kind == "Name" and attribute.method:
            yield from self._parameter_of(module, owner, attribute)
        elif attribute.kind == "Call":
            head = attribute.value.partition("(")[0]
            is_plain = head.replace(".", "").replace("_", "").isalnum()
            for found in self.index.resolve(module, head) if is_plain else ():
                made = self._instance_of(found)
                yield replace(made, exact=True) if isinstance(made, Instance) else OPEN
            if not is_plain:
                yield OPEN
        else:
            yield OPEN

    def _parameter_of(self, module: str, owner: Class, attribute: Attribute) -> Iterator[Value]:
        for method in owner.methods.get(attribute.method, ()):
            for param in method.params:
                if param.name == attribute.value:
                    yield from (
                        self.annotation_text(module, param.annotation)
                        if param.annotation
                        else (OPEN,)
                    )
                    return
        yield OPEN

    # Calls

    def _call(self, file: SourceFile, node: ast.Call) -> Iterator[Value]:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            yield self._super(file, node)
            return
        for callee in self.values(file, node.func):
            match callee:
                case Ref(kind="class"):
                    yield Instance(callee, exact=True)
                case Foreign() if callee.path.rpartition(".")[2][:1].isupper():
                    yield Instance(callee, exact=True)
                case Ref(kind="function"):
                    yield from self._result(callee.module, self.index.functions_of(callee))
                case Method():
                    yield from self._result(callee.owner.module, [callee.function])
                case Foreign(path="typing.cast") if node.args:
                    yield from self.annotated(self.index.module_of(file.path), file, node.args[0])
                case _:
                    yield OPEN

    def _super(self, file: SourceFile, node: ast.Call) -> Value:
        owner = self.class_around(file, node)
        if node.args:
            found = self.values(file, node.args[0])
            if len(found) != 1 or not isinstance(found[0], Ref) or found[0].kind != "class":
                return OPEN
            # `super(Base, self)` looks behind Base; where self's class is another one, what is
            # behind it depends on that class, but for a single line of bases it is Base's own.
            return Super(found[0])
        scope = file.source.names.scope_of(node)
        if owner is None or self.owner_of(file, scope) != owner:
            return OPEN
        return Super(owner)

    def _result(self, module: str, functions: list[Function]) -> Iterator[Value]:
        for function in functions:
            plain = all(d.rpartition(".")[2] in _KEEPS_RESULT for d in function.decorators)
            if function.annotation and plain and not function.is_async:
                yield from self.annotation_text(module, function.annotation)
            else:
                yield OPEN


@lru_cache(maxsize=4096)
def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None


def _is_between(statement: ast.AST, first: ast.AST, last: ast.AST) -> bool:
    """True for a binding between an assertion and the use of the name."""
    line = getattr(statement, "lineno", 0)
    return bool(getattr(first, "lineno", 0) < line < getattr(last, "lineno", 0))


_PROPERTIES = frozenset(["property", "cached_property", "abstractproperty", "getter"])
_KEEPS_RESULT = frozenset(
    ["staticmethod", "classmethod", "abstractmethod", "cache", "lru_cache", "override", "wraps",
     "no_grad", "inference_mode"]
)  # fmt: skip
