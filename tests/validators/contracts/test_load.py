from __future__ import annotations

from importlib import resources

import pytest

from attngate.validators.contracts.load import all_builds, families, parse
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
