"""ATT216: optional components imported as if they were always there."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.guards import is_guarded_import, is_typing_only
from attngate.validators.model import Severity
from attngate.validators.registry import rule
from attngate.validators.symbols import OPTIONAL_COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile


@rule("ATT216", "eager-component", Severity.WARNING)
def eager_component(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A kernel component is imported at the top of a module, and the plugin elsewhere treats it as optional.

    Why:
        Where the component is not installed, everything in the module fails to import, also what does
        not need it: a model file takes every model of the family with it.

    Instead:
        Import it inside the function that needs it, through the plugin's wrapper, or in a `try`.
    """
    names = file.source.names
    for node in names.imports:
        component = _component(node)
        if not component or names.scope_of(node).outer is not None:
            continue
        if (
            is_guarded_import(names, node)
            or is_typing_only(names, node)
            or _is_conditional(file, node)
        ):
            continue
        where = context.once(_optional).get(component)
        if where is None or _is_wrapper(file, component):
            continue
        yield Hit(
            file.at_node(node),
            f"{component} is imported when the module is, and the plugin treats it as optional elsewhere",
            advice="Import it where it is needed, or through the plugin's wrapper.",
            observed=ast.unparse(node)[:120],
            origin=where,
        )


def _component(node: ast.Import | ast.ImportFrom) -> str:
    if isinstance(node, ast.ImportFrom):
        top = (node.module or "").partition(".")[0] if not node.level else ""
    else:
        top = node.names[0].name.partition(".")[0]
    return top if top in OPTIONAL_COMPONENTS else ""


def _optional(context: Context) -> dict[str, str]:
    """Component to the place where the plugin imports it late, guarded, or asks for it."""
    found: dict[str, str] = {}
    for path, file in sorted(context.files.items()):
        # What a test does without, the plugin may need.
        is_test = "tests" in path.split("/")
        symbols = file.symbols if file.facts.optional and not is_test else None
        for component, line in symbols.late if symbols is not None else ():
            context.index.used.add(path)
            found.setdefault(component, f"{path} line {line}")
    return found


def _is_conditional(file: SourceFile, node: ast.AST) -> bool:
    return isinstance(file.source.names.parents.get(node), ast.If)


def _is_wrapper(file: SourceFile, component: str) -> bool:
    """True for a module of the component's own name: whoever imports it wants the component."""
    name = file.path.rpartition("/")[2].removesuffix(".py")
    plain = component.replace("_", "")
    return plain in name.replace("_", "") or name == "fa_utils"
