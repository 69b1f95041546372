"""`attngate init`: a `[tool.attngate]` table to start from."""

from __future__ import annotations

import json
import os
import tomllib
from typing import TYPE_CHECKING

from attngate.hooks import config
from attngate.hooks.errors import EXIT_PASS, CouldNotCheckError, UsageError
from attngate.hooks.git import Repository
from attngate.hooks.terminal import escape

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from attngate.validators.model import Snapshot

HELP = """Add a [tool.attngate] table to the work tree's pyproject.toml, and say what to do next.

Text is added at the end and nothing that is there is changed. The lines that a
.pre-commit-config.yaml needs are printed.
"""
PRE_COMMIT = ".pre-commit-config.yaml"
HOOKS_YAML = """default_install_hook_types: [pre-commit, pre-push, post-commit]
repos:
  - repo: URL-OF-ATTNGATE
    rev: REVISION
    hooks:
      - id: attngate-check
      - id: attngate-gate
      - id: attngate-submit
"""
_EXAMPLE = """
# A callable that is held to a suite on every push; see `attngate explain --all` and docs/suites.md.
# [[tool.attngate.targets]]
# name = "varlen"
# callable = "{package}.attention:flash_attn_varlen_func"
# suite = "flash_attn_varlen"
# dtypes = ["bfloat16", "float16"]
# requires = "cuda"
"""
_NOT_PACKAGES = frozenset({"tests", "test", "docs", "examples", "benchmarks", "tools", "build"})


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--profile", default="", help=f"one of: {', '.join(config.profiles())}")
    parser.add_argument("--dry-run", action="store_true", help="print what would be written")


def run(args: Namespace) -> int:
    """Write the table; returns EXIT_PASS.

    Raises:
        UsageError: There is a table already, pyproject.toml is broken, or the profile is unknown.
        CouldNotCheckError: A file cannot be written.
    """
    if args.profile and args.profile not in config.profiles():
        known = ", ".join(config.profiles())
        raise UsageError(f"there is no profile {args.profile!r}", f"profiles: {known}")
    with Repository.discover(os.getcwd(), os.environ) as repository:
        if not repository.toplevel:
            raise UsageError(f"{repository.folder} is a bare repository", "run this in a work tree")
        path = os.path.join(repository.toplevel, config.PYPROJECT)
        before = _read(path)
        _require_no_table(path, before)
        roots, packages = find_packages(repository.worktree_snapshot())
        added = _addition(before, table(args.profile, roots, packages))
        if args.dry_run:
            print(added, end="")
            return EXIT_PASS
        _append(path, added)
        print(f"added [tool.attngate] to {escape(path)}")
    print("next: git add pyproject.toml, then `attngate install` and `attngate doctor`")
    print(f"with pre-commit instead, {PRE_COMMIT} needs:\n\n{HOOKS_YAML}", end="")
    return EXIT_PASS


def table(profile: str, roots: list[str], packages: list[str]) -> str:
    """The text of a `[tool.attngate]` table for these settings."""
    lines = ["[tool.attngate]"]
    if profile:
        lines.append(f"profile = {json.dumps(profile)}")
    if packages:
        lines.append(f"packages = {json.dumps(packages)}")
    if roots != [""]:
        lines.append(f"import_roots = {json.dumps(roots)}")
    package = packages[0] if packages else "your_plugin"
    return "\n".join(lines) + "\n" + _EXAMPLE.format(package=package)


def find_packages(snapshot: Snapshot) -> tuple[list[str], list[str]]:
    """Import roots ("" or "src") and top-level packages of a tree, tests and the like left out."""
    found: dict[str, set[str]] = {"": set(), "src": set()}
    for path in snapshot.files:
        parts = os.fsdecode(path).split("/")
        if parts[-1] != "__init__.py":
            continue
        if len(parts) == 2:
            found[""].add(parts[0])
        elif len(parts) == 3 and parts[0] == "src":
            found["src"].add(parts[1])
    root = "src" if found["src"] else ""
    return [root], sorted(found[root] - _NOT_PACKAGES)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def _require_no_table(path: str, text: str) -> None:
    try:
        tool = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}", "correct it first") from None
    if isinstance(tool, dict) and "attngate" in tool:
        raise UsageError(f"{path} has a [tool.attngate] table already", "see `attngate config`")


def _addition(before: str, text: str) -> str:
    """What is put behind the file's text: in its line ends, with a blank line between."""
    end = "\r\n" if "\r\n" in before else "\n"
    gap = "" if not before else ("\n" if before.endswith("\n") else "\n\n")
    return (gap + text).replace("\n", end)


def _append(path: str, text: str) -> None:
    try:
        with open(path, "a", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        raise CouldNotCheckError(f"cannot write {path}: {error.strerror or error}") from error
