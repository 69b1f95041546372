"""ATT101."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.contracts.match import Breach
from attngate.validators.contracts.report import hits_of
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, Hit


@rule("ATT101", "unknown-keyword", over="calls")
def unknown_keyword(context: Context) -> Iterator[Hit]:
    """A keyword that the component's entry point does not take.

    Why:
        The call raises TypeError as soon as it is reached, which may be the first decode step of the one
        model that takes this path. Keywords come in with code from another variant: `out`, `seqused_k`
        and `return_softmax_lse` are vllm_flash_attn's, not flash_attn's. A keyword of one entry point
        says nothing about another one of the same component.

    Instead:
        Use the name that this build takes, or leave the keyword out and do without what it asked for;
        leaving it out repairs the call and does not bring the feature.
    """
    yield from hits_of(context, Breach.KEYWORD)
