"""The commit is made when post-commit runs: whatever is wrong is told, and nothing fails."""

TABLE = """
[tool.attngate]
packages = ["plug"]
[[tool.attngate.targets]]
name = "merge"
callable = "plug.ops:merge"
suite = "merge_attn_states"
"""


def test_a_missing_interpreter_is_told(lab):
    lab.new()
    lab.write("plug/__init__.py", "")
    lab.write("plug/ops.py", "def merge(): ...\n")
    lab.write("pyproject.toml", TABLE)
    lab.commit("targets")
    run = lab.attngate("hook", "post-commit", ATTNGATE_INTERPRETER="/nowhere/python")
    assert run.code == 0
    assert "not submitted: the interpreter /nowhere/python" in run.output
    assert len(run.output.splitlines()) == 1


def test_without_targets_nothing_is_said(lab):
    lab.new()
    run = lab.attngate("hook", "post-commit")
    assert (run.code, run.output) == (0, "")
