"""The nouns of the static gate: what is checked, and what a check says.

Everything here is immutable data. A check takes a `Snapshot` and returns `Finding`s; it never opens
a file, so what it says holds for the tree it was given and for nothing else.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MODE_FILE = 0o100644
MODE_EXECUTABLE = 0o100755
MODE_SYMLINK = 0o120000
MODE_GITLINK = 0o160000


class Severity(str, Enum):
    """How much a finding matters: an error blocks, a warning is shown, a note informs."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Level(str, Enum):
    """How strongly something was established, weakest first."""

    UNTESTED = "untested"
    RECORDED = "recorded"
    SOURCE_INSPECTED = "source-inspected"
    SIGNATURE_CHECKED = "signature-checked"
    RUNTIME_REPRODUCED = "runtime-reproduced"
    NUMERICALLY_VALIDATED = "numerically-validated"


class Kind(str, Enum):
    """Whose defect a finding is; `UNKNOWN` until something was run that tells."""

    REGRESSION = "new regression"
    ADAPTER_DEFECT = "existing adapter defect"
    COMPONENT_DEFECT = "installed component defect"
    UNKNOWN = "not attributed"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One path of a tree: git mode and object id (hexadecimal)."""

    mode: int
    oid: str

    @property
    def is_regular(self) -> bool:
        """True for a file with contents of its own: neither a link nor a submodule."""
        return self.mode in (MODE_FILE, MODE_EXECUTABLE)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An immutable tree: the only input of a check.

    Attributes:
        tree: Object id of the tree (hexadecimal), the name under which verdicts are kept.
        subject: What the tree is, in a user's words ("staged index", "commit 1a2b3c4", ...).
        files: Every entry by its path as git stores it (bytes, "/" between folders), sorted.
        read: Returns the raw bytes of a blob by object id; None where it was not fetched
            (a partial clone). Never touches the work tree.
        changed: Paths that differ from the base the subject is compared with; None where there is
            no base (everything counts as changed).
    """

    tree: str
    subject: str
    files: Mapping[bytes, FileEntry]
    read: Callable[[str], bytes | None] = field(repr=False)
    changed: frozenset[bytes] | None = None

    def blob(self, path: bytes) -> bytes | None:
        """Raw bytes of a regular file in the tree; None when absent, a link, or not fetched."""
        entry = self.files.get(path)
        return self.read(entry.oid) if entry is not None and entry.is_regular else None


@dataclass(frozen=True, slots=True)
class Location:
    """Where in a snapshot: path as text (`os.fsdecode`), 1-based line and column, and the
    qualified name of the enclosing function or class ("" at module level).
    """

    path: str
    line: int
    column: int = 1
    end_line: int | None = None
    symbol: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a rule has to say about one place.

    Attributes:
        code: Stable rule id, "ATT" and three digits.
        name: The rule's short name in words with dashes.
        severity: Whether it blocks.
        location: Where.
        message: What is wrong, in one sentence that names the thing.
        advice: What to do about it.
        expected: What the contract or the target says ("" where it does not apply).
        observed: What the source says ("" where it does not apply).
        origin: The contract, observation, installed file or target line that decides.
        level: How strongly `origin` is established.
        kind: Whose defect it is.
        line_text: The source line without surrounding blanks; part of the fingerprint.
    """

    code: str
    name: str
    severity: Severity
    location: Location
    message: str
    advice: str = ""
    expected: str = ""
    observed: str = ""
    origin: str = ""
    level: Level = Level.SOURCE_INSPECTED
    kind: Kind = Kind.UNKNOWN
    line_text: str = ""

    @property
    def fingerprint(self) -> str:
        """Identity that survives moved lines: rule, path, enclosing symbol, normalised line, message."""
        parts = (
            self.code,
            self.location.path,
            self.location.symbol,
            " ".join(self.line_text.split()),
            self.message,
        )
        text = "\0".join(parts)
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:20]


def display_path(path: bytes) -> str:
    """A git path as text, for messages and locations; not reversible for every terminal."""
    return os.fsdecode(path)
