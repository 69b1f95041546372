"""The plugin comes from the tree or the load says from where: every way round it that we know."""

import hashlib
import importlib.util
import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from .conftest import WORKER

DRIVER = Path(__file__).parent / "load_driver.py"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@pytest.fixture(scope="module")
def base_venv(tmp_path_factory):
    """A real virtual environment without pip, so that site-packages is ours to fill."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder


@pytest.fixture
def site(base_venv):
    """Its site-packages, emptied after each test."""
    folder = next(base_venv.glob("lib/python*/site-packages"))
    yield folder
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.fixture
def load(base_venv, tmp_path, site):
    """Load a job in a fresh process of that environment."""

    def run(job, statement="0"):
        (tmp_path / "job.json").write_text(json.dumps(job))
        (tmp_path / "private").mkdir(exist_ok=True)
        argv = [base_venv / "bin/python", "-I", "-B", DRIVER, WORKER, tmp_path / "job.json"]
        argv += [tmp_path / "private", statement]
        done = subprocess.run(
            list(map(str, argv)), capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def write(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


INSTALLED = {
    "plugin/__init__.py": "",
    "plugin/ops.py": "def run(): return 'installed'",
    "plugin/only_there.py": "x = 1",
}
STAGED = {"plugin/__init__.py": "", "plugin/ops.py": "def run(): return 'staged'"}


def test_the_tree_wins_over_an_installed_copy(load, tree, site):
    write(site, INSTALLED)
    reply = load(tree.write(STAGED).job(), "target()")
    assert reply["ok"], reply
    assert reply["value"] == "staged"
    assert [name for name, _, _ in reply["modules"]] == ["plugin", "plugin.ops"]


def test_a_module_that_only_the_installation_has_is_not_found(load, tree, site):
    write(site, INSTALLED)
    tree.write({**STAGED, "plugin/ops.py": "from plugin import only_there\nrun = print"})
    reply = load(tree.job())
    assert (reply["ok"], reply["kind"]) == (False, "raised")
    assert "cannot import name 'only_there'" in reply["message"]


def test_absence_can_be_asked_for_as_usual(load, tree, site):
    write(site, INSTALLED)
    code = "import importlib.util\nrun = lambda: importlib.util.find_spec('plugin.only_there')"
    reply = load(tree.write({**STAGED, "plugin/ops.py": code}).job(), "target() is None")
    assert reply["value"] is True


def test_an_editable_finder_is_kept_away(load, tree, site, tmp_path):
    write(tmp_path / "checkout", INSTALLED)
    finder = (
        "import sys, importlib.util\n"
        "class F:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        f = {str(tmp_path / 'checkout')!r} + '/' + name.replace('.', '/') + '.py'\n"
        "        import os\n"
        "        if name.startswith('plugin.') and os.path.exists(f):\n"
        "            return importlib.util.spec_from_file_location(name, f)\n"
        "sys.meta_path.insert(0, F())\n"
    )
    write(site, {"__editable___finder.py": finder, "e.pth": "import __editable___finder\n"})
    code = "try:\n    import plugin.only_there\n    found = 1\nexcept ImportError:\n    found = 0\n"
    reply = load(
        tree.write({**STAGED, "plugin/ops.py": code + "run = lambda: found"}).job(), "target()"
    )
    assert (reply["ok"], reply["value"]) == (True, 0)


def test_an_editable_path_is_kept_away(load, tree, site, tmp_path):
    write(tmp_path / "checkout", INSTALLED)
    write(site, {"e.pth": f"{tmp_path / 'checkout'}\n"})
    assert load(tree.write(STAGED).job(), "target()")["value"] == "staged"


def test_a_start_up_file_that_imports_the_plugin_is_named(load, tree, site):
    write(site, {**INSTALLED, "e.pth": "import plugin.ops\n"})
    reply = load(tree.write(STAGED).job())
    assert (reply["ok"], reply["kind"]) == (False, "imported_elsewhere")
    assert ["plugin.ops", str(site / "plugin/ops.py")] in reply["violations"]


EVASIONS = {
    "path trick": "sys.path.insert(0, OTHER); sys.modules.pop('plugin.only_there', None)\n"
    "import plugin; plugin.__path__.append(OTHER + '/plugin')\nimport plugin.only_there",
    "spec from file": "s = importlib.util.spec_from_file_location('plugin.x', OTHER + '/plugin/ops.py')\n"
    "m = importlib.util.module_from_spec(s); s.loader.exec_module(m)",
    "spec under a strange name": "s = importlib.util.spec_from_file_location('x', OTHER + '/plugin/ops.py')\n"
    "m = importlib.util.module_from_spec(s); s.loader.exec_module(m)",
    "runpy": "import runpy; runpy.run_path(OTHER + '/plugin/ops.py')",
    "exec of a file": "exec(open(OTHER + '/plugin/ops.py').read())",
    "own finder": "class F:\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    "        if name == 'plugin.y':\n"
    "            return importlib.util.spec_from_file_location(name, OTHER + '/strange.py')\n"
    "sys.meta_path.insert(0, F())\nimport plugin.y",
    "made-up module": "m = types.ModuleType('plugin.z')\n"
    "exec('def f(): pass', m.__dict__); sys.modules['plugin.z'] = m",
    "library by path": "import ctypes\ntry: ctypes.CDLL(OTHER + '/plugin/_C.so')\nexcept OSError: pass",
}


@pytest.mark.parametrize("how", EVASIONS)
def test_ways_round_the_import_are_seen(load, tree, site, tmp_path, how):
    other = tmp_path / "other"
    write(other, {**INSTALLED, "strange.py": "x = 1", "plugin/_C.so": "no library"})
    head = f"import importlib.util, sys, types\nOTHER = {str(other)!r}\n"
    code = head + EVASIONS[how] + "\nrun = print\n"
    reply = load(tree.write({**STAGED, "plugin/ops.py": code}).job())
    assert (reply["ok"], reply["kind"]) == (False, "imported_elsewhere"), reply
    assert any(str(other) in path or path == "<string>" for _, path in reply["violations"])


HONEST = {
    "lazy module": "class L(types.ModuleType): pass\n"
    "m = L(__name__); m.__dict__.update(globals()); sys.modules[__name__] = m",
    "alias": "import plugin.late\nsys.modules['plugin.old_name'] = plugin.late",
    "run-time module": "m = types.ModuleType('plugin.made'); m.value = 1; m.f = print\n"
    "sys.modules['plugin.made'] = m",
    "generated code": "import dataclasses, collections\n"
    "D = dataclasses.make_dataclass('D', ['a']); N = collections.namedtuple('N', 'a')",
    "runs a file of the tree": "import os, runpy\n"
    "runpy.run_path(os.path.join(os.path.dirname(__file__), 'late.py'))",
    "own extended path": "import pkgutil, plugin\n"
    "plugin.__path__ = pkgutil.extend_path(plugin.__path__, 'plugin')",
}


@pytest.mark.parametrize("how", HONEST)
def test_honest_dynamic_code_is_accepted(load, tree, how):
    code = "import sys, types\ndef run(): return 5\n" + HONEST[how] + "\n"
    tree.write({**STAGED, "plugin/ops.py": code, "plugin/late.py": "def f(): pass\n"})
    reply = load(tree.job(), "target()")
    assert (reply["ok"], reply.get("value")) == (True, 5), reply


def test_an_unlisted_file_never_satisfies_an_import(load, tree):
    tree.write(STAGED).write({"plugin/untracked.py": "x = 1"}, listed=False)
    tree.write({"plugin/ops.py": "import plugin.untracked\nrun = print"})
    reply = load(tree.job())
    assert reply["violations"][0][0] == "plugin/untracked.py"


def test_other_bytes_than_the_manifests_are_refused(load, tree):
    tree.write(STAGED)
    (tree.root / "plugin/ops.py").write_text("def run(): return 'edited'")
    reply = load(tree.job())
    assert reply["violations"][0][0] == "plugin/ops.py"


def test_byte_code_is_never_read(load, tree):
    import py_compile

    tree.write({"plugin/__init__.py": "", "plugin/ops.py": "def run(): return 'stale'"})
    source = tree.root / "plugin/ops.py"
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    tree.write(STAGED)
    assert load(tree.job(), "target()")["value"] == "staged"


def test_sha256_object_ids_are_understood(load, tree):
    tree.write(STAGED)
    for path in tree.manifest:
        data = (tree.root / path).read_bytes()
        tree.manifest[path] = hashlib.sha256(b"blob %d\0" % len(data) + data).hexdigest()
    assert load(tree.job(), "target()")["value"] == "staged"


def test_namespace_packages_and_import_roots(load, tree, site):
    write(site, {"plugin/deep/ops.py": "def run(): return 'installed'"})
    tree.write({"src/plugin/deep/ops.py": "def run(): return 'staged'"})
    reply = load(tree.job("plugin.deep.ops:run", import_roots=["src"]), "target()")
    assert reply["value"] == "staged"


def test_data_files_come_from_the_tree(load, tree, site):
    write(site, {**INSTALLED, "plugin/table.txt": "installed"})
    code = (
        "from importlib import resources\n"
        "def run(): return (resources.files('plugin') / 'table.txt').read_text()"
    )
    tree.write({**STAGED, "plugin/ops.py": code, "plugin/table.txt": "staged"})
    assert load(tree.job(), "target()")["value"] == "staged"


def confirmed(path: Path) -> list[str]:
    return [str(path), hashlib.sha256(path.read_bytes()).hexdigest()]


def test_confirmed_files_stand_in_and_are_named(load, tree, site):
    write(site, {**INSTALLED, "plugin/_version.py": "v = '1.2'"})
    tree.write({**STAGED, "plugin/ops.py": "from plugin._version import v\nrun = lambda: v"})
    where = confirmed(site / "plugin/_version.py")
    installed = {"plugin/_version.py": where}
    reply = load(tree.job(installed=installed, generated=["plugin/_version.py"]), "target()")
    assert (reply["value"], reply["mixed"]) == ("1.2", installed)
    undeclared = load(tree.job(installed=installed))
    assert undeclared["kind"] == "raised"
    assert "no module plugin._version in the tree" in undeclared["message"]
    (site / "plugin/_version.py").write_text("v = '6.6'")
    changed = load(tree.job(installed=installed, generated=["plugin/_version.py"]))
    assert changed["violations"][0] == ["plugin/_version.py", where[0]]


def test_a_confirmed_extension_is_loaded(load, tree, site):
    extension = Path(importlib.util.find_spec("_json").origin)
    name = f"plugin/_json{SUFFIX}"
    (site / "plugin").mkdir()
    (site / name).write_bytes(extension.read_bytes())
    tree.write({**STAGED, "plugin/ops.py": "from plugin._json import scanstring as run"})
    job = tree.job(installed={name: confirmed(site / name)})
    reply = load(job, """target('ab"', 0, True)[0]""")
    assert (reply["ok"], reply["value"]) == (True, "ab"), reply
    assert list(reply["mixed"]) == [name]
    assert ["plugin._json", str(site / name), name] in reply["modules"]


def test_metadata_is_the_trees(load, tree, site):
    entry = "[vllm.platform_plugins]\nold = plugin:gone\n"
    info = {"METADATA": "Metadata-Version: 2.1\nName: my-plugin\nVersion: 0.1\n"}
    info["entry_points.txt"] = entry
    write(site, {f"my_plugin-0.1.dist-info/{name}": text for name, text in info.items()})
    code = (
        "from importlib import metadata\n"
        "def run():\n"
        "    found = metadata.entry_points(group='vllm.platform_plugins')\n"
        "    return [metadata.version('my-plugin'), [[e.name, e.value] for e in found]]"
    )
    tree.write({**STAGED, "plugin/ops.py": code})
    points = {"vllm.platform_plugins": [["metax", "plugin:register"]]}
    job = tree.job(distribution=["my-plugin", "0.2"], entry_points=points)
    assert load(job, "target()")["value"] == ["0.2", [["metax", "plugin:register"]]]


def test_a_class_path_built_at_run_time_is_outside_the_closure(load, tree):
    code = "import importlib\ndef run(): importlib.import_module('plugin.' + 'la' + 'te')"
    tree.write({**STAGED, "plugin/ops.py": code, "plugin/late.py": ""})
    job = tree.job(closure=["plugin/__init__.py", "plugin/ops.py"])
    assert load(job)["outside"] == []
    assert load(job, "target()")["outside"] == ["plugin/late.py"]


FAULTS = {
    "no colon": ("plugin.ops.run", {}, "unsupported", "is not of the form module:attribute"),
    "no module": ("plugin.opps:run", {}, "unsupported", "there is no module plugin.opps"),
    "no package": ("plugins.ops:run", {}, "unsupported", "there is no module plugins in the tree"),
    "no attribute": ("plugin.ops:rum", {}, "unsupported", "plugin.ops has no attribute rum"),
    "no method": ("plugin.ops:run.x", {}, "unsupported", "plugin.ops:run has no attribute x"),
    "no callable": ("plugin.ops:run", {"plugin/ops.py": "run = 3"}, "unsupported", "is a int"),
    "raises": ("plugin.ops:run", {"plugin/ops.py": "1/0"}, "raised", "ZeroDivisionError: division"),
    "exits": ("plugin.ops:run", {"plugin/ops.py": "exit(3)"}, "raised", "called sys.exit(3)"),
    "syntax": ("plugin.ops:run", {"plugin/ops.py": "def ("}, "raised", "raised SyntaxError"),
    "missing own": (
        "plugin.ops:run",
        {"plugin/ops.py": "import plugin.gone"},
        "raised",
        "no module plugin.gone in the tree",
    ),
    "missing other": (
        "plugin.ops:run",
        {"plugin/ops.py": "import vllm_of_nowhere"},
        "unsupported",
        "needs module vllm_of_nowhere, which",
    ),
}
ADVICE = {"no module": "closest: plugin.ops", "no attribute": "closest: run"}


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_callables_have_one_clear_reply(load, tree, fault):
    callable_, files, kind, message = FAULTS[fault]
    reply = load(tree.write({**STAGED, **files}).job(callable_))
    assert (reply["ok"], reply["kind"]) == (False, kind), reply
    assert message in reply["message"]
    assert ADVICE.get(fault, "") in reply["advice"]
    assert reply["advice"] or reply["detail"]


def pythons():
    versions = Path(sys.base_prefix).parent
    found = {}
    for minor in range(10, 14):
        for path in sorted(versions.glob(f"3.{minor}.*/bin/python3.{minor}")):
            found[minor] = str(path)
    found[sys.version_info.minor] = sys.executable
    return sorted(found.items())


@pytest.mark.parametrize(("minor", "python"), pythons(), ids=lambda value: str(value)[-24:])
def test_the_loader_works_under_each_python(tree, tmp_path, minor, python):
    points = {"g": [["n", "plugin:x"]]}
    code = (
        "from importlib import metadata\n"
        "def run(): return [e.name for e in metadata.entry_points(group='g')]"
    )
    tree.write({**STAGED, "plugin/ops.py": code})
    job = tree.job(distribution=["my-plugin", "0.2"], entry_points=points)
    (tmp_path / "job.json").write_text(json.dumps(job))
    argv = [python, "-I", "-B", DRIVER, WORKER, tmp_path / "job.json", tmp_path, "target()"]
    done = subprocess.run(
        list(map(str, argv)), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["value"] == ["n"]
