"""Where a name leads: through imports, re-exports, aliases, attributes and parameters of the tree.

The resolver never imports and never guesses. An expression has a set of possible values; what cannot
be followed is a value too, `Unknown` with the reason. A chain may leave the tree (`External`), and
then it is up to the contracts whether the place it leads to is known.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attngate.validators.context import SourceFile
    from attngate.validators.names import Binding, FileNames, FunctionNode, Names

_MAX_DEPTH = 60
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_TRANSPARENT = ("typing.cast",)
# Calls whose result takes what their first argument takes.
_KEEPING = frozenset(
    ["functools.cache", "functools.lru_cache", "torch.compiler.disable", "torch._dynamo.disable",
     "torch.compile", "torch.no_grad", "torch.inference_mode"]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class External:
    """A module outside the tree, or a name in one, by its dotted path."""

    path: str


@dataclass(frozen=True, slots=True)
class TreeModule:
    """A module or package of the tree."""

    name: str


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or class that the tree defines.

    Attributes:
        file: Path of the file.
        node: The definition.
        instance: True where an instance was looked at, so that `self` is already passed.
    """

    file: str
    node: FunctionNode | ast.ClassDef
    instance: bool = False


@dataclass(frozen=True, slots=True)
class Partial:
    """`functools.partial(of, ...)`: the call that made it stands in `file`."""

    of: Value
    file: str
    call: ast.Call


@dataclass(frozen=True, slots=True)
class Nothing:
    """The value None."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that cannot be followed, and why."""

    reason: str


Value = External | TreeModule | Definition | Partial | Nothing | Unknown


@dataclass(eq=False)
class Module:
    """A parsed file with its names.

    Attributes:
        name: Dotted module name.
        file: The file.
        names: Its scopes.
        is_package: True for `__init__.py`.
    """

    name: str
    file: SourceFile
    names: FileNames
    is_package: bool


@dataclass(eq=False)
class Resolver:
    """Follows names through the files of one tree.

    Args:
        files: Every Python file of the tree by path.
        import_roots: Folders of the tree that stand on sys.path.

    Attributes:
        consulted: Files that were looked into so far.
        watched: Words by which further files would have been found.
    """

    files: Mapping[str, SourceFile]
    import_roots: tuple[str, ...] = ("",)
    consulted: set[str] = field(default_factory=set)
    watched: set[str] = field(default_factory=set)
    _paths: dict[str, str] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _modules: dict[str, Module] = field(default_factory=dict)
    _packages: set[str] = field(default_factory=set)
    _values: dict[tuple[str, ast.expr], tuple[Value, ...]] = field(default_factory=dict)
    _passing: dict[tuple[str, ast.expr], tuple[Value, ...]] = field(default_factory=dict)
    _behind: dict[tuple[str, ast.expr], set[str]] = field(default_factory=dict)
    _active: set[object] = field(default_factory=set)
    _cut: bool = False

    def __post_init__(self) -> None:
        for path in self.files:
            for name in self._module_names(path):
                self._paths.setdefault(name, path)
                self._names.setdefault(path, name)
                while "." in name:
                    name = name.rpartition(".")[0]  # noqa: PLW2901 (each step is the next package up)
                    self._packages.add(name)

    def _module_names(self, path: str) -> Iterator[str]:
        for root in self.import_roots:
            prefix = f"{root.strip('/')}/" if root.strip("/.") else ""
            if path.startswith(prefix):
                stem = path.removeprefix(prefix).rpartition(".")[0].removesuffix("__init__")
                name = stem.strip("/").replace("/", ".")
                if name:
                    yield name

    def module_at(self, path: str) -> Module:
        """The module in a file of the tree."""
        self.consulted.add(path)
        module = self._modules.get(path)
        if module is None:
            file = self.files[path]
            is_package = path.rpartition("/")[2].startswith("__init__.")
            name = self._names.get(path, path)
            module = self._modules[path] = Module(name, file, file.source.names, is_package)
        return module

    def has_module(self, name: str) -> bool:
        """True for a module or package of the tree."""
        return name in self._paths or name in self._packages

    def path_of(self, name: str) -> str | None:
        """The file of a module, None where the tree has none."""
        return self._paths.get(name)

    def keeps_signature(self, module: Module, decorator: ast.expr) -> bool:
        """True for a decorator of the tree whose wrappers all say that they stand for the function.

        Such a wrapper takes `*args` and `**kwargs` and is itself made with `functools.wraps`.
        """
        func = decorator.func if isinstance(decorator, ast.Call) else decorator
        values = self.values(module, func)
        return bool(values) and all(isinstance(v, Definition) and _wraps(v.node) for v in values)

    def values(self, module: Module, expression: ast.expr) -> tuple[Value, ...]:
        """Every value the expression can have, each once; never empty."""
        key = (module.file.path, expression)
        known = self._values.get(key)
        if known is not None:
            self.consulted |= self._behind.get(key, set())
            return known
        if key in self._passing:
            self._cut = True
            self.consulted |= self._behind.get(key, set())
            return self._passing[key]
        if key in self._active or len(self._active) > _MAX_DEPTH:
            self._cut = True
            return (Unknown("the name leads back to itself"),)
        outer_cut, self._cut = self._cut, False
        self._active.add(key)
        outer, self.consulted = self.consulted, {module.file.path}
        try:
            found = _distinct(self._evaluate(module, expression))
        finally:
            self._active.discard(key)
            self._behind[key] = self.consulted
            self.consulted = outer | self.consulted
        # What was cut short holds for this question only; asking it again within the question would
        # take exponential time where names are bound over and over.
        is_whole = not self._cut or not self._active
        (self._values if is_whole else self._passing)[key] = found
        self._cut = self._cut or outer_cut
        if not self._active:
            self._passing.clear()
        return found

    def _evaluate(self, module: Module, node: ast.expr) -> Iterator[Value]:
        match node:
            case ast.Name():
                yield from self._name(module, node.id, module.names.scope_of(node), node)
            case ast.Attribute():
                yield from self._attribute(module, node)
            case ast.IfExp():
                yield from self.values(module, node.body)
                yield from self.values(module, node.orelse)
            case ast.BoolOp():
                for part in node.values:
                    yield from self.values(module, part)
            case ast.NamedExpr():
                yield from self.values(module, node.value)
            case ast.Constant(value=None):
                yield Nothing()
            case ast.Call():
                yield from self._call(module, node)
            case _:
                yield Unknown(f"{type(node).__name__.lower()} expression `{short(node)}`")

    # Names

    def _name(self, module: Module, name: str, scope: Names, place: ast.AST) -> Iterator[Value]:
        current: Names | None = scope
        while current is not None:
            where = current.elsewhere.get(name)
            if where == "global":
                current = current.module()
            if name in current.bindings and not (current.is_class and current is not scope):
                statement = module.names.statement_of(place) if current is scope else None
                for binding in module.names.reaching(name, current, statement):
                    yield from self._binding(module, binding, current)
                return
            current = current.outer
        yield from self._starred(module, name)

    def _starred(self, module: Module, name: str) -> Iterator[Value]:
        """A name that no statement binds: it may come from a star import."""
        outside: list[str] = []
        for statement in reversed(module.names.module.stars):
            source = self._import_source(module, statement)
            if self.has_module(source):
                found = list(self.member(source, name))
                if found and not all(isinstance(v, Unknown) for v in found):
                    yield from found
                    return
            else:
                outside.append(source)
        if len(outside) == 1:
            yield External(f"{outside[0]}.{name}")
        else:
            yield Unknown(f"nothing in the file binds `{name}`")

    def _binding(self, module: Module, binding: Binding, scope: Names) -> Iterator[Value]:
        how = binding.how
        match how:
            case ast.alias():
                yield from self._imported(module, binding, how)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield Definition(module.file.path, how)
            case ast.arg():
                yield from self._parameter(module, how, scope)
            case ast.expr() if binding.element is not None:
                yield from self._element(module, how, binding)
            case ast.expr():
                yield from self.values(module, how)
            case _:
                yield Unknown(f"`{binding.name}` is bound in a way that is not followed")

    def _element(self, module: Module, value: ast.expr, binding: Binding) -> Iterator[Value]:
        position = binding.element or 0
        if isinstance(value, ast.Tuple | ast.List) and position < len(value.elts):
            yield from self.values(module, value.elts[position])
        else:
            yield Unknown(f"`{binding.name}` is unpacked from `{short(value)}`")

    # Imports

    def _import_source(self, module: Module, statement: ast.ImportFrom) -> str:
        if not statement.level:
            return statement.module or ""
        parts = module.name.split(".")
        keep = len(parts) - statement.level + (1 if module.is_package else 0)
        base = ".".join(parts[: max(keep, 0)])
        return ".".join(filter(None, [base, statement.module or ""]))

    def _imported(self, module: Module, binding: Binding, alias: ast.alias) -> Iterator[Value]:
        outer = alias.name if binding.of is None else binding.of.module or ""
        is_relative = binding.of is not None and binding.of.level > 0
        if not is_relative and self._lies_beside(module, outer.partition(".")[0]):
            yield Unknown(f"{outer} may be the file beside this one: that depends on how it is run")
            return
        if binding.of is not None:
            yield from self.member(self._import_source(module, binding.of), alias.name)
            return
        name = alias.name if alias.asname else alias.name.partition(".")[0]
        yield TreeModule(name) if self.has_module(name) else External(name)

    def _lies_beside(self, module: Module, top: str) -> bool:
        """True where a script or test can find a top-level module in its own folder.

        Python and pytest put that folder on sys.path. A module that is only imported does not get it,
        so a backend called like the component it wraps hides nothing.
        """
        folder, _, name = module.file.path.rpartition("/")
        is_test = name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"
        if self.has_module(top) or not (is_test or "__main__" in module.file.source.text):
            return False
        beside = f"{folder}/{top}" if folder else top
        return f"{beside}.py" in self.files or f"{beside}/__init__.py" in self.files

    def member(self, module_name: str, name: str) -> Iterator[Value]:
        """What a module's attribute can be; the module may lie outside the tree."""
        key = (module_name, name)
        if key in self._active:
            self._cut = True
            yield Unknown("the name leads back to itself")
            return
        if not self.has_module(module_name):
            yield External(f"{module_name}.{name}")
            return
        self._active.add(key)
        try:
            found = list(self._tree_member(module_name, name))
        finally:
            self._active.discard(key)
        yield from found

    def _tree_member(self, module_name: str, name: str) -> Iterator[Value]:
        full = f"{module_name}.{name}"
        path = self._paths.get(module_name)
        if path is not None:
            module = self.module_at(path)
            scope = module.names.module
            if name in scope.bindings:
                for binding in module.names.reaching(name, scope, None):
                    yield from self._binding(module, binding, scope)
                return
            if self.has_module(full):
                yield TreeModule(full)
                return
            if scope.stars:
                yield from self._starred(module, name)
                return
        elif self.has_module(full):
            yield TreeModule(full)
            return
        yield Unknown(f"{module_name} does not define `{name}`")

    # Attributes

    def _attribute(self, module: Module, node: ast.Attribute) -> Iterator[Value]:
        owner = self.class_of_self(module, node.value)
        if owner is not None:
            yield from self.class_attribute(module, owner, node.attr)
            return
        for base in self.values(module, node.value):
            match base:
                case External():
                    yield External(f"{base.path}.{node.attr}")
                case TreeModule():
                    yield from self.member(base.name, node.attr)
                case Definition(node=ast.ClassDef() as definition):
                    yield from self._class_body(self.module_at(base.file), definition, node.attr)
                case Nothing():
                    continue
                case _:
                    yield Unknown(f"`{short(node.value)}` cannot be followed")

    def class_of_self(self, module: Module, node: ast.expr) -> ast.ClassDef | None:
        """The class whose method names its first parameter like this expression, else None."""
        if not isinstance(node, ast.Name):
            return None
        scope: Names | None = module.names.scope_of(node)
        while scope is not None and node.id not in scope.bindings:
            scope = scope.outer
        if scope is None or not isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        first = (scope.node.args.posonlyargs + scope.node.args.args)[:1]
        if not first or first[0].arg != node.id or scope.outer is None or _is_static(scope.node):
            return None
        owner = scope.outer.node
        return owner if isinstance(owner, ast.ClassDef) else None

    def class_attribute(
        self, module: Module, owner: ast.ClassDef, name: str, depth: int = 0
    ) -> Iterator[Value]:
        """What `self.name` can be in a method of `owner`: own assignments, else those of the bases."""
        assigned = [
            v for value in self_assignments(owner, name) for v in self.values(module, value)
        ]
        in_body = list(self._class_body(module, owner, name, instance=True, inherited=False))
        if assigned or in_body:
            yield from assigned
            yield from (v for v in in_body if not (assigned and isinstance(v, Nothing)))
            return
        found = False
        for base in owner.bases if depth < _MAX_DEPTH else []:
            for value in self.values(module, base):
                if isinstance(value, Definition) and isinstance(value.node, ast.ClassDef):
                    inner = self.module_at(value.file)
                    inherited = list(self.class_attribute(inner, value.node, name, depth + 1))
                    if any(not isinstance(v, Unknown) for v in inherited):
                        yield from inherited
                        found = True
        if not found:
            yield Unknown(f"no class of the tree assigns `self.{name}`")

    def _class_body(
        self,
        module: Module,
        owner: ast.ClassDef,
        name: str,
        *,
        instance: bool = False,
        inherited: bool = True,
    ) -> Iterator[Value]:
        scope = module.names.scopes[owner]
        for binding in module.names.reaching(name, scope, None):
            if isinstance(binding.how, ast.FunctionDef | ast.AsyncFunctionDef):
                bound = instance and not _is_static(binding.how)
                yield Definition(module.file.path, binding.how, bound)
            elif (
                instance
                and isinstance(binding.how, ast.expr)
                and not isinstance(binding.how, ast.Constant)
            ):
                yield from self._class_level(module, binding.how, name)
            else:
                yield from self._binding(module, binding, scope)
        if inherited and name not in scope.bindings:
            yield Unknown(f"class {owner.name} does not define `{name}`")

    def _class_level(self, module: Module, value: ast.expr, name: str) -> Iterator[Value]:
        """A callable in a class body becomes a method, unless `staticmethod` wraps it."""
        is_static = isinstance(value, ast.Call) and short(value.func) == "staticmethod"
        if is_static and isinstance(value, ast.Call) and value.args:
            yield from self.values(module, value.args[0])
        else:
            yield Unknown(f"`{name}` is a class attribute: a call passes the instance as well")

    # Calls

    def _call(self, module: Module, node: ast.Call) -> Iterator[Value]:
        for callee in self.values(module, node.func):
            path = callee.path if isinstance(callee, External) else ""
            if path == "functools.partial" and node.args:
                for of in self.values(module, node.args[0]):
                    yield (
                        of
                        if isinstance(of, Unknown | Nothing)
                        else Partial(of, module.file.path, node)
                    )
            elif path in _TRANSPARENT and len(node.args) > 1:
                yield from self.values(module, node.args[1])
            elif node.args and (path in _KEEPING or _is_wrapping(callee)):
                yield from self.values(module, node.args[0])
            elif path == "importlib.import_module" and node.args:
                yield self._imported_by_call(node)
            elif short(node.func) == "getattr" and len(node.args) > 1:
                yield from self._getattr(module, node)
                return
            else:
                yield Unknown(f"the result of `{short(node)}`")

    def _imported_by_call(self, node: ast.Call) -> Value:
        match node.args[0]:
            case ast.Constant(value=str(name)) if not name.startswith("."):
                return TreeModule(name) if self.has_module(name) else External(name)
        return Unknown(f"the module of `{short(node)}` is not a plain string")

    def _getattr(self, module: Module, node: ast.Call) -> Iterator[Value]:
        name = node.args[1]
        if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
            yield Unknown(f"the name in `{short(node)}` is not a plain string")
            return
        for base in self.values(module, node.args[0]):
            if isinstance(base, External):
                yield External(f"{base.path}.{name.value}")
            elif isinstance(base, TreeModule):
                yield from self.member(base.name, name.value)
            else:
                yield Unknown(f"`{short(node.args[0])}` cannot be followed")
        for default in node.args[2:]:
            yield from self.values(module, default)

    # Parameters

    def _parameter(self, module: Module, argument: ast.arg, scope: Names) -> Iterator[Value]:
        function = scope.node
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Unknown(f"`{argument.arg}` is a parameter of a lambda")
            return
        found = False
        for caller, call in self.callers(module, function):
            passed = argument_for(call, function, argument.arg, bound=_binds_self(scope))
            if passed is not None:
                found = True
                yield from self.values(caller, passed)
        default = default_of(function, argument)
        if default is not None and not isinstance(default, ast.Constant):
            yield from self.values(module, default)
            found = True
        if not found:
            yield Unknown(f"`{argument.arg}` is a parameter, and no caller in the tree passes it")

    def callers(self, module: Module, function: FunctionNode) -> Iterator[tuple[Module, ast.Call]]:
        """Calls in the tree that lead to `function`, with the module they stand in."""
        owner = module.names.parents.get(function)
        is_init = function.name == "__init__" and isinstance(owner, ast.ClassDef)
        word = owner.name if is_init and isinstance(owner, ast.ClassDef) else function.name
        wanted = owner if is_init else function
        self.watched.add(word)
        for path, file in self.files.items():
            if word not in file.source.text:
                continue
            caller = self.module_at(path)
            for call in caller.names.calls:
                if last_name(call.func) != word:
                    continue
                values = self.values(caller, call.func)
                if any(isinstance(v, Definition) and v.node is wanted for v in values):
                    yield caller, call


def last_name(node: ast.expr) -> str:
    """The identifier an expression ends in: `d` of `a.b.d` and of `d`; "" for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def argument_for(
    call: ast.Call, function: FunctionNode, name: str, *, bound: bool
) -> ast.expr | None:
    """The expression that a call passes for a parameter, None where it passes none that is visible."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    positional = [a.arg for a in function.args.posonlyargs + function.args.args][
        1 if bound else 0 :
    ]
    if name in positional:
        position = positional.index(name)
        before = call.args[: position + 1]
        if len(before) > position and not any(isinstance(a, ast.Starred) for a in before):
            return before[position]
    return None


def default_of(function: FunctionNode, argument: ast.arg) -> ast.expr | None:
    """The default of a parameter, None for a required one."""
    arguments = function.args
    positional = arguments.posonlyargs + arguments.args
    if argument in positional:
        position = positional.index(argument) - len(positional) + len(arguments.defaults)
        return arguments.defaults[position] if position >= 0 else None
    return arguments.kw_defaults[arguments.kwonlyargs.index(argument)]


def _is_wrapping(value: Value) -> bool:
    """True for a decorator of the tree that says of what it returns that it stands for its argument."""
    return (
        isinstance(value, Definition) and isinstance(value.node, FUNCTIONS) and _wraps(value.node)
    )


def _wraps(node: FunctionNode | ast.ClassDef) -> bool:
    wrappers = [
        part
        for part in ast.walk(node)
        if isinstance(part, ast.FunctionDef) and part.args.vararg and part.args.kwarg
    ]
    return bool(wrappers) and all(
        any(isinstance(d, ast.Call) and last_name(d.func) == "wraps" for d in part.decorator_list)
        for part in wrappers
    )


def _binds_self(scope: Names) -> bool:
    outer = scope.outer
    node = scope.node
    is_method = outer is not None and outer.is_class
    return (
        is_method
        and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not _is_static(node)
    )


def _is_static(function: FunctionNode) -> bool:
    return any(last_name(d) == "staticmethod" for d in function.decorator_list)


def self_assignments(owner: ast.ClassDef, name: str) -> Iterator[ast.expr]:
    """Values that methods of a class assign to an attribute of their first parameter."""
    for method in owner.body:
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = (method.args.posonlyargs + method.args.args)[:1]
        for node in ast.walk(method) if first else ():
            value = getattr(node, "value", None)
            if value is None or not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if (
                    isinstance(target, ast.Attribute)
                    and target.attr == name
                    and isinstance(target.value, ast.Name)
                    and target.value.id == first[0].arg
                ):
                    yield value


def _distinct(values: Iterator[Value]) -> tuple[Value, ...]:
    found = tuple(dict.fromkeys(values))
    return found or (Unknown("it has no value here"),)


def short(node: ast.expr) -> str:
    """An expression's source on one line, shortened for a message."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
