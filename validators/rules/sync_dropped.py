"""ATT232: classes, functions and class names of the plugin's own that a sync with the target lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.model import Severity
from attngate.validators.registry import rule
from attngate.validators.sync import losses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context


@rule("ATT232", "sync-dropped", Severity.WARNING, over="tree")
def sync_dropped(context: Context) -> Iterator[Hit]:
    """A class, function or class name that only the plugin had is gone from a file after a sync.

    Why:
        A sync copies the new target's files over the plugin's. A method that the plugin had added is
        then no longer called, without a word from anybody, and a class that it had renamed is no longer
        found under the name that the rest of the plugin uses.

    Instead:
        Put it back, or remove what still needs it. The rule compares only where `--previous-target`
        says which release the files were made from. A helper that went together with its calls is not
        meant, nor what another file of the plugin defines now.
    """
    base = context.options.sync_base
    for found in context.once(losses):
        loss = found.loss
        if loss.whole:
            name = loss.lost[0]
            if loss.back:
                what = (
                    f"the class name {name}: it is {loss.back[0]} again, and {name} is still used"
                )
            else:
                what = f"{name}, which the target does not have"
            yield Hit(
                context.files[found.path].at(loss.line),
                f"the sync lost {what}",
                advice="Put it back, or say why it is no longer needed.",
                expected=name,
                observed=loss.back[0] if loss.back else "",
                origin=f"{found.base_path} line {loss.base_line} of {base.subject if base else ''}",
            )
