"""How many real bugs of a plugin's history the static check finds, and what else it says.

    python benchmarks/corpus_static.py --corpus FILE.jsonl --repo GIT_DIR --vllm-sources DIR

Each line of the corpus names the commit that repaired a bug, its parent, and where the bug is. The
check runs on the whole tree of both, against the vLLM release that the bug was found with (DIR holds
`vllm-<version>/vllm/**/*.py`; a release that is not there is replaced by the next one, which is said).
A bug counts as found where a finding of the parent stands in a named file, within 5 lines of a named
line or in the same function or class, has a code that can speak of the bug's class, and is gone in
the repaired tree.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from general_checkers import Checkers, export, remove

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NEAR = 5
# Codes whose findings can be the reason of a bug of the class; by the start of the class's name.
REASONS = {
    "missing-import": ("ATT201", "ATT202", "ATT206", "ATT207", "ATT211", "ATT216"),
    "typo": ("ATT001", "ATT201", "ATT202", "ATT206", "ATT207", "ATT208", "ATT221", "ATT223"),
    "registration": ("ATT207", "ATT210", "ATT212", "ATT213", "ATT216", "ATT218", "ATT224"),
    "wrong positional": ("ATT102", "ATT103", "ATT107", "ATT205", "ATT217", "ATT219"),
    "wrong keyword": ("ATT101", "ATT105", "ATT110", "ATT205"),
    "return tuple": ("ATT104", "ATT112", "ATT209"),
    "override signature": ("ATT203", "ATT205"),
    "missing abstract": ("ATT204", "ATT218", "ATT222"),
    "dataclass": ("ATT205", "ATT206", "ATT214", "ATT220"),
}
CONTRACT_CLASSES = tuple(REASONS)
# Classes that need rules about meaning: what the present rules can find of them for the right reason.
REASONS |= {"capability under": ("ATT220",), "other": ("ATT215",)}
STATIC = ("yes", "partly", "no")


@dataclass(frozen=True)
class Bug:
    """One line of the corpus."""

    id: str
    fix: str
    parent: str
    version: str
    kind: str
    static: str
    locations: tuple[tuple[str, int], ...]

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes that can be the right reason; none for a class that no rule is about."""
        return next((c for start, c in REASONS.items() if self.kind.startswith(start)), ())


@dataclass
class Outcome:
    """What came of one bug."""

    bug: Bug
    hits: list[dict[str, Any]] = field(default_factory=list)
    near: list[dict[str, Any]] = field(default_factory=list)
    left: list[dict[str, Any]] = field(default_factory=list)
    others: dict[str, tuple[bool, int]] = field(default_factory=dict)
    lines: int = 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run and print; returns 0."""
    args = _arguments(argv)
    bugs = read_corpus(Path(args.corpus))
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder), args.repo, Path(args.vllm_sources), args.builds)
        with ThreadPoolExecutor(args.jobs) as pool:
            outcomes = list(pool.map(lab.judge, bugs))
        if args.compare:
            compare(outcomes, lab, Path(args.compare), Path(folder))
    print_tables(outcomes, verbose=args.verbose)
    if args.json:
        Path(args.json).write_text(json.dumps([_as_data(o) for o in outcomes], indent=1) + "\n")
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--corpus", required=True, help="JSON lines, one bug each")
    parser.add_argument("--repo", required=True, help="git directory of the plugin")
    parser.add_argument("--vllm-sources", required=True, help="holds vllm-<version>/vllm")
    parser.add_argument("--builds", help="JSON: component to the build where a tree pins none")
    parser.add_argument("--json", help="write every outcome to this file")
    parser.add_argument("--jobs", type=int, default=2, help="checks at the same time (2)")
    parser.add_argument(
        "--compare", metavar="VENV", help="also run pylint, mypy and pyright of this environment"
    )
    parser.add_argument("--verbose", action="store_true", help="list what stays in fixed trees")
    return parser.parse_args(argv)


def read_corpus(path: Path) -> list[Bug]:
    """The bugs of a corpus file."""
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return [
        Bug(
            id=row["id"],
            fix=row["fix"],
            parent=row["parent"],
            version=row["vllm_version"],
            kind=row["class"],
            static=row["static"],
            locations=tuple((at["file"], at["line_in_parent"]) for at in row["locations"]),
        )
        for row in rows
    ]


class Lab:
    """Checks revisions of a clone without a work tree, each revision and release once.

    Args:
        folder: Where the clone goes.
        repo: Git directory to borrow objects from.
        sources: Folder with the vLLM releases.
        builds: JSON file with builds for trees that pin none, or None.
    """

    def __init__(self, folder: Path, repo: str, sources: Path, builds: str | None) -> None:
        self._clone = folder / "clone"
        command = ["git", "clone", "--quiet", "--shared", "--no-checkout", repo, str(self._clone)]
        subprocess.run(command, check=True)
        self._sources = sources
        self._builds = json.loads(Path(builds).read_text()) if builds else {}
        self.seconds = 0.0
        self._known: dict[tuple[str, str], dict[str, Any]] = {}

    def judge(self, bug: Bug) -> Outcome:
        """Check both trees of a bug and compare."""
        parent, fix = self.check(bug.parent, bug.version), self.check(bug.fix, bug.version)
        remaining = Counter(_identity(f) for f in fix)
        outcome = Outcome(bug, left=[f for f in fix if f["code"].startswith("ATT")])
        for finding in parent:
            if remaining[_identity(finding)]:
                remaining[_identity(finding)] -= 1
            elif self._is_at(bug, finding):
                right = finding["code"].startswith(bug.codes)
                (outcome.hits if right else outcome.near).append(finding)
        outcome.lines = self._lines(bug.fix)
        return outcome

    def elsewhere(self, bug: Bug, tools: Checkers, folder: Path) -> dict[str, tuple[bool, int]]:
        """Tool to whether it finds the bug, and how much it still says of the repaired files."""
        files = sorted({path for path, _ in bug.locations})
        source = self._release(bug.version)
        trees = [export(self._clone, rev, folder / "trees") for rev in (bug.parent, bug.fix)]
        found: dict[str, tuple[bool, int]] = {}
        for name in tools.names:
            parent, fix = (tools.run(name, tree, files, source) for tree in trees)
            remaining = Counter((f["path"], f["message"]) for f in fix)
            hit = False
            for finding in parent:
                key = (finding["path"], finding["message"])
                if remaining[key]:
                    remaining[key] -= 1
                elif self._is_at(bug, self._with_symbol(bug.parent, finding)):
                    hit = True
            found[name] = (hit, len(fix))
        for tree in trees:
            remove(tree)
        return found

    def _with_symbol(self, rev: str, finding: dict[str, Any]) -> dict[str, Any]:
        return finding | {"symbol": self._symbol(rev, finding["path"], finding["line"])}

    def lines_of(self, rev: str, paths: set[str]) -> int:
        """Lines of some files of a revision; a file that is gone has none."""
        total = 0
        for path in paths:
            try:
                total += self._show(rev, path).count("\n")
            except subprocess.CalledProcessError:
                continue
        return total

    def check(self, rev: str, version: str) -> list[dict[str, Any]]:
        """Findings of `attngate check` on a revision."""
        key = (rev, version)
        if key not in self._known:
            self._known[key] = self._run(rev, version)
        return self._known[key]["findings"]  # type: ignore[no-any-return]

    def _run(self, rev: str, version: str) -> dict[str, Any]:
        env = dict(os.environ, ATTNGATE_UPSTREAM=str(self._release(version)))
        env |= {"ATTNGATE_PROFILE": "vllm-metax", "CI": ""}
        command = [sys.executable, "-m", "attngate.hooks.cli", "check", "--rev", rev]
        began = time.monotonic()
        done = subprocess.run(
            [*command, "--format", "json"],
            cwd=self._clone,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        self.seconds += time.monotonic() - began
        if not done.stdout:
            raise RuntimeError(f"{rev}: {done.stderr[-2000:]}")
        tree = json.loads(done.stdout)["trees"][0]
        return {"findings": [f for f in tree["findings"] if f["code"].startswith("ATT")]}

    def _release(self, version: str) -> Path:
        """The folder of a release; where it is missing, the next later one that is there."""
        folder = self._sources / f"vllm-{version}"
        if folder.is_dir():
            return folder
        later = sorted(
            (p for p in self._sources.glob("vllm-*") if _numbers(p.name) > _numbers(version)),
            key=lambda p: _numbers(p.name),
        )
        print(f"vLLM {version} is not there; {later[0].name} stands for it", file=sys.stderr)
        return later[0]

    def _is_at(self, bug: Bug, finding: dict[str, Any]) -> bool:
        place = finding
        for path, line in bug.locations:
            if place["path"] != path:
                continue
            if abs(place["line"] - line) <= NEAR:
                return True
            symbol = self._symbol(bug.parent, path, line)
            if symbol and _is_within(place.get("symbol") or "", symbol):
                return True
        return False

    def _symbol(self, rev: str, path: str, line: int) -> str:
        try:
            return symbol_at(ast.parse(self._show(rev, path)), line)
        except SyntaxError:
            return ""

    def _show(self, rev: str, path: str) -> str:
        done = subprocess.run(
            ["git", "show", f"{rev}:{path}"], cwd=self._clone, capture_output=True, check=True
        )
        return done.stdout.decode("utf-8", "replace")

    def _lines(self, rev: str) -> int:
        """Lines of attention code: of the files that the profile has in scope."""
        done = subprocess.run(
            ["git", "ls-tree", "-r", "-z", "--name-only", rev],
            cwd=self._clone,
            capture_output=True,
            check=True,
        )
        paths = [p.decode() for p in done.stdout.split(b"\0") if p.endswith(b".py")]
        return sum(self._show(rev, p).count("\n") for p in paths if is_attention(p))


def compare(outcomes: list[Outcome], lab: Lab, environment: Path, folder: Path) -> None:
    """Run the general checkers on the files that the bugs name and print a table beside ours."""
    tools = Checkers(environment, folder)
    for number, outcome in enumerate(outcomes, start=1):
        outcome.others = lab.elsewhere(outcome.bug, tools, folder)
        state = " ".join(f"{n}:{'hit' if h else '-'}" for n, (h, _) in outcome.others.items())
        print(f"{number}/{len(outcomes)} {outcome.bug.id} {state}", file=sys.stderr, flush=True)
    named = [{path for path, _ in o.bug.locations} for o in outcomes]
    lines = sum(lab.lines_of(o.bug.fix, n) for o, n in zip(outcomes, named, strict=True))
    ours = sum(f["path"] in n for o, n in zip(outcomes, named, strict=True) for f in o.left)
    hits = sum(bool(o.hits) for o in outcomes)
    print(f"\n{'checker':10}{'found':>10}{'left per 1000 lines':>22}{'seconds':>10}")
    print(
        f"{'attngate':10}{hits:>6}/{len(outcomes)}{1000 * ours / lines:>22.2f}{lab.seconds:>10.0f}"
    )
    for name in tools.names:
        found = sum(o.others[name][0] for o in outcomes)
        left = sum(o.others[name][1] for o in outcomes)
        rate = 1000 * left / lines
        print(f"{name:10}{found:>6}/{len(outcomes)}{rate:>22.2f}{tools.seconds[name]:>10.0f}")
    together = sum(any(h for h, _ in o.others.values()) for o in outcomes)
    print(f"{'together':10}{together:>6}/{len(outcomes)}   (of the three general ones)")


def is_attention(path: str) -> bool:
    """True for a file of the plugin whose path speaks of attention, MLA, or the indexer."""
    words = ("attention", "attn", "mla", "indexer", "platform.py", "deep_gemm", "_custom_ops")
    return path.startswith("vllm_metax/") and any(word in path for word in words)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.removeprefix("vllm-").split(".") if part.isdigit())


def _is_within(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}.") or outer.startswith(f"{inner}.")


def _identity(finding: dict[str, Any]) -> tuple[str, ...]:
    place = finding
    return (finding["code"], place["path"], place.get("symbol") or "", finding["message"])


def symbol_at(tree: ast.Module, line: int) -> str:
    """Qualified name of the innermost function or class that holds a line, "" outside."""
    best = ""
    for name, node in _scopes(tree, ""):
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        if first <= line <= (node.end_lineno or first):
            best = name
    return best


def _scopes(node: ast.AST, prefix: str) -> Iterator[tuple[str, Any]]:
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{prefix}.{child.name}" if prefix else child.name
            yield inner, child
        yield from _scopes(child, inner)


def print_tables(outcomes: list[Outcome], *, verbose: bool) -> None:
    """Every bug on a line, then recall by class and by what a static check can do, then noise."""
    for outcome in sorted(outcomes, key=lambda o: (not o.hits, o.bug.kind)):
        bug = outcome.bug
        first = (outcome.hits or outcome.near or [None])[0]
        how = "found " if outcome.hits else "near  " if outcome.near else "missed"
        says = f"{first['code']} {first['message'][:90]}" if first else ""
        print(f"{how} {bug.static:6} {bug.kind[:28]:28} {bug.id:34} {says}")
    print("\nclass                                     " + "".join(f"{s:>12}" for s in STATIC))
    for kind in sorted({o.bug.kind for o in outcomes}):
        print(f"{kind[:40]:42}" + "".join(f"{_share(outcomes, s, (kind,)):>12}" for s in STATIC))
    print(
        f"{'contract classes':42}"
        + "".join(f"{_share(outcomes, s, CONTRACT_CLASSES):>12}" for s in STATIC)
    )
    print(f"{'all':42}" + "".join(f"{_share(outcomes, s, ('',)):>12}" for s in STATIC))
    _print_noise(outcomes, verbose=verbose)


def _share(outcomes: list[Outcome], static: str, kinds: tuple[str, ...]) -> str:
    of = [o for o in outcomes if o.bug.static == static and o.bug.kind.startswith(kinds)]
    return f"{sum(bool(o.hits) for o in of)}/{len(of)}" if of else "-"


def _print_noise(outcomes: list[Outcome], *, verbose: bool) -> None:
    """What the fixed trees still show in attention files, per 1000 lines; not all of it is false."""
    fixed = {o.bug.fix: o for o in outcomes}
    rates = []
    codes: Counter[str] = Counter()
    for outcome in fixed.values():
        left = [f for f in outcome.left if is_attention(f["path"])]
        codes.update(f["code"] for f in left)
        rates.append(1000 * len(left) / max(outcome.lines, 1))
        for finding in left if verbose else ():
            place = finding
            print(
                f"{outcome.bug.fix[:8]} {place['path']}:{place['line']} {finding['code']} {finding['message']}"
            )
    rates.sort()
    print(
        f"\nfindings left in {len(rates)} fixed trees, per 1000 lines of attention code: "
        f"median {rates[len(rates) // 2]:.2f}, largest {rates[-1]:.2f}"
    )
    print("by code: " + ", ".join(f"{code} {count}" for code, count in sorted(codes.items())))


def _as_data(outcome: Outcome) -> dict[str, Any]:
    return {
        "id": outcome.bug.id,
        "class": outcome.bug.kind,
        "static": outcome.bug.static,
        "hits": outcome.hits,
        "near": outcome.near,
        "left_in_fix": outcome.left,
        "attention_lines": outcome.lines,
    }


if __name__ == "__main__":
    sys.exit(main())
