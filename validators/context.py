"""What a rule is given: the tree, its Python files, and what was found out about them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from attngate.validators.model import Kind, Level, Location
from attngate.validators.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attngate.validators.contracts.judge import Judge
    from attngate.validators.facts import Facts
    from attngate.validators.index import Index
    from attngate.validators.infer import Inference
    from attngate.validators.memory import Memory
    from attngate.validators.model import CheckOptions, Severity, Snapshot
    from attngate.validators.source import Source
    from attngate.validators.symbols import Summary

Answer = TypeVar("Answer")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(eq=False)
class SourceFile:
    """A Python file of the tree under its path.

    Attributes:
        path: The path as text, as in `Location.path`.
        key: The path as git stores it.
        load: Gives text and syntax tree; called when they are first asked for.
        facts_known: Facts from an earlier check of the same contents, None without.
        symbols_known: Summary from an earlier check of the same contents, None without.
    """

    path: str
    key: bytes
    load: Callable[[], Source] = field(repr=False)
    facts_known: Facts | None = None
    symbols_known: Summary | None = None

    @classmethod
    def of(cls, path: str, key: bytes, source: Source) -> SourceFile:
        """A file whose source is at hand."""
        made = cls(path, key, lambda: source)
        made.source = source
        return made

    @cached_property
    def source(self) -> Source:
        """Text and syntax tree."""
        return self.load()

    @property
    def facts(self) -> Facts:
        """What is asked of every file."""
        return self.facts_known or self.source.facts

    @property
    def symbols_seen(self) -> Summary | None:
        """The summary where it is known already; None where nobody asked for it."""
        if self.symbols_known is not None or "source" not in self.__dict__:
            return self.symbols_known
        seen: Summary | None = self.source.__dict__.get("symbols")
        return seen if self.source.parses else None

    @property
    def symbols(self) -> Summary | None:
        """What other files can see of this one; None where it does not parse."""
        if self.symbols_known is not None:
            return self.symbols_known
        symbols = self.source.symbols
        return symbols if self.source.parses else None

    def at(self, line: int, column: int = 1, end_line: int | None = None) -> Location:
        """A location in this file with the name of the function or class around it."""
        return Location(self.path, line, column, end_line, self.symbol_at(line))

    def at_node(self, node: ast.expr | ast.stmt | ast.keyword) -> Location:
        """The location of a node of this file's syntax tree."""
        return self.at(node.lineno, node.col_offset + 1, node.end_lineno)

    def symbol_at(self, line: int) -> str:
        """Qualified name of the innermost function or class that holds the line, "" outside."""
        best = ""
        for name, start, end in self._spans:
            if start <= line <= end:
                best = name
        return best

    @cached_property
    def _spans(self) -> list[tuple[str, int, int]]:
        spans: list[tuple[str, int, int]] = []
        _collect_spans(self.source.tree, "", spans)
        return spans


def _collect_spans(node: ast.AST, prefix: str, spans: list[tuple[str, int, int]]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _SCOPES):
            name = f"{prefix}.{child.name}" if prefix else child.name
            first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
            spans.append((name, first, child.end_lineno or child.lineno))
            _collect_spans(child, name, spans)
        elif not isinstance(child, ast.expr):
            _collect_spans(child, prefix, spans)


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rule yields: a finding without what the rule itself already says.

    Attributes:
        location: Where.
        message: What is wrong, in one sentence that names the thing.
        advice: What to do about it.
        expected: What the contract says.
        observed: What the source says.
        origin: What decides.
        level: How strongly `origin` is established.
        severity: Severity of this finding; None for the rule's own.
        kind: Whose defect it is.
    """

    location: Location
    message: str
    advice: str = ""
    expected: str = ""
    observed: str = ""
    origin: str = ""
    level: Level = Level.SOURCE_INSPECTED
    severity: Severity | None = None
    kind: Kind = Kind.UNKNOWN


@dataclass(eq=False)
class Context:
    """Everything a rule may look at.

    Attributes:
        snapshot: The tree.
        options: The options of this check.
        files: Every readable Python file of the tree by its path, also outside the scope: names are
            followed through all of them.
        in_scope: Paths whose findings count.
        memory: What earlier checks found out; None to begin anew.
    """

    snapshot: Snapshot
    options: CheckOptions
    files: Mapping[str, SourceFile]
    in_scope: frozenset[str] = field(default=frozenset())
    memory: Memory | None = None
    _once: dict[object, tuple[object, set[str]]] = field(default_factory=dict, repr=False)

    def once(self, question: Callable[[Context], Answer]) -> Answer:
        """The answer to a question about the whole tree, worked out when it is first asked."""
        return self.index.remembered(self._once, question, lambda: question(self))  # type: ignore[return-value]

    @cached_property
    def judge(self) -> Judge:
        """Judges the calls of kernel components; shared by every rule that reports on them."""
        from attngate.validators.contracts.judge import Judge

        return Judge(self.snapshot, self.options, dict(self.files), inference=self.inference)

    @cached_property
    def index(self) -> Index:
        """Names of the tree and of the target, shared by every rule that follows them."""
        from attngate.validators.index import Index

        options = self.options
        generated = Scope(options.generated, ()) if options.generated else None
        index = Index(self.files, options.import_roots, options.target, generated)
        if self.memory is not None:
            index.kept = self.memory.target
        return index

    @cached_property
    def inference(self) -> Inference:
        """What expressions of the tree are, on top of `index`."""
        from attngate.validators.infer import Inference

        return Inference(self.index)
