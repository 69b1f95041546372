"""Memory that a call allocates itself is poisoned, whatever way it is allocated in."""

import pytest
import torch

from attngate.gpu_runner.worker import tensors
from attngate.gpu_runner.worker.allocations import PoisonAllocations

WAYS = {
    "empty": lambda x: torch.empty(3, 4, dtype=x.dtype),
    "empty_like": torch.empty_like,
    "transposed": lambda x: torch.empty_like(x.t()),
    "new_empty": lambda x: x.new_empty(3, 4),
    "empty_strided": lambda x: torch.empty_strided((3, 4), (8, 2), dtype=x.dtype),
    "method of a grown buffer": lambda x: torch.empty(2, 3, 4, dtype=x.dtype)[1],
    "constructor": lambda x: torch.Tensor(3, 4).to(x.dtype),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fill", ["nan", "big"])
def test_each_way_gives_poison(way, fill):
    x = torch.zeros(3, 4, dtype=torch.float16)
    with PoisonAllocations(fill):
        made = WAYS[way](x)
    expected = torch.isnan(made) if fill == "nan" else made == 1.0e4
    assert bool(expected.all())


def test_what_is_written_stays():
    with PoisonAllocations("nan"):
        assert torch.zeros(3).sum() == 0
        assert torch.full((3,), 2.0).tolist() == [2.0, 2.0, 2.0]
        assert (torch.ones(3) * 2).tolist() == [2.0, 2.0, 2.0]


def test_a_compiled_function_is_still_compiled():
    """A mode usually makes torch.compile run the plain function, so the wrong thing would be tested."""
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    function = torch.compile(lambda x: x * 2 + 1, backend=backend)
    with PoisonAllocations("nan"):
        assert function(torch.ones(4)).tolist() == [3.0] * 4
    assert len(compiled) == 1


DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn),
    *(torch.float8_e5m2, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    *(torch.bool, torch.complex64),
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_two_fills_differ_in_every_element_and_leave_the_rest(dtype):
    whole = torch.zeros(4, 6, dtype=dtype)
    one = tensors.poison(whole[:, 1:3], "nan").clone()
    two = tensors.poison(whole[:, 1:3], "big").clone()
    assert bool((tensors.bits(one) != tensors.bits(two)).all())
    assert int(tensors.bits(whole[:, 3:]).count_nonzero()) == 0
    assert one.dtype == dtype


def test_a_guarded_copy_lies_between_bands_of_poison():
    view = tensors.guarded(torch.arange(6.0).view(2, 3), "big")
    assert view.tolist() == [[0, 1, 2], [3, 4, 5]]
    whole = tensors.storage_bytes(view).view(torch.float32)
    assert whole[:64].eq(1.0e4).all()
    assert whole[70:].eq(1.0e4).all()
    assert len(whole) == 6 + 2 * tensors.GUARD_ELEMENTS
