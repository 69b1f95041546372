"""ATT110."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.contracts.match import Breach
from attngate.validators.contracts.report import hits_of
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, Hit


@rule("ATT110", "wrong-lse", over="calls")
def lse_units(context: Context) -> Iterator[Hit]:
    """A log-sum-exp of one base or layout is handed to an operator that takes another.

    Why:
        FlashInfer and early sparse prefill of FlashMLA return base 2, the others base e; flash_attn
        returns [heads, tokens], FlashInfer [tokens, heads]. Both have the same type, and often a shape
        that fits, so that outputs of two parts are merged with wrong weights and nothing fails.

    Instead:
        Multiply a base-2 value by ln 2, or say the base where the operator can be told; transpose and
        make contiguous where the layout differs.
    """
    yield from hits_of(context, Breach.LSE)
