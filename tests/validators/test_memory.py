from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from attngate.validators.check import check
from attngate.validators.memory import Memory
from attngate.validators.model import Build, CheckOptions
from attngate.validators.target import TargetTree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from attngate.validators.model import CheckResult, Snapshot

TARGET = {
    "vllm/__init__.py": "",
    "vllm/base.py": "class Impl:\n    def forward(self, q, k): ...\n",
    "vllm/backend.py": "class Impl: ...\n",
}
TREE = {
    "plugin/__init__.py": "",
    "plugin/base.py": "class Common:\n    def step(self, one):\n        return one\n",
    "plugin/fa.py": "from flash_attn import flash_attn_varlen_func as fa\n",
    "plugin/user.py": (
        "from plugin.base import Common\nfrom vllm.base import Impl\n\n\n"
        "class Own(Common, Impl):\n    def forward(self, q):\n        return self.step(1)\n"
    ),
    "plugin/caller.py": (
        "from plugin.fa import fa\n\n\ndef run(q, out):\n"
        "    return fa(q, q, q, q, q, 1, 1, out=out)\n"
    ),
    "plugin/alone.py": "def f():\n    return 1\n",
    "requirements.txt": "flash_attn==2.8.3\n",
}
# Each edit with whether files that did not change have to be looked into again.
EDITS = {
    "nothing": {},
    "a body": {"plugin/alone.py": "def f():\n    return 2\n"},
    "a line above what others see": {"plugin/base.py": "\n\n" + TREE["plugin/base.py"]},
    "a signature that others call": {
        "plugin/base.py": TREE["plugin/base.py"].replace("one", "a, b")
    },
    "a name that goes": {"plugin/base.py": "class Other: ...\n"},
    "an alias that leads elsewhere": {"plugin/fa.py": "def fa(*args, **kwargs): ...\n"},
    "a new call": {"plugin/alone.py": "from plugin.fa import fa\n\nfa(1, fa_version=2)\n"},
    "an attribute set from outside": {"plugin/alone.py": "def f(x):\n    x.late = 1\n"},
    "another pin": {"requirements.txt": "flash_attn==2.6.3+metax3.8.2.2torch2.10\n"},
    "a file more": {"plugin/more.py": "import vllm.gone\n"},
    "a file less": {"plugin/base.py": None},
    "a file that does not parse": {"plugin/base.py": "def (\n"},
    "a suppression": {
        "plugin/user.py": TREE["plugin/user.py"].replace(
            "(self, q):", "(self, q):  # attngate: ignore[ATT203] a test"
        )
    },
}


@pytest.fixture
def options(tmp_path: Path) -> CheckOptions:
    for path, text in TARGET.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    return CheckOptions(target=TargetTree(str(tmp_path), "1.0"), ignore=frozenset(["ATT208"]))


def told(result: CheckResult) -> tuple[object, ...]:
    return result.findings, result.suppressed, result.calls, result.inspected, result.not_checked


def edited(changes: dict[str, str | None]) -> dict[str, str]:
    return {p: t for p, t in (TREE | changes).items() if t is not None}


@pytest.mark.parametrize("name", EDITS)
def test_a_remembered_check_says_what_a_new_one_says(
    name: str, options: CheckOptions, make_snapshot: Callable[..., Snapshot]
) -> None:
    memory = Memory()
    first = check(make_snapshot(TREE), options, memory)
    assert told(first) == told(check(make_snapshot(TREE), options))
    assert {f.code for f in first.findings} >= {"ATT101", "ATT203"}
    memory = Memory.decode(memory.encode())
    tree = make_snapshot(edited(EDITS[name]))
    assert told(check(tree, options, memory)) == told(check(tree, options))
    again = Memory.decode(memory.encode())
    back = make_snapshot(TREE)
    assert told(check(back, options, again)) == told(first)


def test_every_edit_after_every_other_one(
    options: CheckOptions, make_snapshot: Callable[..., Snapshot]
) -> None:
    memory = Memory()
    for one in EDITS.values():
        for other in EDITS.values():
            tree = make_snapshot(edited(one | other))
            assert told(check(tree, options, memory)) == told(check(tree, options))


def test_what_did_not_change_is_not_read_again(
    options: CheckOptions, make_snapshot: Callable[..., Snapshot]
) -> None:
    memory = Memory()
    check(make_snapshot(TREE), options, memory)
    tree = make_snapshot(edited(EDITS["a body"]))
    read: list[str] = []

    def reading(oid: str) -> bytes | None:
        read.append(oid)
        return tree.read(oid)

    check(replace(tree, read=reading), options, Memory.decode(memory.encode()))
    assert set(read) <= {tree.files[b"plugin/alone.py"].oid, tree.files[b"requirements.txt"].oid}


def test_a_memory_of_other_bytes_is_refused() -> None:
    import msgspec

    with pytest.raises(msgspec.DecodeError):
        Memory.decode(b"anything")


def test_configured_builds_are_not_taken_from_a_memory_of_pins(
    options: CheckOptions, make_snapshot: Callable[..., Snapshot]
) -> None:
    tree = make_snapshot(TREE)
    metax = Build("2.6.3+metax3.8.2.2torch2.10", "configured")
    configured = replace(options, builds={"flash_attn": metax})
    assert told(check(tree, configured, Memory())) == told(check(tree, configured))
