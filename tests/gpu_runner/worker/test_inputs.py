"""Recipes do what they are named after, and layouts keep poison everywhere else."""

from __future__ import annotations

import pytest
import torch

from attngate.gpu_runner.worker import inputs, tensors
from attngate.gpu_runner.worker.inputs import Shape


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(4)


SHAPE = Shape(sq=9, sk=70, hq=4, hk=2, d=64, dv=32, scale=0.125, page=16)


def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.einsum("ihd,jhd->hij", q, k.repeat_interleave(2, 1)) * SHAPE.scale


@pytest.mark.parametrize("name", inputs.RECIPES)
@pytest.mark.parametrize("sk", [0, 1, 70])
def test_every_recipe_gives_its_shapes(name: str, sk: int):
    shape = Shape(3, sk, 4, 2, 64, 32, 0.125)
    q, k, v = inputs.RECIPES[name](shape, rng())
    assert (q.shape, k.shape, v.shape) == ((3, 4, 64), (sk, 2, 64), (sk, 2, 32))


def test_a_dominant_key_has_all_the_mass_and_another_seam_in_each_head():
    q, k, v = inputs.dominant(SHAPE, rng())
    p = scores(q, k).softmax(-1).amin(1)
    where = p.argmax(-1)
    assert (p.amax(-1) > 0.999).all()
    assert where.tolist() == [69, 69, 0, 0]
    assert v[69, 0].unique().tolist() == [4.0]


def test_negative_scores_are_all_about_minus_40():
    q, k, _ = inputs.negative(SHAPE, rng())
    found = scores(q, k)
    assert found.max() < -30
    assert found.min() > -50


def test_large_scores_reach_thousands_of_both_signs():
    q, k, _ = inputs.large(SHAPE, rng())
    found = scores(q, k)
    assert found.max() > 5e3
    assert found.min() < -5e3


def test_a_ramp_tells_which_keys_were_attended():
    _, _, v = inputs.ramp(SHAPE, rng())
    whole = v.mean(0)
    for left_out in (0, 15, 16, 69):
        kept = torch.arange(SHAPE.sk) != left_out
        assert (v[kept].mean(0) - whole).abs().amax() > 1e-2


@pytest.mark.parametrize("fill", ["nan", "big"])
def test_padded_rows_hold_the_values_and_poison_between(fill: str):
    parts = [torch.randn(5, heads, 8) for heads in (4, 2, 2)]
    views = inputs.in_padded_rows(parts, fill)
    assert all(torch.equal(view, part) for view, part in zip(views, parts, strict=True))
    assert len({view.untyped_storage().data_ptr() for view in views}) == 1
    assert not any(view.is_contiguous() for view in views)
    raw = tensors.storage_bytes(views[0]).view(torch.float32)
    poisoned = raw.isnan() if fill == "nan" else raw == 1e4
    assert int(poisoned.sum()) == raw.numel() - sum(part.numel() for part in parts)


def test_padded_heads_hold_the_values_and_poison_behind_each():
    part = torch.randn(5, 3, 20)
    view = inputs.in_padded_heads(part, "nan")
    assert torch.equal(view, part)
    assert view.stride(1) % inputs.ALIGNED == 0
    raw = tensors.storage_bytes(view).view(torch.float32)
    assert int(raw.isnan().sum()) == raw.numel() - part.numel()


@pytest.mark.parametrize("together", [True, False])
def test_pages_hold_the_requests_shuffled_and_poison_elsewhere(together: bool):
    lengths = (1, 0, 15, 16, 17, 35)
    keys = [torch.randn(n, 2, 8) for n in lengths]
    values = [torch.randn(n, 2, 4) for n in lengths]
    pages = inputs.in_pages(keys, values, 16, "nan", rng(), together=together)
    for row, length in enumerate(lengths):
        assert torch.equal(inputs.gathered(pages.k, pages.table[row], length), keys[row])
        assert torch.equal(inputs.gathered(pages.v, pages.table[row], length), values[row])
    assert int((~pages.k.isnan()).sum()) == sum(k.numel() for k in keys)
    assert int((~pages.v.isnan()).sum()) == sum(v.numel() for v in values)
    used = [int(b) for row, n in enumerate(lengths) for b in pages.table[row, : -(-n // 16)]]
    assert len(set(used)) == len(used)
    assert used != sorted(used)
    assert 0 not in used
    assert int(pages.table[1, 0]) not in used
    assert not pages.table.is_contiguous()


def test_cumulative_lengths_are_int32_from_zero():
    found = inputs.cumulative([3, 0, 2])
    assert found.tolist() == [0, 3, 3, 5]
    assert found.dtype == torch.int32
