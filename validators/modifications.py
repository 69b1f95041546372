"""What a plugin had changed of its own in a copy of a target's file, and what became of it.

Four versions of one file are compared statement by statement: the target's that the copy was made from,
the copy before a sync, the target's of now, and the copy of now. A change was lost where none of its
words is left and the target's text stands in its place, although the target never took the change.
Layout, comments, annotations and the plugin's prefix of class names do not count, nor do imports,
docstrings and log lines.

A copy often comes from a state of the target between two releases, so what differs from the release is
not yet a change of the plugin's. Its own hand shows in a comment that names the plugin, in the target's
text commented out beside it, or in words that the plugin imports and the target's file does not.
"""

from __future__ import annotations

import ast
import copy
import difflib
import keyword
import re
import tokenize
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from attngate.validators.source import Source

_BESIDE = 3
_LEAST_COMMENTED = 12
_ASIDE = ("import ", "from ", '"', "'", "pass", "...", "logger", "print(", "warnings.", "logging.")
_OPENS = re.compile(r"#[\s#=*-]*(?:[/┌╭╔]|begin\b|start\b)", re.IGNORECASE)
_CLOSES = re.compile(r"#[\s#=*-]*(?:[\\└╰╚]|end\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    """A simple statement, or the head of one that holds others.

    Attributes:
        scope: Function or class around it; of a class or function, its own name.
        text: Its text without layout and annotations.
        line: First line (1-based).
        end: Last line, without the block below it.
        defines: Name as written of a class or function, "" for another statement.
    """

    scope: str
    text: str
    line: int
    end: int
    defines: str = ""

    @property
    def counts(self) -> bool:
        """False for what changes nothing: imports, docstrings, log lines and the like."""
        return bool(self.text) and not self.text.startswith(_ASIDE)


@dataclass(frozen=True, slots=True)
class Loss:
    """One lost change.

    Attributes:
        line: Where in the copy of now it would stand.
        lost: What the plugin had of its own; empty where it had left some of the target's out.
        back: What of the target stands there instead.
        base_line: Where it stood before.
        words: Words that only the plugin had.
        more: Number of further places in the file where the same words are lost.
        whole: True for a class or function of the plugin that is gone, or that has the target's name again.
        inner: True where only the plugin called it: with its calls, it went on purpose.
    """

    line: int
    lost: tuple[str, ...]
    back: tuple[str, ...]
    base_line: int
    words: frozenset[str] = frozenset()
    more: int = 0
    whole: bool = False
    inner: bool = False


@dataclass(eq=False)
class Copy:
    """One version of the file.

    Args:
        source: Its text and syntax tree.
        prefix: What the plugin puts before class names of the target, "" for nothing.
    """

    source: Source
    prefix: str = ""
    statements: list[Statement] = field(init=False)

    def __post_init__(self) -> None:
        self.statements = list(_statements(self.source.tree, "", self.prefix))

    @cached_property
    def texts(self) -> frozenset[str]:
        """The texts of all statements."""
        return frozenset(s.text for s in self.statements)

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word of a statement that counts."""
        return frozenset(_words(s.text for s in self.statements if s.counts))

    @cached_property
    def imports(self) -> list[Statement]:
        """Import statements."""
        return [s for s in self.statements if s.text.startswith(("import ", "from "))]

    @cached_property
    def scopes(self) -> dict[str, Statement]:
        """Classes and functions by their names with what is around them."""
        return {s.scope: s for s in self.statements if s.defines}

    def words_in(self, scope: str) -> set[str]:
        """Words of the statements that stand in a function or class, or below it."""
        inside = (s for s in self.statements if s.counts and s.scope == scope)
        return _words(s.text for s in inside)

    @cached_property
    def comments(self) -> list[tuple[int, str, bool]]:
        """Line, text, and whether nothing else stands on the line, of every comment."""
        found: list[tuple[int, str, bool]] = []
        lines = iter(f"{line}\n" for line in self.source.lines)
        try:
            for token in tokenize.generate_tokens(lambda: next(lines, "")):
                if token.type == tokenize.COMMENT:
                    alone = not token.line[: token.start[1]].strip()
                    found.append((token.start[0], token.string, alone))
        except (tokenize.TokenError, SyntaxError):
            pass
        return found


def _statements(node: ast.AST, scope: str, prefix: str) -> Iterator[Statement]:
    for child in ast.iter_child_nodes(node):
        inner = scope
        if isinstance(child, ast.stmt):
            defines = getattr(child, "name", "")
            if defines:
                inner = f"{scope}.{_plain(defines, prefix)}".lstrip(".")
            text = _plain(ast.unparse(_head(child)), prefix).removesuffix("\n    pass")
            yield Statement(inner, text, child.lineno, _head_end(child), defines)
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _statements(child, inner, prefix)


def _plain(text: str, prefix: str) -> str:
    return re.sub(rf"\b{re.escape(prefix)}(?=[A-Z])", "", text) if prefix else text


def _head(node: ast.stmt) -> ast.stmt:
    """The statement without the blocks below it and without annotations."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        assigned = ast.Assign(targets=[node.target], value=node.value)
        return ast.copy_location(assigned, node)
    if not isinstance(getattr(node, "body", None), list):
        return node
    head = copy.copy(node)
    for name in ("orelse", "finalbody", "handlers"):
        if hasattr(head, name):
            setattr(head, name, [])
    head.body = [ast.Pass()]  # type: ignore[attr-defined]
    if isinstance(head, ast.FunctionDef | ast.AsyncFunctionDef):
        head.returns = None
        head.args = _without_annotations(head.args)
    return head


def _without_annotations(arguments: ast.arguments) -> ast.arguments:
    plain = copy.copy(arguments)
    for name in ("posonlyargs", "args", "kwonlyargs"):
        setattr(plain, name, [ast.arg(a.arg) for a in getattr(arguments, name)])
    for name in ("vararg", "kwarg"):
        one = getattr(arguments, name)
        setattr(plain, name, ast.arg(one.arg) if one is not None else None)
    return plain


def _head_end(node: ast.stmt) -> int:
    if not isinstance(getattr(node, "body", None), list):
        return node.end_lineno or node.lineno
    blocks = (ast.stmt, ast.ExceptHandler, ast.match_case)
    parts = [child for child in ast.iter_child_nodes(node) if not isinstance(child, blocks)]
    inner = [p for part in parts for p in (part, *ast.iter_child_nodes(part))]
    return max([node.lineno, *(getattr(p, "end_lineno", None) or 0 for p in inner)])


def _words(texts: Iterable[str]) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", " ".join(texts))).difference(keyword.kwlist)


@dataclass(frozen=True, slots=True)
class Hand:
    """What betrays the plugin's own hand in a copy.

    Attributes:
        marks: Matches the plugin's name, also within a longer word.
        names: Names that the copy has from the plugin itself, or from a package that the target's file
            does not use.
    """

    marks: re.Pattern[str]
    names: frozenset[str]

    def lines(self, made: Copy) -> frozenset[int]:
        """Lines that a comment claims: between an opening and a closing one, or just below a lone one."""
        only = {line for line, _, alone in made.comments if alone}
        found: set[int] = set()
        opened = 0
        for line, text, alone in made.comments:
            if not self.marks.search(text):
                continue
            if not alone:
                found.add(line)
            elif _OPENS.match(text):
                found.update(_below(opened, only))
                opened = line
            elif _CLOSES.match(text):
                found.update(range(opened or line, line + 1))
                opened = 0
            elif not opened:
                found.update(_below(line, only))
        found.update(_below(opened, only))
        return frozenset(found)

    def wrote(self, words: set[str]) -> bool:
        """True where one of the words can only be the plugin's."""
        return bool(words & self.names) or any(self.marks.search(word) for word in words)


def _below(line: int, comments: set[int]) -> range:
    """The lines that a lone comment speaks of."""
    last = line
    while last + 1 in comments:
        last += 1
    return range(line, last + _BESIDE + 1) if line else range(0)


@dataclass(eq=False)
class Comparison:
    """Four versions of one file.

    Args:
        previous: The target's that the copy was made from.
        base: The copy before the sync.
        target: The target's of now.
        now: The copy of now.
        hand: What betrays the plugin's own hand in `base`.
        names_now: As the hand's names, of `now`.
    """

    previous: Copy
    base: Copy
    target: Copy
    now: Copy
    hand: Hand
    names_now: frozenset[str] = frozenset()
    _claimed: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self._claimed = self.hand.lines(self.base)

    def losses(self) -> Iterator[Loss]:
        """Every change that may be lost; it may still have moved to another file."""
        yield from self._renamed()
        yield from self._whole()
        yield from _joined(self._changes())

    def _changes(self) -> Iterator[Loss]:
        old, base = self.previous.statements, self.base.statements
        for kind, i1, i2, j1, j2 in _opcodes(old, base):
            if kind != "equal":
                theirs = [s for s in old[i1:i2] if s.counts]
                own = [s for s in base[j1:j2] if s.counts]
                yield from self._changed(theirs, own, j1, j2)

    def _renamed(self) -> Iterator[Loss]:
        """Classes that had the plugin's prefix and have the target's name again."""
        defined = {s.defines for s in self.now.statements}
        for scope, before in self.base.scopes.items():
            after = self.now.scopes.get(scope)
            if after is None or before.defines in defined:
                continue
            if before.defines.endswith(after.defines):
                yield Loss(after.line, (before.defines,), (after.defines,), before.line, whole=True)

    def _whole(self) -> Iterator[Loss]:
        """Classes and functions of the plugin's own that are gone where what held them is not."""
        for scope, before in self.base.scopes.items():
            around = scope.rpartition(".")[0]
            gone = scope not in self.now.scopes and (not around or around in self.now.scopes)
            theirs = scope in self.previous.scopes or scope in self.target.scopes
            if gone and not theirs and self._is_claimed_inside(before):
                name = before.defines
                line = self.now.scopes[around].line if around else 1
                inner = not around or len(re.findall(rf"\b{name}\b", self.base.source.text)) > 1
                if not any(name in _words([s.text]) for s in self.now.imports):
                    yield Loss(line, (name,), (), before.line, whole=True, inner=inner)

    def _is_claimed_inside(self, unit: Statement) -> bool:
        below = (s for s in self.base.statements if f"{s.scope}.".startswith(f"{unit.scope}."))
        lines = range(unit.line, max(s.end for s in below) + 1)
        return not self._claimed.isdisjoint(lines) or self.hand.wrote({unit.defines})

    def _is_claimed(self, statement: Statement, new: set[str]) -> bool:
        lines = range(statement.line, statement.end + 1)
        words = new & _words([statement.text, statement.defines])
        return not self._claimed.isdisjoint(lines) or self.hand.wrote(words)

    def _changed(
        self, theirs: list[Statement], own: list[Statement], j1: int, j2: int
    ) -> Iterator[Loss]:
        new = _words(s.text for s in own) - _words(s.text for s in theirs)
        claimed = [s for s in own if self._is_claimed(s, new)]
        if not claimed:
            beside = self._commented(theirs, self._gap(own, j1))
            claimed = [s for s in own if beside and s.line > beside]
        if claimed:
            yield from self._replaced(claimed, j1, j2)
        elif not own and self._is_gap_claimed(theirs, j1):
            yield from self._left_out(theirs, j1, j2)

    def _gap(self, own: Sequence[Statement], j1: int) -> range:
        """Lines in front of a change and within it; for a deletion, up to the statement behind it."""
        base = self.base.statements
        first = base[j1 - 1].end + 1 if j1 else 1
        behind = base[j1].line - 1 if j1 < len(base) else len(self.base.source.lines)
        return range(first, (own[-1].end if own else behind) + 1)

    def _is_gap_claimed(self, theirs: Sequence[Statement], j1: int) -> bool:
        """True where a comment in the place of a deletion names the plugin or holds what is left out."""
        gap = self._gap((), j1)
        return not self._claimed.isdisjoint(gap) or bool(self._commented(theirs, gap))

    def _commented(self, theirs: Sequence[Statement], gap: range) -> int:
        """The first line with text of the target that is commented out, 0 without one."""
        text = _squeezed(" ".join(s.text for s in theirs))
        for line, comment, _ in self.base.comments:
            words = _squeezed(comment.lstrip("# "))
            if line in gap and len(words) >= _LEAST_COMMENTED and words in text:
                return line
        return 0

    def _left_out(self, theirs: list[Statement], j1: int, j2: int) -> Iterator[Loss]:
        """A deletion: lost where all that was left out is back in its place."""
        region = self._region(j1, j2, theirs[0].scope if theirs else "")
        back = [s for s in region or () if any(t.text == s.text for t in theirs)]
        if theirs and len(back) >= len(theirs) and self._is_targets(region or ()):
            yield self._loss((), back, back[0].line, j1)

    def _replaced(self, claimed: list[Statement], j1: int, j2: int) -> Iterator[Loss]:
        """A change with words of its own: lost where none is left and the target's text took its place."""
        # What the target also says somewhere, such as `return output`, tells nothing of the change.
        claimed = [s for s in claimed if s.text not in self.previous.texts and not self._is_idle(s)]
        if not claimed or any(s.text in self.now.texts | self.target.texts for s in claimed):
            return
        first = claimed[0]
        region = self._region(j1, j2, first.scope)
        if region is None or not self._is_targets(region):
            return
        own_words = _words(s.text for s in claimed) - self.previous.words - self.target.words
        if own_words and own_words <= self._words_around(first.scope):
            return
        after = [s for s in region if s.counts] or self.now.statements[self._after(j1) :][:1]
        line = after[0].line if after else 1
        yield self._loss(claimed, [s for s in region if s.counts], line, j1)

    def _is_idle(self, statement: Statement) -> bool:
        """True for a value of the module that nothing in the file asks for any more."""
        name, sign, _ = statement.text.partition(" = ")
        return bool(sign) and not statement.scope and name not in self.now.words

    def _words_around(self, scope: str) -> set[str]:
        """Words that a function or class still has, or that what is around it has now for the first time."""
        found = self.now.words_in(scope)
        while scope:
            scope = scope.rpartition(".")[0]
            found |= self.now.words_in(scope) - self.base.words_in(scope)
        return found

    def _loss(
        self, lost: Sequence[Statement], back: Sequence[Statement], line: int, j1: int
    ) -> Loss:
        base = self.base.statements
        base_line = lost[0].line if lost else base[min(j1, len(base) - 1)].line
        own, theirs = (tuple(s.text for s in statements) for statements in (lost, back))
        words = frozenset(_words(own) - self.previous.words - self.target.words)
        return Loss(line, own, theirs, base_line, words)

    def _is_targets(self, region: Sequence[Statement]) -> bool:
        """True for the target's text that means what it means there, and that no comment claims."""
        lines = self._claimed_now
        claimed = any(not lines.isdisjoint(range(s.line, s.end + 1)) for s in region)
        if claimed or not self._rebound.isdisjoint(_words(s.text for s in region)):
            return False
        return all(s.text in self.target.texts for s in region if s.counts)

    @cached_property
    def _rebound(self) -> frozenset[str]:
        """Names of the module that are the plugin's own since the sync."""
        theirs = self.target.texts | self.base.texts
        values = [s.text.partition(" = ") for s in self.now.statements if not s.scope]
        new = {name for name, sign, value in values if sign and f"{name} = {value}" not in theirs}
        return frozenset(new | (self.names_now - self.hand.names))

    @cached_property
    def _claimed_now(self) -> frozenset[int]:
        return self.hand.lines(self.now)

    @cached_property
    def _kept(self) -> dict[int, int]:
        """Position of a statement before the sync to its position now."""
        found: dict[int, int] = {}
        for kind, i1, i2, j1, _ in _opcodes(self.base.statements, self.now.statements):
            if kind == "equal":
                found.update(zip(range(i1, i2), range(j1, j1 + i2 - i1), strict=True))
        return found

    def _after(self, j1: int) -> int:
        """Position now of what follows the last statement that is left before a change."""
        kept = self._kept
        return next((kept[j] + 1 for j in range(j1 - 1, -1, -1) if j in kept), 0)

    def _region(self, j1: int, j2: int, scope: str) -> list[Statement] | None:
        """What stands now in the place of a change; None where nothing around it is left.

        Args:
            j1: Position of the change before the sync.
            j2: Its end.
            scope: The function or class that it stands in.
        """
        base, kept = self.base.statements, self._kept
        left = next((j for j in range(j1 - 1, -1, -1) if j in kept), None)
        right = next((j for j in range(j2, len(base)) if j in kept), None)
        beside = [base[j].scope for j in (left, right) if j is not None]
        if scope and scope not in beside:
            inside = [s for s in self.now.statements if s.scope == scope and not s.defines]
            return [s for s in inside if s.text not in self.base.texts] or None
        end = kept[right] if right is not None else len(self.now.statements)
        between = self.now.statements[self._after(j1) : end]
        return [s for s in between if s.scope == scope]


def _joined(found: Iterable[Loss]) -> list[Loss]:
    """The losses of the same words as one, in the place of the first."""
    joined: dict[object, Loss] = {}
    for loss in found:
        key: object = loss.words or loss
        known = joined.get(key)
        joined[key] = loss if known is None else replace(known, more=known.more + 1)
    return list(joined.values())


def _opcodes(
    first: Sequence[Statement], second: Sequence[Statement]
) -> list[tuple[str, int, int, int, int]]:
    old, new = ([(s.scope, s.text) for s in statements] for statements in (first, second))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return list(matcher.get_opcodes())


def _squeezed(text: str) -> str:
    return re.sub(r"[\s\"',]", "", text)
