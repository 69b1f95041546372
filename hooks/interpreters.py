"""The Python of the validation: where it is, what it has installed, and whether that changed.

Nothing of the user's is imported to find out. The interpreter is asked for its search path once, and
what lies there is read as files.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from attngate.gpu_runner import spawn
from attngate.gpu_runner.errors import ProgramMissingError
from attngate.hooks.errors import CouldNotCheckError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ENVIRONMENT_VERSION = 1
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")
_ASK = "import json, sys; print(json.dumps([sys.version, sys.path]))"
_ASK_TIMEOUT_S = 60.0
# Packages whose files decide numbers: each file's size and time counts, not only the record of the
# installation, because such builds are often copied over by hand.
_COMPONENTS = ("flash_attn", "flash_mla", "deep_gemm", "flashinfer", "mcoplib", "triton", "vllm")


def locate(setting: str, toplevel: str) -> str:
    """Absolute path of the configured interpreter; "" stands for the one that runs attngate.

    Args:
        setting: `interpreter` of the settings; a relative one starts at the work tree.
        toplevel: The work tree.

    Raises:
        CouldNotCheckError: There is no such program.
    """
    if not setting:
        return sys.executable
    path = os.path.normpath(os.path.join(toplevel, os.path.expanduser(setting)))
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise CouldNotCheckError(
            f"the interpreter {path} is not an executable file",
            "correct `interpreter` in [tool.attngate], or ATTNGATE_INTERPRETER",
        )
    return path


def site_packages(interpreter: str) -> tuple[str, ...]:
    """Folders of the interpreter's search path that hold installed packages.

    Raises:
        CouldNotCheckError: It cannot be run.
    """
    return tuple(_described(interpreter)[1])


def installed_files(interpreter: str) -> list[str]:
    """Paths whose change can mean another installation: what a remembered result depends on."""
    prefix = os.path.dirname(os.path.dirname(interpreter))
    paths = [interpreter, os.path.join(prefix, "pyvenv.cfg")]
    for folder in site_packages(interpreter):
        paths += [folder, *_search_files(folder)]
        paths += [os.path.join(folder, name) for name in _COMPONENTS]
    return paths


def environment_digest(
    interpreter: str,
    device: str,
    env: Mapping[str, str],
    *,
    extra: Iterable[str] = (),
    own: str = "",
) -> str:
    """Identity of everything outside the tree that a verdict depends on, as far as files tell.

    It covers the interpreter, every installed distribution's record, the files of the kernel
    components, the variables that reach a worker and can change numbers, the device's driver, and
    the host's processor. Nothing is executed but the interpreter, once.

    Args:
        interpreter: Absolute path.
        device: "cpu" or "cuda".
        env: The caller's environment.
        extra: Further folders that count (the target's source).
        own: The checked work tree. An editable installation of it is left out: what counts of the
            plugin is the tree that is validated.

    Returns:
        64 hexadecimal digits.
    """
    version, folders = _described(interpreter)
    digest = hashlib.sha256()
    rows: list[object] = [ENVIRONMENT_VERSION, os.path.realpath(interpreter), version, device]
    rows.append(sorted(spawn.results_environment(env).items()))
    rows.append(_processor() if device == "cpu" else _drivers())
    for row in rows:
        digest.update(json.dumps(row).encode() + b"\n")
    for place in [*folders, *extra]:
        if own and _is_source_of(place, own):
            continue
        for line in _fingerprints(place):
            digest.update(line)
    return digest.hexdigest()


def _is_source_of(folder: str, own: str) -> bool:
    """True for a folder of the work tree that is no virtual environment's package folder."""
    inside = (os.path.realpath(folder) + os.sep).startswith(os.path.realpath(own) + os.sep)
    return inside and os.path.basename(folder) not in _PACKAGE_FOLDERS


@lru_cache(maxsize=8)
def _described(interpreter: str) -> tuple[str, tuple[str, ...]]:
    if os.path.samefile(interpreter, sys.executable) and interpreter == sys.executable:
        return sys.version, tuple(_package_folders(sys.path))
    argv = [interpreter, "-I", "-c", _ASK]
    try:
        done = spawn.run(
            argv, cwd="/", env=spawn.worker_environment(os.environ), timeout_s=_ASK_TIMEOUT_S
        )
        version, path = json.loads(done.stdout)
    except (ProgramMissingError, ValueError) as error:
        raise CouldNotCheckError(
            f"the interpreter {interpreter} does not run: {error}",
            "correct `interpreter` in [tool.attngate], or ATTNGATE_INTERPRETER",
        ) from error
    return version, tuple(_package_folders(path))


def _package_folders(path: Sequence[str]) -> Iterator[str]:
    for folder in path:
        if os.path.basename(folder) in _PACKAGE_FOLDERS or _is_linked(folder):
            yield folder


def _is_linked(folder: str) -> bool:
    """True for a source folder that a .pth file put on the path (an editable installation)."""
    standard = os.path.dirname(os.__file__)
    inside = os.path.isdir(folder) and not folder.endswith("lib-dynload")
    return inside and not os.path.exists(os.path.join(folder, "os.py")) and folder != standard


def _search_files(folder: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if name.endswith((".pth", ".egg-link"))]


def _fingerprints(folder: str) -> Iterator[bytes]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        yield f"absent {folder}\n".encode("utf-8", "surrogateescape")
        return
    for name in names:
        place = os.path.join(folder, name)
        if name.endswith((".dist-info", ".egg-info")):
            yield from _stat_line(os.path.join(place, "RECORD"))
            yield from _stat_line(os.path.join(place, "METADATA"))
        elif name.endswith((".pth", ".egg-link", ".so", ".py")):
            yield from _stat_line(place)
        elif name in _COMPONENTS:
            yield from _folder_lines(place)


def _folder_lines(folder: str) -> Iterator[bytes]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            yield from _stat_line(os.path.join(place, name))


def _stat_line(path: str) -> Iterator[bytes]:
    try:
        status = os.stat(path)
    except OSError:
        return
    text = f"{path} {status.st_size} {status.st_mtime_ns}\n"
    yield text.encode("utf-8", "surrogateescape")


def _processor() -> list[str]:
    """Model and instruction sets of the processor: a CPU kernel may pick its path by them."""
    wanted = ("model name", "flags", "Features")
    found: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() in wanted:
                    found.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    return [os.uname().machine, *(f"{name}: {value}" for name, value in sorted(found.items()))]


def _drivers() -> list[str]:
    """What the kernel says of the device drivers: versions and the devices that are there."""
    lines = []
    for path in (
        "/proc/driver/nvidia/version",
        "/sys/module/metax/version",
        "/sys/module/amdgpu/version",
    ):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines.append(f"{path}: {file.read()}")
        except OSError:
            continue
    try:
        gpus = sorted(os.listdir("/proc/driver/nvidia/gpus"))
        lines += [_gpu_model(name) for name in gpus]
    except OSError:
        pass
    return lines


def _gpu_model(name: str) -> str:
    try:
        with open(f"/proc/driver/nvidia/gpus/{name}/information", encoding="utf-8") as file:
            return next((line.strip() for line in file if line.startswith("Model")), name)
    except OSError:
        return name


def package_parents(interpreter: str) -> list[str]:
    """Folders in which the interpreter would look for an installed package, editable ones included.

    Editable installations that work by a finder name their folders in a mapping, which is read from
    its source and never run.
    """
    folders = list(site_packages(interpreter))
    for folder in list(folders):
        folders += _mapped_parents(folder)
    return folders


def _mapped_parents(folder: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if name.startswith("__editable__") and name.endswith("_finder.py"):
            for place in _mapping(os.path.join(folder, name)).values():
                yield os.path.dirname(place)


def _mapping(path: str) -> dict[str, str]:
    """The MAPPING of package to folder in a setuptools finder; {} where it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, ValueError, SyntaxError):
        return {}
    named: ast.expr
    value: ast.expr | None
    for node in tree.body:
        if isinstance(node, ast.AnnAssign):
            named, value = node.target, node.value
        elif isinstance(node, ast.Assign):
            named, value = node.targets[0], node.value
        else:
            continue
        if isinstance(named, ast.Name) and named.id == "MAPPING" and value is not None:
            return _literal_folders(value)
    return {}


def _literal_folders(node: ast.expr) -> dict[str, str]:
    try:
        found = ast.literal_eval(node)
    except ValueError:
        return {}
    return {k: v for k, v in found.items() if isinstance(v, str) and "." not in k}
