"""`attngate config` shows each setting and where it came from."""

import json

TABLE = """
[tool.attngate]
packages = ["plug"]
[tool.attngate.gate]
wait_s = 5
[[tool.attngate.targets]]
name = "merge"
callable = "plug.ops:merge"
suite = "merge_attn_states"
dtypes = ["float32"]
"""


def rows(run):
    assert run.code == 0, run.output
    return {
        row["name"]: (row["value"], row["origin"]) for row in json.loads(run.output)["settings"]
    }


def test_origins(lab):
    lab.new()
    lab.write("pyproject.toml", TABLE)
    lab.git("add", "-A")
    found = rows(lab.attngate("config", "--format", "json", ATTNGATE_WAIT_S="7"))
    assert found["packages"] == (["plug"], "pyproject.toml")
    assert found["gate.wait_s"] == (7.0, "ATTNGATE_WAIT_S")
    assert found["gate.tier"] == ("default", "default")
    value, origin = found["targets.merge"]
    assert value["options"] == {"dtypes": ["float32"]}
    assert origin == "pyproject.toml"


def test_the_subject_decides(lab):
    lab.new()
    lab.write("pyproject.toml", TABLE)
    assert rows(lab.attngate("config", "--format", "json"))["packages"] == ([], "default")
    lab.git("add", "-A")
    assert rows(lab.attngate("config", "--format", "json"))["packages"][0] == ["plug"]
    assert rows(lab.attngate("config", "--format", "json", "--rev", "HEAD"))["packages"][0] == []


def test_an_unknown_variable_is_told(lab):
    lab.new()
    run = lab.attngate("config", ATTNGATE_WAITS="7")
    assert run.code == 0
    assert "unknown variable ATTNGATE_WAITS" in run.output
    assert "ATTNGATE_WAIT_S" in run.output
