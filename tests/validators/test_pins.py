from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from attngate.validators.pins import builds_for, parse_pin, read_pins

if TYPE_CHECKING:
    from collections.abc import Callable

    from attngate.validators.model import Snapshot


@pytest.mark.parametrize(
    ("line", "name", "version"),
    [
        ("flash_attn==2.6.3+metax3.8.2.2torch2.10", "flash-attn", "2.6.3+metax3.8.2.2torch2.10"),
        ("  Flash.Attn [extra] === 2.8.3 ; python_version > '3.9'", "flash-attn", "2.8.3"),
        ("flash-attn==2.8.3 --hash=sha256:00", "flash-attn", "2.8.3"),
        ("flash-attn==2.8.3 \\", "flash-attn", "2.8.3"),
        ("flash-attn==2.8.3# why", "flash-attn", "2.8.3"),
        (
            "flash-attn @ https://x.invalid/w/flash_attn-2.6.3%2Bmetax3.1-cp310-none-any.whl",
            "flash-attn",
            "2.6.3+metax3.1",
        ),
        ("flash-attn>=2.6", None, None),
        ("flash-attn==2.*", None, None),
        ("# flash-attn==2.8.3", None, None),
        ("-r other.txt", None, None),
        ("", None, None),
    ],
)
def test_only_an_exact_version_is_a_pin(line: str, name: str | None, version: str | None) -> None:
    pin = parse_pin(line, "requirements.txt", 3)
    assert (pin.name if pin else None, pin.version if pin else None) == (name, version)


def test_pins_come_from_requirements_and_the_project_file(
    make_snapshot: Callable[..., Snapshot],
) -> None:
    project = """[project]
name = "plug"
dependencies = ["flash-attn==2.8.3"]
[project.optional-dependencies]
mla = ["flash_mla==1.0"]
[dependency-groups]
dev = ["ruff==0.6", { include-group = "x" }]
"""
    tree = make_snapshot(
        {
            "requirements/maca.txt": "\nflash_attn==2.6.3\n",
            "tools/requirements-dev.in": "triton==3.6.0",
            "docs/notes.txt": "flash_attn==9",
            "pyproject.toml": project,
        }
    )
    pins = read_pins(tree)
    assert {(p.name, p.version) for p in pins} == {
        ("flash-attn", "2.6.3"),
        ("flash-attn", "2.8.3"),
        ("flash-mla", "1.0"),
        ("ruff", "0.6"),
        ("triton", "3.6.0"),
    }
    builds = builds_for(pins, ("flash_attn",))
    assert {b.version: b.origin for b in builds} == {
        "2.6.3": "pinned in requirements/maca.txt line 2",
        "2.8.3": "pinned in pyproject.toml line 3",
    }


def test_a_project_file_that_does_not_parse_has_no_pins(
    make_snapshot: Callable[..., Snapshot],
) -> None:
    tree = make_snapshot(
        {"pyproject.toml": "[project\n", "requirements.txt": b"\xff\nflash-attn==2.8.3"}
    )
    assert [p.version for p in read_pins(tree)] == ["2.8.3"]
