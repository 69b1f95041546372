"""Inputs that make a fault visible, and the memory they lie in.

Dense Gaussian inputs in fresh memory hide most faults of attention kernels: one key of a thousand
weighs nothing, and the padding behind a page is harmless. The recipes here give single keys weight,
make the attended set readable from the output, or push scores to where arithmetic breaks. The layouts
put the same values into slices, padded rows and shuffled pages whose gaps hold poison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attngate.gpu_runner.worker import tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Score by which a dominant key leads: its softmax weight is 1 within 6e-6.
DOMINANT_SCORE = 12.0
# Score of every key in "negative" inputs: a key scored 0 by mistake takes all the mass.
NEGATIVE_SCORE = -40.0
# Gaps are multiples of this many elements, so that views keep the alignment kernels may ask for.
ALIGNED = 16


@dataclass(frozen=True)
class Shape:
    """Shape of one request.

    Attributes:
        sq: Query rows.
        sk: Keys.
        hq: Query heads.
        hk: KV heads.
        d: Head dim of Q and K.
        dv: Head dim of V.
        scale: Softmax scale.
        page: Page size (or a tile's), at whose seams single keys matter.
        index: Number of the request in its batch.
    """

    sq: int
    sk: int
    hq: int
    hk: int
    d: int
    dv: int
    scale: float
    page: int = 64
    index: int = 0


Values = tuple[Tensor, Tensor, Tensor]
"""float32 q [Sq, Hq, D], k [Sk, Hk, D], v [Sk, Hk, Dv] of one request."""


def gaussian(rng: torch.Generator, *shape: int) -> Tensor:
    """float32 of unit variance."""
    return torch.randn(shape, generator=rng)


def normal(shape: Shape, rng: torch.Generator) -> Values:
    """Zero-mean unit-variance values: scores of deviation 1 at the default scale."""
    q, k = gaussian(rng, shape.sq, shape.hq, shape.d), gaussian(rng, shape.sk, shape.hk, shape.d)
    return q, k, gaussian(rng, shape.sk, shape.hk, shape.dv)


def sharp(shape: Shape, rng: torch.Generator) -> Values:
    """Scores of deviation 6: few keys hold most of the mass."""
    q, k, v = normal(shape, rng)
    return q * 6.0, k, v


def ramp(shape: Shape, rng: torch.Generator) -> Values:
    """V tells which keys were attended: a ramp, the parity, then one-hot by position and head."""
    q, k, v = normal(shape, rng)
    position = torch.arange(shape.sk)
    v = torch.zeros_like(v)
    v[..., 0] = ((position + 1.0) / max(shape.sk, 1)).unsqueeze(1)
    v[..., 1] = (1.0 - 2.0 * (position % 2)).unsqueeze(1)
    channels = shape.dv - 2
    for head in range(shape.hk):
        v[position, head, 2 + (position + 3 * head) % channels] = 1.0
    return q * 0.5, k, v


def _along_one_direction(
    shape: Shape, rng: torch.Generator, score: float
) -> tuple[Values, Tensor, float]:
    """Queries close to one direction, keys close to the plane across it; the key that scores `score`."""
    q, k, v = normal(shape, rng)
    direction = torch.ones(shape.d) / shape.d**0.5
    across = k - (k @ direction).unsqueeze(-1) * direction
    length = abs(score / shape.scale) ** 0.5
    return (direction * length + 0.2 * q, 0.2 * across, v), direction, length


def dominant(shape: Shape, rng: torch.Generator) -> Values:
    """One key at a seam takes the whole mass of every row that sees it; another seam in each head."""
    (q, k, v), direction, length = _along_one_direction(shape, rng, DOMINANT_SCORE)
    for head in range(shape.hk if shape.sk else 0):
        position = _seam(shape, head + shape.index)
        k[position, head] = direction * length
        v[position, head] = 4.0 if head % 2 == 0 else -4.0
    return q, k, v


def _seam(shape: Shape, turn: int) -> int:
    last, page = shape.sk - 1, shape.page
    seams = [last, 0, page - 1, page, last - 1, shape.sk - shape.sk % page]
    within = [seam for seam in seams if 0 <= seam <= last]
    return within[turn % len(within)]


def negative(shape: Shape, rng: torch.Generator) -> Values:
    """Every score is about -40."""
    (q, k, v), direction, length = _along_one_direction(shape, rng, NEGATIVE_SCORE)
    return q, k - direction * length, v


def large(shape: Shape, rng: torch.Generator) -> Values:
    """Scores of both signs up to about 1e4, in which exp of anything overflows."""
    q, k, v = normal(shape, rng)
    size = (3.0e3 / (shape.scale * shape.d**0.5)) ** 0.5
    return q * size, k * size, v


RECIPES: dict[str, Callable[[Shape, torch.Generator], Values]] = {
    "normal": normal,
    "sharp": sharp,
    "ramp": ramp,
    "dominant": dominant,
    "negative": negative,
    "large": large,
}

# Recipes whose output error is that of a mean of zero-mean values, as the aggregate rule supposes.
AGGREGATE = frozenset({"normal"})


def in_padded_rows(parts: Sequence[Tensor], fill: str) -> list[Tensor]:
    """Views side by side in one row of memory per token, with poison behind each part and around all.

    Args:
        parts: Tensors [T, H_i, D_i] of one dtype and the same T: the slices of a fused projection.
        fill: Poison of what belongs to no part.
    """
    widths = [part.shape[1] * part.shape[2] for part in parts]
    tokens = parts[0].shape[0]
    starts, width = [], 0
    for each in widths:
        starts.append(width)
        width += -(-each // ALIGNED) * ALIGNED + ALIGNED
    whole = tensors.guarded(poisoned((tokens, width), parts[0].dtype, fill), fill)
    views = []
    for part, start, each in zip(parts, starts, widths, strict=True):
        view = whole[:, start : start + each].view(part.shape)
        views.append(view.copy_(part))
    return views


def in_padded_heads(part: Tensor, fill: str) -> Tensor:
    """A view of [T, H, D] with poison behind the D elements of every head."""
    tokens, heads, d = part.shape
    width = -(-d // ALIGNED) * ALIGNED + ALIGNED
    whole = tensors.guarded(poisoned((tokens, heads, width), part.dtype, fill), fill)
    return whole[..., :d].copy_(part)


def poisoned(shape: Sequence[int], dtype: torch.dtype, fill: str) -> Tensor:
    """A fresh tensor full of poison."""
    return tensors.poison(torch.empty(tuple(shape), dtype=dtype), fill)


@dataclass(frozen=True)
class Pages:
    """Key and value pools [pages, page size, Hk, D or Dv] and block table int32 [B, width]."""

    k: Tensor
    v: Tensor
    table: Tensor


def in_pages(
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    page: int,
    fill: str,
    rng: torch.Generator,
    *,
    together: bool,
) -> Pages:
    """Scatter the requests over shuffled pages; whatever no request owns holds poison.

    Page 0 is never owned. The unused tail of each table row names an unowned page, so that reading
    past a request's end meets poison and not an illegal address.

    Args:
        keys: k [Sk, Hk, D] of each request.
        values: v [Sk, Hk, Dv] of each request.
        page: Tokens of a page.
        fill: Poison.
        rng: Shuffles the pages.
        together: K and V of a page lie side by side in one pool, as in a cache of both.
    """
    counts = [-(-len(k) // page) for k in keys]
    owned = sum(counts)
    order = (torch.randperm(owned + 2, generator=rng) + 1).to(torch.int32)
    width = max([*counts, 0]) + 1
    table = torch.full((len(keys), width), int(order[-1]), dtype=torch.int32)
    pool_k, pool_v = _pools(owned + 3, page, keys[0], values[0], fill, together=together)
    taken = 0
    for row, (k, v, count) in enumerate(zip(keys, values, counts, strict=True)):
        table[row, :count] = order[taken : taken + count]
        taken += count
        for token in range(len(k)):
            at = (int(table[row, token // page]), token % page)
            pool_k[at], pool_v[at] = k[token], v[token]
    return Pages(pool_k, pool_v, guarded_table(table))


def guarded_table(table: Tensor) -> Tensor:
    """The block table as the left part of a wider one, whose other columns name no page."""
    rows, width = table.shape
    whole = torch.full((rows, width + 3), 2147480000, dtype=table.dtype)
    return whole[:, :width].copy_(table)


def _pools(
    pages: int, page: int, k: Tensor, v: Tensor, fill: str, *, together: bool
) -> tuple[Tensor, Tensor]:
    hk, d, dv = k.shape[1], k.shape[2], v.shape[2]
    if not together:
        pools = [poisoned((pages, page, hk, width), k.dtype, fill) for width in (d, dv)]
        return tensors.guarded(pools[0], fill), tensors.guarded(pools[1], fill)
    sizes = (page * hk * d, page * hk * dv)
    whole = tensors.guarded(poisoned((pages, sum(sizes) + ALIGNED), k.dtype, fill), fill)
    left = whole[:, : sizes[0]].view(pages, page, hk, d)
    return left, whole[:, sizes[0] : sum(sizes)].view(pages, page, hk, dv)


def gathered(pool: Tensor, table_row: Tensor, length: int) -> Tensor:
    """The first `length` tokens of one request out of its pages: [length, Hk, D]."""
    page = pool.shape[1]
    token = torch.arange(length)
    return pool[table_row[token // page].long(), token % page]


def cumulative(lengths: Sequence[int]) -> Tensor:
    """int32 [B + 1]: where each request starts, and where the last one ends."""
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
