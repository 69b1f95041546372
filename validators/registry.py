"""The rules: how one is written, and how they are found.

A rule is one file in `rules/` with one generator under `@rule(...)`. Its docstring is its manual:
the first line is the summary, the sections "Why:" and "Instead:" say the rest.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from attngate.validators.model import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from attngate.validators.context import Hit

    Body = Callable[..., Iterator[Hit]]

_CODE = re.compile(r"ATT\d{3}")
_SECTION = re.compile(r"^(Why|Instead):\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        code: "ATT" and three digits; never used again for another rule.
        name: Short name in words with dashes.
        severity: What a finding of it is where nothing lowers it.
        over: "file" (called for every Python file in scope), "tree" (called once), or "calls" (called
            once, and reports nothing but what the judge of component calls found).
        body: The generator of findings; None for a code that the check itself gives out.
        summary: First line of the docstring.
        why: Why it matters.
        instead: What to write instead.
    """

    code: str
    name: str
    severity: Severity
    over: str
    body: Body | None
    summary: str
    why: str
    instead: str


_RULES: dict[str, Rule] = {}


def rule(
    code: str, name: str, severity: Severity = Severity.ERROR, *, over: str = "file"
) -> Callable[[Body], Body]:
    """Register a generator as the rule `code`.

    A rule over files is called as `body(source_file, context)`, any other as `body(context)`.

    Args:
        code: "ATT" and three digits, not in use.
        name: Short name in words with dashes.
        severity: Default severity of its findings.
        over: "file", "tree" or "calls".

    Raises:
        ValueError: The code is malformed or in use, or the docstring lacks a section.
    """

    def register(body: Body) -> Body:
        _add(code, name, severity, over, body, inspect.getdoc(body) or "")
        return body

    return register


def internal_rule(code: str, name: str, severity: Severity, doc: str) -> None:
    """Register a code whose findings come from the check itself, with its manual."""
    _add(code, name, severity, "tree", None, inspect.cleandoc(doc))


def _add(code: str, name: str, severity: Severity, over: str, body: Body | None, doc: str) -> None:
    if not _CODE.fullmatch(code) or over not in ("file", "tree", "calls"):
        raise ValueError(
            f"rule {code}: codes are ATT and three digits, and over is 'file', 'tree' or 'calls'"
        )
    known = _RULES.get(code)
    if known is not None and known.name != name:
        raise ValueError(f"rule {code} is already called {known.name}")
    summary, why, instead = _manual(code, doc)
    _RULES[code] = Rule(code, name, severity, over, body, summary, why, instead)


def _manual(code: str, doc: str) -> tuple[str, str, str]:
    head, *rest = _SECTION.split(doc)
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    missing = [name for name in ("Why", "Instead") if not sections.get(name, "").strip()]
    if not head.strip() or missing:
        raise ValueError(
            f"rule {code}: its docstring needs a summary and the sections Why and Instead"
        )
    return head.strip(), inspect.cleandoc(sections["Why"]), inspect.cleandoc(sections["Instead"])


@cache
def all_rules() -> dict[str, Rule]:
    """Every rule by its code, in order of the codes."""
    package: Any = importlib.import_module("attngate.validators.rules")
    names = {n.removesuffix(".py") for n in os.listdir(package.__path__[0]) if n.endswith(".py")}
    for name in sorted(names - {"__init__"}):
        importlib.import_module(f"attngate.validators.rules.{name}")
    return dict(sorted(_RULES.items()))
