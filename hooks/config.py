"""Settings: `[tool.attngate]` of the checked tree, profiles, and ATTNGATE_* variables.

Settings come from the tree that is checked, not from the work tree, so that a staged change of the
configuration is judged together with the code it configures.
"""

from __future__ import annotations

import os
import tomllib
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from attngate.hooks.errors import CouldNotCheckError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from attngate.validators.model import Snapshot

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
        operators: Namespaces of torch.ops that the plugin's installed extensions fill.
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
    operators: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    baseline: str = ".attngate-baseline.json"
    generated: tuple[str, ...] = ()
    gate: GateSettings = GateSettings()
    targets: tuple[TargetSettings, ...] = ()


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Settings with where each came from, for `attngate config` and for reports.

    Attributes:
        settings: The merged result.
        origins: Setting ("gate.wait_s", "targets.varlen") to where it came from.
        configured: True where the tree has a `[tool.attngate]` table.
        from_environment: "NAME=value" of every variable that was honoured.
        pyproject: The tree's whole pyproject.toml, {} where there is none.
        warnings: What was ignored and why: unknown variables, overrides that CI does not honour.
    """

    settings: Settings
    origins: dict[str, str]
    configured: bool
    from_environment: tuple[str, ...]
    pyproject: dict[str, Any]
    warnings: tuple[str, ...] = ()


PYPROJECT = "pyproject.toml"
_PROFILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "profiles")
_TABLE = "[tool.attngate]"

# Variable to the setting it overrides. The first group says what this machine has and counts in CI
# too; the second could loosen a gate, so CI ignores it.
_MACHINE_VARIABLES = {
    "ATTNGATE_INTERPRETER": "interpreter",
    "ATTNGATE_UPSTREAM": "upstream",
    "ATTNGATE_WAIT_S": "gate.wait_s",
}
_LOOSENING_VARIABLES = {
    "ATTNGATE_PROFILE": "profile",
    "ATTNGATE_TIER": "gate.tier",
    "ATTNGATE_ON_UNAVAILABLE": "gate.on_unavailable",
    "ATTNGATE_ON_MISSING_LINTER": "gate.on_missing_linter",
}
_SETTING_VARIABLES = _MACHINE_VARIABLES | _LOOSENING_VARIABLES
# Read elsewhere: the switch, and the test suite's own.
_OTHER_VARIABLES = frozenset({"ATTNGATE", "ATTNGATE_TESTING"})

_LONGEST_WAIT_S = 86400
_ALLOWED = {
    "tier": "quick, default, full",
    "on_unavailable": "refuse, warn",
    "on_missing_linter": "refuse, warn",
    "requires": "cpu, cuda",
}
_DTYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", "int8", "uint8")


def load(snapshot: Snapshot, env: Mapping[str, str]) -> Loaded:
    """Settings of a tree: defaults, then the profile, then its pyproject.toml, then the environment.

    Args:
        snapshot: The tree that is checked; its own pyproject.toml counts, not the work tree's.
        env: Environment variables of the process.

    Raises:
        UsageError: Broken TOML, an unknown key or profile, or a value of the wrong kind; the message
            names key and file.
        CouldNotCheckError: pyproject.toml is in the tree but was not fetched.
    """
    pyproject = read_pyproject(snapshot)
    table = _own_table(pyproject)
    overrides, used, warnings = _from_environment(env)
    profile = overrides.get("profile", (table or {}).get("profile", ""))
    layers = [
        (f"profile {profile}", f"profile {profile}", _profile_table(profile)),
        (PYPROJECT, f"{PYPROJECT} {_TABLE}", table or {}),
    ]
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, place, layer in layers:
        _check_table(layer, place)
        _merge(merged, layer, origin, origins)
    for setting, value in overrides.items():
        variable = next(v for v, name in _SETTING_VARIABLES.items() if name == setting)
        _set(merged, setting, value)
        _convert(merged, f"variable {variable}")
        origins[setting] = variable
    settings = _convert(merged, f"{PYPROJECT} {_TABLE}")
    return Loaded(
        settings=settings,
        origins=_with_defaults(origins),
        configured=table is not None,
        from_environment=used,
        pyproject=pyproject,
        warnings=warnings,
    )


def is_ci(env: Mapping[str, str]) -> bool:
    """True in a CI run: everything blocks, and overrides that loosen are ignored."""
    return env.get("CI", "").lower() not in ("", "0", "false", "no")


def profiles() -> list[str]:
    """Names of the built-in profiles."""
    return sorted(n.removesuffix(".toml") for n in os.listdir(_PROFILES) if n.endswith(".toml"))


def read_pyproject(snapshot: Snapshot) -> dict[str, Any]:
    """The tree's pyproject.toml as data, {} where there is none.

    Raises:
        UsageError: It is not valid TOML or not UTF-8.
        CouldNotCheckError: It is in the tree but was not fetched.
    """
    entry = snapshot.files.get(PYPROJECT.encode())
    if entry is None or not entry.is_regular:
        return {}
    data = snapshot.blob(PYPROJECT.encode())
    if data is None:
        raise CouldNotCheckError(
            f"{PYPROJECT} of {snapshot.subject} was not fetched",
            "fetch it: git checkout, or git fetch",
        )
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{PYPROJECT} of {snapshot.subject} cannot be read: {error}",
            "correct the file; its settings decide what is checked",
        ) from error


def _own_table(pyproject: dict[str, Any]) -> dict[str, Any] | None:
    tool = pyproject.get("tool")
    table = tool.get("attngate") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{PYPROJECT}: tool.attngate must be a table, not {_kind(table)}")
    return table


def _profile_table(name: object) -> dict[str, Any]:
    if not name:
        return {}
    known = profiles()
    if name not in known:
        raise UsageError(
            f"there is no profile {name!r} ({PYPROJECT} {_TABLE} profile, or ATTNGATE_PROFILE)",
            _closest(str(name), known, "profiles"),
        )
    with open(os.path.join(_PROFILES, f"{name}.toml"), "rb") as file:
        return tomllib.load(file)


def _from_environment(
    env: Mapping[str, str],
) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    overrides: dict[str, Any] = {}
    used: list[str] = []
    warnings: list[str] = []
    for variable in sorted(name for name in env if name.startswith("ATTNGATE_")):
        if variable in _OTHER_VARIABLES:
            continue
        if variable not in _SETTING_VARIABLES:
            known = sorted(_SETTING_VARIABLES)
            hint = _closest(variable, known, "variables")
            warnings.append(f"unknown variable {variable} is ignored; {hint}")
        elif variable in _LOOSENING_VARIABLES and is_ci(env):
            warnings.append(f"{variable} is ignored, because CI=true")
        else:
            overrides[_SETTING_VARIABLES[variable]] = _parsed(variable, env[variable])
            used.append(f"{variable}={env[variable]}")
    return overrides, tuple(used), tuple(warnings)


def _parsed(variable: str, text: str) -> Any:
    if variable != "ATTNGATE_WAIT_S":
        return text
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"variable {variable} is {text!r}, not a number of seconds") from None


def _check_table(table: dict[str, Any], place: str) -> None:
    _known_keys(table, Settings.__struct_fields__, place)
    gate = table.get("gate")
    if isinstance(gate, dict):
        _known_keys(gate, GateSettings.__struct_fields__, f"{place} gate")
    targets = table.get("targets", [])
    if not isinstance(targets, list) or not all(isinstance(t, dict) for t in targets):
        raise UsageError(f"{place}: targets must be tables, written [[tool.attngate.targets]]")
    for target in targets:
        _check_target(target, f"{place} target {target.get('name', '(without a name)')!r}")
    names = [target["name"] for target in targets]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{place}: two targets are named {name!r}", "give each its own name")


def _check_target(target: dict[str, Any], place: str) -> None:
    own = [name for name in TargetSettings.__struct_fields__ if name != "options"]
    _known_keys(target, [*own, *sorted(SUITE_OPTIONS)], place)
    for key in ("name", "callable", "suite"):
        if not isinstance(target.get(key), str) or not target[key]:
            raise UsageError(f"{place}: {key} is missing or not a text")
    module, colon, attribute = target["callable"].partition(":")
    if not colon or not all(p.isidentifier() for p in (*module.split("."), *attribute.split("."))):
        raise UsageError(
            f"{place}: callable {target['callable']!r} is not of the form 'module:attribute'",
            "for example vllm_metax.v1.attention.backends.fa_utils:flash_attn_varlen_func",
        )
    for dtype in target.get("dtypes", ()):
        if dtype not in _DTYPES:
            raise UsageError(
                f"{place}: unknown dtype {dtype!r}", _closest(str(dtype), _DTYPES, "dtypes")
            )


def _known_keys(table: dict[str, Any], known: Iterable[str], place: str) -> None:
    known = list(known)
    for key in table:
        if key not in known:
            raise UsageError(f"unknown key {key!r} in {place}", _closest(key, known, "keys"))


def _closest(word: str, known: Iterable[str], what: str) -> str:
    known = list(known)
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"{what}: {', '.join(known)}"


def _merge(
    into: dict[str, Any], layer: dict[str, Any], origin: str, origins: dict[str, str]
) -> None:
    for key, value in layer.items():
        if key == "targets":
            merged = {t["name"]: t for t in into.get("targets", [])} | {t["name"]: t for t in value}
            into["targets"] = list(merged.values())
            origins.update({f"targets.{target['name']}": origin for target in value})
        elif key in ("gate", "builds") and isinstance(value, dict):
            into[key] = into.get(key, {}) | value
            origins.update({f"{key}.{name}": origin for name in value})
        else:
            into[key] = value
            origins[key] = origin


def _set(table: dict[str, Any], setting: str, value: Any) -> None:
    outer, _, inner = setting.rpartition(".")
    if outer:
        table[outer] = table.get(outer, {}) | {inner: value}
    else:
        table[inner] = value


def _convert(merged: dict[str, Any], place: str) -> Settings:
    table = dict(merged)
    table["targets"] = [_with_options(target) for target in merged.get("targets", [])]
    try:
        settings = msgspec.convert(table, Settings)
    except msgspec.ValidationError as error:
        raise UsageError(f"{place}: {_explained(str(error))}") from None
    if not 0 <= settings.gate.wait_s <= _LONGEST_WAIT_S:
        raise UsageError(
            f"{place}: gate.wait_s is {settings.gate.wait_s}; it must lie in 0 to {_LONGEST_WAIT_S}"
        )
    return settings


def _with_options(target: dict[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in target.items() if key not in SUITE_OPTIONS}
    return own | {"options": {k: v for k, v in target.items() if k in SUITE_OPTIONS}}


def _explained(message: str) -> str:
    # msgspec writes "Expected `float`, got `str` - at `$.gate.wait_s`".
    what, _, where = message.partition(" - at ")
    key = where.strip("`").removeprefix("$.") or "the table"
    values = _ALLOWED.get(key.removesuffix("[...]").rpartition(".")[2])
    allowed = f"; allowed: {values}" if values else ""
    return f"{key}: {what[:1].lower()}{what[1:]}{allowed}"


def _kind(value: object) -> str:
    return type(value).__name__


def _with_defaults(origins: dict[str, str]) -> dict[str, str]:
    names = [
        name for name in Settings.__struct_fields__ if name not in ("gate", "builds", "targets")
    ]
    names += [f"gate.{name}" for name in GateSettings.__struct_fields__]
    return {name: origins.get(name, "default") for name in names} | origins
