"""ATT231: local modifications that a sync with the target lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.model import Severity
from attngate.validators.registry import rule
from attngate.validators.sync import losses

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attngate.validators.context import Context

_SHOWN = 3
_WIDTH = 90


@rule("ATT231", "sync-loss", Severity.WARNING, over="tree")
def sync_loss(context: Context) -> Iterator[Hit]:
    """What the plugin had changed in a file of the target is the target's text again after a sync.

    Why:
        A sync copies the new target's files over the plugin's. A local change that nobody carried over
        is gone without a conflict, and what it repaired is broken again.

    Instead:
        Put the change back, or say in the commit why it is no longer needed. The rule compares only
        where `--previous-target` says which release the files were made from. It counts as a local
        change what a comment that names the plugin claims, what stands beside the target's text
        commented out, and what uses names from the plugin or a component; a change that is kept in the
        function, moved to another file, taken over by the target or done in another way is not lost.
    """
    base = context.options.sync_base
    for found in context.once(losses):
        loss = found.loss
        if not loss.whole:
            own, theirs = _short(loss.lost), _short(loss.back)
            what = (
                f"`{own}` is gone" if own else f"`{theirs}` is back, which the plugin had left out"
            )
            more = f", here and in {loss.more} more places of the file" if loss.more else ""
            yield Hit(
                context.files[found.path].at(loss.line),
                f"the sync lost a local change: {what}{more}",
                advice="Put it back, or say why it is no longer needed.",
                expected=own,
                observed=theirs,
                origin=f"{found.base_path} line {loss.base_line} of {base.subject if base else ''}",
            )


def _short(texts: Sequence[str]) -> str:
    lines = [" ".join(text.split()) for text in texts[:_SHOWN]]
    return "; ".join(line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..." for line in lines)
