"""ATT207: dotted paths in strings that lead nowhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.index import Missing, Ref
from attngate.validators.registry import rule

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile
    from attngate.validators.index import Found, Index

PATH = re.compile(r"[a-z_]\w*(\.\w+)+(:\w+)?")


@rule("ATT207", "class-path")
def class_path(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A string names a class or function by its dotted path, and there is none.

    Why:
        Backends, workers and models are registered by path and imported when they are first needed, so
        a path that a move left behind fails at that moment, or makes the platform fall back to another
        backend without a word.

    Instead:
        Write the path under which the thing is now; the finding names it where there is one.
    """
    index = context.index
    for node in path_strings(file, index):
        text = str(node.value).replace(":", ".")
        found = resolve_path(index, text)
        if found is not None:
            yield _hit(file, index, node, text, found)


def path_strings(file: SourceFile, index: Index) -> Iterator[ast.Constant]:
    """String constants that are a dotted path below the plugin or the target and end in a name."""
    tops = set(index.own_packages) | ({index.target.package} if index.target is not None else set())
    for node in file.source.names.strings:
        text = node.value
        if not isinstance(text, str) or text.partition(".")[0] not in tops:
            continue
        last = re.split(r"[.:]", text)[-1]
        if PATH.fullmatch(text) and (":" in text or last[:1].isupper()):
            yield node


def path_of(constant: ast.Constant) -> str:
    """The path that a string names, with dots throughout."""
    return str(constant.value).replace(":", ".")


def resolve_path(index: Index, text: str) -> Missing | None:
    """What is missing of a dotted path; None where it exists or cannot be followed."""
    module, _, name = text.rpartition(".")
    if not index.has_module(module):
        found: tuple[Found, ...] = (index.module_ref(module),)
        outer, _, inner = module.rpartition(".")
        if index.has_module(outer):
            found = index.lookup(outer, inner)
            if any(isinstance(f, Ref) and f.kind == "class" for f in found):
                return None
    else:
        found = index.lookup(module, name)
    gone = [f for f in found if isinstance(f, Missing)]
    return gone[0] if gone and len(gone) == len(found) else None


def _hit(file: SourceFile, index: Index, node: ast.Constant, text: str, gone: Missing) -> Hit:
    module, _, name = text.rpartition(".")
    what = (
        f"{module} does not define `{name}`" if gone.name else f"there is no module {gone.module}"
    )
    places = _now_at(index, module, name)
    return Hit(
        file.at_node(node),
        f'the path "{text}" leads nowhere: {what}',
        advice=f"Write {' or '.join(places)}." if places else "Write the path of what is meant.",
        observed=str(node.value),
        origin=index.place(gone.module, 1) if index.has_module(gone.module) else "",
    )


def _now_at(index: Index, module: str, name: str) -> list[str]:
    if index.is_own(module):
        own = [
            f"{m}.{name}"
            for m in index.tree_modules
            if (s := index.summary(m)) is not None and (name in s.classes or name in s.functions)
        ]
        return own[:2]
    target = index.target
    return [f"{m}.{name}" for m in target.defining.get(name, ())][:2] if target is not None else []
