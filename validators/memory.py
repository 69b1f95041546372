"""What a check remembers for the next one: summaries by contents, and findings by what they rest on.

A file's findings are used again only where nothing they rest on has changed: its own contents, what
other files show of themselves (`Index.used`), texts that were read (`Index.read`), the target, the
options and the tool. The last three are the name under which a memory is kept, so it is for one
combination of them. Anything in doubt is worked out again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from attngate.validators.facts import Facts  # noqa: TC001 (msgspec reads the annotations)
from attngate.validators.model import ContractCall, Finding  # noqa: TC001
from attngate.validators.symbols import Summary, shape_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from attngate.validators.context import SourceFile


class FileRecord(msgspec.Struct, frozen=True, array_like=True):
    """The findings of one file's rules, and the files of the tree they rest on."""

    findings: tuple[Finding, ...]
    used: tuple[str, ...]
    read: tuple[str, ...]


class CallRecord(msgspec.Struct, frozen=True, array_like=True):
    """What the judge of component calls found in one file, and the files this rests on."""

    findings: tuple[Finding, ...]
    calls: tuple[ContractCall, ...]
    consulted: tuple[str, ...]


class JudgeRecord(msgspec.Struct, frozen=True, array_like=True):
    """What the judge found in the whole tree.

    Attributes:
        files: Each file that was looked into.
        watched: Words; a changed file that holds one may hold a further call.
        exported: Names that stand for entry points in any file.
        local: Names that stand for entry points in one file.
    """

    files: dict[str, CallRecord]
    watched: tuple[str, ...]
    exported: tuple[str, ...]
    local: dict[str, tuple[str, ...]]


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One finished check.

    Attributes:
        oids: Object id of every Python file by path.
        pins: Identity of the files in which the tree may pin builds.
        files: Findings of the files in scope, which also tells what is in scope.
        judge: The judge's part.
    """

    oids: dict[str, str]
    pins: str
    files: dict[str, FileRecord]
    judge: JudgeRecord


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """A memory as it is stored; summaries stay undecoded until one is asked for."""

    facts: dict[str, Facts]
    symbols: dict[str, msgspec.Raw]
    target: dict[str, msgspec.Raw]
    tables: dict[str, msgspec.Raw]
    records: dict[str, msgspec.Raw]


class Summaries(dict[str, Summary]):
    """Summaries by key, decoded from a stored memory when they are first asked for."""

    def __init__(self, stored: Mapping[str, msgspec.Raw]) -> None:
        super().__init__()
        self.stored = stored

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self.stored

    def find(self, key: str) -> Summary | None:
        """The summary of a key, None where there is none."""
        return self[key] if key in self else None  # noqa: SIM401 (`get` would not decode)

    def __missing__(self, key: str) -> Summary:
        found = self[key] = msgspec.msgpack.decode(self.stored[key], type=Summary)
        return found


_KEPT_RECORDS = 4


@dataclass(eq=False)
class Memory:
    """What earlier checks found out, and what this one adds.

    Attributes:
        facts: Facts by object id.
        symbols: Summaries of files of the tree by object id.
        target: Summaries of the target's modules by name.
        tables: The target's tables (`TargetTree.tables`).
        records: Finished checks by tree, encoded, the oldest first.
        changed: True where there is something new to keep.
    """

    facts: dict[str, Facts] = field(default_factory=dict)
    symbols: Summaries = field(default_factory=lambda: Summaries({}))
    target: Summaries = field(default_factory=lambda: Summaries({}))
    tables: dict[str, msgspec.Raw] = field(default_factory=dict)
    records: dict[str, msgspec.Raw] = field(default_factory=dict)
    changed: bool = False

    def keep(self, tree: str, record: Record) -> None:
        """Take in a finished check; only the newest few are kept."""
        self.records.pop(tree, None)
        self.records[tree] = msgspec.Raw(msgspec.msgpack.encode(record))
        for old in list(self.records)[:-_KEPT_RECORDS]:
            del self.records[old]
        self.changed = True

    def nearest(self, tree: str) -> Record | None:
        """The finished check of this very tree, else the latest one."""
        if not self.records:
            return None
        if tree in self.records:
            raw = self.records[tree] = self.records.pop(tree)  # used last, dropped last
        else:
            raw = self.records[list(self.records)[-1]]
        return msgspec.msgpack.decode(raw, type=Record)

    @classmethod
    def decode(cls, raw: bytes) -> Memory:
        """A stored memory.

        Raises:
            msgspec.DecodeError: The bytes are none, or of another version.
        """
        kept = msgspec.msgpack.decode(raw, type=Kept)
        symbols, target = Summaries(kept.symbols), Summaries(kept.target)
        return cls(kept.facts, symbols, target, kept.tables, kept.records)

    def encode(self) -> bytes:
        """The memory as bytes; contents that none of the kept checks saw are left out."""
        oids: set[str] = set()
        for raw in self.records.values():
            oids.update(msgspec.msgpack.decode(raw, type=_Oids).oids.values())
        kept = Kept(
            {oid: facts for oid, facts in self.facts.items() if oid in oids},
            {oid: raw for oid, raw in _stored(self.symbols).items() if oid in oids},
            _stored(self.target),
            self.tables,
            self.records,
        )
        return msgspec.msgpack.encode(kept)


class _Oids(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of a `Record`."""

    oids: dict[str, str]


def _stored(summaries: Summaries) -> dict[str, msgspec.Raw]:
    fresh = {
        k: msgspec.Raw(msgspec.msgpack.encode(s))
        for k, s in summaries.items()
        if k not in summaries.stored
    }
    return {**summaries.stored, **fresh}


class Reuse:
    """Decides which findings of the last check still hold.

    Args:
        memory: With earlier checks.
        tree: Object id of the tree.
        files: The tree's Python files by path.
        oids: Their object ids.
        pins: Identity of the files in which the tree may pin builds.
    """

    def __init__(
        self,
        memory: Memory,
        tree: str,
        files: Mapping[str, SourceFile],
        oids: Mapping[str, str],
        pins: str,
    ) -> None:
        self._memory = memory
        self._files = files
        self._record = memory.nearest(tree)
        before = self._record.oids if self._record is not None else {}
        self._before = before
        self._oids = oids
        self._same_pins = self._record is not None and self._record.pins == pins
        self.changed = {p for p in oids if before.get(p) != oids[p]}
        self.possible = before.keys() == oids.keys() and all(map(self._same_facts, self.changed))
        self._reshaped: dict[str, bool] = {}

    def _same_facts(self, path: str) -> bool:
        """True where a changed file answers the questions about the whole tree as before."""
        old = self._memory.facts.get(self._before[path])
        return old is not None and old.shared() == self._files[path].facts.shared()

    @property
    def in_scope(self) -> frozenset[str] | None:
        """The files in scope, where the earlier check had files of the same names; else None."""
        if self._record is None or self._before.keys() != self._oids.keys():
            return None
        return frozenset(self._record.files)

    def file(self, path: str) -> FileRecord | None:
        """The record of a file whose findings still hold; None where they have to be found again."""
        if not self.possible or self._record is None or path in self.changed:
            return None
        record = self._record.files.get(path)
        if record is None or self._rests_on_changes(record):
            return None
        return record

    def _rests_on_changes(self, record: FileRecord) -> bool:
        if not self.changed.isdisjoint(record.read):
            return True
        if any(self._is_reshaped(p) for p in self.changed.intersection(record.used)):
            return True
        return _names_one(record.findings, self.changed)

    def _is_reshaped(self, path: str) -> bool:
        """True where a changed file shows something else of itself than before."""
        if path not in self._reshaped:
            oid = self._before[path]
            old = self._memory.symbols.find(oid)
            new = self._files[path].symbols
            same = old is not None and new is not None and shape_of(old) == shape_of(new)
            self._reshaped[path] = not same
        return self._reshaped[path]

    def judged(self) -> tuple[JudgeRecord, set[str]] | None:
        """The judge's record with the files that have to be judged again; None for all of them."""
        record = self._record.judge if self._record is not None else None
        if record is None or not self._same_pins or not self.possible:
            return None
        again = {path for path in self.changed if self._holds_one(path, record.watched)}
        for path, known in record.files.items():
            rests = not self.changed.isdisjoint(known.consulted)
            if path in self.changed or rests or _names_one(known.findings, self.changed):
                again.add(path)
        return record, again

    def _holds_one(self, path: str, words: Iterable[str]) -> bool:
        text = self._files[path].source.text
        return any(word in text for word in words)


def _names_one(findings: Iterable[Finding], paths: Iterable[str]) -> bool:
    """True where a finding speaks of a place in one of the files: its line may have moved."""
    return any(p in f.origin or p in f.message or p in f.advice for f in findings for p in paths)
