"""`attngate uninstall`: take our hook files away and put back what was there before."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from attngate.hooks.commands.install import (
    KEPT,
    LEGACY,
    add_hooks_argument,
    hook_names,
    is_ours,
    is_pre_commits,
)
from attngate.hooks.errors import EXIT_PASS, CouldNotCheckError
from attngate.hooks.git import Repository

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

HELP = (
    """Remove the git hooks that `attngate install` wrote; earlier hooks come back as they were."""
)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `uninstall`."""
    add_hooks_argument(parser)


def run(args: Namespace) -> int:
    """Remove the hooks."""
    names = hook_names(args.hooks)
    with Repository.discover(os.getcwd(), os.environ) as repository:
        folder = repository.hooks_folder
        try:
            for name in names:
                print(f"{name}: {_uninstall(os.path.join(folder, name))}")
        except OSError as error:
            raise CouldNotCheckError(f"cannot change hooks in {folder}: {error}") from error
    return EXIT_PASS


def _uninstall(path: str) -> str:
    """Remove one hook; returns what was done, in words."""
    # pre-commit, installed after us, keeps our file under a name of its own and runs it from there.
    ours = next((place for place in (path, path + LEGACY) if is_ours(place)), None)
    if ours is None:
        return "not installed"
    if not os.path.lexists(path + KEPT):
        os.unlink(ours)
        return f"removed {ours}"
    if ours != path and is_pre_commits(path + KEPT):
        # Its newer file is in place; under the legacy name it would call itself.
        os.unlink(ours)
        os.unlink(path + KEPT)
        return f"removed {ours}; pre-commit's hook stays"
    # A rename keeps contents, mode and time of the earlier hook.
    os.replace(path + KEPT, ours)
    return f"removed; the earlier hook is back in {ours}"
