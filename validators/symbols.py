"""What one Python file defines, as plain data: the part of a source that other files can see.

A summary holds names, classes, signatures and attributes, no expressions to evaluate. It depends on
the file's bytes alone, so it is kept on disk under their hash and read back without parsing.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

SUMMARY_VERSION = 1
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_Stored = tuple[ast.Attribute, ast.expr | None, ast.expr | None]
_LONGEST_VALUE = 2000
_OWN = re.compile(r"(self|cls)\.\w+")


class Param(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One parameter: kind "p" by position, "e" either way, "k" by keyword; `default` is its text."""

    name: str
    kind: str
    default: str | None
    annotation: str = ""


class Function(msgspec.Struct, frozen=True, array_like=True):
    """A function or method.

    Attributes:
        name: Its name.
        line: First line, decorators not counted.
        params: The named parameters in order, `self` included.
        star: Name of `*args`, "" without.
        kwargs: Name of `**kwargs`, "" without.
        decorators: Dotted names of the decorators, without their arguments.
        annotation: Annotation of what comes back.
        only_raises: True where the body does nothing but raise NotImplementedError or is empty.
        returned: Number of values of each `return` that is written as a tuple; -1 for any other.
        is_async: True for `async def`.
        end: Last line.
    """

    name: str
    line: int
    params: tuple[Param, ...]
    star: str
    kwargs: str
    decorators: tuple[str, ...]
    annotation: str
    only_raises: bool
    returned: tuple[int, ...]
    is_async: bool
    end: int

    @property
    def is_abstract(self) -> bool:
        """True below `@abstractmethod`."""
        return any(d.rpartition(".")[2].startswith("abstract") for d in self.decorators)

    def has_decorator(self, name: str) -> bool:
        """True where a decorator's last word is `name`."""
        return any(d.rpartition(".")[2] == name for d in self.decorators)


class Attribute(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A value that a class body or a method gives to an attribute.

    Attributes:
        name: The attribute.
        line: Where.
        annotation: Its annotation, "" without.
        value: Text of the value, "" without one; cut where it is long.
        method: Method that sets it on `self`, "" in the class body.
        kind: Syntax of the value ("Call", "List", "Name", ...), "" without one.
    """

    name: str
    line: int
    annotation: str
    value: str
    method: str
    kind: str


class Class(msgspec.Struct, frozen=True, array_like=True):
    """A class.

    Attributes:
        name: Qualified name in the module.
        line: Line of `class`.
        end: Last line.
        bases: Text of the bases.
        decorators: Text of the decorators, arguments included.
        keywords: Keywords of the class statement, "metaclass=ABCMeta" and the like.
        methods: Name to the definitions, more than one under conditions.
        attributes: Name to what sets it.
        is_open: True where instances can have attributes that no statement names.
    """

    name: str
    line: int
    end: int
    bases: tuple[str, ...]
    decorators: tuple[str, ...]
    keywords: tuple[str, ...]
    methods: dict[str, list[Function]]
    attributes: dict[str, list[Attribute]]
    is_open: bool = False


class Bound(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One statement of a module that binds a name.

    Attributes:
        kind: "import" (a module), "from" (a module's name), "class", "def", "value", "call" or "other".
        line: Where.
        module: For imports: the module as written, with leading dots.
        name: For "from": the name there. For "value": the value's text, a dotted name. For "call": the
            dotted name that is called.
        annotation: Annotation of the name, "" without.
        guard: "" always, "typing" below TYPE_CHECKING, "try", "except" in its handler, "if".
    """

    kind: str
    line: int
    module: str = ""
    name: str = ""
    guard: str = ""
    annotation: str = ""


class Summary(msgspec.Struct, frozen=True, array_like=True):
    """A module.

    Attributes:
        names: Name to the statements that bind it at module level.
        stars: Modules of star imports, with leading dots.
        imported: Modules imported by `import a.b.c` anywhere, which makes `a.b.c` reachable.
        classes: Qualified name to class.
        functions: Functions at module level.
        tables: Module-level mapping with string keys to those keys; a module `__getattr__` may read it.
        is_open: True where names can appear that nothing here shows (`globals()`, `sys.modules[...]`).
        getattr_reads: Module-level names that a module `__getattr__` reads; None without one.
        operators: Names given to custom operators that this module registers, with their lines.
        listed: Operator names that are added to a list whose name ends in "ops", with their lines.
        late: Optional components that are imported in a function or a `try`, or asked for by name in a
            call, with their lines.
        patched: Dotted names that module-level code or functions assign to ("Class.method").
        strings: Identifiers among the string arguments of calls that can add attributes.
        lines: Number of lines.
    """

    names: dict[str, list[Bound]]
    stars: tuple[str, ...]
    imported: tuple[str, ...]
    classes: dict[str, Class]
    functions: dict[str, list[Function]]
    tables: dict[str, tuple[str, ...]]
    is_open: bool
    getattr_reads: tuple[str, ...] | None
    operators: tuple[tuple[str, int], ...]
    listed: tuple[tuple[str, int], ...]
    late: tuple[tuple[str, int], ...]
    patched: tuple[str, ...]
    strings: tuple[str, ...]
    lines: int


def shape_of(summary: Summary) -> bytes:
    """A summary without its line numbers: what others can see, wherever in the file it stands."""
    return msgspec.msgpack.encode(_without_lines(summary))


def _without_lines(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        names = [n for n in value.__struct_fields__ if n not in ("line", "end", "lines")]
        return [_without_lines(getattr(value, name)) for name in names]
    if isinstance(value, dict):
        return {key: _without_lines(part) for key, part in value.items()}
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], int):
        return value[0] if isinstance(value[0], str) else list(value)
    if isinstance(value, list | tuple):
        return [_without_lines(part) for part in value]
    return value


def summarise(tree: ast.Module, text: str) -> Summary:
    """The summary of a parsed file.

    Args:
        tree: Syntax tree of `text`.
        text: The source.
    """
    return _Reader(tree, text).read()


def dotted(node: ast.expr | None) -> str:
    """A name or a chain of attributes as text, "" for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    parts.append(node.id)
    return ".".join(reversed(parts))


class _Reader:
    """Fills one summary; statements of functions are read only for what others can see of them."""

    def __init__(self, tree: ast.Module, text: str) -> None:
        self._tree = tree
        self._text_of_file = text
        self._lines = text.encode("utf-8", "surrogateescape").splitlines()
        self._names: dict[str, list[Bound]] = {}
        self._stars: list[str] = []
        self._imported: set[str] = set()
        self._classes: dict[str, Class] = {}
        self._functions: dict[str, list[Function]] = {}
        self._tables: dict[str, tuple[str, ...]] = {}
        self._open = False
        self._getattr: tuple[str, ...] | None = None
        self._operators: list[tuple[str, int]] = []
        self._listed: list[tuple[str, int]] = []
        self._late: list[tuple[str, int]] = []
        self._patched: set[str] = set()
        self._strings: set[str] = set()
        self._found = _Found(tree, whole=any(word in text for word in _TELLING))

    def read(self) -> Summary:
        self._block(self._tree.body, "")
        self._everywhere()
        return Summary(
            names=self._names,
            stars=tuple(self._stars),
            imported=tuple(sorted(self._imported)),
            classes=self._classes,
            functions=self._functions,
            tables=self._tables,
            is_open=self._open,
            getattr_reads=self._getattr,
            operators=tuple(self._operators),
            listed=tuple(self._listed),
            late=tuple(self._late),
            patched=tuple(sorted(self._patched)),
            strings=tuple(sorted(self._strings)),
            lines=len(self._lines),
        )

    # The module level

    def _bind(self, name: str, bound: Bound) -> None:
        self._names.setdefault(name, []).append(bound)

    def _block(self, body: list[ast.stmt], guard: str) -> None:
        for statement in body:
            self._statement(statement, guard)
            if ":=" in self._text_of_file:
                self._walruses(statement, guard)

    def _walruses(self, statement: ast.stmt, guard: str) -> None:
        """Names that an expression of a statement binds; those of nested blocks are found there."""
        waiting = [p for p in ast.iter_child_nodes(statement) if isinstance(p, ast.expr)]
        for node in (part for expression in waiting for part in ast.walk(expression)):
            if isinstance(node, ast.NamedExpr):
                self._assign(node.target, node.value, node.lineno, guard)

    def _statement(self, node: ast.stmt, guard: str) -> None:  # noqa: C901, PLR0912 (one case a kind)
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node, guard)
            case ast.ClassDef():
                self._bind(node.name, Bound("class", node.lineno, guard=guard))
                self._class(node, "")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._bind(node.name, Bound("def", node.lineno, guard=guard))
                self._functions.setdefault(node.name, []).append(self._function(node))
                if node.name == "__getattr__":
                    self._getattr = _names_read(node)
                self._globals_of(node, guard)
            case ast.Assign():
                for target in node.targets:
                    self._assign(target, node.value, node.lineno, guard)
            case ast.AnnAssign():
                self._assign(node.target, node.value, node.lineno, guard, node.annotation)
            case ast.AugAssign() | ast.Expr():
                pass
            case ast.If():
                typing = dotted(node.test).rpartition(".")[2] == "TYPE_CHECKING"
                self._block(node.body, "typing" if typing else guard or "if")
                self._block(node.orelse, guard or "if")
            case ast.Try() | ast.TryStar():
                self._block(node.body, guard or "try")
                for handler in node.handlers:
                    self._block(handler.body, "except")
                self._block(node.orelse, guard or "try")
                self._block(node.finalbody, guard)
            case ast.With() | ast.AsyncWith() | ast.For() | ast.While():
                self._other_targets(node, guard)
                self._block(node.body, guard)
                self._block(getattr(node, "orelse", []), guard)
            case ast.Match():
                for case in node.cases:
                    self._captured(case.pattern, guard or "if")
                    self._block(case.body, guard or "if")

    def _other_targets(self, node: ast.stmt, guard: str) -> None:
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.stmt):
                continue
            for name in ast.walk(part):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    self._bind(name.id, Bound("other", name.lineno, guard=guard))

    def _captured(self, pattern: ast.pattern, guard: str) -> None:
        """Names that a pattern binds."""
        for part in ast.walk(pattern):
            name = getattr(part, "rest", None) or getattr(part, "name", None)
            if isinstance(name, str):
                self._bind(name, Bound("other", pattern.lineno, guard=guard))

    def _globals_of(self, function: _FunctionNode, guard: str) -> None:
        """Names that a function declares global are bound in the module as well."""
        for node in self._found.globals.get(function, ()):
            for name in node.names:
                self._bind(name, Bound("other", node.lineno, guard=guard))

    def _import(self, node: ast.Import | ast.ImportFrom, guard: str) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                self._bind(alias.asname or name, Bound("import", node.lineno, name, guard=guard))
            return
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self._stars.append(module)
            else:
                bound = Bound("from", node.lineno, module, alias.name, guard)
                self._bind(alias.asname or alias.name, bound)

    def _assign(
        self,
        target: ast.expr,
        value: ast.expr | None,
        line: int,
        guard: str,
        annotation: ast.expr | None = None,
    ) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._assign(part, None, line, guard)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, None, line, guard)
        elif isinstance(target, ast.Name):
            note = self._text(annotation) if annotation is not None else ""
            kind, name = _value_kind(value)
            self._bind(target.id, Bound(kind, line, "", name, guard, note))
            keys = _string_keys(value)
            if keys:
                self._tables[target.id] = (*self._tables.get(target.id, ()), *keys)

    # Classes and functions

    def _class(self, node: ast.ClassDef, outer: str) -> None:
        name = f"{outer}.{node.name}" if outer else node.name
        found = Class(
            name=name,
            line=node.lineno,
            end=node.end_lineno or node.lineno,
            bases=tuple(self._text(b) for b in node.bases),
            decorators=tuple(self._text(d) for d in node.decorator_list),
            keywords=tuple(f"{k.arg}={self._text(k.value)}" for k in node.keywords),
            methods={},
            attributes={},
            is_open=self._is_open_class(node),
        )
        self._class_block(node.body, found)
        # Of several under conditions the one with most in it counts; the others stand in for it.
        other = self._classes.get(name)
        if other is None or _size(found) >= _size(other):
            self._classes[name] = found

    def _is_open_class(self, node: ast.ClassDef) -> bool:
        """True where a method sets attributes by names that it works out."""
        if not any(word in self._text_of_file for word in ("setattr(", "__dict__", "locals()")):
            return False
        for part in ast.walk(node):
            if isinstance(part, ast.Subscript) and _is_namespace(part.value):
                return True
            if isinstance(part, ast.Attribute) and part.attr == "__dict__":
                return True
            if isinstance(part, ast.Call) and dotted(part.func) in (
                "setattr",
                "object.__setattr__",
            ):
                owner, name = [*part.args[:2], None, None][:2]
                if dotted(owner) in ("self", "cls") and not isinstance(name, ast.Constant):
                    return True
        return False

    def _class_block(self, body: list[ast.stmt], into: Class) -> None:  # noqa: C901 (one case a kind)
        for node in body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    into.methods.setdefault(node.name, []).append(self._function(node))
                    self._self_attributes(node, into)
                case ast.ClassDef():
                    self._attribute(into, node.name, node.lineno, None, None, "")
                    self._class(node, into.name)
                case ast.Assign():
                    for target in node.targets:
                        self._class_target(target, node.value, node.lineno, into)
                case ast.AnnAssign(target=ast.Name(id=name)):
                    self._attribute(into, name, node.lineno, node.annotation, node.value, "")
                case ast.Import() | ast.ImportFrom():
                    for alias in node.names:
                        bound = alias.asname or alias.name.partition(".")[0]
                        self._attribute(into, bound, node.lineno, None, None, "")
                case (
                    ast.If() | ast.Try() | ast.TryStar() | ast.With() | ast.For() | ast.While()
                    | ast.Match()
                ):  # fmt: skip
                    for block in _blocks(node):
                        self._class_block(block, into)

    def _class_target(self, target: ast.expr, value: ast.expr, line: int, into: Class) -> None:
        if isinstance(target, ast.Name):
            self._attribute(into, target.id, line, None, value, "")
        elif isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._class_target(part, ast.Constant(...), line, into)

    def _attribute(
        self,
        into: Class,
        name: str,
        line: int,
        annotation: ast.expr | None,
        value: ast.expr | None,
        method: str,
    ) -> None:
        text = self._text(value)[:_LONGEST_VALUE] if value is not None else ""
        kind = type(value).__name__ if value is not None else ""
        note = self._text(annotation) if annotation is not None else ""
        into.attributes.setdefault(name, []).append(Attribute(name, line, note, text, method, kind))

    def _self_attributes(self, method: _FunctionNode, into: Class) -> None:
        first = (method.args.posonlyargs + method.args.args)[:1]
        if not first:
            return
        for target, annotation, value in self._found.stored.get(method, ()):
            if isinstance(target.value, ast.Name) and target.value.id == first[0].arg:
                self._attribute(into, target.attr, target.lineno, annotation, value, method.name)

    def _function(self, node: _FunctionNode) -> Function:
        arguments = node.args
        return Function(
            name=node.name,
            line=node.lineno,
            params=tuple(self._params(arguments)),
            star=arguments.vararg.arg if arguments.vararg else "",
            kwargs=arguments.kwarg.arg if arguments.kwarg else "",
            decorators=tuple(
                dotted(d.func if isinstance(d, ast.Call) else d) or "?" for d in node.decorator_list
            ),
            annotation=self._text(node.returns) if node.returns is not None else "",
            only_raises=_only_raises(node.body),
            returned=tuple(sorted(set(self._found.returned.get(node, ())))),
            is_async=isinstance(node, ast.AsyncFunctionDef),
            end=node.end_lineno or node.lineno,
        )

    def _params(self, arguments: ast.arguments) -> Iterator[Param]:
        positional = [(a, "p") for a in arguments.posonlyargs] + [(a, "e") for a in arguments.args]
        required = len(positional) - len(arguments.defaults)
        defaults: list[ast.expr | None] = [None] * required + list(arguments.defaults)
        named = [(a, k, d) for (a, k), d in zip(positional, defaults, strict=True)]
        named += [
            (a, "k", d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        ]
        for argument, kind, default in named:
            text = self._text(default) if default is not None else None
            note = self._text(argument.annotation) if argument.annotation is not None else ""
            yield Param(argument.arg, kind, text, note)

    def _text(self, node: ast.expr) -> str:
        """The source of an expression on one line."""
        path = dotted(node)
        if path:
            return path
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        if first == last and 0 <= first < len(self._lines):
            raw = self._lines[first][node.col_offset : node.end_col_offset]
        else:
            parts = [self._lines[first][node.col_offset :], *self._lines[first + 1 : last]]
            parts.append(self._lines[last][: node.end_col_offset])
            raw = b" ".join(part.strip() for part in parts)
        return " ".join(raw.decode("utf-8", "replace").split())

    # What any statement of the file can do

    def _everywhere(self) -> None:
        for call in self._found.calls:
            self._call(call)
        for node in self._found.late:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            tops = {(name or "").partition(".")[0] for name in names}
            self._late += [(top, node.lineno) for top in tops if top in OPTIONAL_COMPONENTS]
        for node in self._found.imports:
            if isinstance(node, ast.Import):
                self._imported.update(alias.name for alias in node.names)
            elif node.module and not node.level:
                self._imported.add(node.module)
        for path in filter(None, map(dotted, self._found.patched)):
            self._set_outside(path)
        self._open = self._open or any(map(_is_namespace, self._found.subscripted))

    def _call(self, node: ast.Call) -> None:
        name = dotted(node.func).rpartition(".")[2] or getattr(node.func, "attr", "")
        literal = [a.value for a in node.args if isinstance(a, ast.Constant)]
        words = [w for w in literal if isinstance(w, str)]
        named = [k.value for k in node.keywords if k.arg in ("op_name", "name")]
        words += [
            n.value for n in named if isinstance(n, ast.Constant) and isinstance(n.value, str)
        ]
        if _NAMING.search(name):
            self._strings.update(w for w in words if w.isidentifier())
        if name == "setattr" and len(node.args) > 1 and words and dotted(node.args[0]):
            self._set_outside(f"{dotted(node.args[0])}.{words[0]}")
        self._late += [(w, node.lineno) for w in words[:1] if w in OPTIONAL_COMPONENTS]
        if name in _REGISTERING and words:
            self._operators.append((words[0], node.lineno))
        if name in ("append", "extend"):
            self._list_operators(node)
        if name == "update" and isinstance(node.func, ast.Attribute):
            self._open = self._open or _is_namespace(node.func.value)
        if name in ("exec", "setattr") and self._is_module_level(node):
            self._open = True

    def _set_outside(self, path: str) -> None:
        if not _OWN.fullmatch(path):
            self._patched.add(path)

    def _list_operators(self, node: ast.Call) -> None:
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if owner is None or not self._text(owner).endswith(("_ops", "_operators")):
            return
        for part in ast.walk(node):
            if (
                isinstance(part, ast.Constant)
                and isinstance(part.value, str)
                and "::" in part.value
            ):
                self._listed.append((part.value, part.lineno))

    def _is_module_level(self, node: ast.Call) -> bool:
        if dotted(node.func) == "exec":
            return True
        target = node.args[0] if node.args else None
        return isinstance(target, ast.Subscript) and _is_namespace(target.value)


# Components without which most models run; flash_attn is not among them.
OPTIONAL_COMPONENTS = frozenset(["flash_mla", "deep_gemm", "flashinfer", "tilelang"])
_NAMING = re.compile(r"setattr|register_|add_module|replace_|set_\w*attr")
# Without one of these words in the text no expression has to be looked into. Plain words are found
# ten times as fast as a pattern of alternatives.
_TELLING = (
    "setattr", "register_buffer", "register_parameter", "register_module", "add_module", "replace_",
    "_attr", "custom_op", ".define(", "triton_op", ".impl(", "globals()", "vars()", "locals()",
    "sys.modules", "exec(", "yield", "_ops.", "_operators.", "find_spec", "import_module(",
)  # fmt: skip
_REGISTERING = frozenset(
    ["direct_register_custom_op", "custom_op", "define", "register_custom_op", "triton_op", "impl"]
)


def _size(known: Class) -> int:
    return len(known.methods) + len(known.attributes)


def _value_kind(value: ast.expr | None) -> tuple[str, str]:
    path = dotted(value)
    if path:
        return "value", path
    called = dotted(value.func) if isinstance(value, ast.Call) else ""
    return ("call", called) if called else ("other", "")


def _is_namespace(node: ast.expr) -> bool:
    """True for `globals()` and `sys.modules`."""
    if isinstance(node, ast.Call):
        return dotted(node.func) in ("globals", "vars", "locals") and not node.args
    return dotted(node) == "sys.modules"


def _string_keys(node: ast.expr | None) -> tuple[str, ...]:
    if isinstance(node, ast.Dict):
        keys = node.keys
        found = [k.value for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
        return tuple(found)
    return ()


def _names_read(function: ast.AST) -> tuple[str, ...]:
    return tuple(
        sorted(
            {
                n.id
                for n in ast.walk(function)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
            }
        )
    )


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, [])
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def _only_raises(body: list[ast.stmt]) -> bool:
    rest = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    rest = [s for s in rest if not isinstance(s, ast.Pass)]
    if not rest:
        return True
    if len(rest) != 1 or not isinstance(rest[0], ast.Raise) or rest[0].exc is None:
        return False
    raised = rest[0].exc
    return "NotImplemented" in dotted(raised.func if isinstance(raised, ast.Call) else raised)


class _Found:
    """What one walk over a syntax tree collects; walking is what a summary costs, so it is done once."""

    def __init__(self, tree: ast.Module, *, whole: bool) -> None:
        """Walk the statements, and what is in them as well where `whole` says that it can matter."""
        self.calls: list[ast.Call] = []
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.late: list[ast.Import | ast.ImportFrom] = []
        self.patched: list[ast.expr] = []
        self.subscripted: list[ast.expr] = []
        self.globals: dict[ast.AST, list[ast.Global]] = {}
        self.returned: dict[ast.AST, list[int]] = {}
        self.stored: dict[ast.AST, list[_Stored]] = {}
        self._waiting: list[tuple[ast.AST, ast.AST | None, ast.AST | None]] = [(tree, None, None)]
        visit = self._visit if whole else self._visit_statement
        while self._waiting:
            visit(*self._waiting.pop())

    def _visit(  # noqa: C901 (the hot loop)
        self, node: ast.AST, function: ast.AST | None, method: ast.AST | None
    ) -> None:
        kind = type(node)
        if kind is ast.Call:
            self.calls.append(node)  # type: ignore[arg-type]
        elif kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
            function, method = node, method or node
        elif kind is ast.ClassDef:
            function = method = None
        elif kind is ast.Lambda:
            function = None
        elif kind in _NOTED:
            self._note(node, function, method)
        waiting = self._waiting
        for value in node.__dict__.values():
            if type(value) is list:
                for part in value:
                    if isinstance(part, ast.AST) and type(part) not in _LEAVES:
                        waiting.append((part, function, method))
            elif isinstance(value, ast.AST) and type(value) not in _LEAVES:
                waiting.append((value, function, method))

    def _visit_statement(
        self, node: ast.AST, function: ast.AST | None, method: ast.AST | None
    ) -> None:
        kind = type(node)
        if kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
            function, method = node, method or node
        elif kind is ast.ClassDef:
            function = method = None
        elif kind in _NOTED:
            self._note(node, function, method)
        for name in _BLOCKS.get(kind, ()):
            self._waiting += [(part, function, method) for part in getattr(node, name)]

    def _note(  # noqa: C901 (one case a kind)
        self, node: ast.AST, function: ast.AST | None, method: ast.AST | None
    ) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self.imports.append(node)
                if function is not None:
                    self.late.append(node)
            case ast.Try():
                guarded = [s for s in node.body if isinstance(s, ast.Import | ast.ImportFrom)]
                self.late += guarded if function is None else []
            case ast.Assign():
                for target in node.targets:
                    self._store(target, None, node.value, method)
            case ast.AnnAssign() | ast.AugAssign():
                annotation = getattr(node, "annotation", None)
                value = node.value if isinstance(node, ast.AnnAssign) else None
                self._store(node.target, annotation, value, method)
            case ast.For() | ast.AsyncFor() | ast.withitem():
                self._store(
                    getattr(node, "target", None) or getattr(node, "optional_vars", None),
                    None,
                    None,
                    method,
                )
            case ast.Global() if function is not None:
                self.globals.setdefault(function, []).append(node)
            case ast.Return() if function is not None:
                self.returned.setdefault(function, []).append(_count(node.value))
            case ast.Yield() | ast.YieldFrom() if function is not None:
                self.returned.setdefault(function, []).append(-1)

    def _store(
        self,
        target: ast.expr | None,
        annotation: ast.expr | None,
        value: ast.expr | None,
        method: ast.AST | None,
    ) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._store(part, None, None, method)
        elif isinstance(target, ast.Attribute):
            self.patched.append(target)
            if method is not None:
                self.stored.setdefault(method, []).append((target, annotation, value))
        elif isinstance(target, ast.Subscript):
            self.subscripted.append(target.value)


# Statements with other statements in them, and where these are.
_BLOCKS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Module: ("body",),
    ast.FunctionDef: ("body",),
    ast.AsyncFunctionDef: ("body",),
    ast.ClassDef: ("body",),
    ast.If: ("body", "orelse"),
    ast.For: ("body", "orelse"),
    ast.AsyncFor: ("body", "orelse"),
    ast.While: ("body", "orelse"),
    ast.With: ("items", "body"),
    ast.AsyncWith: ("items", "body"),
    ast.Try: ("body", "handlers", "orelse", "finalbody"),
    ast.TryStar: ("body", "handlers", "orelse", "finalbody"),
    ast.ExceptHandler: ("body",),
    ast.Match: ("cases",),
    ast.match_case: ("body",),
}
_NOTED = frozenset(
    [
        ast.Import,
        ast.ImportFrom,
        ast.Assign,
        ast.AnnAssign,
        ast.AugAssign,
        ast.For,
        ast.AsyncFor,
        ast.withitem,
        ast.Global,
        ast.Return,
        ast.Yield,
        ast.YieldFrom,
        ast.Try,
    ]
)
# Nodes that hold nothing of interest: skipping them halves the walk.
_LEAVES = frozenset(
    [
        ast.Name,
        ast.Constant,
        ast.Load,
        ast.Store,
        ast.Del,
        ast.Pass,
        ast.Break,
        ast.Continue,
        ast.alias,
    ]
)


def _count(value: ast.expr | None) -> int:
    if value is None or (isinstance(value, ast.Constant) and value.value is None):
        return 0
    if isinstance(value, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in value.elts):
        return len(value.elts)
    return -1
