from __future__ import annotations

from importlib import resources

import pytest

from attngate.validators.contracts.basis import is_generation
from attngate.validators.contracts.load import (
    all_builds,
    families,
    parse,
    shown_builds,
    target_families,
)
from attngate.validators.model import Level

RAW = (resources.files("attngate.validators.contracts") / "flash_attn.toml").read_bytes().decode()


def test_both_entry_points_are_recorded_for_every_generation_that_has_them() -> None:
    names = {
        (b.component, b.local): {e.name for e in b.entries} for b in families()["flash_attn"].builds
    }
    both = {"flash_attn_varlen_func", "flash_attn_with_kvcache"}
    assert names == {
        ("flash_attn", "metax"): both,
        ("flash_attn", ""): both,
        ("vllm_flash_attn", ""): {"flash_attn_varlen_func"},
        ("flash_attn_3", ""): both,
    }


def test_what_was_seen_on_a_device_is_recorded_and_nothing_more() -> None:
    for build in all_builds():
        for seen in build.observations:
            on_device = seen.device != "none"
            assert seen.level is (Level.RECORDED if on_device else Level.SOURCE_INSPECTED)
            assert seen.builds
            assert seen.date.startswith("2026-")


def test_returns_end_with_the_row_that_is_left() -> None:
    for entry in (e for b in all_builds() for e in b.entries):
        conditional = [bool(row.when) for row in entry.returns]
        assert conditional in ([True, False], [False], [])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            'seen = "varlen-returns"',
            'seen = "nothing"',
            r"metax-2\.flash_attn_varlen_func: no observation \['nothing'\]",
        ),
        (
            "when = { return_attn_probs = true }",
            "when = { lost = true }",
            r"no parameter \['lost'\]",
        ),
        ('level = "recorded"', 'level = "certain"', "Invalid enum value 'certain'"),
        ('device = "MetaX C500"', 'gpu = "MetaX C500"', "unknown field `gpu`"),
        ('"q, k, v, cu_seqlens_q', '"q, k, v, 1', "not a parameter list"),
    ],
)
def test_a_contract_that_does_not_hold_together_is_refused(old: str, new: str, words: str) -> None:
    assert old in RAW
    with pytest.raises(ValueError, match=words):
        parse(RAW.replace(old, new).encode(), "flash_attn.toml")


def test_a_build_takes_over_what_another_one_has() -> None:
    builds = {build.id: build for build in all_builds()}
    newer, older = builds["metax-flashinfer-0.2"], builds["metax-flashinfer-0.2-stream"]
    plan = "BatchPrefillWithPagedKVCacheWrapper.plan"
    assert older.entry(plan) == newer.entry(plan)
    compiled = "BatchDecodeWithPagedKVCacheWrapper._cached_module.plan"
    counts = [len(b.entry(compiled).signature.parameters) for b in (older, newer)]  # type: ignore[union-attr]
    assert counts == [16, 15]
    lost = RAW.replace('local = "metax"', 'local = "metax"\nlike = "nothing"', 1)
    with pytest.raises(ValueError, match="metax-2 is like nothing, which is no build"):
        parse(lost.encode(), "flash_attn.toml")


def test_what_a_layout_speaks_of_is_a_parameter_or_comes_back() -> None:
    wrong = RAW.replace("complete = false", 'complete = false\nunits = { lost = "rows" }', 1)
    with pytest.raises(ValueError, match=r"no parameter or returned value \['lost'\]"):
        parse(wrong.encode(), "flash_attn.toml")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.0.1+metax3.2.1.3torch2.6", ["metax-mla-1-length"]),
        ("1.0.1+metax3.3.0.2torch2.8", ["metax-mla-1"]),
        ("1.0.1+metax3.10.0torch2.10", ["metax-mla-1-object"]),
        ("1.0.0", ["flashmla-2025-04", "flashmla-2025-10", "flashmla-2026-01"]),
        ("0.9+metax3.3", []),
    ],
)
def test_the_number_behind_a_vendor_tells_generations_apart(
    version: str, expected: list[str]
) -> None:
    builds = families()["flash_mla"].builds
    assert [b.id for b in builds if is_generation(b, version)] == expected


def test_operators_of_the_target_are_shown_and_are_no_component() -> None:
    (operators,) = target_families().values()
    assert operators.builds[0] in shown_builds()
    assert operators.builds[0] not in all_builds()
