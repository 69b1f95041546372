"""Entry points come from the tree's own metadata, and no code of it runs."""

from __future__ import annotations

from attngate.hooks.distribution import UNKNOWN_VERSION, read_distribution

PYPROJECT = """
[project]
name = "plug"
version = "1.2"
scripts = { tool = "plug:main" }
[project.entry-points."vllm.platform_plugins"]
metax = "plug:register"
"""


def test_pyproject(tree):
    found = read_distribution(tree({"pyproject.toml": PYPROJECT}))
    assert (found.name, found.version) == ("plug", "1.2")
    assert found.entry_points == {
        "console_scripts": [["tool", "plug:main"]],
        "vllm.platform_plugins": [["metax", "plug:register"]],
    }


def test_setup_cfg_with_a_computed_version(tree):
    text = "[metadata]\nname = Plug\nversion = attr: plug.v\n[options.entry_points]\nA.b =\n  x = plug:X\n"
    found = read_distribution(tree({"setup.cfg": text}))
    assert (found.name, found.version) == ("Plug", UNKNOWN_VERSION)
    assert found.entry_points == {"A.b": [["x", "plug:X"]]}


def test_setup_py_is_read_and_not_run(tree):
    text = (
        "raise SystemExit('ran')\nEP = {'g': ['a = m:f', 'b=m:g']}\n"
        "import setuptools\nsetuptools.setup(name='plug', version=compute(), entry_points=EP)\n"
    )
    found = read_distribution(tree({"setup.py": text}))
    assert found.name == "plug"
    assert found.version == UNKNOWN_VERSION
    assert found.entry_points == {"g": [["a", "m:f"], ["b", "m:g"]]}


def test_setup_py_with_ini_entry_points(tree):
    text = "from setuptools import setup\nsetup(name='p', entry_points='''\n[g]\na = m:f\n''')\n"
    assert read_distribution(tree({"setup.py": text})).entry_points == {"g": [["a", "m:f"]]}


def test_pyproject_comes_before_setup_py(tree):
    files = {
        "pyproject.toml": PYPROJECT,
        "setup.py": "from setuptools import setup\nsetup(name='x')\n",
    }
    found = read_distribution(tree(files))
    assert found.name == "plug"
    assert found.sources == ("pyproject.toml", "setup.py")


def test_a_broken_file_is_told_and_the_others_are_used(tree):
    found = read_distribution(
        tree({"pyproject.toml": "[project\n", "setup.cfg": "[metadata]\nname = p\n"})
    )
    assert found.name == "p"
    assert len(found.problems) == 1
    assert found.problems[0].startswith("pyproject.toml: ")


def test_nothing_there(tree):
    assert read_distribution(tree({})).name == ""
