"""`attngate check --previous-target` on real commits of a plugin that follows two releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.hooks.conftest import HookRun, Lab

OLD = '''"""FlashMLA of the target."""
import ops


def get_mla_metadata(cache_seqlens, num_heads_per_head_k, num_heads_k):
    return ops.get_mla_metadata(cache_seqlens, num_heads_per_head_k, num_heads_k)


class IndexerBackend:
    block_size = 64


class OtherBackend:
    pass
'''
NEW = '''"""FlashMLA of the target."""
import ops


def get_mla_metadata(cache_seqlens, num_q_tokens_per_head_k, num_heads_k, topk=None):
    return ops.get_mla_decoding_metadata(cache_seqlens, num_q_tokens_per_head_k, num_heads_k, topk)


class IndexerBackend:
    block_size = 64
    supports_topk = True


class OtherBackend:
    pass
'''
OWN = '''"""FlashMLA of the target."""
import flash_mla


def get_mla_metadata(cache_seqlens, num_heads_per_head_k, num_heads_k):
    # /------------------------  Maca Modification -------------------------\\
    return flash_mla.interface.get_mla_metadata(cache_seqlens, num_heads_per_head_k, num_heads_k)
    # \\------------------------- Maca Modification -------------------------/


class MacaIndexerBackend:
    block_size = 64
'''
LOST = "vllm_maca/flashmla.py:6:1: warning ATT231 sync-loss"
DROPPED = "vllm_maca/flashmla.py:9:1: warning ATT232 sync-dropped"


@pytest.fixture
def synced(lab: Lab, tmp_path: Path) -> Lab:
    """A plugin made from release 1.0, committed, and copied over from 1.1 in the work tree."""
    for version, text in (("1.0", OLD), ("1.1", NEW)):
        package = tmp_path / f"vllm-{version}" / "vllm"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "flashmla.py").write_text(text)
    lab.env["ATTNGATE_UPSTREAM"] = str(tmp_path / "vllm-1.1")
    lab.new()
    lab.write("vllm_maca/__init__.py", "")
    lab.write("vllm_maca/flashmla.py", OWN)
    lab.write("vllm_maca/other.py", "class MacaOtherBackend:\n    pass\n")
    lab.write("vllm_maca/model.py", 'BACKEND = "vllm_maca.flashmla:MacaIndexerBackend"\n')
    lab.commit("made from 1.0")
    lab.write("vllm_maca/flashmla.py", NEW)
    return lab


def check(lab: Lab, *options: str) -> HookRun:
    return lab.attngate("check", *options)


def test_the_index_is_compared_with_head(synced: Lab) -> None:
    synced.git("add", ".")
    done = check(synced, "--previous-target", "1.0")
    assert LOST in done.output
    assert "`return flash_mla.interface.get_mla_metadata(" in done.output
    assert "by vllm_maca/flashmla.py line 7 of commit" in done.output
    assert DROPPED in done.output
    assert "the class name MacaIndexerBackend: it is IndexerBackend again" in done.output


def test_a_revision_is_compared_with_its_first_parent_or_with_what_is_named(synced: Lab) -> None:
    synced.commit("follow 1.1")
    assert LOST in check(synced, "--rev", "HEAD", "--previous-target", "1.0").output
    synced.write("README", "more\n")
    synced.commit("say more")
    assert LOST not in check(synced, "--rev", "HEAD", "--previous-target", "1.0").output
    named = check(synced, "--rev", "HEAD", "--previous-target", "1.0", "--sync-base", "HEAD~2")
    assert LOST in named.output


def test_warnings_block_only_where_they_are_asked_to(synced: Lab) -> None:
    synced.write("vllm_maca/model.py", "# MacaIndexerBackend is asked for by its name\n")
    synced.git("add", ".")
    options = ("--previous-target", "1.0")
    assert check(synced, *options).code == 0
    assert check(synced, *options, "--strict").code == 1


def test_what_was_carried_over_is_not_listed(synced: Lab) -> None:
    kept = NEW.replace(
        "ops.get_mla_decoding_metadata(cache_seqlens, num_q_tokens_per_head_k, num_heads_k, topk)",
        "flash_mla.interface.get_mla_metadata(cache_seqlens, num_q_tokens_per_head_k, num_heads_k)",
    )
    kept = kept.replace("class Indexer", "class MacaIndexer").replace(
        "\n\n\n", "\nimport flash_mla\n\n\n", 1
    )
    synced.write("vllm_maca/flashmla.py", kept)
    synced.git("add", ".")
    done = check(synced, "--previous-target", "1.0")
    assert "ATT23" not in done.output
    assert "nothing blocks" in done.output


def test_nothing_to_compare_is_said(synced: Lab) -> None:
    synced.commit("follow 1.1")
    done = check(synced, "--previous-target", "1.0")
    assert (
        "has the same tree, so that nothing can be lost; --sync-base names another" in done.output
    )


def test_half_a_question_is_refused(synced: Lab, tmp_path: Path) -> None:
    missing = check(synced, "--previous-target", "0.9")
    assert missing.code == 2
    assert f"no package vllm in {tmp_path}/vllm-0.9" in missing.output
    alone = check(synced, "--sync-base", "HEAD")
    assert alone.code == 2
    assert "add --previous-target PATH_OR_VERSION" in alone.output
    first = check(synced, "--rev", "HEAD~1", "--previous-target", "1.0")
    assert first.code == 2
    assert "HEAD~1 has no parent" in first.output
    assert "add --sync-base REV" in first.output
    synced.env.pop("ATTNGATE_UPSTREAM")
    without = check(synced, "--previous-target", f"{tmp_path}/vllm-1.0")
    assert without.code == 2
    assert "there is no target of now to compare with" in without.output
