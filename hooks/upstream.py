"""Where the target vLLM's source is: what `upstream` names, else what the interpreter has installed."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from attngate.hooks import interpreters
from attngate.hooks.errors import CouldNotCheckError, UsageError
from attngate.validators.installed import distribution_version
from attngate.validators.target import TargetTree

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "vllm"
_FOLDER = re.compile(rf"{PACKAGE}-(\d[\w.+]*)$")
_VERSION = re.compile(
    r"""^(?:__version__|version)\s*(?::[^=]+)?=.*?["'](\d[^"']*)["']""", re.MULTILINE
)


def locate(setting: str, toplevel: str, interpreter: str) -> TargetTree | None:
    """The target's source; None where nothing is configured and nothing is installed.

    Args:
        setting: `upstream` of the settings: a folder that holds the package `vllm`, or the package
            itself; a relative one starts at the work tree.
        toplevel: The work tree, "" for none.
        interpreter: Absolute path of the configured interpreter, "" where it cannot be used.

    Raises:
        CouldNotCheckError: `upstream` names a folder without the package.
    """
    if setting:
        path = os.path.normpath(os.path.join(toplevel, os.path.expanduser(setting)))
        return target_in(path)
    for folder in interpreters.package_parents(interpreter) if interpreter else ():
        if _holds(folder) and not _is_inside(folder, toplevel):
            return TargetTree(folder, _version(folder))
    return None


def target_in(path: str) -> TargetTree:
    """The target's source in a folder that holds the package, or that is the package.

    Raises:
        CouldNotCheckError: There is no such package.
    """
    for folder in (path, os.path.dirname(path) if os.path.basename(path) == PACKAGE else path):
        if _holds(folder):
            return TargetTree(folder, _version(folder))
    raise CouldNotCheckError(
        f"there is no package {PACKAGE} in {path}",
        "let `upstream` in [tool.attngate], or ATTNGATE_UPSTREAM, name the folder that holds it",
    )


def previous(name: str, current: TargetTree | None) -> TargetTree:
    """The target before a sync, by a folder or by a version that lies beside the current one.

    Args:
        name: A folder that holds the package, or a version such as "0.18.0": then it is looked for as
            `vllm-<version>` in the folder that holds the current target's.
        current: The target of now.

    Raises:
        UsageError: There is neither.
    """
    if os.path.isdir(name):
        return target_in(os.path.abspath(name))
    if current is None:
        raise UsageError(
            f"{name} is no folder, and without `upstream` there is no place to look for a version",
            "name the folder that holds the previous target's package",
        )
    beside = os.path.join(os.path.dirname(os.path.abspath(current.folder)), f"{PACKAGE}-{name}")
    if _holds(beside):
        return TargetTree(beside, name)
    raise UsageError(
        f"there is no folder {name}, and no package {PACKAGE} in {beside}",
        "name the folder that holds the previous target's package",
    )


def depends(target: TargetTree) -> Iterator[str]:
    """Paths whose change can change what the target says: every source file and folder of it."""
    yield target.folder
    folders = {os.path.dirname(path) for path in target.files}
    for path in sorted(folders | set(target.files)):
        yield os.path.join(target.folder, path)


def _holds(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, PACKAGE, "__init__.py"))


def _is_inside(folder: str, toplevel: str) -> bool:
    """True for a package of the checked tree itself, which is not its own target."""
    if not toplevel:
        return False
    inside = (os.path.realpath(folder) + os.sep).startswith(os.path.realpath(toplevel) + os.sep)
    return inside and "site-packages" not in folder


def _version(folder: str) -> str:
    """Version by metadata, by a generated version file, or by the folder's name; "" for none."""
    found = distribution_version(folder, [PACKAGE])
    if found:
        return found
    try:
        with open(os.path.join(folder, PACKAGE, "_version.py"), encoding="utf-8") as file:
            match = _VERSION.search(file.read())
        if match:
            return match[1]
    except (OSError, UnicodeDecodeError):
        pass
    named = _FOLDER.search(os.path.basename(folder))
    return named[1] if named else ""
