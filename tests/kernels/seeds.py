"""How close a correct kernel comes to the limits: many seeds over the whole table of cases.

    python tests/kernels/seeds.py KERNEL SUITE FIRST LAST [--device cuda] [--dtypes float16,float32]

Prints the worst error over limit of each output, rule and dtype, with the case and seed it was seen in,
and every refusal. Calls the kernel directly: the structural checks are not the subject here.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from mutants import correct

from attngate.gpu_runner.worker import registry, tensors, wire


def moved(value: Any, device: str, storages: dict[int, torch.Tensor]) -> Any:
    """An argument on the device: the same view of a copy of its storage."""
    if isinstance(value, registry.TensorArg):
        value = value.tensor
    if not isinstance(value, torch.Tensor):
        return value
    key = value.untyped_storage().data_ptr()
    if key not in storages:
        storages[key] = tensors.storage_bytes(value).clone().to(device)
    raw = storages[key]
    place = int(value.storage_offset())
    return tensors.view_of(raw, value.dtype, tuple(value.shape), value.stride(), place)


def verdict_of(
    target: Any,
    suite: registry.Suite,
    case: registry.CaseSpec,
    said: registry.Declaration,
    seed: int,
) -> wire.Verdict:
    """Prepare, call once, judge."""
    adapter = importlib.import_module(f"attngate.gpu_runner.worker.adapters.{suite.adapter}")
    fit = adapter.fit(target, said.options)
    calls = suite.prepare(case, said, torch.Generator().manual_seed(seed))
    outcomes = {}
    for call in calls:
        storages: dict[int, torch.Tensor] = {}
        args = {name: moved(value, said.device, storages) for name, value in call.args.items()}
        outputs = dict(adapter.call(target, dict(args), fit))
        outputs |= {spec.name: args[spec.argument] for spec in call.outputs if spec.argument}
        held = {name: tensor.cpu() for name, tensor in outputs.items() if tensor is not None}
        outcomes[call.id] = registry.Outcome(call.id, held)
    return suite.judge(case, said, calls, outcomes)


def main() -> int:
    """Print the worst ratios; 1 if the kernel was refused anywhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel")
    parser.add_argument("suite")
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtypes", default="float32,float16,bfloat16")
    parser.add_argument("--tier", default="default")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    target, suite = correct(chosen.kernel, chosen.suite), registry.find(chosen.suite)
    options = {"dtypes": chosen.dtypes.split(","), "page_sizes": [16, 64]}
    adapter = importlib.import_module(f"attngate.gpu_runner.worker.adapters.{suite.adapter}")
    features = adapter.fit(target, options).features
    said = registry.Declaration("seeds", suite.name, options, chosen.device, features=features)
    tiers = registry.TIERS[: registry.TIERS.index(chosen.tier) + 1]
    cases = [
        case for case in suite.plan(said)[0] if case.tier in tiers and set(case.needs) <= features
    ]
    worst: dict[tuple[str, str, str], tuple[float, str]] = {}
    refused = 0
    for seed in range(chosen.first, chosen.last):
        for case in cases:
            verdict = verdict_of(target, suite, case, said, seed)
            if verdict.kind is not wire.VerdictKind.PASSED:
                refused += 1
                print(f"REFUSED seed {seed} {case.id}: {verdict.message} {verdict.advice}")
            for each in verdict.measurements:
                key = (each.output, each.rule, case.dtype)
                worst[key] = max(worst.get(key, (0.0, "")), (each.worst, f"{case.id} seed {seed}"))
    print(
        f"{chosen.kernel}: {len(cases)} cases, seeds {chosen.first} to {chosen.last - 1}, {refused} refused"
    )
    for (output, rule, dtype), (ratio, where) in sorted(worst.items()):
        print(f"  {output:4} {rule} {dtype:9} {ratio:.3f}  {where}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
