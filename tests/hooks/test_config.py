from __future__ import annotations

from dataclasses import replace

import pytest

from attngate.hooks import config
from attngate.hooks.errors import CouldNotCheckError, UsageError

TARGET = """
[[tool.attngate.targets]]
name = "varlen"
callable = "plugin.kernels:varlen"
suite = "flash_attn_varlen"
"""


@pytest.fixture
def load(tree):
    def from_text(text: str | None, **env: str):
        return config.load(tree({} if text is None else {"pyproject.toml": text}), env)

    return from_text


def test_a_tree_without_settings_has_the_defaults(load):
    loaded = load(None)
    assert loaded.settings == config.Settings()
    assert not loaded.configured
    assert set(loaded.origins.values()) == {"default"}


def test_a_pyproject_without_our_table_is_not_a_configuration(load):
    loaded = load('[project]\nname = "x"\n')
    assert not loaded.configured
    assert loaded.pyproject == {"project": {"name": "x"}}


def test_options_of_a_suite_are_kept_apart_from_the_targets_own_keys(load):
    [target] = load(TARGET + 'dtypes = ["float32"]\nsinks = true\n').settings.targets
    assert target.options == {"dtypes": ["float32"], "sinks": True}
    assert (target.name, target.requires) == ("varlen", "cpu")


def test_the_profile_fills_in_what_the_tree_does_not_say(load):
    loaded = load('[tool.attngate]\nprofile = "vllm-metax"\npackages = ["mine"]\n')
    assert loaded.settings.packages == ("mine",)
    assert loaded.origins["packages"] == "pyproject.toml"
    assert "vllm_metax/patch/**" in loaded.settings.exclude
    assert loaded.origins["exclude"] == "profile vllm-metax"
    assert {target.requires for target in loaded.settings.targets} == {"cuda"}


def test_a_target_of_the_tree_replaces_the_profiles_by_name(load):
    table = TARGET.replace('"varlen"', '"fa-varlen"', 1)
    loaded = load('[tool.attngate]\nprofile = "vllm-metax"\n' + table)
    by_name = {target.name: target for target in loaded.settings.targets}
    assert by_name["fa-varlen"].callable == "plugin.kernels:varlen"
    assert loaded.origins["targets.fa-varlen"] == "pyproject.toml"
    assert loaded.origins["targets.merge-attn-states"] == "profile vllm-metax"


def test_every_built_in_profile_loads(load):
    assert "vllm-metax" in config.profiles()
    for name in config.profiles():
        assert load(f'[tool.attngate]\nprofile = "{name}"\n').settings.profile == name


def test_variables_override_and_are_reported(load):
    loaded = load(
        None, ATTNGATE_WAIT_S="2.5", ATTNGATE_INTERPRETER="/opt/py", ATTNGATE_TIER="quick"
    )
    assert loaded.settings.gate == config.GateSettings(wait_s=2.5, tier="quick")
    assert loaded.settings.interpreter == "/opt/py"
    assert "ATTNGATE_WAIT_S=2.5" in loaded.from_environment
    assert loaded.origins["gate.wait_s"] == "ATTNGATE_WAIT_S"


def test_ci_ignores_what_could_loosen_the_gate_and_says_so(load):
    loaded = load(None, CI="true", ATTNGATE_ON_UNAVAILABLE="warn", ATTNGATE_INTERPRETER="/opt/py")
    assert loaded.settings.gate.on_unavailable == "refuse"
    assert loaded.settings.interpreter == "/opt/py"
    assert loaded.warnings == ("ATTNGATE_ON_UNAVAILABLE is ignored, because CI=true",)


def test_an_unknown_variable_is_warned_about(load):
    [warning] = load(None, ATTNGATE_INTERPRETR="x").warnings
    assert "ATTNGATE_INTERPRETR" in warning
    assert "did you mean 'ATTNGATE_INTERPRETER'?" in warning


def test_the_switches_of_the_hook_are_no_unknown_variables(load):
    assert load(None, ATTNGATE="1", ATTNGATE_TESTING="1").warnings == ()


@pytest.mark.parametrize(
    ("text", "message", "advice"),
    [
        ('profil = "x"', "unknown key 'profil' in pyproject.toml", "did you mean 'profile'?"),
        ('profile = "vllm"', "no profile 'vllm'", "vllm-metax"),
        ("[tool.attngate.gate]\nwaits = 1", "unknown key 'waits'", "did you mean 'wait_s'?"),
        ('[tool.attngate.gate]\nwait_s = "x"', "gate.wait_s: expected `float`", ""),
        ("[tool.attngate.gate]\nwait_s = nan", "gate.wait_s is nan", ""),
        ("[tool.attngate.gate]\nwait_s = -1", "gate.wait_s is -1", ""),
        ('[tool.attngate.gate]\ntier = "fast"', "allowed: quick, default, full", ""),
        ('[tool.attngate.gate.on_unavailable]\nmain = "no"', "allowed: refuse, warn", ""),
        ('packages = "x"', "packages: expected `array`", ""),
        ("targets = 3", "written [[tool.attngate.targets]]", ""),
        (TARGET + 'sink = true\nrequires = "cpu"', "unknown key 'sink'", "did you mean 'sinks'?"),
        (TARGET + 'requires = "gpu"', "allowed: cpu, cuda", ""),
        (TARGET + 'dtypes = ["bf16"]', "unknown dtype 'bf16'", "did you mean 'bfloat16'?"),
        (TARGET.replace(":varlen", ""), "not of the form 'module:attribute'", ""),
        (TARGET.replace("suite", "#"), "suite is missing", ""),
        (TARGET + TARGET, "two targets are named 'varlen'", ""),
    ],
)
def test_a_setting_that_cannot_be_used_names_key_file_and_cure(load, text, message, advice):
    prefix = "" if text.lstrip().startswith("[") else "[tool.attngate]\n"
    with pytest.raises(UsageError) as caught:
        load(prefix + text)
    assert message in caught.value.message
    assert "pyproject.toml" in caught.value.message
    assert advice in caught.value.advice


def test_broken_toml_names_the_line(load):
    with pytest.raises(UsageError, match=r"pyproject.toml of texts .* line 1"):
        load("[tool.attngate\n")


def test_a_pyproject_that_was_not_fetched_is_not_an_empty_one(tree):
    snapshot = replace(tree({"pyproject.toml": ""}), read=lambda _oid: None)
    with pytest.raises(CouldNotCheckError, match="was not fetched"):
        config.load(snapshot, {})


def test_a_variable_that_is_no_number_is_refused(load):
    with pytest.raises(UsageError, match="ATTNGATE_WAIT_S is 'soon'"):
        load(None, ATTNGATE_WAIT_S="soon")
