"""The evidence store: what was run, case by case, and what it came to.

Only the daemon opens it. It is append-only. A lookup answers only from a run that was completed, that
has a verdict for each case it planned, and that no later run contradicts.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import threading
import time
from dataclasses import asdict
from importlib import resources
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import msgspec

from attngate.gpu_runner import paths
from attngate.gpu_runner.errors import RunnerError
from attngate.gpu_runner.evidence import retention
from attngate.gpu_runner.protocol import Facts, JobEvidence
from attngate.gpu_runner.worker.wire import Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from attngate.gpu_runner.evidence.key import JobKey

_P = ParamSpec("_P")
_T = TypeVar("_T")

_BUSY_S = 5.0
_FAILING = tuple(kind.value for kind in VerdictKind if kind.is_failure)


class StoreError(RunnerError):
    """The store could not keep or find something; nothing may be concluded from that."""


class NewerStoreError(Exception):
    """The database was written by a later version."""


def _guarded(
    method: Callable[Concatenate[EvidenceStore, _P], _T],
) -> Callable[Concatenate[EvidenceStore, _P], _T]:
    """Let one thread in at a time, and turn SQLite's errors into `StoreError`."""

    @functools.wraps(method)
    def wrapper(self: EvidenceStore, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self.lock:
            try:
                return method(self, *args, **kwargs)
            except (sqlite3.OperationalError, sqlite3.IntegrityError) as error:
                raise StoreError(f"the evidence store {self.name} failed: {error}") from error
            except sqlite3.DatabaseError as error:
                self.replace_damaged(str(error))
                raise StoreError(f"the evidence store was damaged: {error}") from error

    return wrapper


class EvidenceStore:
    """An open store; safe to use from several threads.

    Attributes:
        name: Path of the database, or "in memory".
        warnings: What every reply must tell about the store.
        lock: Held around each use of the connection.
    """

    def __init__(self, path: Path | None) -> None:
        """Open, or create, the database at `path`; None for one in memory.

        Where the folder cannot be used, or a later version wrote the database, the store is in memory
        and says so. A damaged database is moved aside and a new one is made.
        """
        self.lock = threading.RLock()
        self.warnings: list[str] = []
        self.name = "in memory"
        self._path = path
        self._connection = self._open()

    @_guarded
    def begin(self, key: JobKey, target: str, planned: Sequence[str]) -> int:
        """Note that a run has begun; returns its number. It establishes nothing yet."""
        record = {"closure": asdict(key.key), "whole_tree": key.whole_tree, "target": target}
        with self._connection:
            cursor = self._connection.execute(
                "INSERT INTO runs (key, whole_key, record, planned, started_at) VALUES (?,?,?,?,?)",
                (
                    key.key.digest(),
                    key.widened().digest(),
                    _json(record),
                    _json(planned),
                    time.time(),
                ),
            )
        return int(cursor.lastrowid or 0)

    @_guarded
    def record(self, run: int, verdict: Verdict) -> None:
        """Add the verdict of one case; raises StoreError if the case already has one."""
        with self._connection:
            self._connection.execute(
                "INSERT INTO verdicts (run, case_id, kind, verdict, recorded_at) VALUES (?,?,?,?,?)",
                (run, verdict.case, verdict.kind.value, _json(verdict), time.time()),
            )

    @_guarded
    def complete(self, run: int, facts: Facts, seconds: float) -> str:
        """Close a run for which every planned case has a verdict.

        Returns:
            The digest of the key that the verdicts now count for: the whole-tree key if
            `facts.scope` says so.

        Raises:
            StoreError: A planned case has no verdict, or a verdict is for a case not planned.
        """
        row = self._connection.execute(
            "SELECT key, whole_key, planned FROM runs WHERE run = ?", (run,)
        ).fetchone()
        if row is None or set(self._verdicts(run)) != set(msgspec.json.decode(row[2])):
            raise StoreError(f"run {run} has not a verdict for every case that it planned")
        key = str(row[1] if facts.scope == "whole tree" else row[0])
        with self._connection:
            self._connection.execute(
                "INSERT INTO completions (run, key, facts, seconds, recorded_at) VALUES (?,?,?,?,?)",
                (run, key, _json(facts), seconds, time.time()),
            )
        return key

    @_guarded
    def lookup(self, key: JobKey) -> JobEvidence | None:
        """The newest complete evidence for a key, or for the key it widens to; None if there is none.

        Also None where a later run of the same key failed without being completed, or showed that the
        closure did not tell the whole story: the case for the older evidence is then gone.
        """
        closure, whole = key.key.digest(), key.widened().digest()
        row = self._connection.execute(
            "SELECT c.run, c.key, c.facts, c.seconds, c.recorded_at, r.planned FROM completions AS c"
            " JOIN runs AS r ON r.run = c.run WHERE c.key IN (?, ?) ORDER BY c.run DESC LIMIT 1",
            (closure, whole),
        ).fetchone()
        if row is None or self._contradicted(row[0], closure, by_widening=row[1] == closure):
            return None
        try:
            return self._evidence(row)
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            self._warn(f"run {row[0]} in {self.name} is unreadable and was passed over: {error}")
            return None

    @_guarded
    def prune(
        self, max_age_s: float = retention.MAX_AGE_S, max_bytes: int = retention.MAX_BYTES
    ) -> int:
        """Forget superseded runs by age and size, see `retention.prune`."""
        return retention.prune(self._connection, time.time(), max_age_s, max_bytes)

    def close(self) -> None:
        """Close the database."""
        with self.lock, contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def replace_damaged(self, why: str) -> None:
        """Move the damaged database aside and go on with a new one."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()
        if self._path is not None:
            self._move_aside(self._path, why)
        self._connection = self._open()

    def _verdicts(self, run: int) -> dict[str, Verdict]:
        rows = self._connection.execute(
            "SELECT case_id, kind, verdict FROM verdicts WHERE run = ?", (run,)
        ).fetchall()
        found = {}
        for case, kind, text in rows:
            verdict = msgspec.json.decode(text, type=Verdict)
            if verdict.case != case or verdict.kind.value != kind:
                raise ValueError(f"the verdict of {case} contradicts itself")
            found[case] = verdict
        return found

    def _evidence(self, row: tuple[int, str, str, float, float, str]) -> JobEvidence | None:
        run, key, facts_text, seconds, recorded_at, planned_text = row
        planned = msgspec.json.decode(planned_text, type=tuple[str, ...])
        facts = msgspec.json.decode(facts_text, type=Facts)
        verdicts = self._verdicts(run)
        if not planned or set(verdicts) != set(planned) or facts.planned != planned:
            return None
        return JobEvidence(
            key=key,
            verdicts=tuple(verdicts[case] for case in planned),
            facts=facts,
            recorded_at=recorded_at,
            seconds=seconds,
        )

    def _contradicted(self, run: int, closure: str, *, by_widening: bool) -> bool:
        marks = ",".join("?" * len(_FAILING))
        failed = self._connection.execute(
            "SELECT 1 FROM runs AS r JOIN verdicts AS v ON v.run = r.run"  # noqa: S608 - marks only
            f" WHERE r.key = ? AND r.run > ? AND v.kind IN ({marks})"
            " AND NOT EXISTS (SELECT 1 FROM completions AS c WHERE c.run = r.run) LIMIT 1",
            (closure, run, *_FAILING),
        ).fetchone()
        if failed is not None or not by_widening:
            return failed is not None
        widened = self._connection.execute(
            "SELECT 1 FROM runs AS r JOIN completions AS c ON c.run = r.run"
            " WHERE r.key = ? AND r.run > ? AND c.key <> r.key LIMIT 1",
            (closure, run),
        ).fetchone()
        return widened is not None

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            return _prepared(":memory:")
        try:
            paths.private_folder(self._path.parent)
            connection = self._open_file(self._path)
        except NewerStoreError as error:
            return self._open_in_memory(str(error))
        except (RunnerError, OSError, sqlite3.Error) as error:
            return self._open_in_memory(f"the evidence store {self._path} cannot be used: {error}")
        self.name = str(self._path)
        return connection

    def _open_file(self, path: Path) -> sqlite3.Connection:
        try:
            return _prepared(str(path))
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            self._move_aside(path, str(error))
            return _prepared(str(path))

    def _open_in_memory(self, why: str) -> sqlite3.Connection:
        self._warn(f"{why}; verdicts are kept in memory only, until the daemon ends")
        self.name, self._path = "in memory", None
        return _prepared(":memory:")

    def _move_aside(self, path: Path, why: str) -> None:
        aside = f"{path}.damaged-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                os.replace(f"{path}{suffix}", f"{aside}{suffix}")
        self._warn(f"the evidence store {path} was damaged ({why}); it was moved to {aside}")

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


def _prepared(name: str) -> sqlite3.Connection:
    """Open a database, look for damage, and bring its tables up to date."""
    connection = sqlite3.connect(
        name, timeout=_BUSY_S, check_same_thread=False, isolation_level="IMMEDIATE"
    )
    try:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        _require_sound(connection)
        _migrate(connection, name)
    except BaseException:
        connection.close()
        raise
    return connection


def _require_sound(connection: sqlite3.Connection) -> None:
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(found)


def _migrate(connection: sqlite3.Connection, name: str) -> None:
    scripts = list(_scripts())
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > len(scripts):
            raise NewerStoreError(f"the evidence store {name} was written by a later attngate")
        for number, script in enumerate(scripts[version:], start=version + 1):
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")


def _scripts() -> Iterator[str]:
    """The migrations in order; their number is the version of the database."""
    folder = resources.files("attngate.gpu_runner.evidence.migrations")
    files = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".sql")}
    for number, name in enumerate(sorted(files), start=1):
        if int(name.split("_")[0]) != number:
            raise ValueError(f"migration {name} is out of order")
        yield files[name].read_text(encoding="utf-8")


def _statements(script: str) -> Iterator[str]:
    """Split a script where SQLite says that a statement is complete (`executescript` commits)."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
