"""`attngate doctor` names what is missing, and runs an installed hook without touching anything."""

import json


def rows(run):
    return {row["what"]: row for row in json.loads(run.output)}


def doctor(lab, **variables):
    run = lab.attngate("doctor", "--format", "json", **variables)
    return run.code, rows(run)


def test_a_missing_pre_push_hook_fails(lab):
    lab.new()
    code, found = doctor(lab)
    assert code == 1
    assert found["hook pre-push"]["state"] == "fail"
    assert "attngate install" in found["hook pre-push"]["advice"]


def test_installed_hooks_are_ok_and_the_repository_is_as_before(lab):
    lab.new()
    assert lab.attngate("install").code == 0
    lab.write("staged.py", "x = 1\n")
    lab.git("add", "staged.py")
    before = (lab.repo / ".git" / "index").read_bytes()
    names = sorted(p.name for p in (lab.repo / ".git").iterdir())
    code, found = doctor(lab)
    assert code == 0, found
    assert found["hook pre-commit"]["state"] == "ok"
    assert "runs, and passes" in found["hook pre-commit"]["seen"]
    assert (lab.repo / ".git" / "index").read_bytes() == before
    assert sorted(p.name for p in (lab.repo / ".git").iterdir()) == names


def test_a_hook_that_cannot_run_fails(lab):
    lab.new()
    lab.attngate("install")
    (lab.repo / ".git/hooks/pre-commit").chmod(0o644)
    code, found = doctor(lab)
    assert code == 1
    assert "not executable" in found["hook pre-commit"]["seen"]


def test_ssh_remotes_without_keep_alive_are_told(lab):
    lab.new()
    lab.git("remote", "add", "far", "ssh://git@host.invalid/x.git")
    lab.git("remote", "add", "near", str(lab.folder))
    _, found = doctor(lab)
    assert found["remote far"]["state"] == "warn"
    assert "remote near" not in found


def test_bad_settings_and_a_missing_interpreter_fail(lab):
    lab.new()
    _, found = doctor(lab, ATTNGATE_INTERPRETER="/nowhere/python")
    assert found["interpreter"]["state"] == "fail"
    lab.write("pyproject.toml", "[tool.attngate]\npakages = []\n")
    lab.git("add", "-A")
    code, found = doctor(lab)
    assert code == 1
    assert "packages" in found["settings"]["advice"]


def test_switches_are_told(lab):
    lab.new()
    _, found = doctor(lab, SKIP="attngate")
    assert found["switches"]["state"] == "warn"


def test_outside_a_repository(lab):
    run = lab.attngate("doctor", cwd=lab.folder)
    assert run.code == 1
    assert "no git repository" in run.output
