"""How a class of the plugin gets into the target: entry points, platform, registries, layers.

Ways are found upwards, from the place that names the class to the entry points of the distribution,
and told downwards. The target's part of a way is told only as the line that calls into the plugin.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from attngate.validators.conditions import FunctionNode, conditions_of, tags_of, texts_of
from attngate.validators.hops import EntryPoint, Hop, paths_of_plugin
from attngate.validators.index import Ref
from attngate.validators.infer import Method
from attngate.validators.rules.class_path import path_of, path_strings
from attngate.validators.symbols import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attngate.validators.context import Context, SourceFile

_DEEPEST = 8
_MOST = 6
_ENUM = re.compile(r"(?:\w+\.)*(\w+\.[A-Z][A-Z0-9_]*)")
_IMPORT = re.compile(
    r"^([ \t]*)(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]+)|import[ \t]+([\w. ,]+))",
    re.MULTILINE,
)
_REGISTERS = re.compile(r"register\w*\(\s*[^)]*\.[A-Z]\w*,\s*(?:class_path\s*=\s*)?[\"']")
_NOT_REACHED = "no way from an entry point of the distribution leads here"

Way = tuple[Hop, ...]


@dataclass(eq=False)
class Registrations:
    """Where classes of the plugin are registered, selected and bound.

    Attributes:
        context: The tree.
        entry_points: Entry points of the distribution that the tree builds.
    """

    context: Context
    entry_points: Sequence[EntryPoint] = ()
    _active: set[object] = field(default_factory=set)

    @cached_property
    def _paths(self) -> list[str]:
        return paths_of_plugin(self.context)

    def of(self, ref: Ref) -> tuple[Hop, ...]:
        """Every way from an entry point to a registration or selection of a class."""
        ways: list[Way] = []
        members: set[str] = set()
        for file, node, member in self._named(ref):
            members |= {member} - {""}
            ways += self._to_registration(ref, file, node, member)
        ways += self._decorated(ref, members, reached=bool(ways))
        for member in sorted(members):
            ways += self._selected(member)
        return _merged(ways)

    # Places that name the class

    def _named(self, ref: Ref) -> Iterator[tuple[SourceFile, ast.Constant, str]]:
        """Strings with the class's path, and the member of an enum that stands beside them."""
        for name in self._paths:
            file = self.context.files[name]
            if ref.name not in file.source.text:
                continue
            for constant in path_strings(file, self.context.index):
                if path_of(constant) == f"{ref.module}.{ref.name}":
                    call = _call_around(file, constant)
                    yield file, constant, _member_in(call) if call is not None else ""

    def members(self) -> Iterator[tuple[str, str]]:
        """Members of enums with the path of the class that is registered under them."""
        for name in self._paths:
            file = self.context.files[name]
            if not _REGISTERS.search(file.source.text):
                continue
            for constant in path_strings(file, self.context.index):
                call = _call_around(file, constant)
                member = _member_in(call) if call is not None else ""
                if member:
                    yield member, path_of(constant)

    def _to_registration(
        self, ref: Ref, file: SourceFile, node: ast.Constant, member: str
    ) -> list[Way]:
        tests = conditions_of(file.source.names, node)
        name = f'{member} = "{ref.module}.{ref.name}"' if member else f'"{ref.module}.{ref.name}"'
        place = f"{file.path} line {node.lineno}"
        hop = Hop("registration", name, place, texts_of(tests), tags_of(tests))
        return self._ways(file, node, hop)

    def _decorated(self, ref: Ref, members: set[str], *, reached: bool) -> list[Way]:
        known = self.context.index.class_of(ref)
        found: list[Way] = []
        for decorator in known.decorators if known is not None else ():
            if "register" not in decorator:
                continue
            match = _ENUM.search(decorator.partition("(")[2])
            if match:
                members.add(match[1])
            place = self.context.index.place(ref.module, known.line)  # type: ignore[union-attr]
            note = "takes effect when the module is imported"
            if reached:
                note += ", as the path above makes the target do"
            hop = Hop("registration", f"@{decorator}", place, tags=("decorator",), note=note)
            ways = [] if reached else self._importing(ref.module, hop)
            found += ways or [(hop,)]
        return found

    def _selected(self, member: str) -> Iterator[Way]:
        """Places that choose the member of the enum, other than registrations of it."""
        for name in self._paths:
            file = self.context.files[name]
            if member not in file.source.text:
                continue
            for node in file.source.names.attributes:
                if not f".{dotted(node)}".endswith(f".{member}") or _registers(file, node):
                    continue
                tests = conditions_of(file.source.names, node)
                hop = Hop(
                    "selection", f"{member}{_rank(file, node)}", f"{file.path} line {node.lineno}",
                    texts_of(tests), tags_of(tests),
                )  # fmt: skip
                yield from self._ways(file, node, hop)

    # Upwards

    def _ways(self, file: SourceFile, node: ast.AST, end: Hop) -> list[Way]:
        """Ways from entry points to a place, each with its end; the end alone where there is none."""
        found = [(*way, end) for way in self._to(file, node)][:_MOST]
        note = f"{end.note}; {_NOT_REACHED}" if end.note else _NOT_REACHED
        return found or [(replace(end, note=note),)]

    def _to(self, file: SourceFile, node: ast.AST) -> Iterator[Way]:
        """Ways to the function around a place, that function included."""
        function = _function_around(file, node)
        if function is None:
            yield from self._importing_ways(self.context.index.module_of(file.path))
            return
        key = (file.path, function)
        if key in self._active or len(self._active) >= _DEEPEST:
            return
        self._active.add(key)
        try:
            yield from self._to_function(file, function)
        finally:
            self._active.discard(key)

    def _to_function(self, file: SourceFile, function: FunctionNode) -> Iterator[Way]:
        module = self.context.index.module_of(file.path)
        owner = self.context.inference.class_around(file, function.body[0])
        place = f"{file.path} line {function.lineno}"
        if owner is None:
            hop = Hop("function", function.name, place)
            for entry in self.entry_points:
                if (
                    entry.value.replace(":", ".").partition("[")[0].strip()
                    == f"{module}.{function.name}"
                ):
                    yield (self._entry(entry), hop)
        else:
            hop = Hop("method", f"{owner.name}.{function.name}", place)
            yield from self._from_target(owner, function.name, hop)
            yield from self._from_registered(owner, hop)
        for where, call in self._callers(module, owner, function.name):
            tests = conditions_of(where.source.names, call)
            called = f"called at {where.path} line {call.lineno}"
            taken = replace(hop, conditions=texts_of(tests), tags=tags_of(tests), note=called)
            for way in self._to(where, call):
                yield (*way, taken)

    def _entry(self, entry: EntryPoint) -> Hop:
        name = f"{entry.group}: {entry.name} = {entry.value}"
        return Hop("entry point", name, entry.place, origin="distribution")

    def _callers(
        self, module: str, owner: Ref | None, name: str
    ) -> Iterator[tuple[SourceFile, ast.Call]]:
        for path in self._paths:
            file = self.context.files[path]
            if f"{name}(" not in file.source.text:
                continue
            for call in file.source.names.calls:
                if dotted(call.func).rpartition(".")[2] == name and self._means(
                    file, call, module, owner, name
                ):
                    yield file, call

    def _means(
        self, file: SourceFile, call: ast.Call, module: str, owner: Ref | None, name: str
    ) -> bool:
        for value in self.context.inference.values(file, call.func):
            if owner is None and value == Ref("function", module, name):
                return True
            if owner is not None and isinstance(value, Method) and value.function.name == name:
                classes = [
                    value.owner,
                    *self.context.index.derived_from(value.owner.module, value.owner.name),
                ]
                if owner in classes:
                    return True
        return False

    def _from_target(self, owner: Ref, method: str, hop: Hop) -> Iterator[Way]:
        """Ways to a method that the target calls: the class is named by a path in a string."""
        note = self._called_by_target(owner, method)
        if not note:
            return
        called = replace(hop, note=note)
        for file, constant, made in self._paths_to(owner):
            tests = conditions_of(file.source.names, constant)
            named = Hop(
                "platform" if _is_platform(self.context, owner) else "registration",
                f'"{path_of(constant)}"{made}', f"{file.path} line {constant.lineno}",
                texts_of(tests), tags_of(tests),
            )  # fmt: skip
            for way in self._to(file, constant):
                yield (*way, named, called)

    def _called_by_target(self, owner: Ref, method: str) -> str:
        """Where the target calls a method of the plugin; "" where it does not."""
        target = self.context.index.target
        if target is None:
            return "who calls it is not visible: there is no target"
        # A class of the target that calls its own method of the same name says nothing.
        holder = (
            "current_platform"
            if _is_platform(self.context, owner)
            else r"(?!(?:cls|self)\.)[\w\])]+"
        )
        call = re.compile(rf"(?<![\w.]){holder}\.{method}\(".encode())
        found = [
            (path, raw.count(b"\n", 0, match.start()) + 1)
            for path, raw in target.mentioning(f".{method}(")
            if (match := call.search(raw))
        ]
        if not found:
            return ""
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        return f"called by {target.label}, {found[0][0]} line {found[0][1]}{more}"

    def _from_registered(self, owner: Ref, hop: Hop) -> Iterator[Way]:
        """Ways to a method of a class that a decorator registers: by the import of its module."""
        known = self.context.index.class_of(owner)
        for decorator in known.decorators if known is not None else ():
            if "register" in decorator:
                place = self.context.index.place(owner.module, known.line)  # type: ignore[union-attr]
                note = f"{owner.name}; takes effect when the module is imported"
                made = Hop("registration", f"@{decorator}", place, tags=("decorator",), note=note)
                for way in self._importing_ways(owner.module):
                    yield (*way, made, hop)

    def _paths_to(self, owner: Ref) -> Iterator[tuple[SourceFile, ast.Constant, str]]:
        """Strings that name a class, one below it, or a module's name that stands for one of them."""
        index = self.context.index
        below = {owner, *index.derived_from(owner.module, owner.name)}
        modules = {ref.module for ref in below}
        for path in self._paths:
            file = self.context.files[path]
            if not any(module in file.source.text for module in modules):
                continue
            for constant in path_strings(file, index):
                module, _, name = path_of(constant).rpartition(".")
                if Ref("class", module, name) in below:
                    yield file, constant, ""
                elif module in modules:
                    made = [r for r in self._stands_for(module, name) if r in below]
                    if made:
                        yield file, constant, f" = {' or '.join(r.name for r in made)}"

    def _stands_for(self, module: str, name: str) -> list[Ref]:
        file = self.context.files[self.context.index.path_of(module)]
        found: list[Ref] = []
        for binding in file.source.names.module.bindings.get(name, ()):
            if isinstance(binding.how, ast.expr):
                values = self.context.inference.values(file, binding.how)
                found += [v for v in values if isinstance(v, Ref) and v.kind == "class"]
        return found

    # Imports

    def _importing(self, module: str, end: Hop) -> list[Way]:
        return [(*way, end) for way in self._importing_ways(module)][:1]

    def _importing_ways(self, module: str) -> Iterator[Way]:
        """The shortest chain of imports from a function of an entry point, or from its module."""
        waiting: list[tuple[str, Way]] = [(module, ())]
        seen = {module}
        while waiting:
            current, rest = waiting.pop(0)
            for importer, line in self._importers.get(current, ()):
                file = self.context.files[self.context.index.path_of(importer)]
                hop = Hop("import", current, f"{file.path} line {line}")
                ways = list(self._to_import(file, line))
                if ways:
                    yield (*ways[0], hop, *rest)
                    return
                if importer not in seen:
                    seen.add(importer)
                    waiting.append((importer, (hop, *rest)))

    def _to_import(self, file: SourceFile, line: int) -> Iterator[Way]:
        module = self.context.index.module_of(file.path)
        nodes = (
            [n for n in file.source.names.imports if n.lineno == line]
            if self._is_entered(module)
            else []
        )
        for node in nodes:
            if _function_around(file, node) is not None:
                yield from self._to(file, node)
            else:
                for entry in self.entry_points:
                    if entry.value.partition(":")[0].strip() == module:
                        yield (self._entry(entry),)

    def _is_entered(self, module: str) -> bool:
        """True for a module with the function of an entry point: only there imports need a syntax tree."""
        return any(entry.value.partition(":")[0].strip() == module for entry in self.entry_points)

    @cached_property
    def _importers(self) -> dict[str, list[tuple[str, int]]]:
        """Module of the tree to the modules that import it, with the line; by the text alone."""
        found: dict[str, list[tuple[str, int]]] = {}
        index = self.context.index
        for path in self._paths:
            importer = index.module_of(path)
            text = self.context.files[path].source.text
            for match in _IMPORT.finditer(text):
                line = text.count("\n", 0, match.start() + len(match[1])) + 1
                for module in self._imported(importer, match):
                    found.setdefault(module, []).append((importer, line))
        return found

    def _imported(self, importer: str, match: re.Match[str]) -> Iterator[str]:
        index = self.context.index
        named: list[str] = []
        if match[4]:
            named = [part.split()[0] for part in match[4].split(",") if part.split()]
        else:
            source = index.absolute(importer, match[2])
            words = re.sub(r"#[^\n]*", "", match[3])
            named = [
                source,
                *(f"{source}.{w}" for w in re.findall(r"(\w+)(?:\s+as\s+\w+)?", words)),
            ]
        for name in dict.fromkeys(named):
            parts = name.split(".")
            # Importing a module runs every package above it.
            for end in range(1, len(parts) + 1):
                module = ".".join(parts[:end])
                if index.is_tree(module) and index.path_of(module) and module != importer:
                    yield module


def _merged(ways: list[Way]) -> tuple[Hop, ...]:
    """Ways as a tree: what they have in common at their beginning is told once."""
    groups: dict[Hop, list[Way]] = {}
    for way in ways:
        if way:
            groups.setdefault(way[0], []).append(way[1:])
    return tuple(replace(head, steps=_merged(rest)) for head, rest in groups.items())


def _function_around(file: SourceFile, node: ast.AST) -> FunctionNode | None:
    """The outermost function around a node: one that others can call."""
    found: FunctionNode | None = None
    parent = file.source.names.parents.get(node)
    while parent is not None:
        if isinstance(parent, FunctionNode):
            found = parent
        parent = file.source.names.parents.get(parent)
    return found


def _call_around(file: SourceFile, node: ast.AST) -> ast.Call | None:
    parent = file.source.names.parents.get(node)
    if isinstance(parent, ast.keyword):
        parent = file.source.names.parents.get(parent)
    return parent if isinstance(parent, ast.Call) else None


def _member_in(call: ast.Call) -> str:
    """The member of an enum among the arguments of a call: "AttentionBackendEnum.FLASH_ATTN"."""
    for argument in [*call.args, *(k.value for k in call.keywords)]:
        match = _ENUM.fullmatch(dotted(argument))
        if match:
            return match[1]
    return ""


def _registers(file: SourceFile, node: ast.AST) -> bool:
    """True for a member that stands in a registration, as an argument or in a decorator."""
    call = _call_around(file, node)
    return call is not None and "register" in dotted(call.func)


def _rank(file: SourceFile, node: ast.AST) -> str:
    parent = file.source.names.parents.get(node)
    if isinstance(parent, ast.List | ast.Tuple) and node in parent.elts:
        return f", number {parent.elts.index(node) + 1} of {len(parent.elts)}"
    return ""


def _is_platform(context: Context, owner: Ref) -> bool:
    lineage = context.index.lineage(owner)
    names = [known.name for _, known in lineage.classes]
    return "Platform" in [*names, *(path.rpartition(".")[2] for path in lineage.foreign)]
