"""Trees as files, for what cannot work on blobs: linters, the worker, git's whitespace check.

The files lie in a private folder, on a memory file system where there is one. They hold the raw
bytes of the blobs: no smudge filter, no line-ending conversion, no `export-ignore`. A link is made
only where it ends at an exported file or folder. The folder's name says whose it is, so that the
next run removes what a killed one left.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from attngate.hooks.errors import CouldNotCheckError
from attngate.validators.model import MODE_EXECUTABLE, MODE_GITLINK, MODE_SYMLINK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from attngate.validators.model import FileEntry, Snapshot

PREFIX = "attngate-"
_LINK_DEPTH = 40
# Attributes that change bytes or leave files out when git itself writes a tree.
_ATTRIBUTES = (
    b"export-ignore",
    b"export-subst",
    b"filter",
    b"eol",
    b"text",
    b"crlf",
    b"ident",
    b"working-tree-encoding",
)


class private_folder:  # noqa: N801 - used like a function, as contextlib's are
    """A new folder that only this user can enter; gone at the end of the `with` block.

    Args:
        purpose: A word for the folder's name.

    Raises:
        CouldNotCheckError: No folder could be made.
    """

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose
        self.path = ""

    def __enter__(self) -> str:
        self.path = make_private_folder(self._purpose)
        return self.path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def make_private_folder(purpose: str) -> str:
    """Make a private folder and remove what killed runs have left beside it.

    Raises:
        CouldNotCheckError: No folder could be made.
    """
    parent = temporary_root()
    _remove_stale(parent)
    name = f"{PREFIX}{purpose}-{owner_mark()}-"
    try:
        return tempfile.mkdtemp(prefix=name, dir=parent)  # mode 0700, whatever the umask
    except OSError as error:
        raise could_not_write(parent, error) from error


def temporary_root() -> str:
    """Where private folders go: shared memory, the session's run folder, or the temporary folder."""
    for folder in ("/dev/shm", os.environ.get("XDG_RUNTIME_DIR", "")):  # noqa: S108 - mkdtemp below
        if os.path.isabs(folder) and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return folder
    # Not tempfile.gettempdir(): it falls back to the current folder, which is the user's work tree.
    return os.environ.get("TMPDIR") or "/tmp"  # noqa: S108


def owner_mark() -> str:
    """Process id, its start time and its id space: who owns a folder, beyond reuse of process ids."""
    return f"{os.getpid()}-{_start_time(os.getpid())}-{_process_space()}"


def _start_time(pid: int) -> str:
    """Start of a process in clock ticks; "0" where it is not known."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            # The command's name, in parentheses, may hold anything.
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "0"


def _process_space() -> str:
    # Containers that share /dev/shm need not share process ids.
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return "0"


def _remove_stale(parent: str) -> None:
    try:
        names = [name for name in os.listdir(parent) if name.startswith(PREFIX)]
    except OSError:
        return
    for name in names:
        path = os.path.join(parent, name)
        if _is_abandoned(name) and _is_mine(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_mine(path: str) -> bool:
    try:
        return os.lstat(path).st_uid == os.geteuid() and not os.path.islink(path)
    except OSError:
        return False


def _is_abandoned(name: str) -> bool:
    """True where the name's owner lived in our id space and is gone."""
    parts = name.split("-")
    if len(parts) < 6 or parts[4] != _process_space() or not parts[2].isdigit():
        return False
    pid = int(parts[2])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _start_time(pid) != parts[3]


def could_not_write(place: str, error: OSError) -> CouldNotCheckError:
    """The error for a place that takes no more files: what, where and how much room is left."""
    try:
        left = os.statvfs(place)
        free = f"; {left.f_bavail * left.f_frsize // 1024} KiB and {left.f_favail} files left"
    except OSError:
        free = ""
    return CouldNotCheckError(
        f"cannot write to {place}: {error.strerror or error}{free}",
        "free some space there, or point TMPDIR at another folder",
    )


class ExportedTree:
    """A snapshot as files. Use it in a `with` block; the files are gone afterwards.

    Attributes:
        folder: Where the files are.
        left_out: Paths that were not written, each with the reason.
        ignored_attributes: Attributes of the tree that would change what git writes, and that are
            not applied here: "filter=lfs (.gitattributes)".
    """

    def __init__(
        self, folder: str, left_out: list[tuple[bytes, str]], ignored_attributes: list[str]
    ) -> None:
        self.folder = folder
        self.left_out = left_out
        self.ignored_attributes = ignored_attributes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """Delete the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def export(snapshot: Snapshot, only: Callable[[bytes], bool] | None = None) -> ExportedTree:
    """Write a snapshot into a new private folder.

    Args:
        snapshot: What is written.
        only: Says which paths are wanted; None for all.

    Raises:
        CouldNotCheckError: No room; what was written is removed again.
    """
    folder = make_private_folder("tree")
    try:
        left_out = write_files(snapshot, folder, only)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return ExportedTree(folder, left_out, ignored_attributes(snapshot))


def write_files(
    snapshot: Snapshot, folder: str, only: Callable[[bytes], bool] | None = None
) -> list[tuple[bytes, str]]:
    """Write a snapshot's files below an existing folder.

    Args:
        snapshot: What is written.
        folder: An empty folder that only this user can change.
        only: Says which paths are wanted; None for all.

    Returns:
        Wanted paths that were not written, each with the reason.

    Raises:
        CouldNotCheckError: No room.
    """
    wanted = {p: e for p, e in snapshot.files.items() if only is None or only(p)}
    try:
        return _Writer(snapshot, os.fsencode(folder), wanted).write()
    except OSError as error:
        raise could_not_write(folder, error) from error


class _Writer:
    def __init__(self, snapshot: Snapshot, root: bytes, wanted: Mapping[bytes, FileEntry]) -> None:
        self._snapshot = snapshot
        self._root = root
        self._wanted = wanted
        self._links: dict[bytes, bytes] = {}
        self._written: set[bytes] = set()
        self._folders: set[bytes] = {b""}
        self._left_out: list[tuple[bytes, str]] = []

    def write(self) -> list[tuple[bytes, str]]:
        for path, entry in self._wanted.items():
            why = self._write_one(path, entry)
            if why:
                self._left_out.append((path, why))
        # Links come last, so that no file is ever written through one.
        for path in list(self._links):
            why = self._write_link(path)
            if why:
                self._left_out.append((path, why))
        return sorted(self._left_out)

    def _write_one(self, path: bytes, entry: FileEntry) -> str:
        if not _is_safe(path):
            return "not a path that git checks out"
        if entry.mode == MODE_GITLINK:
            return "a submodule: its files are in another repository"
        data = self._snapshot.read(entry.oid)
        if data is None:
            return "not fetched (partial clone)"
        if entry.mode == MODE_SYMLINK:
            self._links[path] = data
            return ""
        try:
            self._make_folder(os.path.dirname(path))
            self._create(path, data, 0o755 if entry.mode == MODE_EXECUTABLE else 0o644)
        except (FileExistsError, NotADirectoryError):
            return "another path of the tree takes its place on this file system"
        self._written.add(path)
        return ""

    def _create(self, path: bytes, data: bytes, mode: int) -> None:
        place = os.path.join(self._root, path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(place, flags, 0o600), "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)  # the umask has no say

    def _make_folder(self, folder: bytes) -> None:
        if folder in self._folders:
            return
        self._make_folder(os.path.dirname(folder))
        os.mkdir(os.path.join(self._root, folder), 0o755)
        self._folders.add(folder)

    def _write_link(self, path: bytes) -> str:
        target = self._links[path]
        if self._resolve(path, _LINK_DEPTH) is None:
            return f"a link to {os.fsdecode(target)!r}, which ends at no exported file or folder"
        try:
            self._make_folder(os.path.dirname(path))
            os.symlink(target, os.path.join(self._root, path))
        except (FileExistsError, NotADirectoryError):
            return "another path of the tree takes its place on this file system"
        return ""

    def _resolve(self, path: bytes, depth: int) -> bytes | None:
        """Where a path of the tree ends when links are followed; None outside or nowhere."""
        place: list[bytes] = []
        parts = path.split(b"/")
        while parts:
            part = parts.pop(0)
            if part == b"..":
                if not place:
                    return None
                place.pop()
            elif part not in (b"", b"."):
                place.append(part)
            here = b"/".join(place)
            if here in self._links:
                target = self._links[here]
                depth -= 1
                if depth < 0 or target.startswith(b"/") or b"\0" in target:
                    return None
                place.pop()
                parts = target.split(b"/") + parts
        end = b"/".join(place)
        return end if end in self._written or end in self._folders else None


def _is_safe(path: bytes) -> bool:
    """False for names that a hostile tree could use to write elsewhere or into a git folder."""
    parts = path.split(b"/")
    return not any(part in (b"", b".", b"..") or part.lower() == b".git" for part in parts)


def ignored_attributes(snapshot: Snapshot) -> list[str]:
    """Attributes in the tree that change what git checks out or archives; none is applied here."""
    found = set()
    for path in snapshot.files:
        if path.rpartition(b"/")[2] != b".gitattributes":
            continue
        for line in (snapshot.blob(path) or b"").splitlines():
            words = [] if line.lstrip().startswith(b"#") else line.split()[1:]
            for word in words:
                name = word.lstrip(b"-!").partition(b"=")[0]
                if name in _ATTRIBUTES and not word.startswith((b"-", b"!")):
                    found.add(f"{os.fsdecode(word)} ({os.fsdecode(path)})")
    return sorted(found)
