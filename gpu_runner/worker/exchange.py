"""Calls and results in files of the job's private folder: the only thing that crosses as data.

The judge writes one JSON file of calls and raw files of storages; the candidate answers with one JSON
file of results and raw files. Nothing is pickled, and the judge reads nothing that it cannot check
against a size.

    calls    {"case", "dtype", "device", "needs": [...], "calls": [CALL...]}
    CALL     {"id", "call", "round", "fill", "expect", "after", "refill", "args": {name: ARG},
              "storages": {key: {"file", "bytes"}}}
    ARG      {"tensor": {"storage", "dtype", "shape", "stride", "offset"}} | {"tuple": [ARG...]} |
             {"list": [ARG...]} | {"dtype": name} | {"float": "inf"} | {"value": JSON}
    results  {"results": [{"id", "returned": {name: TENSOR}, "storages_after": {key: file},
              "raised": null | {"type", "message"}, "aliases": [[output, what]...],
              "kept_changed": [[earlier id, output]...]}]}
    TENSOR   {"file", "dtype", "shape"}; contiguous
"""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

import torch

from attngate.gpu_runner.worker import tensors
from attngate.gpu_runner.worker.registry import TensorArg

if TYPE_CHECKING:
    from collections.abc import Callable

FILL_OF_ROUND = {1: "nan", 2: "big"}


class ExchangeError(Exception):
    """A file of the exchange does not hold what it must."""


def run_id(call: str, round_: int) -> str:
    """Name of one run of a call: "first#2" is the second round of "first"."""
    return f"{call}#{round_}"


def write_bytes(raw: torch.Tensor, path: str) -> None:
    """Write a contiguous uint8 CPU tensor as it is."""
    with open(path, "wb") as file:
        file.write(tensors.memory_of(raw))


def read_bytes(path: str, expected: int) -> torch.Tensor:
    """Read a raw file as a writable flat uint8 tensor; raises ExchangeError on another size."""
    size = os.path.getsize(path)
    if size != expected:
        raise ExchangeError(f"{path} holds {size} bytes, expected {expected}")
    if size == 0:
        return torch.empty(0, dtype=torch.uint8)
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


def encode(value: Any, on_tensor: Callable[[torch.Tensor], dict[str, Any]]) -> dict[str, Any]:
    """One argument as JSON data; tensors through `on_tensor`; raises TypeError on other types."""
    if isinstance(value, TensorArg):
        return {"tensor": on_tensor(value.tensor)}
    if isinstance(value, torch.Tensor):
        return {"tensor": on_tensor(value)}
    if isinstance(value, (tuple, list)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [encode(item, on_tensor) for item in value]}
    if isinstance(value, torch.dtype):
        return {"dtype": tensors.dtype_name(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    raise TypeError(f"a {type(value).__name__} cannot be an argument of a call")


def decode(data: dict[str, Any], on_tensor: Callable[[dict[str, Any]], torch.Tensor]) -> Any:
    """The inverse of `encode`."""
    ((kind, content),) = data.items()
    if kind == "tensor":
        return on_tensor(content)
    if kind == "tuple":
        return tuple(decode(item, on_tensor) for item in content)
    if kind == "list":
        return [decode(item, on_tensor) for item in content]
    if kind == "dtype":
        return tensors.dtype_named(content)
    return float(content) if kind == "float" else content


def describe(tensor: torch.Tensor, storage: str) -> dict[str, Any]:
    """The geometry of a view over the storage of that key."""
    return {
        "storage": storage,
        "dtype": tensors.dtype_name(tensor.dtype),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": int(tensor.storage_offset()),
    }


def build_view(data: dict[str, Any], raw: torch.Tensor) -> torch.Tensor:
    """The view that `describe` described, over other bytes of the same size."""
    dtype = tensors.dtype_named(data["dtype"])
    shape, stride = tuple(data["shape"]), tuple(data["stride"])
    return tensors.view_of(raw, dtype, shape, stride, data["offset"])


def write_json(data: dict[str, Any], path: str) -> None:
    """Write one JSON file of the exchange."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file, allow_nan=False)


def read_json(path: str) -> dict[str, Any]:
    """Read one JSON file of the exchange; raises ExchangeError if it is no object."""
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    if not isinstance(data, dict):
        raise ExchangeError(f"{path} holds no JSON object")
    return data


def write_tensor(tensor: torch.Tensor, folder: str, name: str) -> dict[str, Any]:
    """Write the elements of a tensor on any device, contiguous; returns its TENSOR entry."""
    plain = tensor.detach().to("cpu").contiguous()
    write_bytes(tensors.flat_bytes(plain), os.path.join(folder, name))
    return {
        "file": name,
        "dtype": tensors.dtype_name(tensor.dtype),
        "shape": list(tensor.shape),
    }


def read_tensor(data: dict[str, Any], folder: str) -> torch.Tensor:
    """Read what `write_tensor` wrote; raises ExchangeError if the file has another size."""
    dtype = tensors.dtype_named(data["dtype"])
    count = math.prod(data["shape"])
    path = os.path.join(folder, os.path.basename(data["file"]))
    raw = read_bytes(path, count * torch.empty(0, dtype=dtype).element_size())
    return raw.view(dtype).view(data["shape"])
