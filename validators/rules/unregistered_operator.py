"""ATT211: torch operators that nobody registers."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from attngate.validators.context import Hit
from attngate.validators.guards import ancestors, catches
from attngate.validators.registry import rule
from attngate.validators.symbols import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.context import Context, SourceFile

# Namespaces that torch has, and those whose operators come from an extension under that very name.
_TORCH = frozenset(
    ["aten", "prim", "prims", "quantized", "c10d", "_c10d_functional", "c10d_functional", "symm_mem",
     "inductor", "higher_order", "profiler", "rngprims", "torchvision", "torchaudio", "mkldnn",
     "onednn", "mkl", "debugprims", "nvprims", "fsdp", "dtensor", "_dtensor", "load_library",
     "loaded_libraries", "import_module", "xpu", "triton"]
)  # fmt: skip


@rule("ATT211", "unregistered-operator")
def unregistered_operator(file: SourceFile, context: Context) -> Iterator[Hit]:
    """`torch.ops.NAMESPACE.NAME` is called, and nothing here or in the target's Python registers it.

    Why:
        The operators of vLLM's CUDA extensions do not exist in a plugin's installation. Code that was
        taken over from the target then fails at the first call, not at import.

    Instead:
        Call the component that the plugin has for it, or register an operator of that name.
    """
    for node in file.source.names.attributes:
        path = dotted(node)
        parts = path.split(".")
        if len(parts) < 4 or parts[:2] != ["torch", "ops"] or _asks(file, node):
            continue
        space, name = parts[2], parts[3]
        if len(parts) > 4 or space in _TORCH or space in context.options.operators:
            continue
        reason = _reason(space, name, context.once(_registered))
        if reason:
            yield Hit(
                file.at_node(node),
                f"torch.ops.{space}.{name}: {reason}",
                advice="Call what the installed component offers, or register the operator.",
                observed=file.source.line(node.lineno)[:120],
            )


def _reason(space: str, name: str, known: dict[str, set[str]]) -> str:
    if space in known:
        return (
            ""
            if name in known[space] or not known[space]
            else (f"the namespace is registered by Python code, and there is no {name}")
        )
    if is_extension(space):
        return f"{space} is an extension of vLLM's own build, which a plugin's installation lacks"
    return ""


def is_extension(space: str) -> bool:
    """True for the namespaces of vLLM's compiled extensions that a plugin does not build again."""
    return space in (
        "_flashmla_C",
        "_flashmla_extension_C",
        "_vllm_fa2_C",
        "_vllm_fa3_C",
        "_qutlass_C",
    )


def _registered(context: Context) -> dict[str, set[str]]:
    """Namespace to operators that Python code of the plugin or the target registers."""
    found: dict[str, set[str]] = {"vllm": set()}
    for name in context.index.operators:
        space, _, short = name.rpartition("::")
        found.setdefault(space or "vllm", set()).add(short.partition("(")[0])
    return found


def _asks(file: SourceFile, node: ast.AST) -> bool:
    """True where the code asks whether the operator is there, or catches that it is not."""
    for outer, child in ancestors(file.source.names, node):
        if isinstance(outer, ast.Call) and dotted(outer.func) in ("hasattr", "getattr"):
            return True
        if isinstance(outer, ast.Try) and child in outer.body:
            return any(
                catches(h, ("AttributeError", "RuntimeError", "Exception")) for h in outer.handlers
            )
    return False
