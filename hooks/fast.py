"""Remembered clean results, so that a commit that changes nothing costs almost nothing.

A record says: with these index entries, these parents, these settings and this version of the tool,
`hook pre-commit` had nothing to object to, as long as these files of the machine stay as they were.
Its name is a digest of the former; the latter ("depended paths") are stat fingerprints inside it.
Only a clean result is ever recorded. A cache that cannot be used costs time, never a verdict.

This module lies on the way of every commit: it imports `os`, `sys` and `hashlib` alone.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from attngate.hooks.git import IndexState, Repository

_FORMAT = b"attngate clean result 1"
_SEPARATOR = b"\0"
_KEPT_RECORDS = 512
_VARIABLES = (
    "CI",
    "SKIP",
    "PATH",
    "HOME",
    "XDG_CONFIG_HOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PRE_COMMIT",
)
_PREFIXES = ("ATTNGATE_", "GIT_CONFIG", "RUFF_", "MYPY", "CUDA", "MACA")
_TOOL_FOLDERS = ("hooks", "validators", "gpu_runner")

# The key under which the check that runs now may be remembered; "" where none may be.
_pending = ""


def key_of(repository: Repository, state: IndexState) -> str:
    """The name of the record for a commit of this index, now, with this environment and tool."""
    import hashlib

    parts = [
        _FORMAT,
        os.fsencode(repository.toplevel),
        os.fsencode(repository.git_dir),
        state.digest().encode(),
        " ".join(repository.merge_parents_trees()).encode(),
        b"rebase" if repository.is_rebase_in_progress() else b"",
        # A commit being made is told from a check by hand by this variable.
        b"commit" if repository.user_env.get("GIT_INDEX_FILE") else b"",
        _environment(repository.user_env),
        tool_digest().encode(),
        *(_fingerprint(path) for path in _git_files(repository)),
    ]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(str(len(part)).encode() + b":" + part)
    return digest.hexdigest()


def begin(repository: Repository, state: IndexState) -> str:
    """Name the check that starts now, so that `remember` can record its result."""
    global _pending  # noqa: PLW0603 - one hook, one process
    _pending = key_of(repository, state)
    return _pending


def remember(repository: Repository, depends: Iterable[str], notes: str = "") -> None:
    """Record that the check which the hook started came out clean.

    Does nothing outside a hook, or when index, parents, environment or tool moved meanwhile.

    Args:
        repository: The repository of the hook.
        depends: Paths outside the tree on which the result rests: interpreter, pyvenv.cfg,
            site-packages, linters. A change of any, its removal or appearance, ends the record.
        notes: Text that a later hit prints on stderr; "" for none.
    """
    if _pending and key_of(repository, repository.index_state()) == _pending:
        store(_pending, depends, notes, repository.user_env)


def recall(key: str, env: Mapping[str, str]) -> str | None:
    """Notes of a clean result that still holds; None where there is none.

    A record that is cut off, altered, or whose depended paths changed does not hold.
    """
    folder = cache_folder(env)
    if not folder or not _is_private(folder):
        return None
    try:
        with open(os.path.join(folder, key), "rb") as file:
            record = file.read()
    except OSError:
        return None
    return _notes_if_valid(record, key)


def store(key: str, depends: Iterable[str], notes: str, env: Mapping[str, str]) -> bool:
    """Write a record; a cache that cannot be written gets one warning.

    Returns:
        True where the record was written.
    """
    body = [_FORMAT, key.encode(), notes.encode("utf-8", "surrogateescape")]
    for path in sorted(set(depends)):
        body += [os.fsencode(path), _fingerprint(path)]
    data = _SEPARATOR.join(body)
    record = _checksum(data) + data
    folder = cache_folder(env)
    why = _write(folder, key, record) if folder else "there is no home folder"
    if why:
        print(f"attngate: results are not cached: {why}", file=sys.stderr)
    return not why


def cache_folder(env: Mapping[str, str]) -> str:
    """Where records lie; "" where there is no place for them."""
    base = env.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the specification says to ignore a relative one
        home = env.get("HOME", "")
        if not os.path.isabs(home):
            return ""
        base = os.path.join(home, ".cache")
    return os.path.join(base, "attngate", "clean")


def tool_digest() -> str:
    """Digest over name, size and time of every file of ours: another version, another digest."""
    import hashlib

    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    rows = [sys.version.encode(), os.fsencode(sys.prefix)]
    for folder in _TOOL_FOLDERS:
        _list_files(os.path.join(root, folder), rows)
    return hashlib.sha256(b"\n".join(rows)).hexdigest()


def _list_files(folder: str, rows: list[bytes]) -> None:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        rows.append(b"unreadable " + os.fsencode(folder))
        return
    for entry in entries:
        if entry.name == "__pycache__":
            continue
        if entry.is_dir(follow_symlinks=False):
            _list_files(entry.path, rows)
        else:
            rows.append(os.fsencode(entry.path) + _fingerprint(entry.path))


def _environment(env: Mapping[str, str]) -> bytes:
    chosen = [
        f"{name}={value}"
        for name, value in sorted(env.items())
        if name in _VARIABLES or name.startswith(_PREFIXES)
    ]
    return os.fsencode("\n".join(chosen))


def _git_files(repository: Repository) -> list[str]:
    """Files outside the tree that git's answers, or our reminder of the push hook, rest on."""
    home = repository.user_env.get("HOME", "")
    config = repository.user_env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return [
        os.path.join(repository.common_dir, "config"),
        os.path.join(repository.git_dir, "config.worktree"),
        os.path.join(repository.common_dir, "info", "attributes"),
        os.path.join(home, ".gitconfig"),
        os.path.join(config, "git", "config"),
        os.path.join(config, "git", "attributes"),
        "/etc/gitconfig",
        "/etc/gitattributes",
        os.path.join(repository.hooks_folder, "pre-push"),
    ]


def _fingerprint(path: str) -> bytes:
    """What a path is right now; b"absent" where there is nothing."""
    try:
        status = os.stat(path)
    except OSError:
        return b"absent"
    return b"%d %d %d %d %d" % (
        status.st_mode,
        status.st_ino,
        status.st_dev,
        status.st_size,
        status.st_mtime_ns,
    )


def _notes_if_valid(record: bytes, key: str) -> str | None:
    checksum, data = record[:64], record[64:]
    fields = data.split(_SEPARATOR)
    if checksum != _checksum(data) or fields[:2] != [_FORMAT, key.encode()]:
        return None
    depends = fields[3:]
    for path, fingerprint in zip(depends[::2], depends[1::2], strict=True):
        if _fingerprint(os.fsdecode(path)) != fingerprint:
            return None
    return fields[2].decode("utf-8", "surrogateescape")


def _checksum(data: bytes) -> bytes:
    import hashlib

    return hashlib.sha256(data).hexdigest().encode()


def _write(folder: str, key: str, record: bytes) -> str:
    """Put a record in place in one step; returns why that failed, "" where it did not."""
    temporary = os.path.join(folder, f"{key}.{os.getpid()}")
    try:
        make_folders(folder)
        if not _is_private(folder):
            return f"{folder} is not a private folder of yours"
        _write_whole(temporary, record)
        os.replace(temporary, os.path.join(folder, key))
        _forget_old(folder)
    except OSError as error:
        _remove(temporary)
        return f"{folder}: {error.strerror or error}"
    return ""


def make_folders(folder: str) -> None:
    """Make a folder and what lies above it, each for this user alone, whatever the umask.

    (`os.makedirs` gives its mode to the last one only.)
    """
    if os.path.isdir(folder):
        return
    make_folders(os.path.dirname(folder))
    try:
        os.mkdir(folder, mode=0o700)
    except FileExistsError:  # another hook was faster, or the name is taken: the caller looks
        return


def _write_whole(path: str, record: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(record)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _is_private(folder: str) -> bool:
    """A real folder of this user's that nobody else can write to."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    is_folder = (status.st_mode & 0o170000) == 0o040000
    return is_folder and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _forget_old(folder: str) -> None:
    names = os.listdir(folder)
    if len(names) <= _KEPT_RECORDS:
        return
    by_age = sorted(names, key=lambda name: os.stat(os.path.join(folder, name)).st_mtime_ns)
    for name in by_age[: len(names) // 2]:
        _remove(os.path.join(folder, name))
