"""What a user's interpreter has installed, read from its files and never imported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InstalledComponent:
    """A component as it lies in a site-packages folder.

    Attributes:
        version: Version of the distribution.
    """

    version: str
