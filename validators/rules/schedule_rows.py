"""ATT111."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.contracts.match import Breach
from attngate.validators.contracts.report import hits_of
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, Hit


@rule("ATT111", "schedule-rows", over="calls")
def schedule_rows(context: Context) -> Iterator[Hit]:
    """A buffer for a kernel's schedule is allocated by another rule than the build's.

    Why:
        Upstream's schedule has one row more than there are multiprocessors. Other builds have their own
        number and a function that tells it; a copy into the smaller buffer fails, and one into a larger
        buffer leaves rows behind that the kernel reads.

    Instead:
        Allocate by the function that the build has for it.
    """
    yield from hits_of(context, Breach.ROWS)
