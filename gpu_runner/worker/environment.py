"""The environment record: what the validation's interpreter has installed, read without importing it.

Run as a file, `python -I -B environment.py [plugin package...]`, by the interpreter that will validate;
prints one JSON object and ends 0, which means collected, not suitable. It uses the standard library
only, imports neither a component nor the plugin, and loads no GPU library.

It is run isolated (`-I`), as the workers are: PYTHONPATH, the user's site-packages and the current
folder take no part in a validation, so they must take no part in its record. Where they are set, they
are recorded as ignored.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import sys
from glob import glob
from typing import Any
from urllib.parse import urlsplit, urlunsplit

RECORD_VERSION = 1
COMPONENTS = {
    "torch": ("torch",),
    "triton": ("triton", "pytorch-triton", "triton-rocm", "flagtree"),
    "flash_attn": ("flash-attn", "flash-attn-4"),
    "flash_mla": ("flash-mla",),
    "deep_gemm": ("deep-gemm",),
    "flashinfer": ("flashinfer", "flashinfer-python"),
    "mcoplib": ("mcoplib",),
    "compressed_tensors": ("compressed-tensors",),
    "vllm": ("vllm",),
}
_OVERRIDES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH")
_DEVICE_FILES = ("/dev/nvidia[0-9]*", "/dev/mxcd", "/dev/dri/renderD*", "/dev/kfd")
_DRIVER_FILES = (
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/gpus/*/information",
    "/sys/module/metax/version",
    "/opt/maca/Version.txt",
)


def record(plugins: tuple[str, ...] = ()) -> dict[str, Any]:
    """Collect everything; JSON data.

    Args:
        plugins: Import names of the plugin's packages, which are looked up like components.
    """
    wanted = dict(COMPONENTS)
    wanted.update({name: (name.replace("_", "-"),) for name in plugins})
    return {
        "version": RECORD_VERSION,
        "interpreter": _interpreter(),
        "overrides_ignored": {k: os.environ[k] for k in _OVERRIDES if k in os.environ},
        "distributions": {name: _candidates(name, names) for name, names in wanted.items()},
        "origins": {name: _origin(name) for name in wanted},
        "start_up_files": _start_up_files(),
        "device": {"files": _existing(_DEVICE_FILES), "driver": _texts(_DRIVER_FILES)},
    }


def _interpreter() -> dict[str, Any]:
    settings = os.path.join(sys.prefix, "pyvenv.cfg")
    return {
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "version": sys.version,
        "implementation": sys.implementation.cache_tag,
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "pyvenv": _text(settings),
        "path": sys.path,
    }


def _candidates(package: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Every installed distribution of one of these names, in the order of the search path."""
    found = []
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"] or ""
        if re.sub(r"[-_.]+", "-", name).lower() in names:
            found.append(_described(package, name, distribution))
    return found


def _described(
    package: str, name: str, distribution: importlib.metadata.Distribution
) -> dict[str, Any]:
    folder = str(distribution.locate_file(package))
    direct = _direct_url(distribution)
    files = [str(file) for file in distribution.files or ()]
    return {
        "name": name,
        "version": distribution.version,
        "location": str(distribution.locate_file("")),
        "package": folder if os.path.isdir(folder) else None,
        "installer": (distribution.read_text("INSTALLER") or "").strip(),
        "editable": bool(direct.get("dir_info", {}).get("editable"))
        or any("__editable__" in file for file in files),
        "direct_url": direct,
    }


def _direct_url(distribution: importlib.metadata.Distribution) -> dict[str, Any]:
    """Where pip says it came from, without user names, passwords and query strings."""
    with contextlib.suppress(ValueError):
        data = json.loads(distribution.read_text("direct_url.json") or "{}")
        if isinstance(data, dict):
            return {**data, "url": without_credentials(data["url"])} if "url" in data else data
    return {}


def without_credentials(url: str) -> str:
    """The URL without user information, query and fragment."""
    parts = urlsplit(str(url))
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _origin(package: str) -> str | None:
    """The file that `import <package>` would start with; a top-level look-up imports nothing."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.origin:
        return spec.origin
    return os.pathsep.join(spec.submodule_search_locations or ()) or None


def _start_up_files() -> list[str]:
    """`.pth` files and customisation modules of the search path: they can redirect imports."""
    found = []
    for folder in sys.path:
        found += glob(os.path.join(glob_escaped(folder), "*.pth"))
        found += [
            path
            for name in ("sitecustomize.py", "usercustomize.py")
            if os.path.isfile(path := os.path.join(folder, name))
        ]
    return sorted(set(found))


def glob_escaped(folder: str) -> str:
    """A folder's name with the characters that `glob` gives a meaning taken literally."""
    return re.sub(r"([*?[])", r"[\1]", folder)


def _existing(patterns: tuple[str, ...]) -> list[str]:
    return sorted(path for pattern in patterns for path in glob(pattern))


def _texts(patterns: tuple[str, ...]) -> dict[str, str]:
    return {path: _text(path) for path in _existing(patterns)}


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return ""


if __name__ == "__main__":
    print(json.dumps(record(tuple(sys.argv[1:]))))
