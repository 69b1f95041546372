"""Snapshots of plain dictionaries, and the snippet files: trees whose comments say what a check finds.

A snippet file holds cases. "=== title" begins a case, "# builds: a=1, b=2" and "# ignore: CODE" set
options, "--- path" begins a file of the tree, "--- target: path" one of the target's source,
"--- previous: path" one of the target before a sync, "--- base: path" one of the tree before it. "# expect: ATT101 error, ATT104" at the end of a line
expects exactly these findings there (the severity may be left out); "# expect-next: ..." expects them
on the following line. Everything that is not expected must not be found.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from attngate.validators.model import MODE_FILE, Build, CheckOptions, FileEntry, Snapshot
from attngate.validators.target import TargetTree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FOLDER = Path(__file__).parent / "snippets"
_EXPECT = re.compile(
    r"# expect(?P<next>-next)?: (?P<codes>[A-Z]{3}\d{3}(?: \w+)?(?:, [A-Z]{3}\d{3}(?: \w+)?)*)"
)


@dataclass
class Case:
    name: str
    files: dict[str, str] = field(default_factory=dict)
    target: dict[str, str] = field(default_factory=dict)
    previous: dict[str, str] = field(default_factory=dict)
    base: dict[str, str] = field(default_factory=dict)
    builds: dict[str, Build] = field(default_factory=dict)
    ignore: frozenset[str] = frozenset()

    def options(self, folder: Path) -> CheckOptions:
        """The options of the check; the targets' files are written below `folder`."""
        target = _target(folder / "target", self.target)
        previous = _target(folder / "previous", self.previous)
        base = _snapshot(self.base) if self.base else None
        # Snippets use names such as q and k without saying where they come from, and those of the call
        # contracts compare the variants of a component side by side.
        aside = {"ATT208", "ATT224"} if self.name.startswith("ATT1") else {"ATT208"}
        ignore = self.ignore if self.name.startswith("ATT208") else self.ignore | aside
        return CheckOptions(
            builds=self.builds, ignore=ignore, target=target, previous=previous, sync_base=base
        )

    def expected(self) -> list[tuple[str, int, str, str]]:
        """(path, line, code, severity or "") of every finding that must be there."""
        found = []
        for path, text in self.files.items():
            for number, line in enumerate(text.split("\n"), start=1):
                for match in _EXPECT.finditer(line):
                    where = number + (1 if match["next"] else 0)
                    for item in match["codes"].split(", "):
                        code, _, severity = item.partition(" ")
                        found.append((path, where, code, severity))
        return sorted(found)


def _target(folder: Path, files: Mapping[str, str]) -> TargetTree | None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    return TargetTree(str(folder), "9.9") if files else None


def cases() -> list[Case]:
    """Every case of every snippet file."""
    found: list[Case] = []
    for path in sorted(FOLDER.glob("*.snippet")):
        found += _read(path)
    return found


def _read(path: Path) -> list[Case]:
    found: list[Case] = []
    current = ""
    into: dict[str, str] = {}
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("=== "):
            found.append(Case(f"{path.stem}: {line[4:]}"))
            current = ""
        elif line.startswith("--- "):
            current = line[4:]
            kind, _, current = current.rpartition(": ")
            into = getattr(found[-1], kind or "files")
            into[current] = ""
        elif not current and line.startswith("# builds: "):
            pairs = (part.split("=", 1) for part in line.removeprefix("# builds: ").split(", "))
            found[-1].builds = {name: Build(version, "configured") for name, version in pairs}
        elif not current and line.startswith("# ignore: "):
            found[-1].ignore = frozenset(line.removeprefix("# ignore: ").split(", "))
        elif current:
            into[current] += f"{line}\n"
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        found = cases()
        metafunc.parametrize("case", found, ids=[case.name for case in found])


@pytest.fixture(scope="session")
def all_cases() -> list[Case]:
    return cases()


@pytest.fixture(scope="session")
def make_snapshot() -> Callable[..., Snapshot]:
    """Snapshots of {path: contents}, hashed as git hashes; `modes` makes links, submodules and such."""
    return _snapshot


def _snapshot(files: Mapping[str, str | bytes], modes: Mapping[str, int] | None = None) -> Snapshot:
    raws = {p.encode(): t.encode() if isinstance(t, str) else t for p, t in sorted(files.items())}
    entries = {
        path: FileEntry((modes or {}).get(path.decode(), MODE_FILE), _blob_id(raw))
        for path, raw in raws.items()
    }
    blobs = {_blob_id(raw): raw for raw in raws.values()}
    listing = b"".join(b"%s %s\n" % (e.oid.encode(), p) for p, e in entries.items())
    return Snapshot(_blob_id(listing), "a test's tree", entries, blobs.get)


def _blob_id(raw: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()
