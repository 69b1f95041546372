"""From a commit to a push: verdicts are asked for, waited for, reused, and never assumed."""

import json
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[2] / "hooks" / "sample" / "plugin" / "sample_plugin" / "ops"
TABLE = """
[tool.attngate]
packages = ["plug"]

[tool.attngate.gate]
tier = "quick"
wait_s = {wait}
on_unavailable = {{ "wip/*" = "warn", default = "refuse" }}

[[tool.attngate.targets]]
name = "merge"
callable = "plug.merge:merge_attn_states"
suite = "merge_attn_states"
dtypes = ["float32"]
requires = "{device}"
"""


@pytest.fixture
def plugin(lab):
    """A repository with a correct kernel as its target, a remote and the hooks; returns the lab."""
    lab.new()
    lab.remote()
    lab.write("plug/__init__.py", "")
    lab.write("plug/unrelated.py", "x = 1\n")
    lab.write("plug/merge.py", (SAMPLE / "merge.py").read_text())
    lab.write("pyproject.toml", TABLE.format(wait=100, device="cpu"))
    lab.git("push", "-q", "origin", "main")
    lab.commit("plugin")
    lab.attngate("install")
    yield lab
    lab.attngate("daemon", "stop")


def gate(lab, *arguments, **variables):
    run = lab.attngate("gate", "--format", "json", *arguments, **variables)
    report = json.loads(run.output)
    (target,) = report["trees"][0]["targets"]
    return run.code, target["state"], report


def push(lab, *arguments, **variables):
    return lab.run("git", "push", *(arguments or ("origin", "main")), **variables)


def test_a_push_waits_and_a_second_one_uses_the_verdict_again(plugin):
    done = push(plugin)
    assert done.returncode == 0, done.stderr
    assert b"passed on cpu (fresh" in done.stderr
    plugin.write("plug/unrelated.py", "x = 2\n")
    plugin.commit("another file")
    done = push(plugin)
    assert done.returncode == 0, done.stderr
    assert b"passed on cpu (reused" in done.stderr


def test_a_verdict_that_is_not_ready_refuses_and_the_job_goes_on(plugin):
    code, state, report = gate(plugin, "--wait", "0")
    assert (code, state) == (4, "not ready")
    assert "push again" in json.dumps(report)
    code, state, _ = gate(plugin)
    assert (code, state) == (0, "passed")
    assert gate(plugin, "--wait", "0")[:2] == (0, "passed, reused")


def test_a_fault_that_the_suite_sees_is_refused_and_named(plugin):
    text = (SAMPLE / "merge.py").read_text()
    wrong = text.replace("torch.exp(", "torch.exp2(")
    assert wrong != text
    plugin.write("plug/merge.py", wrong)
    plugin.commit("a fault")
    done = push(plugin)
    assert done.returncode != 0
    assert b"wrong_values" in done.stderr
    assert b"numerical validation failed: merge" in done.stderr
    assert plugin.git("rev-parse", "origin/main") != plugin.git("rev-parse", "main")


def test_a_missing_gpu_refuses_or_warns_by_branch_and_never_passes(plugin):
    plugin.write("pyproject.toml", TABLE.format(wait=100, device="cuda"))
    plugin.commit("on a GPU")
    code, state, report = gate(plugin, CUDA_VISIBLE_DEVICES="")
    assert (code, state) == (4, "could not check")
    assert "could not check" in json.dumps(report)
    done = push(plugin, "origin", "main:wip/try", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    assert b"could not check target merge" in done.stderr
    assert b"passed on" not in done.stderr


def test_a_module_that_is_gone_refuses(plugin):
    plugin.git("rm", "-q", "plug/merge.py")
    plugin.commit("gone")
    code, state, report = gate(plugin)
    assert (code, state) == (1, "failed")
    assert "no module plug.merge" in json.dumps(report)


def test_without_targets_a_report_says_that_no_number_was_validated(lab):
    lab.new()
    run = lab.attngate("gate", "--format", "text")
    assert run.code == 0
    assert "nothing was validated numerically" in run.output
