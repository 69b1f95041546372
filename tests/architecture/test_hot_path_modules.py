"""The modules that a hook may load: each one costs every commit of every user some milliseconds."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# What an unchanged `attngate hook pre-commit` loads beyond a bare Python. Names with an underscore in
# front are left out: they come along with these, by other names in each Python version.
UNCHANGED_MAY_LOAD = {
    "attngate",
    "attngate.hooks",
    "attngate.hooks.cli",
    "attngate.hooks.commands",
    "attngate.hooks.commands.hook",
    "attngate.hooks.errors",
    "attngate.hooks.fast",
    "attngate.hooks.git",
    "attngate.hooks.streams",
    *("collections", "contextlib", "copyreg", "enum", "errno", "fcntl", "functools", "genericpath"),
    *("hashlib", "itertools", "keyword", "locale", "math", "operator", "os", "posixpath", "re"),
    *("reprlib", "select", "selectors", "signal", "stat", "subprocess", "threading", "time"),
    *("types", "warnings", "weakref"),
}
# Third-party packages that a check may load when something has changed. torch is the user's business,
# GitPython, rich, structlog and psutil belong to other verbs. msgspec loads typing_extensions where
# it is there.
CHECK_MAY_LOAD = {"msgspec", "packaging", "pathspec", "typing_extensions"}

REPORT = """
import sys
sys.path[:0] = sys.argv.pop(1).split(":")
before = set(sys.modules)
from attngate.hooks import cli
try:
    cli.main(sys.argv[1:])
finally:
    sys.stderr.write("LOADED " + " ".join(sorted(set(sys.modules) - before)))
"""


class Checkout:
    """A repository with a staged edit, and attngate laid out as in a wheel, without editable hooks."""

    def __init__(self, folder: Path) -> None:
        self.packages = folder / "packages"
        (self.packages / "attngate").mkdir(parents=True)
        for name in ("hooks", "validators", "gpu_runner"):
            (self.packages / "attngate" / name).symlink_to(ROOT / name)
        self.repository = folder / "repository"
        self.repository.mkdir()
        (folder / "home").mkdir()
        foreign = ("GIT_", "ATTNGATE_", "XDG_", "SKIP", "CI", "PRE_COMMIT")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        self.env |= {"HOME": str(folder / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
        self.git("init", "-q")
        self.stage("x = 1\n")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "Begin")
        self.stage("x = 2\n")

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.repository, env=self.env, check=True)

    def stage(self, text: str) -> None:
        (self.repository / "module.py").write_text(text)
        self.git("add", "module.py")

    def loaded_by(self, *arguments: str) -> set[str]:
        """Modules that `attngate ARGUMENTS` loads; it has to end with 0."""
        path = f"{self.packages}:{sysconfig.get_path('purelib')}"
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", REPORT, path, *arguments],
            check=False,
            cwd=self.repository,
            env=self.env,
            capture_output=True,
            text=True,
        )
        said, _, modules = done.stderr.rpartition("LOADED ")
        assert done.returncode == 0, done.stdout + said
        return set(modules.split())


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def public(modules: set[str]) -> set[str]:
    """Without private modules, and without the parts of standard packages, which come with them."""
    return {
        name if name.startswith("attngate") else name.partition(".")[0]
        for name in modules
        if not name.startswith("_")
    }


def test_an_unchanged_hook_call_loads_only_what_is_listed(checkout: Checkout) -> None:
    first = checkout.loaded_by("hook", "pre-commit")
    second = checkout.loaded_by("hook", "pre-commit")
    assert "attngate.validators.check" in first, "the first call has to check"
    assert public(second) <= UNCHANGED_MAY_LOAD


def test_a_check_loads_no_other_third_party_package(checkout: Checkout) -> None:
    tops = {name.partition(".")[0] for name in checkout.loaded_by("hook", "pre-commit")}
    known = sys.stdlib_module_names | {"attngate"}
    foreign = {name for name in tops if name not in known and not name.startswith("_")}
    assert "msgspec" in foreign, "the list is of a check that reads settings"
    assert foreign <= CHECK_MAY_LOAD
