from __future__ import annotations

import json
import subprocess
import sys

from attngate.validators.contracts.load import shown_builds


def attngate(*args: str) -> subprocess.CompletedProcess[str]:
    code = "from attngate.hooks.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-I", "-c", code, *args], check=False, capture_output=True, text=True
    )


def test_lists_every_build_on_a_line() -> None:
    listed = attngate("contracts", "list")
    assert listed.returncode == 0
    ids = [line.split()[0] for line in listed.stdout.splitlines()]
    assert ids == [build.id for build in shown_builds()]
    assert {"metax-2", "vllm-variant", "metax-mla-1", "metax-flashinfer-0.2"} <= set(ids)


def test_shows_a_build_with_where_and_when_it_was_seen() -> None:
    shown = attngate("contracts", "show", "metax-2").stdout
    assert "sinks (recorded, 2026-09-20, 2.6.3+metax3.8.2.2torch2.10, on MetaX C500)" in shown
    assert "refuses     out:" in shown
    assert "unrecorded  s_aux" in shown
    by_entry = json.loads(
        attngate("contracts", "show", "flash_attn_with_kvcache", "--format", "json").stdout
    )
    assert [build["id"] for build in by_entry] == ["metax-2", "upstream-2", "fa3"]


def test_an_unknown_contract_is_a_usage_error() -> None:
    unknown = attngate("contracts", "show", "fa9")
    assert unknown.returncode == 2
    assert "metax-2" in unknown.stderr
    assert attngate("contracts", "show").returncode == 2


def test_tells_what_a_call_has_to_change_between_two_builds() -> None:
    text = attngate("contracts", "diff", "metax-2", "vllm-variant").stdout
    assert "parameter  return_softmax_lse is new" in text
    assert "refused    out is no longer refused" in text
    assert "order      (q, k, v, cu_seqlens_q, cu_seqlens_k" in text
    assert (
        "returns    3 (return_attn_probs=True); 1 (otherwise) became 2 (return_softmax_lse=True)"
        in text
    )
    assert "entry      only the first has it" in text
    assert "nothing differs" in attngate("contracts", "diff", "fa3", "fa3").stdout
    data = json.loads(
        attngate(
            "contracts", "diff", "flashmla-2025-10", "flashmla-2026-01", "--format", "json"
        ).stdout
    )
    lse = [d["text"] for d in data["differences"] if d["what"] == "lse"]
    assert lse == ["[q, heads] base 2, empty -inf became [q, heads] base e, empty +inf"]
    mla = attngate("contracts", "diff", "flashmla-2025-04", "flashmla-2026-01").stdout
    assert "returns    tile_scheduler_metadata: a tensor became FlashMLASchedMeta" in mla
    heads = attngate("contracts", "diff", "flashmla-2025-04", "flashmla-2025-10").stdout
    assert "renamed    num_heads_per_head_k became num_q_tokens_per_head_k" in heads
    gemm = attngate("contracts", "diff", "deep-gemm-2.5", "metax-deep-gemm").stdout
    assert (
        "rows       num_sms + 1 became get_num_blocks_paged_mqa_logits_metadata(num_sms) + 1"
        in gemm
    )


def test_shows_what_no_signature_says() -> None:
    shown = attngate("contracts", "show", "vllm-ops").stdout
    assert "takes lse   prefix_lse: [heads, tokens], base e" in shown
    assert "base 2 where is_lse_base_on_e is false" in shown
    assert "unit        slot_mapping: slots: page * page size + offset" in shown
    assert "writes to   key_cache" in shown
    assert (
        "local versions that begin with metax from 3.3 on before 3.8"
        in attngate("contracts", "show", "metax-mla-1").stdout
    )


def test_a_difference_is_between_two_known_builds() -> None:
    assert attngate("contracts", "diff", "fa3").returncode == 2
    unknown = attngate("contracts", "diff", "fa3", "fa9")
    assert unknown.returncode == 2
    assert "there is no build fa9" in unknown.stderr
