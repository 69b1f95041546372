"""ATT221: an outside module under two spellings."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.index import Foreign
from attngate.validators.model import Severity
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile


@rule("ATT221", "misspelt-module", Severity.WARNING)
def misspelt_module(file: SourceFile, context: Context) -> Iterator[Hit]:
    """An extension module is imported under a name that differs by underscores or case from elsewhere.

    Why:
        Inside `try` and `except ImportError` a misspelt import looks like a component that is not
        installed: its kernels are not loaded, and nothing but a log line says so.

    Instead:
        Write the name that the component has.
    """
    spelt = context.once(_spellings)
    for node in file.source.names.imports:
        for name in _outside(context, node):
            others = spelt.get(_plain(name), {})
            better = max(others, key=lambda n: (others[n], -len(n)), default=name)
            if (
                name.rpartition(".")[2].strip("_")
                and name.endswith("_")
                and not name.endswith("__")
            ):
                better = name.rstrip("_")
                others = {better: 1, name: 0}
            if better != name and others[better] >= others.get(name, 0):
                yield Hit(
                    file.at_node(node),
                    _message(name, better, others[name]),
                    advice=f"Write {better}, if that is what is meant.",
                    observed=ast.unparse(node)[:120],
                )


def _message(name: str, better: str, times: int) -> str:
    if not times:
        return f"{name} ends in an underscore, as no extension module does"
    return f"{name} is imported here and {better} elsewhere in the plugin"


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _spellings(context: Context) -> dict[str, dict[str, int]]:
    """Name without underscores to how often each spelling is imported in the plugin."""
    found: dict[str, dict[str, int]] = {}
    for file in context.files.values():
        for name in file.facts.private:
            count = found.setdefault(_plain(name), {})
            count[name] = count.get(name, 0) + 1
    return {plain: count for plain, count in found.items() if len(count) > 1}


def _outside(context: Context, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Dotted modules of other packages, below their top, that an import names."""
    if isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{a.name}" for a in node.names] if not node.level else []
    else:
        names = [a.name for a in node.names]
    for name in names:
        last = name.rpartition(".")[2]
        if (
            "." in name
            and last.startswith("_")
            and isinstance(context.index.module_ref(name), Foreign)
        ):
            yield name
