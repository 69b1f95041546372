"""Who may import whom, and which files may open the doors to git and to other processes."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(sys.executable).parent
WORKER_MAY_IMPORT = sys.stdlib_module_names | {"torch", "triton", "numpy"}
PROCESS_DOORS = {"hooks/git.py", "hooks/fast.py", "gpu_runner/spawn.py"}
PROCESS_MODULES = {"multiprocessing", "pty", "asyncio"}
SUBPROCESS_CONSTANTS = {"DEVNULL", "PIPE", "STDOUT", "TimeoutExpired"}
PROCESS_CALLS = {"fork", "forkpty", "posix_spawn", "posix_spawnp", "popen", "system"}


def sources(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if "sample" not in path.relative_to(ROOT).parts]


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import that runs; those for the type checker alone are left out."""
    yield from _imported(ast.parse(path.read_bytes()))


def _imported(node: ast.AST) -> Iterator[tuple[int, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from ((child.lineno, alias.name) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative imports hide where a name comes from"
            yield child.lineno, child.module or ""
        yield from _imported(child)


def test_the_contracts_of_import_linter_are_kept() -> None:
    done = subprocess.run(
        [SCRIPTS / "lint-imports", "--no-cache"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("module", ["torch", "git", "attngate.hooks.config"])
def test_import_linter_sees_a_breach(tmp_path: Path, module: str) -> None:
    # Without this the contracts could be kept because the linter looks at nothing.
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    copy_tree(ROOT / "validators", tmp_path / "attngate" / "validators")
    for name in ("hooks", "gpu_runner"):
        (tmp_path / "attngate" / name).symlink_to(ROOT / name)
    breach = tmp_path / "attngate/validators/rules/breach.py"
    breach.write_text(f"def late() -> None:\n    import {module}\n")
    done = subprocess.run(
        [sys.executable, "-c", BREACH], check=False, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"validators.rules.breach -> {module}" in done.stdout


# The editable install would win over the copy, so the copy is put in front by hand.
BREACH = """
import sys
sys.path.insert(0, "")
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in repr(f).lower()]
from importlinter.cli import lint_imports
sys.exit(lint_imports(no_cache=True))
"""


def copy_tree(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*.py")):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())


def test_the_worker_imports_only_what_a_user_interpreter_has() -> None:
    foreign = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sources("gpu_runner/worker")
        for line, module in imported(path)
        if module.partition(".")[0] not in WORKER_MAY_IMPORT
        and not module.startswith("attngate.gpu_runner.worker")
    ]
    assert not foreign


def test_only_the_git_door_loads_gitpython() -> None:
    users = {
        str(path.relative_to(ROOT))
        for path in sources("hooks", "validators", "gpu_runner")
        for _, module in imported(path)
        if module.partition(".")[0] == "git"
    }
    assert users <= {"hooks/git.py"}


def test_only_the_doors_start_processes() -> None:
    starters = {
        str(path.relative_to(ROOT))
        for path in sources("hooks", "validators", "gpu_runner")
        if starts_processes(path)
    }
    assert "gpu_runner/spawn.py" in starters
    assert starters <= PROCESS_DOORS | CONNECTION_USERS | EXECUTES_ITSELF


# multiprocessing.connection is used for its frames of bytes; no process is started with it.
CONNECTION_USERS = {"gpu_runner/channel.py"}
# These replace or double their own process and start no other program.
EXECUTES_ITSELF = {"gpu_runner/daemon/__main__.py", "gpu_runner/guard.py"}


def starts_processes(path: Path) -> bool:
    tree = ast.parse(path.read_bytes())
    modules = {module.partition(".")[0] for _, module in _imported(tree)}
    used = [
        (node.value.id, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    ]
    return bool(modules & PROCESS_MODULES) or any(starts_one(*names) for names in used)


def starts_one(module: str, name: str) -> bool:
    if module == "subprocess":
        return name not in SUBPROCESS_CONSTANTS
    return module == "os" and (name in PROCESS_CALLS or name.startswith(("exec", "spawn")))


def test_every_package_file_is_empty() -> None:
    full = [str(path) for path in sources("hooks", "validators", "gpu_runner") if is_full(path)]
    assert not full, "a package's __init__.py runs before anything else of it: keep it empty"


def is_full(path: Path) -> bool:
    return path.name == "__init__.py" and bool(path.read_bytes().strip())
