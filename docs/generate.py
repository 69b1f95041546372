"""Write the pages of docs/ that follow from the code.

Usage: python docs/generate.py [--check]

A page is a function without arguments that returns Markdown, listed in `PAGES`. With --check nothing
is written and the pages that are out of date are named. tests/architecture/test_docs.py compares too.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from attngate.validators.contracts.schema import Entry, Observation

DOCS = Path(__file__).parent
NOTE = "<!-- Written by docs/generate.py; edit its source instead. -->\n\n"


def cli_page() -> str:
    """Every verb with its arguments, as its parser has them."""
    from attngate.hooks import cli

    verbs = cli.verbs()
    parts = ["# Commands\n", "`attngate VERB --help` prints the same.\n"]
    parts += [f"- [{verb}](#{verb})" for verb in verbs]
    parts += [_verb(verb, cli.parser_of(verb)) for verb in verbs]
    return "\n".join(parts)


def _verb(verb: str, parser: argparse.ArgumentParser) -> str:
    lines = [f"\n## {verb}\n", f"{(parser.description or '').strip()}\n"]
    lines += _arguments(parser, f"attngate {verb}")
    return "\n".join(lines)


def _arguments(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    actions = [a for a in parser._actions if a.help is not argparse.SUPPRESS]  # noqa: SLF001
    rows = [_row(action) for action in actions if not isinstance(action, argparse._HelpAction)]  # noqa: SLF001
    if rows:
        yield from ("| argument | meaning |", "|---|---|", *rows, "")
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for verb, inner in action.choices.items():
                yield f"### {name} {verb}\n"
                yield f"{(inner.description or '').strip()}\n"
                yield from _arguments(inner, f"{name} {verb}")


def _row(action: argparse.Action) -> str:
    flags = ", ".join(f"`{flag}`" for flag in action.option_strings)
    value = action.metavar or action.dest.upper()
    if action.choices is not None and not action.metavar:
        value = "\\|".join(str(choice) for choice in action.choices)
    named = f" `{value}`" if action.nargs != 0 and flags else ""
    # argparse's own values; %-signs are doubled in its help texts.
    meaning = (action.help or "") % {**vars(action), "prog": "attngate"}
    return f"| {flags or f'`{value}`'}{named} | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def suites_page() -> str:
    """Every suite from the docstrings of its module and of the adapter that makes its calls."""
    from attngate.gpu_runner.worker import registry

    names = registry.available()
    parts = ["# Suites\n", "What a target is held to, by the `suite` of its table.\n"]
    parts += [f"- [{name}](#{name})" for name in names]
    for name in names:
        suite = registry.find(name)
        parts.append(f"\n## {name}\n\nVersion {suite.version}. {_module_text('suites', name)}")
        parts.append(f"\n### How {name} is called\n\n{_module_text('adapters', suite.adapter)}")
    return "\n".join(parts)


def _module_text(kind: str, name: str) -> str:
    module = importlib.import_module(f"attngate.gpu_runner.worker.{kind}.{name}")
    text = inspect.getdoc(module)
    if not text:
        raise SystemExit(f"{kind}/{name}.py needs a docstring, which is its page")
    return text


def rules_page() -> str:
    """Every rule from its docstring."""
    from attngate.validators import check
    from attngate.validators.registry import all_rules

    intro = inspect.getdoc(check) or ""
    parts = [
        "# Rules\n",
        intro.partition("\n\n")[2],
        "\n`attngate explain CODE` prints the same.\n",
    ]
    rules = all_rules().values()
    parts += [
        f"- [{r.code} {r.name}](#{r.code.lower()}-{r.name}) ({r.severity.value})" for r in rules
    ]
    for rule in rules:
        parts.append(f"\n## {rule.code} {rule.name}\n\n{rule.summary}\n")
        parts.append(f"**Why.** {rule.why}\n\n**Instead.** {rule.instead}")
    parts.append("\n## Suppressing a finding\n")
    parts.append(inspect.getdoc(importlib.import_module("attngate.validators.suppress")) or "")
    return "\n".join(parts)


def contracts_page() -> str:
    """Every recorded component build with its entry points and observations."""
    from attngate.validators.contracts import judge
    from attngate.validators.contracts.load import shown_builds

    builds = shown_builds()
    parts = ["# Contracts\n", inspect.getdoc(judge) or "", ""]
    parts += [f"- [{build.id}](#{build.id})" for build in builds]
    for build in builds:
        parts.append(f"\n## {build.id}\n\n{build.title}; component `{build.component}`.\n")
        local = f", with a local version that begins with `{build.local}`" if build.local else ""
        local += f", from {build.local_since} on" if build.local_since else ""
        local += f", before {build.local_before}" if build.local_before else ""
        parts.append(f"Generation: {build.since} up to, not including, {build.before}{local}.\n")
        for entry in build.entries:
            parts += [f"### {build.id}: {entry.name}\n", *_entry(entry)]
        parts += [
            f"### {build.id}: observations\n",
            "| what | level | build, device, date | source |",
        ]
        parts += ["|---|---|---|---|", *(_observation(seen) for seen in build.observations)]
    return "\n".join(parts)


def _entry(entry: Entry) -> Iterator[str]:
    yield f"```python\n{entry.paths[0]}{entry.signature}\n```\n"
    for name, advice in entry.rejected.items():
        yield f"- refuses `{name}`. {advice}"
    for name, advice in entry.unlisted.items():
        yield f"- `{name}` is not in the list, and nobody saw it refused. {advice}"
    for name in entry.unrecorded:
        yield f"- `{name}`: callers pass it, and nobody has observed it here"
    for row in entry.returns:
        options = ", ".join(f"`{name}={value}`" for name, value in row.when.items())
        yield f"- returns {', '.join(row.values)}{f' with {options}' if options else ''}"
    yield from _meanings(entry)
    for constraint in entry.constraints:
        yield f"- refuses: {constraint.message}. {constraint.advice}"
    if entry.lse is not None:
        lse = entry.lse
        yield f"- log-sum-exp: {lse.layout} {lse.dtype}, base {lse.base}, a row without keys is {lse.empty}"
    yield ""


def _meanings(entry: Entry) -> Iterator[str]:
    for name, what in entry.objects.items():
        yield f"- `{name}` is no tensor: {what}"
    for name in entry.in_place:
        yield f"- writes to `{name}`"
    for name, text in (*entry.layouts.items(), *entry.units.items()):
        yield f"- `{name}`: {text}"
    for name, wanted in entry.wants.items():
        option = f", 2 where `{wanted.natural_if}` is false" if wanted.natural_if else ""
        yield f"- takes a log-sum-exp as `{name}`: {wanted.layout}, base {wanted.base}{option}"


def _observation(seen: Observation) -> str:
    device = seen.device if seen.device != "none" else "source only"
    where = f"{', '.join(seen.builds)}, {device}, {seen.date}"
    return f"| {_cell(seen.statement)} | {seen.level.value} | {where} | {_cell(seen.source)} |"


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "suites.md": suites_page,
    "rules.md": rules_page,
    "contracts.md": contracts_page,
}


def render(name: str) -> str:
    """The text of one page, ending in one newline."""
    return NOTE + PAGES[name]().rstrip() + "\n"


def stale() -> list[str]:
    """Names of the pages whose file differs from what the code says now."""
    return [name for name in PAGES if _written(name) != render(name)]


def _written(name: str) -> str:
    path = DOCS / name
    return path.read_text("utf-8") if path.exists() else ""


def main() -> None:
    """Write every page, or with --check name the stale ones and end with 1 if there are any."""
    parser = argparse.ArgumentParser(description="Write the generated pages of docs/.")
    parser.add_argument("--check", action="store_true", help="write nothing, name what is stale")
    if parser.parse_args().check:
        sys.exit("\n".join(f"docs/{name} is out of date: make docs" for name in stale()) or 0)
    for name in PAGES:
        (DOCS / name).write_text(render(name), "utf-8")


if __name__ == "__main__":
    main()
