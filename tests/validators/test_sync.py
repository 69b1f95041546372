from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

from attngate.validators.check import check, context_of
from attngate.validators.model import CheckOptions
from attngate.validators.modifications import Comparison, Copy, Hand
from attngate.validators.source import read_source
from attngate.validators.sync import losses
from attngate.validators.target import TargetTree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from attngate.validators.model import Snapshot
    from attngate.validators.modifications import Loss

BUILDER = """
class Builder:
    def __init__(self, sms: int, device):
        self.buffer = empty(sms + 1, device)
        self.cascade = True

    def build(self, common):
        return Metadata(common)
"""
NEXT = BUILDER.replace("self.cascade = True", "self.cascade = True\n        self.topk = 4")


def lost(base: str, now: str, previous: str = BUILDER, target: str = NEXT) -> list[Loss]:
    """Losses of one file whose plugin is called Maca and has `metadata_rows` of its own."""
    hand = Hand(re.compile("maca", re.IGNORECASE), frozenset(["metadata_rows"]))
    texts = [textwrap.dedent(text).encode() for text in (previous, base, target, now)]
    prefixes = ("", "Maca", "", "Maca")
    copies = [Copy(read_source(t), p) for t, p in zip(texts, prefixes, strict=True)]
    return list(Comparison(*copies, hand).losses())


def changed(old: str, new: str, text: str = BUILDER) -> str:
    assert old in text
    return text.replace(old, new)


def test_a_lost_change_names_what_was_lost_what_is_back_and_where() -> None:
    base = changed("empty(sms + 1, device)", "empty(metadata_rows(sms), device)")
    (loss,) = lost(base, NEXT)
    assert loss.lost == ("self.buffer = empty(metadata_rows(sms), device)",)
    assert loss.back == ("self.buffer = empty(sms + 1, device)",)
    assert (loss.line, loss.base_line) == (4, 4)


def test_what_the_plugin_still_has_is_not_lost() -> None:
    base = changed("empty(sms + 1, device)", "empty(metadata_rows(sms), device)")
    kept = changed("empty(sms + 1, device)", "empty(metadata_rows(sms), device)", NEXT)
    assert lost(base, kept) == []
    otherwise = changed("empty(sms + 1, device)", "empty(metadata_rows(2 * sms), device)", NEXT)
    assert lost(base, otherwise) == []


def test_what_the_target_has_taken_over_is_not_lost() -> None:
    base = changed("empty(sms + 1, device)", "empty(metadata_rows(sms), device)")
    taken = changed("empty(sms + 1, device)", "empty(metadata_rows(sms), device)", NEXT)
    assert lost(base, NEXT, target=taken) == []


def test_layout_comments_annotations_and_the_prefix_do_not_count() -> None:
    base = changed("class Builder:", "class MacaBuilder:")
    base = changed("sms: int, device", "sms, device: str", base)
    base = changed("self.cascade = True", "self.cascade: bool = (\n  True)  # Maca: as it is", base)
    assert lost(base, changed("class Builder:", "class MacaBuilder:", NEXT)) == []


def test_text_that_nothing_claims_is_another_state_of_the_target() -> None:
    base = changed("self.cascade = True", "self.cascade = sms > 1")
    assert lost(base, NEXT) == []
    base = changed("self.cascade = True", "self.cascade = sms > 1  # Maca")
    assert [loss.lost for loss in lost(base, NEXT)] == [("self.cascade = sms > 1",)]


def test_a_closing_comment_claims_nothing_below_it() -> None:
    around = """
        # ┌--- Maca Modification ---┐
        self.rows = metadata_rows(sms)
        # └--- Maca Modification ---┘
        self.cascade = {}"""
    base = changed("\n        self.cascade = True", around.format("sms > 1"))
    now = changed("\n        self.cascade = True", around.format("True"), NEXT)
    assert lost(base, now) == []


def test_an_unclosed_comment_claims_a_few_lines_only() -> None:
    head = "# /--- Maca Modification ---\\\nimport flash\n\nx = 1\n\n\n"
    base = head + changed("Metadata(common)", "Metadata(common, 1)")
    assert lost(base, head + NEXT) == []


def test_the_same_words_are_one_loss() -> None:
    base = changed("empty(sms + 1, device)", "empty(sms + metadata_rows(), device)")
    base = changed("Metadata(common)", "Metadata(common, metadata_rows())", base)
    (loss,) = lost(base, NEXT)
    assert loss.more == 1


def test_a_rewritten_function_that_no_longer_holds_the_change() -> None:
    base = changed("return Metadata(common)", "return Metadata(metadata_rows(common))")
    target = changed("def build(self, common):", "def build(self, common, topk=None):")
    target = changed("return Metadata(common)", "return Metadata(common, topk)", target)
    (loss,) = lost(base, target, target=target)
    assert loss.back == ("return Metadata(common, topk)",)
    assert loss.line == 8
    gone = changed("def build(", "def make(", target)
    assert lost(base, gone, target=gone) == []


def test_a_deletion_is_lost_when_all_of_it_is_back() -> None:
    base = changed("self.cascade = True", "# Maca: no cascade")
    (loss,) = lost(base, NEXT)
    assert (loss.lost, loss.back[0], loss.line) == ((), "self.cascade = True", 5)
    claimed = changed("self.cascade = True", "# Maca: works now\n        self.cascade = True", NEXT)
    assert lost(base, claimed) == []


def test_files_without_statements_have_nothing_to_lose() -> None:
    assert lost("", "") == []
    assert lost("", NEXT) == []
    assert lost("# Maca: nothing of it\n", "") == []


def tree_losses(
    snapshot: Callable[..., Snapshot], folder: Path, base: Mapping[str, str], now: Mapping[str, str]
) -> list[tuple[str, str]]:
    """(file now, file before) of the losses between two trees of a plugin."""
    for name, text in (("previous", BUILDER), ("target", NEXT)):
        package = folder / name / "vllm"
        (package / "ops").mkdir(parents=True)
        for path in ("__init__.py", "ops/__init__.py"):
            (package / path).write_text("")
        (package / "ops/builder.py").write_text(text)
    options = CheckOptions(
        previous=TargetTree(str(folder / "previous")),
        sync_base=snapshot(base),
        target=TargetTree(str(folder / "target")),
    )
    context = context_of(snapshot(now), options)
    return [(found.path, found.base_path) for found in losses(context)]


PLUGIN = {"vllm_maca/__init__.py": "", "vllm_maca/rows.py": "def metadata_rows(n):\n    return n\n"}
OWN = "from vllm_maca.rows import metadata_rows\n" + changed(
    "empty(sms + 1, device)", "empty(metadata_rows(sms), device)"
)


def test_a_file_that_the_sync_moved_is_compared_with_what_it_was(
    make_snapshot: Callable[..., Snapshot], tmp_path: Path
) -> None:
    base = PLUGIN | {"vllm_maca/old/builder.py": OWN}
    now = PLUGIN | {"vllm_maca/ops/builder.py": NEXT}
    assert tree_losses(make_snapshot, tmp_path, base, now) == [
        ("vllm_maca/ops/builder.py", "vllm_maca/old/builder.py")
    ]


def test_a_change_that_is_now_in_another_file_is_not_lost(
    make_snapshot: Callable[..., Snapshot], tmp_path: Path
) -> None:
    base = PLUGIN | {"vllm_maca/ops/builder.py": OWN}
    now = PLUGIN | {"vllm_maca/ops/builder.py": NEXT, "vllm_maca/base.py": OWN}
    assert tree_losses(make_snapshot, tmp_path / "moved", base, now) == []
    now = PLUGIN | {"vllm_maca/ops/builder.py": NEXT, "tools/base.py": OWN}
    assert tree_losses(make_snapshot, tmp_path / "tool", base, now) == [
        ("vllm_maca/ops/builder.py", "vllm_maca/ops/builder.py")
    ]


def test_a_file_that_does_not_parse_is_left_to_the_syntax_rule(
    make_snapshot: Callable[..., Snapshot], tmp_path: Path
) -> None:
    base = PLUGIN | {"vllm_maca/ops/builder.py": OWN + "def broken(:\n"}
    now = PLUGIN | {"vllm_maca/ops/builder.py": NEXT}
    assert tree_losses(make_snapshot, tmp_path / "base", base, now) == []
    assert tree_losses(make_snapshot, tmp_path / "now", now, base) == []


def test_no_sync_no_losses(make_snapshot: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text("")
    snapshot = make_snapshot({"plugin/__init__.py": "x = 1\n"})
    target = TargetTree(str(tmp_path))
    result = check(snapshot, CheckOptions(target=target, previous=target))
    assert result.findings == ()
    assert losses(context_of(snapshot, CheckOptions(target=target, sync_base=snapshot))) == ()


def test_statements_that_the_target_has_elsewhere_do_not_speak_for_a_change() -> None:
    own = """# /--- Maca ---\\
        if common.split:
            self.rows = metadata_rows(common)
            return Metadata(common)
        # \\--- Maca ---/
        return Metadata(common)"""
    (loss,) = lost(changed("return Metadata(common)", own), NEXT)
    assert loss.lost == ("if common.split:", "self.rows = metadata_rows(common)")


def test_a_value_of_the_module_that_nothing_asks_for_is_not_missed() -> None:
    own = "is_own = False  # Maca\n" + BUILDER
    assert lost(own, NEXT) == []
    asks = NEXT.replace("self.topk = 4", "self.topk = 4 if is_own else 8")
    assert [loss.lost for loss in lost(own, asks, target=asks)] == [("is_own = False",)]


def test_a_method_is_the_plugins_by_a_comment_inside_it() -> None:
    own = """
    def forward_oot(self, x):
        # Maca: no kernel for it
        raise NotImplementedError
"""
    (loss,) = lost(BUILDER + own, NEXT)
    assert (loss.lost, loss.whole, loss.line) == (("forward_oot",), True, 2)
    assert lost(BUILDER + own.replace("Maca: ", ""), NEXT) == []


def test_text_commented_out_claims_what_stands_below_it() -> None:
    old = changed(
        "return Metadata(common)", "rows = rows_of(common)\n        return Metadata(rows)"
    )
    head = "def build(self, common):\n        rows = of_a_state_between(common)\n"
    head += "        # return Metadata(rows)\n        return Metadata(2 * rows)"
    base = changed("def build(self, common):\n        return Metadata(common)", head)
    (loss,) = lost(base, old, previous=old, target=old)
    assert loss.lost == ("return Metadata(2 * rows)",)
