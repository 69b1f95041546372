"""ATT103."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.contracts.match import Breach
from attngate.validators.contracts.report import hits_of
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, Hit


@rule("ATT103", "positional-order", over="calls")
def positional_order(context: Context) -> Iterator[Hit]:
    """Lengths are passed by position in the order of another convention.

    Why:
        flash_attn takes both cumulative lengths first and then both maxima; vllm_flash_attn takes
        maximum and cumulative lengths in turns. The wrong order passes Python's own checks, and then
        fails deep in the kernel's host code or computes with wrong lengths. What an argument holds is
        told from its name, and at least two must be out of place.

    Instead:
        Pass `cu_seqlens_q`, `cu_seqlens_k`, `max_seqlen_q` and `max_seqlen_k` by keyword.
    """
    yield from hits_of(context, Breach.ORDER)
