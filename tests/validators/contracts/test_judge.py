from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from attngate.validators.check import check
from attngate.validators.model import Build, CallVerdict, CheckOptions, Level, Severity

if TYPE_CHECKING:
    from collections.abc import Callable

    from attngate.validators.model import ContractCall, Snapshot

# The calls use names such as q without saying where they come from.
NAMES = frozenset(["ATT208"])
METAX = "2.6.3+metax3.8.2.2torch2.10"
BAD = "from flash_attn import flash_attn_varlen_func as f\n\nf(a, a, a, a, a, a, a, out=a)\n"


def calls_of(
    make_snapshot: Callable[..., Snapshot], text: str, **builds: str
) -> tuple[ContractCall, ...]:
    known = {name: Build(version, "configured") for name, version in builds.items()}
    return check(make_snapshot({"a.py": text}), CheckOptions(ignore=NAMES, builds=known)).calls


@pytest.mark.parametrize(
    ("version", "severity", "words"),
    [
        (
            METAX,
            Severity.ERROR,
            f"contract metax-2: recorded 2026-09-20 on MetaX C500, {METAX}; expected {METAX}",
        ),
        (
            "2.6.3+metax3.8.0.7torch2.10",
            Severity.WARNING,
            "due for revalidation on 2.6.3+metax3.8.0.7torch2.10",
        ),
        (
            "2.7.4.post1+cu12torch2.6cxx11abiFALSE",
            Severity.ERROR,
            "contract upstream-2: source-inspected",
        ),
        ("2.7.4", Severity.WARNING, "due for revalidation on 2.7.4 (configured)"),
        ("2.0.1", Severity.WARNING, "all of: contract metax-2"),
        ("built here", Severity.WARNING, "due for revalidation on built here"),
    ],
)
def test_the_expected_build_decides_the_weight(
    make_snapshot: Callable[..., Snapshot], version: str, severity: Severity, words: str
) -> None:
    options = CheckOptions(ignore=NAMES, builds={"flash_attn": Build(version, "configured")})
    (finding,) = check(make_snapshot({"a.py": BAD}), options).findings
    assert (finding.code, finding.severity) == ("ATT101", severity)
    assert words in finding.origin


def test_without_any_build_all_recorded_ones_must_agree(
    make_snapshot: Callable[..., Snapshot],
) -> None:
    (finding,) = check(make_snapshot({"a.py": BAD}), CheckOptions(ignore=NAMES)).findings
    assert finding.severity is Severity.WARNING
    assert "no build of flash_attn is known here" in finding.origin
    (call,) = calls_of(make_snapshot, BAD.replace("out=a", "s_aux=a"))
    assert call.verdict is CallVerdict.UNKNOWN
    assert call.reason.startswith("it depends on the build: upstream-2 refuses it")


def test_two_pins_must_agree(make_snapshot: Callable[..., Snapshot]) -> None:
    pins = {
        "requirements/maca.txt": f"flash_attn=={METAX}\n",
        "requirements/cuda.txt": "flash-attn==2.8.3\n",
    }
    sinks = BAD.replace("out=a", "s_aux=a")
    result = check(make_snapshot({**pins, "a.py": BAD, "b.py": sinks}), CheckOptions(ignore=NAMES))
    assert [(f.location.path, f.severity) for f in result.findings] == [("a.py", Severity.ERROR)]
    assert "pinned in requirements/cuda.txt line 1" in result.findings[0].origin
    assert [c.verdict for c in result.calls] == [CallVerdict.VIOLATES, CallVerdict.UNKNOWN]


def test_a_configured_build_goes_before_the_pins(make_snapshot: Callable[..., Snapshot]) -> None:
    tree = make_snapshot({"requirements.txt": "flash-attn==2.8.3\n", "a.py": BAD})
    options = CheckOptions(ignore=NAMES, builds={"flash_attn": Build(METAX, "configured")})
    assert check(tree, options).findings[0].level is Level.RECORDED
    assert check(tree, CheckOptions(ignore=NAMES)).findings[0].level is Level.SOURCE_INSPECTED


@pytest.mark.parametrize(
    ("text", "entry", "verdict", "reason"),
    [
        (
            "from flash_attn import flash_attn_varlen_func as f\nf(q, q, q, c, c, n, n)",
            "flash_attn.flash_attn_varlen_func",
            CallVerdict.CONFORMS,
            "dtypes, shapes and head sizes are not visible",
        ),
        (
            "from flash_attn import flash_attn_with_kvcache as f\nf(q, q, q, s_aux=s)",
            "flash_attn.flash_attn_with_kvcache",
            CallVerdict.UNKNOWN,
            "`s_aux` is not recorded for flash_attn_with_kvcache",
        ),
        (
            "from flash_attn import flash_attn_varlen_func as f\nf(*args)",
            "flash_attn.flash_attn_varlen_func",
            CallVerdict.UNKNOWN,
            "`*args`",
        ),
        (
            "from vllm.v1.attention.backends.fa_utils import flash_attn_varlen_func as f\nf(out=q)",
            "vllm.v1.attention.backends.fa_utils.flash_attn_varlen_func",
            CallVerdict.UNKNOWN,
            "vllm decides by platform",
        ),
        (
            "from flash_attn.cute import flash_attn_varlen_func as f\nf(out=q)",
            "flash_attn.cute.flash_attn_varlen_func",
            CallVerdict.UNKNOWN,
            "does not make it FA2",
        ),
        (
            "def g(flash_attn_varlen_func):\n    flash_attn_varlen_func(out=1)",
            "flash_attn_varlen_func",
            CallVerdict.UNKNOWN,
            "no caller in the tree passes it",
        ),
        (
            "from functools import partial\nfrom flash_attn import flash_attn_varlen_func as f\np = partial(f, out=1)",
            "flash_attn.flash_attn_varlen_func",
            CallVerdict.UNKNOWN,
            "a partial application that binds `out`",
        ),
        (
            "try:\n    from flash_attn import flash_attn_varlen_func as f\nexcept ImportError:\n    f = other()\nf(out=1)",
            "flash_attn.flash_attn_varlen_func",
            CallVerdict.UNKNOWN,
            "as flash_attn.flash_attn_varlen_func it would break the contract",
        ),
        (
            "try:\n    from flash_attn import flash_attn_varlen_func as f\nexcept ImportError:\n    f = None\nf(q, q, q, c, c, n, n)",
            "flash_attn.flash_attn_varlen_func",
            CallVerdict.CONFORMS,
            "agree",
        ),
    ],
)
def test_every_call_has_a_verdict_with_its_reason(
    make_snapshot: Callable[..., Snapshot], text: str, entry: str, verdict: CallVerdict, reason: str
) -> None:
    (call,) = calls_of(make_snapshot, text, flash_attn=METAX)
    assert (call.entry, call.verdict) == (entry, verdict)
    assert reason in call.reason


def test_a_conforming_call_claims_no_more_than_its_weakest_part(
    make_snapshot: Callable[..., Snapshot],
) -> None:
    text = "from flash_attn import flash_attn_varlen_func as f\nf(q, q, q, c, c, n, n)"
    (call,) = calls_of(make_snapshot, text, flash_attn=METAX)
    assert call.level is Level.RECORDED
    assert "not seen on it: upstream-base (2.6.3)" in call.origin
    (call,) = calls_of(make_snapshot, text, flash_attn="2.8.3")
    assert call.level is Level.SOURCE_INSPECTED


def test_the_same_tree_gives_the_same_result(make_snapshot: Callable[..., Snapshot]) -> None:
    files = {"a.py": BAD, "b.py": BAD.replace("out=a", "fa_version=2")}
    results = [
        check(make_snapshot(dict(order)), CheckOptions(ignore=NAMES))
        for order in (files.items(), reversed(files.items()))
    ]
    assert results[0] == results[1]
