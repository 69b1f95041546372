"""Reading a target's declarations, the same way in every suite."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attngate.gpu_runner.worker import registry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attngate.gpu_runner.worker import wire

SHORT_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def dtypes(options: Mapping[str, Any], default: Sequence[str]) -> list[str]:
    """`dtypes = [...]`, the first of which is the one that the quick tier runs most of."""
    return known_dtypes(options, "dtypes", default)


def known_dtypes(options: Mapping[str, Any], key: str, default: Sequence[str]) -> list[str]:
    """A list of names of floating point types under `key`."""
    found = list_of(options, key, str, default)
    for name in found:
        if name not in SHORT_NAMES:
            known = ", ".join(SHORT_NAMES)
            raise registry.DeclarationError(f"{key}: {name!r} is not known", f"known: {known}")
    return found


def head_dims(
    options: Mapping[str, Any], default: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """`head_dims = [[qk, v], ...]`; a plain number stands for an equal pair."""
    found = list_of(options, "head_dims", (int, list, tuple), default)
    pairs = [(each, each) if isinstance(each, int) else tuple(each) for each in found]
    if not all(len(pair) == 2 and all(_is_size(size) for size in pair) for pair in pairs):
        raise registry.DeclarationError(
            f"head_dims = {found!r} holds something else than pairs of sizes",
            "write head_dims = [[128, 128], [192, 128]]: query and key first, then value",
        )
    return pairs


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 4 <= value <= 1024


def value_dims(options: Mapping[str, Any], default: Sequence[int]) -> list[int]:
    """The distinct value head dims of `head_dims`, in order; at least one, the first the main one."""
    pairs = head_dims(options, [(d, d) for d in default])
    return list(dict.fromkeys(dv for _, dv in pairs))


def sizes(options: Mapping[str, Any], key: str, default: Sequence[int]) -> list[int]:
    """A list of positive integers such as `page_sizes` or `groups`."""
    found = list_of(options, key, int, default)
    if any(isinstance(each, bool) or each < 1 for each in found):
        raise registry.DeclarationError(f"{key} = {found!r}: sizes are positive integers")
    return found


def list_of(options: Mapping[str, Any], key: str, kind: Any, default: Sequence[Any]) -> list[Any]:
    """A non-empty list under `key`; raises DeclarationError for anything else."""
    found = options.get(key)
    if found is None:
        return list(default)
    if not isinstance(found, (list, tuple)) or not found:
        raise registry.DeclarationError(f"{key} = {found!r} must be a list with an entry or more")
    if not all(isinstance(each, kind) for each in found):
        raise registry.DeclarationError(f"{key} = {found!r} has an entry of the wrong type")
    return list(found)


def in_call(measurement: wire.Measurement, call: str) -> wire.Measurement:
    """The measurement with the call's name before its position, unless it is the first call."""
    if not measurement.position or call == "first":
        return measurement
    return replace(measurement, position=f"call {call!r}, {measurement.position}")


def is_bad(measurement: wire.Measurement) -> bool:
    """True if a measurement is over its limit or holds values that are not finite."""
    return measurement.worst > 1.0 or measurement.nonfinite > 0
