"""The installed version of attngate."""

from __future__ import annotations


def own_version() -> str:
    """Version of attngate, "unknown" in a bare source tree."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("attngate")
    except PackageNotFoundError:
        return "unknown"
