"""A baseline lets an existing plugin in, and only what it holds."""

import json

BAD = "def broken(:\n    return\n"


def test_what_is_written_down_no_longer_blocks(lab):
    lab.new()
    lab.write("old.py", BAD)
    lab.commit("old")
    assert lab.attngate("check", CI="true").code == 1
    assert lab.attngate("baseline", "create").code == 0
    lab.git("add", "-A")
    assert lab.attngate("check", CI="true").code == 0
    lab.write("new.py", BAD)
    lab.git("add", "-A")
    run = lab.attngate("check", CI="true")
    assert run.code == 1
    assert "new.py" in run.output


def test_moved_lines_keep_an_entry(lab):
    lab.new()
    lab.write("old.py", BAD)
    lab.git("add", "-A")
    lab.attngate("baseline", "create")
    lab.write("old.py", "# one line more\n\n" + BAD)
    lab.git("add", "-A")
    assert lab.attngate("check", "--all").code == 0


def test_an_existing_file_is_not_replaced_unasked(lab):
    lab.new()
    lab.write("old.py", BAD)
    lab.git("add", "-A")
    lab.attngate("baseline", "create")
    path = lab.repo / ".attngate-baseline.json"
    before = path.read_bytes()
    run = lab.attngate("baseline", "create")
    assert run.code == 2
    assert "--update" in run.output
    assert path.read_bytes() == before


def test_update_only_shrinks_and_grow_takes_in(lab):
    lab.new()
    lab.write("one.py", BAD)
    lab.write("two.py", BAD)
    lab.git("add", "-A")
    lab.attngate("baseline", "create")
    lab.git("add", "-A")
    lab.write("one.py", "x = 1\n")
    lab.write("three.py", BAD)
    lab.git("add", "-A")
    path = lab.repo / ".attngate-baseline.json"

    def held():
        return [row["path"] for row in json.loads(path.read_text())["findings"]]

    run = lab.attngate("baseline", "create", "--update")
    assert run.code == 0
    assert "1 findings are not in it" in run.output
    assert held() == ["two.py"]
    lab.attngate("baseline", "create", "--update", "--grow")
    assert held() == ["three.py", "two.py"]


def test_show_marks_what_is_not_there_any_more(lab):
    lab.new()
    lab.write("old.py", BAD)
    lab.git("add", "-A")
    assert "has no baseline" in lab.attngate("baseline", "show").output
    lab.attngate("baseline", "create")
    lab.git("add", "-A")
    assert "in use" in lab.attngate("baseline", "show").output
    lab.write("old.py", "x = 1\n")
    lab.git("add", "-A")
    run = lab.attngate("baseline", "show")
    assert "unused" in run.output
    assert "1 of them not there any more" in run.output


def test_a_baseline_that_cannot_be_read_is_an_error(lab):
    lab.new()
    lab.write(".attngate-baseline.json", '{"version": 99, "findings": []}')
    lab.git("add", "-A")
    run = lab.attngate("check")
    assert run.code == 2
    assert "baseline" in run.output
