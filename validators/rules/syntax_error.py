"""ATT001."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from attngate.validators.context import Context, Hit, SourceFile
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

_PYTHON = f"Python {sys.version_info.major}.{sys.version_info.minor}"


@rule("ATT001", "syntax-error")
def syntax_error(file: SourceFile, context: Context) -> Iterator[Hit]:  # noqa: ARG001 (every rule over files is called alike)
    """A Python file that does not compile.

    Why:
        The module cannot be imported at all, and no other rule can look into it. Line and column
        count in the committed bytes, whatever the work tree's line endings are.

    Instead:
        Repair the file; `python -m py_compile FILE` says the same. A file that is meant for a newer
        Python than the one that runs attngate needs attngate installed under that Python.
    """
    problem = file.source.problem
    if problem is None:
        return
    yield Hit(
        file.at(problem.line, problem.column),
        f"does not compile: {problem.message}",
        advice=problem.advice,
        origin=_PYTHON,
    )
