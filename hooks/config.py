"""Settings: `[tool.attngate]` of the checked tree, profiles, and ATTNGATE_* variables.

Settings come from the tree that is checked, not from the work tree, so that a staged change of the
configuration is judged together with the code it configures.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Policy = Literal["refuse", "warn"]
SUITE_OPTIONS = frozenset(
    [
        "dtypes",
        "head_dims",
        "groups",
        "page_sizes",
        "causal",
        "window",
        "softcap",
        "alibi",
        "sinks",
        "sink_dtypes",
        "next_n",
        "lse",
        "strided",
        "batch_invariant",
        "deterministic",
        "capture",
        "quant",
        "convention",
        "splits",
        "p_dtype",
    ]
)


class TargetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[tool.attngate.targets]]` table; suite options lie in `options`."""

    name: str
    callable: str
    suite: str
    requires: Literal["cpu", "cuda"] = "cpu"
    adapter: str = ""
    generated: tuple[str, ...] = ()
    options: dict[str, Any] = {}


class GateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tool.attngate.gate]`: how a push waits and what it refuses.

    Attributes:
        wait_s: Seconds a push waits for verdicts that are under way.
        tier: Which cases the gate asks for.
        on_unavailable: What happens where a verdict could not be had; a policy, or one by pattern of
            the remote branch with "default" for the rest.
        on_missing_linter: What happens where ruff or mypy is configured but cannot be run.
    """

    wait_s: float = 60.0
    tier: Literal["quick", "default", "full"] = "default"
    on_unavailable: Policy | dict[str, Policy] = "refuse"
    on_missing_linter: Policy = "refuse"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings with their defaults.

    Attributes:
        profile: Built-in defaults for a plugin ("vllm-metax"), "" for none.
        packages: Top-level packages of the plugin.
        import_roots: Folders of the tree that go on sys.path.
        interpreter: Python of the validation; "" for the one that runs attngate.
        upstream: Target vLLM source; "" for what the interpreter has installed.
        include: Globs of paths in scope; empty means every Python file.
        exclude: Globs of paths out of scope.
        builds: Component name to the build the plugin is meant for.
        ignore: Rule codes that are switched off.
        baseline: Path in the tree of the adoption baseline.
        generated: Globs of files that only the confirmed installation has.
        gate: See `GateSettings`.
        targets: See `TargetSettings`.
    """

    profile: str = ""
    packages: tuple[str, ...] = ()
    import_roots: tuple[str, ...] = ("",)
    interpreter: str = ""
    upstream: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    builds: dict[str, str] = {}
    ignore: tuple[str, ...] = ()
    baseline: str = ".attngate-baseline.json"
    generated: tuple[str, ...] = ()
    gate: GateSettings = GateSettings()
    targets: tuple[TargetSettings, ...] = ()


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Settings with where each came from, for `attngate config` and for reports."""

    settings: Settings
    origins: dict[str, str]
    configured: bool
    from_environment: tuple[str, ...]
    pyproject: dict[str, Any]
