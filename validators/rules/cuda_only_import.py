"""ATT224: parts of vLLM that only its CUDA build has, preferred over the plugin's component."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.guards import is_typing_only
from attngate.validators.model import Severity
from attngate.validators.registry import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile

# Part of vLLM's CUDA build to the component that a plugin for another platform has instead.
_CUDA_ONLY = {
    "vllm.vllm_flash_attn": "flash_attn",
    "vllm._flashmla_C": "flash_mla",
    "vllm._flashmla_extension_C": "flash_mla",
    "vllm.third_party.flashmla": "flash_mla",
    "vllm.third_party.deep_gemm": "deep_gemm",
}


@rule("ATT224", "cuda-only-import", Severity.WARNING)
def cuda_only_import(file: SourceFile, context: Context) -> Iterator[Hit]:
    """A part of vLLM's CUDA build is imported by a plugin that has the component of its own platform.

    Why:
        On another platform it is not there, or worse: it is there and is another build with other
        keywords, returned values and log-sum-exp. A `try` that prefers it decides by what happens to be
        installed which convention the rest of the file follows.

    Instead:
        Import the component that the plugin is built for.
    """
    names = file.source.names
    for node in names.imports:
        parts = [p for p in map(_part, _modules(node)) if p]
        used = context.once(_components) if parts else {}
        parts = [p for p in parts if _CUDA_ONLY[p] in used]
        if parts and not is_typing_only(names, node):
            component = _CUDA_ONLY[parts[0]]
            yield Hit(
                file.at_node(node),
                f"{parts[0]} is part of vLLM's CUDA build only; the plugin uses {component}",
                advice=f"Import {component}, and only that.",
                observed=ast.unparse(node)[:120],
                origin=used[component],
            )


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if node.level or not node.module:
        return []
    return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]


def _part(module: str) -> str:
    """The part of the CUDA build that a module belongs to, "" for none."""
    return next((p for p in _CUDA_ONLY if module == p or module.startswith(f"{p}.")), "")


def _components(context: Context) -> dict[str, str]:
    """Component that some file of the plugin imports to the place where it does."""
    found: dict[str, str] = {}
    for path, file in sorted(context.files.items()):
        for component, line in file.facts.components:
            found.setdefault(component, f"{path} line {line}")
    return found
