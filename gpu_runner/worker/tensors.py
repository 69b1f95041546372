"""Tensors as bytes: poison patterns, guard bands, and storages in files.

A tensor is described by (dtype, shape, stride, offset) over a storage; the storage is raw bytes. Both
processes rebuild views from that, so a guard band is only a storage that is larger than its view.
"""

from __future__ import annotations

import ctypes

import torch

GUARD_ELEMENTS = 64
_EMPTY = torch.empty  # torch's own, also while `allocations` has put another in its place
GUARD_FILLS = ("nan", "big")

_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_NAN_BITS = {
    torch.float64: 0x7FF8_DEAD_DEAD_DEAD,
    torch.float32: 0x7FC0_DEAD,
    torch.float16: 0x7E01,
    torch.bfloat16: 0x7FC1,
}
_BIG = 1.0e4
_BIG_BYTE = 0x6E
_NAN_BYTE = 0x7F
_INTEGER_FILLS = {"nan": -0x5EAD_0BAD, "big": 0x7BAD_CAFE}


def dtype_named(name: str) -> torch.dtype:
    """The torch dtype of that name ("bfloat16"); raises ValueError for a name torch does not have."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"this torch has no dtype {name!r}")  # noqa: TRY004 (a name, not a type)
    return found


def dtype_name(dtype: torch.dtype) -> str:
    """Torch's own name of the dtype without the "torch." in front."""
    return str(dtype).removeprefix("torch.")


def poison(tensor: torch.Tensor, fill: str) -> torch.Tensor:
    """Overwrite every element with a recognisable pattern; returns the same tensor.

    Args:
        tensor: Any dense tensor, on any device.
        fill: "nan" (a NaN payload that no arithmetic produces; a large negative integer) or "big"
            (1e4, or what a short type has near it; a large positive integer).
    """
    if tensor.numel() == 0:
        return tensor
    if tensor.dtype == torch.bool:
        return tensor.fill_(fill == "nan")
    if tensor.is_complex():
        poison(torch.view_as_real(tensor), fill)
        return tensor
    bits_type = _INTEGER_OF_SIZE[tensor.element_size()]
    if not tensor.is_floating_point():
        tensor.view(bits_type).fill_(_wrapped(_INTEGER_FILLS[fill], bits_type))
        return tensor
    if tensor.element_size() == 1:
        tensor.view(torch.uint8).fill_(_NAN_BYTE if fill == "nan" else _BIG_BYTE)
    elif fill == "nan":
        tensor.view(bits_type).fill_(_NAN_BITS[tensor.dtype])
    else:
        tensor.fill_(_BIG)
    return tensor


def _wrapped(value: int, bits_type: torch.dtype) -> int:
    info = torch.iinfo(bits_type)
    return (value - info.min) % (info.max - info.min + 1) + info.min


def guarded(
    tensor: torch.Tensor, fill: str = "nan", elements: int = GUARD_ELEMENTS
) -> torch.Tensor:
    """A contiguous copy of `tensor` that lies between two guard bands of poison in its own storage.

    Args:
        tensor: Any CPU tensor.
        fill: Pattern of the bands, see `poison`.
        elements: Elements of each band; the view's offset, so keep it a multiple of 16 to keep the
            alignment that a sound kernel may ask for.
    """
    count = tensor.numel()
    whole = poison(torch.empty(count + 2 * elements, dtype=tensor.dtype), fill)
    view = whole[elements : elements + count].view(tensor.shape)
    view.copy_(tensor)
    return view


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements as integers of their width, so that NaN equals NaN and -0 differs from 0."""
    if tensor.is_complex():
        return bits(torch.view_as_real(tensor))
    return tensor.view(_INTEGER_OF_SIZE[tensor.element_size()])


def flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a contiguous tensor's elements, as a flat uint8 tensor."""
    if tensor.numel() == 0:
        return torch.empty(0, dtype=torch.uint8)
    return bits(tensor).reshape(-1).view(torch.uint8)


def memory_of(raw: torch.Tensor) -> bytes | ctypes.Array[ctypes.c_ubyte]:
    """The memory of a contiguous uint8 CPU tensor as a buffer; a torch may lack numpy."""
    if raw.numel() == 0:
        return b""
    return (ctypes.c_ubyte * raw.numel()).from_address(raw.data_ptr())


def storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Every byte of the storage behind `tensor`, as a flat uint8 view of the same memory."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)


def view_of(
    raw: torch.Tensor,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
) -> torch.Tensor:
    """A view with this geometry (offset and strides in elements) over the storage of `raw`."""
    empty = torch.empty(0, dtype=dtype, device=raw.device)
    return empty.set_(raw.untyped_storage(), offset, shape, stride)


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """All elements that the tensor's storage holds, gaps included, as a flat view in its dtype."""
    empty = _EMPTY(0, dtype=tensor.dtype, device=tensor.device)
    return empty.set_(tensor.untyped_storage())
