"""ATT104."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.contracts.match import Breach
from attngate.validators.contracts.report import hits_of
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, Hit


@rule("ATT104", "unpacked-returns", over="calls")
def unpacked_returns(context: Context) -> Iterator[Hit]:
    """What comes back is unpacked into the wrong number of names.

    Why:
        How many values come back depends on the options and on the variant: flash_attn gives three with
        `return_attn_probs=True`, vllm_flash_attn gives two with `return_softmax_lse=True`, and without
        an option there is one tensor. One tensor that is unpacked is split along its first dimension,
        which raises at best and mixes up rows at worst.

    Instead:
        Ask for the log-sum-exp with the option of this build and unpack as many names as it returns.
    """
    yield from hits_of(context, Breach.UNPACKING)
