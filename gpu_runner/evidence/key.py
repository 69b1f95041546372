"""What a verdict is about: the exact inputs that it counts for.

Two runs have the same key only if nothing that could change the outcome differs. Anything else is
"not checked". A pass is never carried over from a key that is merely similar.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from attngate.gpu_runner.worker.wire import Target

KEY_VERSION = 1
WORKER_FOLDER = Path(__file__).resolve().parent.parent / "worker"
RUNNER_FOLDER = WORKER_FOLDER.parent


@dataclass(frozen=True)
class EvidenceKey:
    """Everything a verdict depends on, as digests.

    Attributes:
        version: Version of this record; a change of meaning raises it.
        tree_closure: Digest of the target's files, see `tree_closure`; the whole tree's name in a
            widened key.
        contract: Contract id and version that chose conventions, "" where none did.
        suite: Name of the suite.
        declaration: Digest of the target's table, see `declaration_digest`.
        tool: Digest of the worker's sources, see `tool_digest`.
        environment: Digest of the environment record (interpreter, packages, device, variables).
        tier: "quick", "default" or "full".
    """

    version: int
    tree_closure: str
    contract: str
    suite: str
    declaration: str
    tool: str
    environment: str
    tier: str

    def digest(self) -> str:
        """The key as 64 hexadecimal digits."""
        return hashlib.sha256(_canonical(asdict(self))).hexdigest()


@dataclass(frozen=True)
class JobKey:
    """A key with what it widens to.

    Attributes:
        key: The key over the target's static import closure.
        whole_tree: Digest of everything in the exported tree, for a candidate that loaded a module
            of the plugin from outside the closure (see `whole_tree_closure`).
    """

    key: EvidenceKey
    whole_tree: str

    def widened(self) -> EvidenceKey:
        """The key under which a verdict is kept when the closure did not tell the whole story."""
        return replace(self.key, tree_closure=f"whole tree {self.whole_tree}")


def tree_closure(
    entries: Iterable[tuple[str, int, str]],
    installed: Mapping[str, tuple[str, str]] | None = None,
) -> str:
    """Digest of the files that a target consists of.

    Args:
        entries: (path, git mode, object id) of each file of the closure, in any order. The same
            function over every file of the tree gives `JobKey.whole_tree`.
        installed: Files of the confirmed installation that stand in for absent ones: path to
            (absolute installed path, sha256). Only path and digest count.

    Returns:
        64 hexadecimal digits.
    """
    files = sorted([path, mode, oid] for path, mode, oid in entries)
    stand_ins = sorted([path, digest] for path, (_, digest) in (installed or {}).items())
    return hashlib.sha256(_canonical({"files": files, "installed": stand_ins})).hexdigest()


def declaration_digest(target: Target) -> str:
    """Digest of a target's table. The name is left out: renaming a target changes no result."""
    fields = asdict(target)
    del fields["name"]
    return hashlib.sha256(_canonical(fields)).hexdigest()


def tool_digest(folder: Path = WORKER_FOLDER) -> str:
    """Digest of every Python source below `folder`, by default of the worker that judges."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        name = path.relative_to(folder).as_posix().encode("utf-8", "surrogateescape")
        digest.update(b"%d %d " % (len(name), len(content)) + name + content)
    return digest.hexdigest()


def code_digest() -> str:
    """Digest of the whole runner's sources: what a running daemon is compared by."""
    return tool_digest(RUNNER_FOLDER)


def _canonical(data: object) -> bytes:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "surrogateescape")
