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
    "library with a version": "import ctypes\n"
    "try: ctypes.CDLL(OTHER + '/plugin/_C.so.1')\nexcept OSError: pass",
    "path as bytes": "exec(open(os.fsencode(OTHER + '/plugin/ops.py')).read())",
    "made-up module with a file of the tree": "m = types.ModuleType('plugin.z')\n"
    "m.__file__ = __file__; sys.modules['plugin.z'] = m\n"
    "exec(compile(open(OTHER + '/strange.py').read(), OTHER + '/strange.py', 'exec'), m.__dict__)",
    "method of a made-up module": "m = types.ModuleType('plugin.z'); sys.modules['plugin.z'] = m\n"
    "exec('class C:\\n    def f(self): pass', m.__dict__)",
    "partial in a made-up module": "m = types.ModuleType('plugin.z'); sys.modules['plugin.z'] = m\n"
    "exec('import functools\\ndef f(): pass\\nf = functools.partial(f)\\n"
    "f.__module__ = __name__', m.__dict__)",
    "code put under a function": "import runpy\n"
    "def helper(): pass\n"
    "helper.__code__ = runpy.run_path(OTHER + '/strange.py')['f'].__code__",
    "our finder removed": "sys.meta_path.pop(0); sys.path.insert(0, OTHER)\n"
    "import plugin; plugin.__path__.insert(0, OTHER + '/plugin'); import plugin.only_there",
    "zip file": "import zipfile, zipimport\n"
    "with zipfile.ZipFile(OTHER + '/z.zip', 'w') as z: z.write(OTHER + '/strange.py', 'plugin/q.py')\n"
    "m = zipimport.zipimporter(OTHER + '/z.zip/plugin')\n"
    "e = types.ModuleType('q'); exec(m.get_code('q'), e.__dict__)",
    "byte code without source": "import py_compile\n"
    "py_compile.compile(OTHER + '/strange.py', OTHER + '/plugin/late.pyc')\n"
    "from importlib.machinery import SourcelessFileLoader as L\n"
    "s = importlib.util.spec_from_loader('plugin.late', L('plugin.late', OTHER + '/plugin/late.pyc'))\n"
    "m = sys.modules['plugin.late'] = importlib.util.module_from_spec(s); s.loader.exec_module(m)",
}


@pytest.mark.parametrize("how", EVASIONS)
def test_ways_round_the_import_are_seen(load, tree, site, tmp_path, how):
    other = tmp_path / "other"
    write(other, {**INSTALLED, "strange.py": "def f(): return 1"})
    write(other, {"plugin/_C.so": "no library", "plugin/_C.so.1": "no library"})
    head = f"import importlib.util, os, sys, types\nOTHER = {str(other)!r}\n"
    code = head + EVASIONS[how] + "\nrun = print\n"
    reply = load(tree.write({**STAGED, "plugin/ops.py": code}).job())
    assert (reply["ok"], reply["kind"]) == (False, "imported_elsewhere"), reply
    assert any(str(other) in path or path == "<string>" for _, path in reply["violations"])


def test_a_changed_file_of_the_tree_is_seen_when_it_runs_again(load, tree):
    for again in ("importlib.reload(sys.modules['plugin.late'])", "runpy.run_path(late.__file__)"):
        code = (
            "import importlib, runpy, sys\nimport plugin.late as late\n"
            f"open(late.__file__, 'a').write('y = 2')\n{again}\nrun = print"
        )
        reply = load(
            tree.write({**STAGED, "plugin/ops.py": code, "plugin/late.py": "x = 1\n"}).job()
        )
        assert (reply["ok"], reply["kind"]) == (False, "imported_elsewhere"), again
        assert reply["violations"][0][0] == "plugin/late.py"


def test_a_link_out_of_the_tree_is_no_file_of_the_tree(load, tree, tmp_path):
    write(tmp_path, {"late.py": "x = 1"})
    tree.write({**STAGED, "plugin/ops.py": "import plugin.late", "plugin/late.py": "x = 1"})
    (tree.root / "plugin/late.py").unlink()
    (tree.root / "plugin/late.py").symlink_to(tmp_path / "late.py")
    assert load(tree.job())["violations"][0][1] == str(tree.root / "plugin/late.py")


def test_a_plugin_of_one_file_is_watched_too(load, tree, site):
    write(site, {"single.py": "def run(): return 'installed'"})
    code = f"import runpy\nrun = runpy.run_path({str(site / 'single.py')!r})['run']"
    reply = load(tree.write({"single.py": code}).job("single:run", packages=["single"]))
    assert [["exec of a file", str(site / "single.py")]] == [
        each for each in reply["violations"] if each[0].startswith("exec")
    ]


def test_a_confirmed_source_is_compared_when_it_is_compiled(load, tree, site):
    write(site, {**INSTALLED, "plugin/_version.py": "v = '1.2'"})
    code = (
        "import plugin._version as m\nrun = print\n"
        "open(m.__file__, 'a').write('v = 2')\nm.__loader__.exec_module(m)"
    )
    tree.write({**STAGED, "plugin/ops.py": code})
    installed = {"plugin/_version.py": confirmed(site / "plugin/_version.py")}
    reply = load(tree.job(installed=installed, generated=["plugin/_version.py"]))
    assert reply["violations"][0][0] == "plugin/_version.py"


def test_code_of_neither_tree_nor_environment_is_recorded(load, tree, site, tmp_path):
    write(tmp_path / "other", {"helper_of_nowhere.py": "x = 1"})
    write(site, {"dependency.py": "x = 1"})
    code = (
        f"import sys\nsys.path.insert(0, {str(tmp_path / 'other')!r})\n"
        "import dependency, helper_of_nowhere, colorsys\nrun = print"
    )
    reply = load(tree.write({**STAGED, "plugin/ops.py": code}).job())
    assert reply["ok"]
    assert reply["strangers"] == [str(tmp_path / "other/helper_of_nowhere.py")]


def test_files_of_the_tree_that_are_read_count_as_loaded(load, tree):
    code = (
        "import os\nhere = os.path.dirname(__file__)\n"
        "def run():\n    open(os.path.join(here, 'log.txt'), 'w').close()\n"
        "    return open(os.path.join(here, 'table.json')).read()"
    )
    tree.write({**STAGED, "plugin/ops.py": code, "plugin/table.json": "{}"})
    assert load(tree.job(), "target()")["outside"] == ["plugin/table.json"]
    closure = [*tree.manifest, "plugin/table.json"]
    assert load(tree.job(closure=closure), "target()")["outside"] == []


HONEST = {
    "object that computes its attributes": "class O:\n"
    "    def __getattr__(self, name): raise RuntimeError(name)\n"
    "    @property\n    def __file__(self): raise RuntimeError('file')\n"
    "    __slots__ = ()\n"
    "sys.modules['plugin.lazy'] = O()",
    "lazy loader": "import importlib.util as u\n"
    "s = u.find_spec('plugin.late'); s.loader = u.LazyLoader(s.loader)\n"
    "m = u.module_from_spec(s); sys.modules['plugin.late'] = m; s.loader.exec_module(m); m.f()",
    "module attributes on demand": "def __getattr__(name): raise AttributeError(name)",
    "decorated functions": "import contextlib, functools, helper\n"
    "@contextlib.contextmanager\ndef a(): yield\n"
    "@functools.lru_cache\ndef b(): pass\n"
    "@helper.bare\ndef c(): pass\n"
    "class C:\n    d = functools.partialmethod(b)\n    e = property(b)\n    f = staticmethod(c)",
    "subpackage of another package": "import dep.plugin.ops",
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
def test_honest_dynamic_code_is_accepted(load, tree, site, how):
    write(site, {"dep/__init__.py": "", "dep/plugin/__init__.py": "", "dep/plugin/ops.py": "x = 1"})
    wrapper = "    def wrapper(): return f()\n    wrapper.__module__ = f.__module__\n"
    write(site, {"helper.py": f"def bare(f):\n{wrapper}    return wrapper\n"})
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
