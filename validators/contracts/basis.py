"""What a call is compared with, and how well each thing that is said about it is established."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attngate.validators.contracts.load import all_builds
from attngate.validators.contracts.match import Breach
from attngate.validators.model import Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attngate.validators.contracts.match import Problem
    from attngate.validators.contracts.schema import Build, Entry, Observation
    from attngate.validators.installed import InstalledCallable
    from attngate.validators.model import Build as Expected
    from attngate.validators.signatures import Signature

# What a signature alone decides; the rest rests on observations also where the source is installed.
_BY_SIGNATURE = (Breach.KEYWORD, Breach.ARGUMENTS, Breach.ORDER)
_STRENGTH = list(Level)


@dataclass(frozen=True, slots=True)
class Basis:
    """One thing that a call is compared with.

    Attributes:
        build: The contract build.
        entry: Its entry point.
        expected: The build that will run, None where nothing says.
        installed: The installed definition, where it is known.
        installed_why: Where that lies, in words.
    """

    build: Build
    entry: Entry
    expected: Expected | None
    installed: InstalledCallable | None = None
    installed_why: str = ""

    @property
    def signature(self) -> Signature:
        """The signature that counts."""
        return self.installed.signature if self.installed is not None else self.entry.signature

    def settles(self, problem: Problem) -> bool:
        """True where the problem was seen on exactly the build that will run."""
        return self._by_source(problem) or self._covers(self.build.observation(problem.seen))

    def level(self, problem: Problem) -> Level:
        """How strongly the problem is established."""
        if self._by_source(problem):
            return Level.SOURCE_INSPECTED
        return self.build.observation(problem.seen).level

    def why(self, problem: Problem) -> str:
        """What says so, in words."""
        if self._by_source(problem):
            return self.installed_why
        return self._words([self.build.observation(problem.seen)])

    @property
    def conforming_level(self) -> Level:
        """How strongly it is established that a call conforms: as strongly as the weakest part."""
        levels = [o.level for o in self._consulted()]
        return min(levels, key=_STRENGTH.index)

    @property
    def conforming_why(self) -> str:
        """What a conforming call was compared with, in words."""
        if self.installed is not None:
            return self.installed_why
        return self._words(self._consulted())

    def _consulted(self) -> list[Observation]:
        entry = self.entry
        names = [entry.rejected_seen, entry.parameters_seen, *(row.seen for row in entry.returns)]
        return [self.build.observation(name) for name in dict.fromkeys(names) if name]

    def _by_source(self, problem: Problem) -> bool:
        return self.installed is not None and problem.breach in _BY_SIGNATURE

    def _covers(self, seen: Observation) -> bool:
        return self.expected is not None and is_seen_on(self.build, seen, self.expected.version)

    def _words(self, consulted: Sequence[Observation]) -> str:
        first = consulted[0]
        device = f" on {first.device}" if first.device != "none" else ""
        said = (
            f"contract {self.build.id}: {first.level.value} {first.date}{device}, {versions(first)}"
        )
        if self.expected is None:
            return f"{said}; no build of {self.build.component} is known here"
        expected = f"{self.expected.version or 'an unknown version'} ({self.expected.origin})"
        other = [f"{o.id} ({versions(o)})" for o in consulted if not self._covers(o)]
        if len(other) == len(consulted):
            return f"{said}; due for revalidation on {expected}"
        rest = f"; not seen on it: {', '.join(other)}" if other else ""
        return f"{said}; expected {expected}{rest}"


def versions(seen: Observation) -> str:
    """The versions an observation was made on, in short."""
    first, last = seen.builds[0], seen.builds[-1]
    return first if len(seen.builds) == 1 else f"{first} to {last}"


def is_seen_on(build: Build, seen: Observation, version: str) -> bool:
    """True where the observation was made on this version."""
    if version in seen.builds:
        return True
    is_plain = not build.local and is_generation(build, version)
    return is_plain and version.partition("+")[0] in seen.builds


def is_generation(build: Build, version: str, *, any_local: bool = False) -> bool:
    """True for a version of the same generation as the build, observed or not.

    Args:
        build: The build.
        version: The version that will run.
        any_local: Leave the number behind the vendor's name aside.
    """
    from packaging.version import InvalidVersion, Version

    try:
        parsed = Version(version)
    except InvalidVersion:
        return False
    if not Version(build.since) <= Version(parsed.public) < Version(build.before):
        return False
    local = parsed.local or ""
    if build.local:
        return local.startswith(build.local) and (any_local or _is_local(build, local))
    return not any(local.startswith(other.local) for other in all_builds() if other.local)


def _is_local(build: Build, local: str) -> bool:
    """True where the number behind the vendor's name lies within the build's."""
    number = _number(local[len(build.local) :])
    if build.local_since and number < _number(build.local_since):
        return False
    return not build.local_before or number < _number(build.local_before)


def _number(text: str) -> tuple[int, ...]:
    """The dotted number that a text begins with: (3, 8, 2) of "3.8.2torch2.10"."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
