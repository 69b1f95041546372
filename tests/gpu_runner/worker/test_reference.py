"""The vectorised references agree with ones that are written as loops over rows, heads and keys."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from attngate.gpu_runner.worker import reference
from attngate.gpu_runner.worker.reference import Request, Rules


def sees(rules: Rules, diagonal: int, key: int) -> bool:
    left, right = rules.window
    if rules.causal and key > diagonal:
        return False
    return (left < 0 or key >= diagonal - left) and (right < 0 or key <= diagonal + right)


def by_loops(request: Request, rules: Rules, index: int = 0):
    """Output and LSE from the definition, one number at a time, in numpy."""
    q, k, v = (x.double().numpy() for x in (request.q, request.k, request.v))
    (sq, hq, _), (sk, hk, dv) = q.shape, (*k.shape[:2], v.shape[2])
    out, lse = np.zeros((sq, hq, dv)), np.full((sq, hq), -math.inf)
    for i in range(sq):
        diagonal = i + sk - sq
        for h in range(hq):
            logits, values = [], []
            for j in range(sk):
                if not sees(rules, diagonal, j):
                    continue
                s = rules.scale * float(q[i, h] @ k[j, h // (hq // hk)])
                if rules.softcap > 0:
                    s = rules.softcap * math.tanh(s / rules.softcap)
                if rules.alibi is not None:
                    s -= float(rules.alibi[index, h]) * abs(diagonal - j)
                logits.append(s)
                values.append(v[j, h // (hq // hk)])
            if rules.sinks is not None:
                logits.append(float(rules.sinks[h]))
                values.append(np.zeros(dv))
            if logits:
                top = max(logits)
                weights = [math.exp(s - top) for s in logits]
                lse[i, h] = top + math.log(sum(weights))
                out[i, h] = sum(w * x for w, x in zip(weights, values, strict=True)) / sum(weights)
    return out, lse


def problem(sq: int, sk: int, hq: int = 4, hk: int = 2, d: int = 8, dv: int = 6) -> Request:
    rng = torch.Generator().manual_seed(sq * 100 + sk)
    shapes = ((sq, hq, d), (sk, hk, d), (sk, hk, dv))
    return Request(*(torch.randn(shape, generator=rng) for shape in shapes))


RULES = {
    "full": Rules(0.3),
    "causal": Rules(0.3, causal=True),
    "window": Rules(0.3, window=(2, 1)),
    "left": Rules(0.3, window=(3, -1)),
    "right": Rules(0.3, window=(-1, 2)),
    "causal window": Rules(0.3, causal=True, window=(2, 0)),
    "softcap": Rules(2.0, softcap=1.5),
    "alibi": Rules(0.3, causal=True, alibi=torch.tensor([[0.5, 0.25, 0.125, 0.3]])),
    "sinks": Rules(0.3, causal=True, sinks=torch.tensor([1.0, -2.0, 0.0, 3.0])),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("lengths", [(5, 5), (3, 9), (9, 3), (1, 7), (4, 0)])
def test_attention_is_what_loops_say(name: str, lengths: tuple[int, int]):
    request, rules = problem(*lengths), RULES[name]
    found = reference.attend_one(request, rules)
    out, lse = by_loops(request, rules)
    torch.testing.assert_close(found.out.numpy(), out, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found.lse.numpy(), lse, rtol=1e-12, atol=1e-13)


def test_a_batch_is_its_requests_one_after_the_other():
    requests = [problem(3, 5), problem(2, 2), problem(0, 4)]
    alibi = torch.rand(3, 4)
    found = reference.attend(requests, Rules(0.2, alibi=alibi))
    parts = [by_loops(r, Rules(0.2, alibi=alibi), i)[0] for i, r in enumerate(requests)]
    torch.testing.assert_close(found.out.numpy(), np.concatenate(parts))
    assert found.out.shape == (5, 4, 6)


def test_the_bounding_sums_are_what_they_say():
    request, rules = problem(2, 4, hq=1, hk=1), Rules(0.4)
    found = reference.attend_one(request, rules)
    p = torch.softmax(request.q[:, 0].double() @ request.k[:, 0].double().T * 0.4, -1)
    v = request.v[:, 0].double()
    torch.testing.assert_close(found.a1[:, 0], p @ v.abs())
    torch.testing.assert_close(found.a2[:, 0], ((p**2) @ (v**2)).sqrt())
    dots = (request.q[:, 0].double().abs() @ request.k[:, 0].double().abs().T) * 0.4
    torch.testing.assert_close(found.smax[:, 0], dots.amax(-1))


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("normalised", [True, False])
def test_the_emulation_is_near_the_reference(name: str, normalised: bool):
    requests, rules = [problem(9, 90), problem(20, 3), problem(2, 0)], RULES[name]
    if rules.alibi is not None:
        rules = Rules(rules.scale, causal=True, alibi=rules.alibi.expand(3, -1))
    got = reference.emulate(
        requests, rules, torch.float32, torch.float32, normalised=normalised, tile=16
    )
    torch.testing.assert_close(got, reference.attend(requests, rules).out, rtol=1e-4, atol=1e-5)


def test_merging_two_halves_gives_the_whole():
    request, rules = problem(3, 8), Rules(0.5)
    halves = [
        reference.attend_one(Request(request.q, request.k[part], request.v[part]), rules)
        for part in (slice(0, 6), slice(6, 8))
    ]
    merged = reference.merge(halves[0].out, halves[0].lse, halves[1].out, halves[1].lse)
    whole = reference.attend_one(request, rules)
    torch.testing.assert_close(merged.out, whole.out)
    torch.testing.assert_close(merged.lse, whole.lse)


@pytest.mark.parametrize("hollow", [math.inf, -math.inf])
def test_an_empty_side_never_matters_whatever_it_holds(hollow: float):
    out, lse = torch.randn(2, 1, 4), torch.tensor([[0.5], [1.5]])
    garbage, none = torch.full((2, 1, 4), math.nan), torch.full((2, 1), hollow)
    for state in ((out, lse, garbage, none), (garbage, none, out, lse)):
        merged = reference.merge(*state)
        torch.testing.assert_close(merged.out, out.double())
        torch.testing.assert_close(merged.lse, lse.double())
        torch.testing.assert_close(reference.emulate_merge(*state), out.double())
    both = reference.merge(garbage, none, garbage, -none)
    assert not both.out.any()
    assert (both.lse == -math.inf).all()
