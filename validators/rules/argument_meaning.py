"""ATT107: an argument whose parameter has another meaning in this build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.contracts.match import Breach
from attngate.validators.contracts.report import hits_of
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, Hit


@rule("ATT107", "argument-meaning", over="calls")
def argument_meaning(context: Context) -> Iterator[Hit]:
    """A number is passed where this generation of the component takes a flag.

    Why:
        A position that changed its meaning between two builds still accepts the old value. Every
        number but 0 is true, so the kernel takes the path for the case that was to be excluded.

    Instead:
        Pass what the parameter of the expected build asks for, by keyword.
    """
    yield from hits_of(context, Breach.MEANING)
