"""pyproject.toml, the hook manifest and the folders say the same."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
MANIFEST: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
STAGES = {
    "attngate-check": "pre-commit",
    "attngate-gate": "pre-push",
    "attngate-submit": "post-commit",
}


def package_files() -> list[Path]:
    """Every file that belongs to the packages, as git knows them and without what it ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "hooks", "validators", "gpu_runner"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).exists()]


def test_every_folder_with_an_init_file_is_a_listed_package() -> None:
    folders = {
        "attngate." + ".".join(path.parent.parts)
        for path in package_files()
        if path.name == "__init__.py" and "sample" not in path.parts
    }
    assert folders == set(SETUPTOOLS["packages"])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names of the files in a wheel that is built from a copy of what git has."""
    copy = tmp_path_factory.mktemp("wheel")
    for name in [*package_files(), *map(Path, ("pyproject.toml", "README.md", "LICENSE"))]:
        target = copy / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
        target.chmod((ROOT / name).stat().st_mode)
    build = (
        "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", build, copy],
        check=False,
        cwd=copy / "source",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return zipfile.ZipFile(copy / done.stdout.splitlines()[-1]).namelist()


def test_the_wheel_has_every_file_of_the_packages(wheel: list[str]) -> None:
    missing = [str(path) for path in package_files() if f"attngate/{path}" not in wheel]
    assert not missing, "pyproject's package-data or packages leave these out"


def test_the_wheel_installs_no_top_level_name_but_attngate(wheel: list[str]) -> None:
    tops = {name.partition("/")[0] for name in wheel}
    version = PYPROJECT["project"]["version"]
    assert tops == {"attngate", f"attngate-{version}.dist-info", f"attngate-{version}.data"}


def test_the_wheel_brings_the_launcher(wheel: list[str]) -> None:
    assert [name for name in wheel if name.endswith(".data/scripts/attngate")]


@pytest.mark.parametrize("hook", MANIFEST, ids=lambda hook: hook["id"])
def test_a_hook_sees_the_whole_tree_once_and_at_its_stage(hook: dict[str, Any]) -> None:
    assert hook["stages"] == [STAGES[hook["id"]]]
    assert hook["entry"] == f"attngate hook {STAGES[hook['id']]}"
    assert hook["language"] == "python"
    assert hook["pass_filenames"] is False
    assert hook["require_serial"] is True
    assert hook["always_run"] is True


def test_there_is_a_hook_for_each_stage() -> None:
    assert {hook["id"]: hook["stages"][0] for hook in MANIFEST} == STAGES


@pytest.mark.parametrize("name", ["test", "demo"])
def test_torch_and_triton_are_pinned_exactly(name: str) -> None:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins == ["torch==2.13.0", "triton==3.9.0"]
