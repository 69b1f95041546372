"""ATT102."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.contracts.match import Breach
from attngate.validators.contracts.report import hits_of
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, Hit


@rule("ATT102", "wrong-arguments", over="calls")
def wrong_arguments(context: Context) -> Iterator[Hit]:
    """A required argument is missing, one is passed twice, or there are too many by position.

    Why:
        The call raises TypeError. A required argument is mostly lost where another variant's keyword
        stands in its place: `seqused_k` instead of `cu_seqlens_k`.

    Instead:
        Pass what the entry point requires, each once, and everything after the tensors by keyword.
    """
    yield from hits_of(context, Breach.ARGUMENTS)
