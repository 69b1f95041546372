"""`attngate explain`: what a rule means, why it matters, and what to write instead."""

from __future__ import annotations

import difflib
import json
import sys
from typing import TYPE_CHECKING, Any

from attngate.hooks.errors import EXIT_PASS, UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from attngate.validators.registry import Rule

HELP = "explain a rule: what it finds, why it matters, what to write instead"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the code, `--all` and `--format`."""
    parser.add_argument("code", nargs="*", help="codes or names of rules, as in a finding")
    parser.add_argument("--all", action="store_true", help="every rule")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="default: text")


def run(args: Namespace) -> int:
    """Print the manual of the rules that were asked for.

    Raises:
        UsageError: No rule was named, or one that does not exist.
    """
    from attngate.validators import check  # noqa: F401 (registers the codes that the check itself gives out)
    from attngate.validators.registry import all_rules

    rules = all_rules()
    if not args.all and not args.code:
        raise UsageError(
            "no rule was named", f"Name a code, or use --all; codes: {', '.join(rules)}."
        )
    chosen = list(rules.values()) if args.all else [_find(rules, code) for code in args.code]
    if args.format == "json":
        print(json.dumps([as_data(rule) for rule in chosen], indent=2))
    else:
        sys.stdout.write("\n".join(as_text(rule) for rule in chosen))
    return EXIT_PASS


def _find(rules: dict[str, Rule], word: str) -> Rule:
    for rule in rules.values():
        if word.upper() == rule.code or word == rule.name:
            return rule
    names = [*rules, *(rule.name for rule in rules.values())]
    close = difflib.get_close_matches(word, [*names, word.upper()], n=2, cutoff=0.5)
    near = [name for name in close if name in names]
    advice = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"there is no rule {word}", f"{advice}`attngate explain --all` prints all of them."
    )


def as_data(rule: Rule) -> dict[str, Any]:
    """A rule's manual as plain data."""
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity.value,
        "summary": rule.summary,
        "why": rule.why,
        "instead": rule.instead,
    }


def as_text(rule: Rule) -> str:
    """A rule's manual as a user reads it on a terminal."""
    head = f"{rule.code} {rule.name} ({rule.severity.value})"
    return f"{head}\n\n{rule.summary}\n\nWhy\n{_indented(rule.why)}\n\nInstead\n{_indented(rule.instead)}\n"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
