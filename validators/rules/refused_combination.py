"""ATT105."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.contracts.match import Breach
from attngate.validators.contracts.report import hits_of
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, Hit


@rule("ATT105", "refused-combination", over="calls")
def refused_combination(context: Context) -> Iterator[Hit]:
    """Arguments that each are fine and that the component refuses together.

    Why:
        Support is a property of combinations: a paged cache and left padding each work alone. Only what
        the source shows is reported, that is literals and what is not passed at all; dtypes, head sizes
        and shapes are left to the numerical suites.

    Instead:
        Follow the advice of the finding, or choose another path for this combination.
    """
    yield from hits_of(context, Breach.COMBINATION)
