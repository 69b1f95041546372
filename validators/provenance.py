"""How a name of the plugin came to be a component's function: imports, aliases and attributes."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attngate.validators.conditions import conditions_of, tags_of, texts_of
from attngate.validators.hops import Hop
from attngate.validators.symbols import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.index import Index, Ref
    from attngate.validators.names import Binding


@dataclass(eq=False)
class Provenance:
    """The statements between a name and the component that it comes from, each told once."""

    context: Context
    _told: set[tuple[str, str]] = field(default_factory=set)

    def of(self, file: SourceFile, func: ast.expr, receiver: Ref | None) -> tuple[Hop, ...]:
        """What binds the name that is called; of `self.name`, what it was given.

        Args:
            file: The file of the call.
            func: What is called.
            receiver: The class of `self`, None where there is none.
        """
        path = dotted(func)
        around = self.context.inference.class_around(file, func)
        if path.startswith("self.") and path.count(".") == 1:
            return tuple(self._attribute(around or receiver, func.attr))  # type: ignore[attr-defined]
        first = path.partition(".")[0]
        scope = file.source.names.scope_of(func)
        if any(isinstance(b.how, ast.arg) for b in scope.bindings.get(first, ())):
            function = getattr(scope.node, "name", "")
            place = f"{file.path} line {getattr(scope.node, 'lineno', 1)}"
            return (
                Hop("parameter", first, place, note=f"handed over by the callers of {function}"),
            )
        return tuple(self._bindings(file, first))

    def _attribute(self, owner: Ref | None, name: str) -> Iterator[Hop]:
        index = self.context.index
        for module, known in index.lineage(owner).classes if owner is not None else ():
            file = self.context.files.get(index.path_of(module)) if index.is_tree(module) else None
            set_at = {attribute.line for attribute in known.attributes.get(name, ())}
            if file is None or not set_at:
                continue
            for node, parent in file.source.names.parents.items():
                if not isinstance(node, ast.Attribute) or not isinstance(parent, ast.Assign):
                    continue
                if node.attr == name and node.lineno in set_at:
                    yield from self._given(file, name, parent)

    def _given(self, file: SourceFile, name: str, statement: ast.Assign) -> Iterator[Hop]:
        text = ast.unparse(statement.value)
        if (file.path, f"self.{name} = {text}") in self._told:
            return
        self._told.add((file.path, f"self.{name} = {text}"))
        tests = conditions_of(file.source.names, statement)
        names = [n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)]
        steps = tuple(hop for n in dict.fromkeys(names) for hop in self._bindings(file, n))
        place = f"{file.path} line {statement.lineno}"
        yield Hop("import", f"self.{name} = {text}"[:120], place, texts_of(tests), tags_of(tests),
                  steps=steps)  # fmt: skip

    def _bindings(self, file: SourceFile, name: str) -> Iterator[Hop]:
        index = self.context.index
        module = index.module_of(file.path)
        if not name or (module, name) in self._told or not index.is_tree(module):
            return
        self._told.add((module, name))
        names = file.source.names
        found = [self._binding(file, b) for b in names.module.bindings.get(name, ())]
        yield from dict.fromkeys(hop for hop in found if hop is not None)

    def _binding(self, file: SourceFile, binding: Binding) -> Hop | None:
        line = getattr(binding.how, "lineno", getattr(binding.statement, "lineno", 1))
        place = f"{file.path} line {line}"
        tests = conditions_of(file.source.names, binding.statement)
        conditions, tags = texts_of(tests), tags_of(tests)
        match binding.how:
            case ast.alias(name=imported):
                source = _source_of(self.context.index, file, binding)
                path = f"{source}.{imported}" if source else imported
                steps = self._imported(source, imported)
                return Hop("import", path, place, conditions, tags, steps=steps)
            case ast.expr():
                path = dotted(binding.how) or ast.unparse(binding.how)[:80]
                steps = tuple(self._bindings(file, path.partition(".")[0]))
                text = f"{binding.name} = {path}"
                return Hop("import", text, place, conditions, tags, steps=steps)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return Hop("function", binding.name, place, conditions, tags)
        return None

    def _imported(self, source: str, name: str) -> tuple[Hop, ...]:
        index = self.context.index
        file = self.context.files.get(index.path_of(source)) if index.is_tree(source) else None
        return tuple(self._bindings(file, name)) if file is not None else ()


def _source_of(index: Index, file: SourceFile, binding: Binding) -> str:
    if binding.of is None:
        return ""
    written = "." * binding.of.level + (binding.of.module or "")
    return index.absolute(index.module_of(file.path), written)
