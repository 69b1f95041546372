"""What the evidence store may forget.

A run may go once a later complete one answers for the same key. The newest answer for a key stays
whatever its age, and so does everything after it: a failure that came later must go on to overrule an
earlier pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

MAX_AGE_S = 180 * 86400.0
MAX_BYTES = 256 * 1024 * 1024
_BATCH = 50

# Superseded: a later run is complete, and counts for the key this one counts for (or would have).
_SUPERSEDED = """
SELECT old.run FROM runs AS old LEFT JOIN completions AS own ON own.run = old.run
WHERE EXISTS (
    SELECT 1 FROM completions AS later
    WHERE later.run > old.run AND later.key = coalesce(own.key, old.key)
) AND old.started_at < ?
ORDER BY old.run LIMIT ?
"""


def prune(
    connection: sqlite3.Connection,
    now: float,
    max_age_s: float = MAX_AGE_S,
    max_bytes: int = MAX_BYTES,
) -> int:
    """Delete superseded runs over the age limit, then the oldest ones while over the size limit.

    Args:
        connection: The store's connection, outside a transaction.
        now: Seconds since 1970.
        max_age_s: Older superseded runs go.
        max_bytes: Size of live pages above which younger ones go too.

    Returns:
        How many runs were deleted.
    """
    deleted = 0
    while count := _delete_batch(connection, now - max_age_s):
        deleted += count
    while _live_bytes(connection) > max_bytes and (count := _delete_batch(connection, now)):
        deleted += count
    if deleted:
        connection.execute("PRAGMA incremental_vacuum").fetchall()
    return deleted


def _delete_batch(connection: sqlite3.Connection, before: float) -> int:
    rows = connection.execute(_SUPERSEDED, (before, _BATCH)).fetchall()
    with connection:
        connection.executemany("DELETE FROM runs WHERE run = ?", rows)
    return len(rows)


def _live_bytes(connection: sqlite3.Connection) -> int:
    values = [
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    ]
    return int((values[0] - values[1]) * values[2])
