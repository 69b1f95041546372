"""The table of cases of the suite flash_attn_varlen.

Each line is there for faults that others do not show; lengths lie at the seams of tiles (16, 64, 128)
and pages. Small on purpose: a wrong kernel is wrong at 65 keys as well as at 65 thousand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attngate.gpu_runner.worker import registry
from attngate.gpu_runner.worker.suites import _options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Lengths = tuple[tuple[int, int], ...]
"""(query rows, keys) of each request."""

HEAD_DIMS = ((64, 64), (128, 128), (96, 96), (80, 80))
GROUPS = (1, 2, 3, 4, 5, 6, 7, 8, 17)
PAGE_SIZES = {"flash_attn": (256,), "vllm": (16,)}

MIXED: Lengths = ((17, 17), (1, 40), (0, 0), (33, 65), (5, 0), (0, 7), (64, 64))
NO_KEYS: Lengths = ((5, 0), (7, 3), (0, 9), (1, 0), (40, 17))
DECODE: Lengths = tuple(
    (1, sk) for sk in (1, 0, 15, 16, 17, 63, 64, 65, 2, 127, 128, 129, 3, 33, 40, 95, 96, 97)
)
DRAFTS: Lengths = ((2, 33), (3, 64), (4, 129), (2, 2), (1, 65), (3, 3))
SEAMS: Lengths = (
    (15, 15),
    (16, 16),
    (17, 17),
    (63, 63),
    (64, 64),
    (65, 65),
    (127, 127),
    (129, 129),
)
OFFSET: Lengths = ((40, 40), (33, 70), (1, 90), (20, 9), (65, 130))
CONTEXT: Lengths = ((40, 40), (20, 64), (1, 63), (64, 64))
SQUARE: Lengths = ((17, 17), (64, 64), (1, 1), (33, 33))
SHORT: Lengths = ((19, 19), (1, 40), (2, 17))


@dataclass(frozen=True)
class Plan:
    """One line of the table.

    Attributes:
        name: First part of the case's id.
        lengths: (query rows, keys) of each request.
        recipe: Name of the inputs in `inputs.RECIPES`.
        hq: Query heads; 0 for the target's main group over two KV heads.
        hk: KV heads.
        d: Head dim of Q and K; 0 for the target's first.
        dv: Head dim of V.
        causal: Bottom-right causal mask.
        window: (left, right), -1 for no limit.
        softcap: 0 for none.
        scale: 0 leaves the argument out.
        alibi: "h" for slopes [Hq], "bh" for [B, Hq], "" for none.
        sinks: Give s_aux.
        page: Page size, 0 for flat K and V.
        layout: "plain", "fused" (q, k, v slices of one row), "kv-pair", "padded-heads", or for pages
            "together" (K and V of a page side by side).
        with_lse: Ask for the LSE.
        out_given: Pass `out`.
        surplus: By how much max_seqlen_q and max_seqlen_k are larger than the longest request.
        other_gaps: The second call has equal contents and other poison in the gaps; its results must
            be equal bit for bit.
        tier: Smallest tier.
    """

    name: str
    lengths: Lengths
    recipe: str = "normal"
    hq: int = 0
    hk: int = 2
    d: int = 0
    dv: int = 0
    causal: bool = True
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    scale: float = 0.0
    alibi: str = ""
    sinks: bool = False
    page: int = 0
    layout: str = "plain"
    with_lse: bool = True
    out_given: bool = False
    surplus: int = 0
    other_gaps: bool = False
    tier: str = "default"

    def needs(self) -> tuple[str, ...]:
        """Features of the signature that the call uses."""
        wanted = {
            "softcap": self.softcap > 0,
            "alibi_slopes": bool(self.alibi),
            "s_aux": self.sinks,
            "block_table": self.page > 0,
            "return_lse": self.with_lse,
            "out": self.out_given,
        }
        return tuple(name for name, used in wanted.items() if used)


BASIC = (
    Plan("dense", ((64, 64), (33, 65), (16, 128)), causal=False, tier="quick"),
    Plan("mixed-causal", MIXED, tier="quick"),
    Plan("mixed", MIXED, causal=False),
    Plan("rows-without-keys", NO_KEYS, tier="quick"),
    Plan("no-keys-at-all", ((3, 0), (1, 0)), causal=False),
    Plan("decode", DECODE, tier="quick"),
    Plan("decode-full", DECODE, causal=False),
    Plan("drafts", DRAFTS, tier="quick"),
    Plan("drafts-ramp", DRAFTS, "ramp"),
    Plan("seams-ramp", SEAMS, "ramp"),
    Plan("seams-ramp-full", SEAMS, "ramp", causal=False),
    Plan("seams-dominant", SEAMS, "dominant", causal=False),
    Plan("offset-dominant", OFFSET, "dominant", tier="quick"),
    Plan("negative", MIXED, "negative", causal=False, tier="quick"),
    Plan("negative-causal", OFFSET, "negative"),
    Plan("sharp", MIXED, "sharp"),
    Plan("large-scores", SHORT, "large"),
    Plan("scale-given", MIXED, scale=0.3, tier="quick"),
    Plan("scale-small", SHORT, scale=0.02),
    Plan("scale-decode", DECODE, scale=0.25),
    Plan("max-seqlen-surplus", OFFSET, surplus=70),
    Plan("without-lse", MIXED, with_lse=False),
    Plan("out-given", MIXED, out_given=True),
    Plan("long", ((1, 2000), (130, 1500), (700, 700)), tier="full"),
)

WINDOWS = (
    Plan("window-causal", OFFSET, "ramp", window=(15, 0), tier="quick"),
    Plan("window-causal-16", OFFSET, "ramp", window=(16, 0)),
    Plan("window-causal-odd", OFFSET, "ramp", window=(37, 0)),
    Plan("window-self", OFFSET, "ramp", window=(0, 0)),
    Plan("window-decode", DECODE, "ramp", window=(20, 0)),
    Plan("window-drafts", DRAFTS, "ramp", window=(30, 0)),
    Plan("window-both", OFFSET, "ramp", causal=False, window=(7, 5)),
    Plan("window-left-only", OFFSET, "ramp", causal=False, window=(12, -1)),
    Plan("window-right-only", OFFSET, "ramp", causal=False, window=(-1, 5)),
    Plan("window-right-0", OFFSET, "ramp", causal=False, window=(20, 0)),
    Plan("window-normal", OFFSET, window=(40, 0)),
    Plan("window-dominant", OFFSET, "dominant", causal=False, window=(31, 31)),
    Plan("window-negative", OFFSET, "negative", window=(25, 0)),
    Plan("window-long-context", ((150, 400), (1, 300)), "ramp", causal=False, window=(90, 20)),
    Plan("window-just-below-max", CONTEXT, "ramp", causal=False, window=(62, 0)),
    Plan("window-max-minus-1", CONTEXT, "ramp", causal=False, window=(63, 0)),
    Plan("window-max", CONTEXT, "ramp", causal=False, window=(64, 0)),
    Plan("window-above-max", CONTEXT, "ramp", window=(100, 0)),
    Plan("window-right-max", CONTEXT, "ramp", causal=False, window=(10, 64)),
    Plan("window-surplus", CONTEXT, "ramp", window=(64, 0), surplus=70),
)

SOFTCAPS = (
    Plan("softcap", OFFSET, "sharp", softcap=5.0, tier="quick"),
    Plan("softcap-large-scores", SHORT, "large", softcap=50.0, tier="quick"),
    Plan("softcap-large-scores-full", SHORT, "large", causal=False, softcap=20.0),
    Plan("softcap-negative", OFFSET, "negative", softcap=30.0),
    Plan("softcap-scale", MIXED, "sharp", softcap=8.0, scale=0.4),
    Plan("softcap-window", OFFSET, "sharp", softcap=5.0, window=(20, 0)),
)

ALIBIS = (
    Plan("alibi", OFFSET, alibi="h", tier="quick"),
    Plan("alibi-by-request", OFFSET, alibi="bh"),
    Plan("alibi-full", OFFSET, causal=False, alibi="h"),
    Plan("alibi-decode", DECODE, alibi="h"),
)

SINKS = (
    Plan("sinks", MIXED, sinks=True, tier="quick"),
    Plan("sinks-full", MIXED, "sharp", causal=False, sinks=True),
    Plan("sinks-window", OFFSET, sinks=True, window=(20, 0)),
    Plan("sinks-decode", DECODE, sinks=True),
    Plan("sinks-negative", OFFSET, "negative", sinks=True),
    Plan("sinks-scale", MIXED, sinks=True, scale=0.3),
)

LAYOUTS = (
    Plan("fused-rows", SQUARE, layout="fused", tier="quick"),
    Plan("kv-pair", OFFSET, layout="kv-pair"),
    Plan("padded-heads", OFFSET, layout="padded-heads", other_gaps=True),
    Plan("fused-rows-one-kv-head", SQUARE, layout="fused", hk=1),
)


def plans_for(options: Mapping[str, Any]) -> tuple[list[Plan], list[registry.LeftOut]]:
    """The table for a target, sizes filled in, and what its declaration leaves out."""
    left_out = [(key, f"the target declares {key} = false") for key in _denied(options)]
    plans = [*BASIC, *WINDOWS, *SOFTCAPS, *ALIBIS, *SINKS, *LAYOUTS]
    plans += [*_by_size(options), *_by_page(options)]
    if options.get("convention", "flash_attn") != "vllm":
        plans = [each for each in plans if not each.out_given]
    plans = [each for each in plans if _causal_allowed(each, options)]
    plans = [each for each in plans if not any(_USES[key](each) for key in _denied(options))]
    left_out.append(("dropout", "not part of inference"))
    return [_filled(each, options) for each in plans], left_out


_USES: dict[str, Callable[[Plan], bool]] = {
    "window": lambda plan: plan.window != (-1, -1),
    "softcap": lambda plan: plan.softcap > 0,
    "alibi": lambda plan: bool(plan.alibi),
    "sinks": lambda plan: plan.sinks,
    "strided": lambda plan: plan.layout != "plain",
}


def _denied(options: Mapping[str, Any]) -> list[str]:
    return [key for key in _USES if options.get(key) is False]


def _causal_allowed(plan: Plan, options: Mapping[str, Any]) -> bool:
    declared = options.get("causal")
    if isinstance(declared, bool):
        declared = [declared]
    if declared is None:
        return True
    if not isinstance(declared, (list, tuple)) or not all(isinstance(x, bool) for x in declared):
        message = f"causal = {declared!r} is neither a boolean nor a list of booleans"
        raise registry.DeclarationError(message, "causal = true for a kernel that is always causal")
    return plan.causal in declared


def _by_size(options: Mapping[str, Any]) -> Iterator[Plan]:
    for group in _options.sizes(options, "groups", GROUPS):
        hk = 2 if group <= 8 else 1
        yield Plan(f"group{group}", SHORT, hq=group * hk, hk=hk)
        if group > 1:
            yield Plan(f"group{group}-decode", DECODE[:8], "ramp", hq=group * hk, hk=hk)
    for d, dv in _options.head_dims(options, HEAD_DIMS)[1:]:
        yield Plan("dims", SHORT, d=d, dv=dv)
        yield Plan("dims-padded", SHORT, d=d, dv=dv, layout="padded-heads")


def _by_page(options: Mapping[str, Any]) -> Iterator[Plan]:
    convention = str(options.get("convention", "flash_attn"))
    default = PAGE_SIZES.get(convention, PAGE_SIZES["flash_attn"])
    pages = _options.sizes(options, "page_sizes", default)
    for page in pages:
        first = page == pages[0]
        for plan in _paged(page):
            yield plan if first else replace(plan, tier="default")


def _paged(page: int) -> Iterator[Plan]:
    seams: Lengths = (
        *((1, 1), (2, page - 1), (5, page), (7, page + 1), (4, 0), (0, 3)),
        (9, 2 * page + 3),
    )
    decode: Lengths = tuple((1, sk) for sk in (1, page - 1, page, page + 1, 0, 2 * page + 1, 2))
    tag = f"paged{page}"
    yield Plan(f"{tag}-seams", seams, page=page, tier="quick")
    yield Plan(f"{tag}-seams-ramp", seams, "ramp", causal=False, page=page)
    yield Plan(f"{tag}-dominant", seams, "dominant", causal=False, page=page)
    yield Plan(f"{tag}-decode", decode, page=page, tier="quick")
    yield Plan(f"{tag}-decode-ramp", decode, "ramp", page=page, hk=1)
    yield Plan(f"{tag}-window", seams, "ramp", page=page, window=(page // 2, 0))
    yield Plan(f"{tag}-negative", seams, "negative", page=page)
    yield Plan(f"{tag}-together", seams, page=page, layout="together", other_gaps=True)
    yield Plan(f"{tag}-softcap", decode, "sharp", page=page, softcap=5.0)
    yield Plan(f"{tag}-sinks", seams, page=page, sinks=True)
    yield Plan(f"{tag}-surplus", seams, page=page, surplus=page)


def _filled(plan: Plan, options: Mapping[str, Any]) -> Plan:
    d, dv = _options.head_dims(options, HEAD_DIMS)[0]
    groups = _options.sizes(options, "groups", GROUPS)
    group = 2 if 2 in groups else groups[0]
    filled = replace(plan, hq=plan.hq or group * plan.hk)
    return filled if plan.d else replace(filled, d=d, dv=dv)
