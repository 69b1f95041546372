"""From a target table to a job: what a verdict on this tree depends on, and what workers are told."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from attngate.gpu_runner.evidence import key as keys
from attngate.gpu_runner.evidence.key import EvidenceKey, JobKey
from attngate.gpu_runner.worker.wire import Job, Target
from attngate.hooks import config, interpreters
from attngate.hooks.affected import ModuleIndex, import_closure
from attngate.hooks.distribution import read_distribution
from attngate.hooks.errors import AttngateError, UsageError
from attngate.hooks.snapshot import tree_snapshot
from attngate.validators.model import display_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from attngate.hooks.config import Loaded, Settings, TargetSettings
    from attngate.hooks.distribution import TreeDistribution
    from attngate.hooks.git import Repository
    from attngate.validators.model import FileEntry, Snapshot

_EXTENSION = ".so"
# Files below a package that no import and no open() of a kernel reads.
_NOT_DATA = (b".py", b".pyi", b".md", b".rst")


@dataclass(frozen=True, slots=True)
class Ask:
    """Which verdicts are wanted.

    Attributes:
        tier: "quick", "default" or "full"; "" for the tree's `gate.tier`.
        device: "cpu" or "cuda"; "" for what each target requires.
        names: Targets by name; empty for all.
        everything: True where every target counts as affected.
    """

    tier: str = ""
    device: str = ""
    names: tuple[str, ...] = ()
    everything: bool = False


@dataclass(frozen=True, slots=True)
class PlannedTarget:
    """A target on a tree with all that is needed to look up or run it.

    Attributes:
        settings: Its table.
        job: What workers are told, without the tree's folder.
        key: What the verdict counts for.
        affected: True where the change touches what the verdict depends on.
        problem: Why it cannot be run on this tree, which is the tree's own fault; "" otherwise.
    """

    settings: TargetSettings
    job: Job
    key: JobKey
    affected: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TreePlan:
    """All targets of a tree.

    Attributes:
        subject: The tree.
        interpreter: Absolute path of the Python that runs them.
        targets: In the order of the tables.
        roots: Folders and files of the tree that the jobs need, as `is_exported` reads them.
        disclosures: What a report has to say about how the jobs were made.
    """

    subject: Snapshot
    interpreter: str
    targets: tuple[PlannedTarget, ...]
    roots: tuple[bytes, ...]
    disclosures: tuple[str, ...] = ()

    def is_exported(self, path: bytes) -> bool:
        """True for paths that the jobs need."""
        return _is_below(path, self.roots)


def plan(
    subject: Snapshot,
    bases: Sequence[str],
    loaded: Loaded,
    repository: Repository,
    ask: Ask,
) -> TreePlan:
    """Plan every wanted target of a tree.

    Args:
        subject: The tree; its `changed` set tells which targets are affected.
        bases: The trees that it is compared with, for changes of the tables themselves.
        loaded: Its settings.
        repository: Where it lies.
        ask: What is wanted.

    Raises:
        UsageError: An unknown target or suite.
        CouldNotCheckError: The interpreter cannot be used.
    """
    settings = loaded.settings
    wanted = _wanted(settings, ask)
    _require_known_suites(wanted)
    interpreter = interpreters.locate(settings.interpreter, repository.toplevel)
    packages = _packages(settings)
    distribution = read_distribution(subject)
    roots = tuple(sorted({*_package_roots(settings, packages), *_adapters(wanted)}))
    planner = _Planner(
        subject=subject,
        settings=settings,
        packages=packages,
        distribution=distribution,
        interpreter=interpreter,
        repository=repository,
        ask=ask,
        changed_tables=_changed_tables(subject, bases, repository, wanted),
        roots=roots,
    )
    return TreePlan(
        subject=subject,
        interpreter=interpreter,
        targets=tuple(planner.plan(target) for target in wanted),
        roots=roots,
        disclosures=tuple(f"metadata not read: {problem}" for problem in distribution.problems),
    )


def known_suites() -> list[str]:
    """Names of the suites this attngate has, by their files."""
    folder = keys.WORKER_FOLDER / "suites"
    return sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))


@dataclass(frozen=True, slots=True)
class _Planner:
    subject: Snapshot
    settings: Settings
    packages: tuple[str, ...]
    distribution: TreeDistribution
    interpreter: str
    repository: Repository
    ask: Ask
    changed_tables: frozenset[str]
    roots: tuple[bytes, ...]
    _environments: dict[str, str] = field(default_factory=dict)
    _installed: dict[tuple[str, ...], dict[str, tuple[str, str]]] = field(default_factory=dict)

    def plan(self, target: TargetSettings) -> PlannedTarget:
        paths, problem = self._closure(target)
        generated = (*self.settings.generated, *target.generated)
        wire = Target(
            target.name,
            target.callable,
            target.suite,
            target.requires,
            target.adapter,
            dict(target.options),
        )
        job = Job(
            id="",
            target=wire,
            tier=self.ask.tier or self.settings.gate.tier,
            tree=self.subject.tree,
            import_roots=self.settings.import_roots,
            packages=self.packages,
            manifest=dict(self._manifest()),
            closure=tuple(display_path(path) for path in paths),
            generated=generated,
            installed=self._stand_ins(generated),
            entry_points=self.distribution.entry_points,
            distribution=(self.distribution.name, self.distribution.version),
            device=self.ask.device or target.requires,
        )
        return PlannedTarget(
            settings=target,
            job=job,
            key=self._key(job, paths),
            affected=self._is_affected(target, paths),
            problem=problem,
        )

    def _closure(self, target: TargetSettings) -> tuple[tuple[bytes, ...], str]:
        module = target.callable.partition(":")[0]
        roots = self.settings.import_roots
        closure = import_closure(self.subject, module, self.packages, roots)
        if ModuleIndex(self.subject, roots).path_of(module) is None:
            return closure.paths, f"{target.callable}: the tree has no module {module}"
        paths = {*closure.paths, *self._data_files(closure.paths)}
        if target.adapter:
            adapter = os.fsencode(target.adapter)
            if self.subject.blob(adapter) is None:
                return closure.paths, f"the tree has no adapter {target.adapter}"
            paths |= {adapter, *self._adapter_closure(adapter)}
        return tuple(sorted(paths)), ""

    def _adapter_closure(self, adapter: bytes) -> Iterator[bytes]:
        roots = self.settings.import_roots
        index = ModuleIndex(self.subject, roots)
        for name in sorted(set(index.imports_of(adapter, "adapter"))):
            if name.partition(".")[0] in self.packages:
                yield from import_closure(self.subject, name, self.packages, roots).paths

    def _data_files(self, closure: Iterable[bytes]) -> Iterator[bytes]:
        """Files that a module of the closure may read: what lies in its top-level package."""
        tops = tuple(root for root in self.roots if any(_is_below(p, (root,)) for p in closure))
        for path, entry in self.subject.files.items():
            if entry.is_regular and not path.endswith(_NOT_DATA) and _is_below(path, tops):
                yield path

    def _manifest(self) -> Iterator[tuple[str, str]]:
        for path, entry in self.subject.files.items():
            if entry.is_regular and path.endswith(b".py") and _is_below(path, self.roots):
                yield display_path(path), entry.oid

    def _stand_ins(self, generated: tuple[str, ...]) -> dict[str, tuple[str, str]]:
        if generated not in self._installed:
            folders = interpreters.package_parents(self.interpreter)
            found = _installed_files(folders, self.packages, generated)
            in_tree = {display_path(path) for path in self.subject.files}
            roots = [root.strip("/") for root in self.settings.import_roots]
            self._installed[generated] = {
                path: place
                for path, place in found.items()
                if not any((f"{root}/{path}" if root else path) in in_tree for root in roots)
            }
        return self._installed[generated]

    def _key(self, job: Job, paths: Iterable[bytes]) -> JobKey:
        entries = [self._entry(path, self.subject.files[path]) for path in paths]
        everything = [
            self._entry(path, entry)
            for path, entry in self.subject.files.items()
            if _is_below(path, self.roots)
        ]
        metadata = _metadata_entry(job)
        return JobKey(
            EvidenceKey(
                version=keys.KEY_VERSION,
                tree_closure=keys.tree_closure([*entries, metadata], job.installed),
                contract=job.contract,
                suite=job.target.suite,
                declaration=keys.declaration_digest(job.target),
                tool=keys.tool_digest(),
                environment=self._environment(job.device),
                tier=job.tier,
            ),
            whole_tree=keys.tree_closure([*everything, metadata], job.installed),
        )

    def _environment(self, device: str) -> str:
        if device not in self._environments:
            self._environments[device] = interpreters.environment_digest(
                self.interpreter,
                device,
                self.repository.user_env,
                own=self.repository.toplevel,
            )
        return self._environments[device]

    def _is_affected(self, target: TargetSettings, paths: Iterable[bytes]) -> bool:
        changed = self.subject.changed
        if self.ask.everything or changed is None or target.name in self.changed_tables:
            return True
        return not changed.isdisjoint(paths)

    @staticmethod
    def _entry(path: bytes, entry: FileEntry) -> tuple[str, int, str]:
        return display_path(path), entry.mode, entry.oid


def _metadata_entry(job: Job) -> tuple[str, int, str]:
    """What else of the tree's settings reaches a worker, as one more entry of the closure."""
    data = [
        job.entry_points,
        job.distribution,
        job.import_roots,
        sorted(job.packages),
        sorted(job.generated),
    ]
    text = json.dumps(data, sort_keys=True)
    return "(settings of the job)", 0, hashlib.sha256(text.encode()).hexdigest()


def _wanted(settings: Settings, ask: Ask) -> list[TargetSettings]:
    known = [target.name for target in settings.targets]
    for name in ask.names:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = (
                f"did you mean {close[0]!r}?" if close else f"targets: {', '.join(known) or 'none'}"
            )
            raise UsageError(f"there is no target {name!r} in [[tool.attngate.targets]]", hint)
    return [t for t in settings.targets if not ask.names or t.name in ask.names]


def _require_known_suites(wanted: Iterable[TargetSettings]) -> None:
    known = known_suites()
    for target in wanted:
        if target.suite not in known:
            close = get_close_matches(target.suite, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"suites: {', '.join(known)}"
            raise UsageError(
                f"target {target.name!r} in [[tool.attngate.targets]]: there is no suite "
                f"{target.suite!r}",
                hint,
            )


def _packages(settings: Settings) -> tuple[str, ...]:
    """The plugin's top-level packages; by default those that the targets lie in."""
    derived = {target.callable.partition(":")[0].partition(".")[0] for target in settings.targets}
    return settings.packages or tuple(sorted(derived))


def _package_roots(settings: Settings, packages: Iterable[str]) -> Iterator[bytes]:
    for root in settings.import_roots:
        base = os.fsencode(root.strip("/"))
        for package in packages:
            stem = base + b"/" + package.encode() if base else package.encode()
            yield stem
            yield stem + b".py"


def _adapters(targets: Iterable[TargetSettings]) -> Iterator[bytes]:
    for target in targets:
        if target.adapter:
            yield os.fsencode(target.adapter)


def _is_below(path: bytes, roots: Iterable[bytes]) -> bool:
    return any(path == root or path.startswith(root + b"/") for root in roots)


def _changed_tables(
    subject: Snapshot,
    bases: Sequence[str],
    repository: Repository,
    wanted: Iterable[TargetSettings],
) -> frozenset[str]:
    """Names of targets whose table is not what a base says; pyproject.toml holds other things too."""
    changed = subject.changed
    if changed is None or config.PYPROJECT.encode() not in changed:
        return frozenset()
    found: set[str] = set()
    for base in bases:
        before = _tables(tree_snapshot(repository, base, "base"), repository.user_env)
        found |= {target.name for target in wanted if before.get(target.name) != target}
    return frozenset(found)


def _tables(snapshot: Snapshot, env: Mapping[str, str]) -> dict[str, TargetSettings]:
    try:
        settings = config.load(snapshot, env).settings
    except AttngateError:  # a broken configuration before: everything in it is new
        return {}
    return {target.name: target for target in settings.targets}


def _installed_files(
    folders: Iterable[str], packages: Iterable[str], generated: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """Extensions and declared generated files of the installed plugin, with their digests.

    Returns:
        Path relative to the import root to (absolute path, sha256).
    """
    found: dict[str, tuple[str, str]] = {}
    for package in packages:
        parent = next((f for f in folders if os.path.isdir(os.path.join(f, package))), None)
        if parent is None:
            continue
        for place, names, files in os.walk(os.path.join(parent, package)):
            names[:] = sorted(name for name in names if name != "__pycache__")
            for name in sorted(files):
                path = os.path.join(place, name)
                relative = os.path.relpath(path, parent)
                if name.endswith(_EXTENSION) or _is_declared(relative, generated):
                    found[relative] = (path, _digest(path))
    return found


def _is_declared(path: str, globs: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(path, glob) for glob in globs)


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()
