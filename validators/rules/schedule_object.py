"""ATT112."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.contracts.match import Breach
from attngate.validators.contracts.report import hits_of
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, Hit


@rule("ATT112", "schedule-object", over="calls")
def schedule_object(context: Context) -> Iterator[Hit]:
    """What a build returns as an object is used as a tensor.

    Why:
        The newer generations of flash_mla return an empty schedule object and None where tensors came
        before. Code that copies them into buffers for a graph fails with AttributeError as soon as a
        batch is built.

    Instead:
        Keep the object, hand it to every kernel call of the same batch, and drop the buffers.
    """
    yield from hits_of(context, Breach.OBJECT)
