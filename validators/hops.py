"""One step of a way from a registration to a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attngate.validators.model import Level

if TYPE_CHECKING:
    from attngate.validators.context import Context


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a way.

    Attributes:
        kind: "entry point", "platform", "registration", "selection", "backend", "builder",
            "class", "implementation", "layer", "binding", "method", "function", "parameter", "import",
            "component", "triton kernel", "torch operator", "extension", "target" (a function of it),
            "stand-in" (named like a kernel, calls none), "refused" (raises), "cycle" or "unknown".
        name: What is reached.
        place: Where the step is taken: file and line, with the target's name for its files.
        conditions: Tests that have to hold, the outermost first.
        tags: What the way is for, by the words in its conditions and names.
        origin: What decides: the plugin's tree, the target, a contract's build.
        level: How strongly it is established.
        note: Why it cannot be followed, what the contract says, or that the rest stands above.
        steps: Where it goes on.
    """

    kind: str
    name: str
    place: str
    conditions: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    origin: str = "plugin tree"
    level: Level = Level.SOURCE_INSPECTED
    note: str = ""
    steps: tuple[Hop, ...] = ()


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """An entry point of the distribution that the tree builds.

    Attributes:
        group: Its group ("vllm.platform_plugins").
        name: Its name there.
        value: The function, as "module:function".
        place: File and line that say so.
    """

    group: str
    name: str
    value: str
    place: str


def paths_of_plugin(context: Context) -> list[str]:
    """Files of the packages that a check looks into, those of them out of its scope included.

    A way may begin in a patch or a registry that no rule looks into.
    """
    index = context.index
    tops = {index.module_of(path).partition(".")[0] for path in context.in_scope}
    return sorted(p for p in context.files if index.module_of(p).partition(".")[0] in tops)
