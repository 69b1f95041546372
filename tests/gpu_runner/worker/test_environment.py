"""The record says what is installed, in which copies, and gives no secret away."""

import json
import subprocess
import sys
import venv

import pytest

from .conftest import WORKER

PROBE = WORKER / "environment.py"


def probe(python, *plugins, **env):
    argv = [str(python), "-I", "-B", str(PROBE), *plugins]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=env)
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for version, extra in (("0.1", "egg-info/PKG-INFO"), ("0.2", "dist-info/METADATA")):
        path = site / f"my_plugin-{version}.{extra}"
        path.parent.mkdir()
        path.write_text(f"Metadata-Version: 2.1\nName: My_Plugin\nVersion: {version}\n")
    url = {"url": "https://me:secret@example.org/p.git?token=secret", "dir_info": {}}
    url["dir_info"] = {"editable": True}
    (site / "my_plugin-0.2.dist-info/direct_url.json").write_text(json.dumps(url))
    (site / "my_plugin").mkdir()
    (site / "my_plugin/__init__.py").write_text("raise SystemExit('imported')")
    (site / "redirect.pth").write_text("# nothing\n")
    return folder, site


def test_every_candidate_is_listed_and_nothing_is_imported(environment):
    folder, site = environment
    record = probe(folder / "bin/python", "my_plugin", PYTHONPATH="/elsewhere")
    found = {entry["version"]: entry for entry in record["distributions"]["my_plugin"]}
    assert set(found) == {"0.1", "0.2"}
    assert found["0.2"]["editable"] is True
    assert found["0.2"]["direct_url"]["url"] == "https://example.org/p.git"
    assert found["0.2"]["package"] == str(site / "my_plugin")
    assert record["origins"]["my_plugin"] == str(site / "my_plugin/__init__.py")
    assert record["origins"]["flash_mla"] is None
    assert str(site / "redirect.pth") in record["start_up_files"]
    assert record["overrides_ignored"] == {"PYTHONPATH": "/elsewhere"}
    assert record["interpreter"]["prefix"] == str(folder)
    assert "/elsewhere" not in record["interpreter"]["path"]


def test_the_running_environment_has_torch():
    record = probe(sys.executable)
    assert record["distributions"]["torch"][0]["version"]
    assert record["origins"]["torch"].endswith("torch/__init__.py")
