"""Comments that suppress a finding: `# attngate: ignore[ATT101] reason`.

A comment covers the logical line it stands on, brackets and all; alone on a line it covers the next
one. It must name its codes and give a reason, and one that suppresses nothing is reported.
"""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import SourceFile
    from attngate.validators.model import Finding

MARK = "attngate:"
_COMMENT = re.compile(r"#\s*attngate:\s*(?P<body>.*)")
_IGNORE = re.compile(r"ignore(?:\[(?P<codes>[^\]]*)\])?\s*(?P<reason>.*)")
_BLANKS = (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)


@dataclass(frozen=True, slots=True)
class Suppression:
    """One comment.

    Attributes:
        line: Line of the comment.
        first: First line it covers.
        last: Last line it covers.
        codes: Codes it names.
        reason: Its reason, "" where it gives none.
        problem: Why it cannot be used, "" for a good one.
    """

    line: int
    first: int
    last: int
    codes: tuple[str, ...]
    reason: str
    problem: str = ""

    def covers(self, finding: Finding) -> bool:
        """True for a finding that this comment suppresses."""
        return (
            not self.problem
            and finding.code in self.codes
            and self.first <= finding.location.line <= self.last
        )


def suppressions(file: SourceFile) -> list[Suppression]:
    """Every suppressing comment of a file; none where it does not parse."""
    if MARK not in file.source.text or file.source.problem is not None:
        return []
    found: list[Suppression] = []
    waiting: list[tuple[int, str]] = []
    for first, last, comments in _logical_lines(file.source.text):
        if last == 0:
            waiting += comments
            continue
        for line, text in [*waiting, *comments]:
            found += _parsed(text, line, first, last)
        waiting = []
    return found + [s for line, text in waiting for s in _parsed(text, line, line, line)]


def _logical_lines(text: str) -> Iterator[tuple[int, int, list[tuple[int, str]]]]:
    """First and last line of each logical line with its comments; (0, 0, ...) for comments alone."""
    first = 0
    comments: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.append((token.start[0], token.string))
        if token.type == tokenize.NEWLINE:
            yield first or token.start[0], token.end[0], comments
            first, comments = 0, []
        elif token.type == tokenize.NL and first == 0 and comments:
            yield 0, 0, comments
            comments = []
        elif token.type not in _BLANKS and first == 0:
            first = token.start[0]


def _parsed(text: str, line: int, first: int, last: int) -> Iterator[Suppression]:
    comment = _COMMENT.search(text)
    if comment is None:
        return
    match = _IGNORE.fullmatch(comment["body"].strip())
    if match is None:
        problem = f"`{comment['body'].strip()}` is no instruction"
        yield Suppression(line, first, last, (), "", problem)
        return
    codes = tuple(filter(None, (c.strip() for c in (match["codes"] or "").split(","))))
    reason = match["reason"].strip()
    problem = "" if codes else "it names no code"
    yield Suppression(
        line, first, last, codes, reason, problem or ("" if reason else "it gives no reason")
    )
