"""`attngate config`: every setting with its value and where it came from."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import msgspec

from attngate.hooks import config
from attngate.hooks.commands.check import add_subject_arguments, subject_of
from attngate.hooks.errors import EXIT_PASS
from attngate.hooks.git import Repository
from attngate.hooks.terminal import escape

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from attngate.hooks.config import Loaded

HELP = """Print each setting with its value and origin: the tree's pyproject.toml, the profile, a variable.

Settings are read from the tree that is checked, by default the staged index.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_subject_arguments(parser)
    parser.add_argument("--format", choices=("json", "text"), default="text")


def run(args: Namespace) -> int:
    """Print the settings; returns EXIT_PASS."""
    env = dict(os.environ)
    with Repository.discover(os.getcwd(), env) as repository:
        subject = subject_of(repository, args)
        loaded = config.load(subject, env)
    if args.format == "json":
        print(json.dumps(_as_data(subject.subject, loaded), indent=1))
        return EXIT_PASS
    table = "" if loaded.configured else " (it has no [tool.attngate])"
    print(f"settings of {escape(subject.subject)}{table}")
    rows = list(_rows(loaded))
    width = max(len(name) for name, _, _ in rows)
    for name, value, origin in rows:
        print(escape(f"  {name:<{width}}  {json.dumps(value)}  ({origin})"))
    for warning in loaded.warnings:
        print(f"note: {escape(warning)}")
    return EXIT_PASS


def _rows(loaded: Loaded) -> Iterator[tuple[str, Any, str]]:
    data = msgspec.to_builtins(loaded.settings)
    targets = {f"targets.{target.pop('name')}": target for target in data.pop("targets")}
    for group in ("gate", "builds"):
        data.update({f"{group}.{key}": value for key, value in data.pop(group).items()})
    for name, value in {**data, **targets}.items():
        yield name, value, loaded.origins.get(name, "default")


def _as_data(subject: str, loaded: Loaded) -> dict[str, Any]:
    return {
        "subject": subject,
        "configured": loaded.configured,
        "settings": [
            {"name": name, "value": value, "origin": origin}
            for name, value, origin in _rows(loaded)
        ],
        "environment": list(loaded.from_environment),
        "warnings": list(loaded.warnings),
    }
