"""The kill list: every mutant, the verdict that refuses it, and whether a usual test would have.

    python tests/kernels/matrix.py [--suite NAME] [--name PART] [--processes COUNT]

`--processes` runs that many mutants, spread over the list, through real candidate and judge processes
on a generated tree instead of within this process.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import bad_merge
import bad_varlen
import processes
import torch
from dense import passes_allclose
from driving import Session, first_failure
from mutants import Mutant

from attngate.gpu_runner.worker import wire

MUTANTS: list[Mutant] = [*bad_merge.MUTANTS, *bad_varlen.MUTANTS]
KILLS = Path(__file__).parent / "kills.txt"
DECLARED = {"dtypes": ["float32", "bfloat16"], "page_sizes": [16]}

# Where a fault of each class shows first; only the order of the search depends on it.
_LIKELY = {
    "A": ("empty", "keys", "mixed", "decode"),
    "B": ("skewed", "decode", "mixed"),
    "C": ("sinks",),
    "D": ("context", "no-prefix", "window", "dense", "drafts", "seams", "offset"),
    "E": ("softcap", "scale", "alibi", "dims", "decode"),
    "F": ("paged",),
    "G": ("fused", "padded", "dims", "group", "pair"),
    "L": ("negative", "paged", "large"),
    "P": ("overflow", "sharp", "long", "mixed"),
}


@dataclass(frozen=True)
class Row:
    """One line of the kill list."""

    mutant: Mutant
    verdict: wire.Verdict | None
    missed_by_allclose: bool

    def text(self) -> str:
        """For people: kind, name, verdict, first case that kills, what allclose says."""
        kind = self.verdict.kind.value if self.verdict else "SURVIVES"
        case = self.verdict.case.partition("/")[2] if self.verdict else "-"
        usual = "passes" if self.missed_by_allclose else "fails"
        return f"{self.mutant.kind}  {self.mutant.name:42} {kind:15} {usual:7} {case}"


def rank(mutant: Mutant, case: str) -> int:
    """Low for cases that share a word with the mutant's name, then for its class, then float32."""
    words = [word for word in mutant.name.split("-")[1:] if len(word) > 2]
    likely = any(part in case for part in _LIKELY[mutant.kind])
    named = any(word in case for word in words)
    return (0 if likely and named else 2 if likely else 4) + (0 if case.endswith("fp32") else 1)


def killer(mutant: Mutant, wrong: Callable[..., Any]) -> wire.Verdict | None:
    """The first verdict that refuses the mutant, None if it survives."""
    session = Session(wrong, mutant.suite, {**DECLARED, **mutant.options})
    return first_failure(session.verdicts(lambda case: rank(mutant, case)))


def row(mutant: Mutant, folder: Path) -> Row:
    """Run one mutant until a case refuses it, and against the usual test."""
    wrong = mutant.build(folder)
    return Row(mutant, killer(mutant, wrong), passes_allclose(mutant, wrong))


def rows(mutants: Iterable[Mutant]) -> Iterator[Row]:
    """The kill list of these mutants."""
    with tempfile.TemporaryDirectory() as folder:
        for mutant in mutants:
            yield row(mutant, Path(folder))


def summary(found: list[Row]) -> str:
    """How many were refused, by class, and how many of those a usual test misses."""
    killed = [each for each in found if each.verdict]
    missed = sum(each.missed_by_allclose for each in killed)
    first = [each for each in killed if each.mutant.kind in "ABCDE"]
    missed_first = sum(each.missed_by_allclose for each in first)
    kinds = Counter((each.mutant.suite, each.mutant.kind) for each in killed)
    by_kind = ", ".join(f"{suite} {kind}: {count}" for (suite, kind), count in kinds.items())
    return (
        f"{len(killed)} of {len(found)} mutants refused; allclose(1e-2) on one dense input passes "
        f"{missed} of those\nclasses A to E: {len(first)} refused, allclose passes {missed_first}"
        f"\n{by_kind}"
    )


def main() -> int:
    """Print the list; 1 if a mutant survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", default="")
    parser.add_argument("--name", default="")
    parser.add_argument("--write", action="store_true", help="also write kills.txt")
    parser.add_argument("--processes", type=int, default=0, metavar="COUNT")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [m for m in MUTANTS if options.suite in m.suite and options.name in m.name]
    if options.processes:
        step = max(1, len(chosen) // options.processes)
        return processes.print_sample(chosen[::step][: options.processes], DECLARED)
    found = []
    for each in rows(chosen):
        print(each.text(), flush=True)
        found.append(each)
    print(summary(found))
    if options.write:
        KILLS.write_text("\n".join([*(each.text() for each in found), "", summary(found), ""]))
    return 0 if all(each.verdict for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
