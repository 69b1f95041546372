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

    from attngate.validators.installed import InstalledComponent
    from attngate.validators.target import TargetTree

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
    """Where in a snapshot.

    The path is text (`os.fsdecode`), line and column count from 1, and `symbol` is the qualified name
    of the enclosing function or class ("" at module level).
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


@dataclass(frozen=True, slots=True)
class Build:
    """A component's build that a plugin is meant for.

    Attributes:
        version: Version as the distribution calls it ("2.6.3+metax3.8.2.2torch2.10").
        origin: Where it was said, in a user's words ("[tool.attngate] builds", "profile vllm-metax",
            "requirements/maca.txt line 19").
    """

    version: str
    origin: str


class CallVerdict(str, Enum):
    """What the contract says about one call."""

    CONFORMS = "conforms"
    VIOLATES = "violates"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ContractCall:
    """One call of a component's entry point, with the contract's verdict.

    Attributes:
        location: Where the call stands.
        entry: Entry point ("flash_attn.flash_attn_varlen_func").
        callee: The callee as the source writes it.
        verdict: Whether the call keeps the contract.
        reason: Why it is unknown, what it breaks, or what was compared; one sentence.
        origin: The installed file, the observation or the pinned build that decides.
        level: How strongly `origin` is established.
        codes: Codes of the rules that the call breaks.
    """

    location: Location
    entry: str
    callee: str
    verdict: CallVerdict
    reason: str
    origin: str
    level: Level
    codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What a check needs to know beside the tree.

    Attributes:
        include: Globs of paths in scope (gitignore's syntax); empty means every Python file.
        exclude: Globs of paths out of scope.
        packages: Top-level packages of the plugin.
        import_roots: Folders of the tree that stand on sys.path; "" is the tree's root.
        ignore: Codes of rules that are switched off.
        builds: Component to the build the plugin is meant for; a component that is missing here is
            looked up in the tree's own pins.
        installed: Component to what the user's interpreter has installed, read by
            `installed.read_component`; a component that is missing here is not installed.
        operators: Namespaces of torch.ops that installed extensions fill.
        generated: Globs of files that the build writes: only an installation has them.
        previous: Source of the target before a sync; None where no sync is looked into.
        sync_base: The plugin's tree before the sync.
        target: Source of the target vLLM; None where there is none to compare with.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    import_roots: tuple[str, ...] = ("",)
    ignore: frozenset[str] = frozenset()
    builds: Mapping[str, Build] = field(default_factory=dict)
    installed: Mapping[str, InstalledComponent] = field(default_factory=dict)
    target: TargetTree | None = None
    operators: frozenset[str] = frozenset()
    generated: tuple[str, ...] = ()
    previous: TargetTree | None = None
    sync_base: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found; `findings` are the ones that no comment suppresses.

    Attributes:
        findings: In order of path, line and code.
        suppressed: Findings that a comment suppresses, each with the comment's reason.
        calls: Every call of a contract's entry point in scope, with its verdict.
        inspected: Number of Python files in scope that were read.
        not_checked: Paths that could not be looked into, each with the reason.
        internal: True when a rule crashed: the result is incomplete and the fault is ours.
    """

    findings: tuple[Finding, ...]
    suppressed: tuple[tuple[Finding, str], ...] = ()
    calls: tuple[ContractCall, ...] = ()
    inspected: int = 0
    not_checked: tuple[tuple[str, str], ...] = ()
    internal: bool = False
