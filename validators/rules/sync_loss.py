"""ATT231: local modifications that a sync with the target lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.model import Severity
from attngate.validators.registry import rule
from attngate.validators.sync import losses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context


@rule("ATT231", "sync-loss", Severity.WARNING, over="tree")
def sync_loss(context: Context) -> Iterator[Hit]:
    """What the plugin had changed in a file of the target is the target's text again after a sync.

    Why:
        A sync copies the new target's files over the plugin's. A local change that nobody carried over
        is gone without a conflict, and what it repaired is broken again.

    Instead:
        Put the change back, or say in the commit why it is no longer needed. The rule compares only
        where `--previous-target` says which release the files were made from.
    """
    base = context.options.sync_base
    for loss in losses(context):
        own = "; ".join(_short(text) for text in loss.lost[:3])
        theirs = "; ".join(_short(text) for text in loss.back[:3])
        what = f"`{own}` is gone" if own else f"`{theirs}` is back, which the plugin had left out"
        yield Hit(
            context.files[loss.path].at(loss.line),
            f"the sync lost a local change: {what}",
            advice="Put it back, or say why it is no longer needed.",
            expected=own,
            observed=theirs,
            origin=f"{loss.path} line {loss.base_line} of {base.subject if base else ''}",
        )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 90 else f"{line[:87]}..."
