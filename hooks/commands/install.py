"""`attngate install`: write hook files of our own, beside or in front of what is there."""

from __future__ import annotations

import os
import shlex
import stat
import sys
import tempfile
from typing import TYPE_CHECKING

from attngate.hooks.errors import EXIT_PASS, CouldNotCheckError, UsageError
from attngate.hooks.git import Repository

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

HELP = """Write the git hooks of this repository (pre-commit, pre-push, post-commit).

A hook that is there already is kept and runs first; `attngate uninstall` puts it back. With
core.hooksPath the hooks go where it points, if it is set for this repository and lies in it.
"""
HOOKS = ("pre-commit", "pre-push", "post-commit")
KEPT = ".before-attngate"
LEGACY = ".legacy"  # where pre-commit puts a hook that it finds
_MARK = b"\n# attngate-hook: "


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `install`."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="also where core.hooksPath is set globally or leads out of the repository",
    )
    add_hooks_argument(parser)


def add_hooks_argument(parser: ArgumentParser) -> None:
    """Declare `--hooks`, which `uninstall` has too."""
    parser.add_argument(
        "--hooks",
        default=",".join(HOOKS),
        metavar="NAMES",
        help=f"which hooks, separated by commas (default: {','.join(HOOKS)})",
    )


def run(args: Namespace) -> int:
    """Install the hooks.

    Raises:
        UsageError: core.hooksPath belongs to somebody else, or a hook's name is unknown.
    """
    names = hook_names(args.hooks)
    with Repository.discover(os.getcwd(), os.environ) as repository:
        folder = repository.hooks_folder
        if not args.force:
            _refuse_foreign_folder(repository, folder)
        try:
            _make_folder(repository, folder)
            for name in names:
                print(f"{name}: {_install(repository, folder, name)}")
        except OSError as error:
            raise CouldNotCheckError(f"cannot write hooks to {folder}: {error}") from error
    return EXIT_PASS


def hook_names(text: str) -> list[str]:
    """The hooks that a `--hooks` argument names.

    Raises:
        UsageError: One of them is none of ours.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in HOOKS]
    if unknown or not names:
        raise UsageError(f"--hooks {text!r}: choose from {', '.join(HOOKS)}")
    return names


def is_ours(path: str) -> bool:
    """True for a hook file that `attngate install` wrote (a link to one is somebody else's)."""
    if os.path.islink(path):
        return False
    try:
        with open(path, "rb") as file:
            return _MARK in file.read(200)
    except OSError:
        return False


def is_pre_commits(path: str) -> bool:
    """True for a hook file that pre-commit wrote."""
    try:
        with open(path, "rb") as file:
            return b"pre-commit.com" in file.read(400)
    except OSError:
        return False


def _refuse_foreign_folder(repository: Repository, folder: str) -> None:
    found = repository.config_scope("core.hooksPath")
    if found is None:
        return
    scope, origin, value = found
    inside = any(
        _is_below(folder, root) for root in (repository.toplevel, repository.common_dir) if root
    )
    if scope in ("local", "worktree") and inside:
        return
    why = (
        "leads out of this repository" if scope in ("local", "worktree") else f"is set in {origin}"
    )
    unset = f"git config --{scope} --unset core.hooksPath"
    raise UsageError(
        f"core.hooksPath={value} {why}: hooks there run for other repositories too",
        f"either use this repository's own hooks (`{unset}`, or "
        "`git config --local core.hooksPath .git/hooks`), or write to that folder with "
        "`attngate install --force`",
    )


def _is_below(folder: str, root: str) -> bool:
    return os.path.realpath(folder).startswith(os.path.realpath(root) + os.sep)


def _install(repository: Repository, folder: str, name: str) -> str:
    """Put one hook in place; returns what was done, in words."""
    path = os.path.join(folder, name)
    text = hook_text(name)
    legacy = path + LEGACY
    if is_ours(legacy) and os.path.lexists(path):
        _put(repository, legacy, text)
        return f"runs before pre-commit's hook, from {legacy}"
    known = is_ours(path)
    if not known and os.path.lexists(path):
        _keep(path)
    _put(repository, path, text)
    kept = f"; {path}{KEPT} runs first" if os.path.lexists(path + KEPT) else ""
    return f"{'renewed' if known else 'installed'} in {path}{kept}"


def _keep(path: str) -> None:
    """Give the hook that is there a second name; it keeps the first until ours replaces it.

    Raises:
        UsageError: That name is taken by something else.
    """
    if os.path.isdir(path):
        raise UsageError(f"{path} is a folder, not a hook", "remove it")
    try:
        os.link(path, path + KEPT, follow_symlinks=False)
    except FileExistsError:
        if os.path.samestat(os.lstat(path), os.lstat(path + KEPT)):
            return  # an installation was cut off here
        raise UsageError(
            f"{path} and {path}{KEPT} are both hooks that were here before",
            "delete the one that is not needed, then install again",
        ) from None
    except OSError:  # no hard links on this file system
        os.rename(path, path + KEPT)


def hook_text(name: str) -> bytes:
    """The hook file for this interpreter."""
    from importlib.resources import files

    template = files("attngate.hooks.shims").joinpath("native-hook.sh").read_text("utf-8")
    text = template.replace("@NAME@", name).replace("@INTERPRETER@", shlex.quote(sys.executable))
    return text.encode("utf-8", "surrogateescape")


def _put(repository: Repository, path: str, text: bytes) -> None:
    """Write an executable file in one step."""
    descriptor, temporary = tempfile.mkstemp(prefix=".attngate-", dir=os.path.dirname(path))
    try:
        with open(descriptor, "wb") as file:
            file.write(text)
            os.fchmod(file.fileno(), _mode(repository))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _mode(repository: Repository) -> int:
    """Mode of a file in the git folder: the umask's, wider where core.sharedRepository says so."""
    mask = os.umask(0o077)
    os.umask(mask)
    shared = (repository.config("core.sharedRepository") or "").lower()
    mode = 0o755 & ~mask
    if shared in ("group", "true", "1"):
        return mode | 0o070
    if shared in ("all", "world", "everybody", "2"):
        return mode | 0o075
    if shared.startswith("0") and shared.strip("0"):
        wanted = int(shared, 8)
        return wanted | (wanted & 0o444) >> 2
    return mode


def _make_folder(repository: Repository, folder: str) -> None:
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    _make_folder(repository, above)
    os.mkdir(folder)
    inherited = stat.S_IMODE(os.stat(above).st_mode) & stat.S_ISGID
    os.chmod(folder, _mode(repository) | inherited)
