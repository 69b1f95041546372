"""What contradicts a record, what only adds to it, and which calls tell the two apart."""

from __future__ import annotations

import inspect

import pytest

from attngate.validators.contracts.agreement import agreement, probes, same_default
from attngate.validators.contracts.load import all_builds
from attngate.validators.contracts.schema import Entry
from attngate.validators.signatures import parse_signature


def entry(parameters: str, **fields: object) -> Entry:
    values = {"name": "f", "paths": ("m.f",), "parameters_seen": "x", "returns": (), **fields}
    return Entry(parameters=parameters, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("recorded", "real", "changed"),
    [
        ("q, k", "q, k", []),
        ("q, k=0.0", "q, k=0", []),
        ("q, k", "q", ["k is gone"]),
        ("q, k", "k, q", ["positions are now (k, q)"]),
        ("q, k=1", "q, n=2, k=1", ["n now stands among the recorded positions", "n is new"]),
        ("q", "q, n", ["n is new, and is required"]),
        ("q", "q, n=1", ["n is new"]),
        ("q, k=1", "q, k", ["k=1 is required now"]),
        ("q, k", "q, k=1", ["k, which was required, has the default 1"]),
        ("q, k=-1", "q, k=None", ["k=-1 became k=None"]),
        ("q, k=1", "q, k=True", ["k=1 became k=True"]),
        ("q, k=(-1, -1)", "q, k=(-1,-1)", []),
        ("q, k=1", "q, *, k=1", ["k is passed by keyword now"]),
        ("q, k", "q, k, /", ["q is passed by position now", "k is passed by position now"]),
        ("q, *, k=1", "q, k=1", []),
        ("q, *args, **kwargs", "q, scale, flag=False", []),
        ("q, *args, **kwargs", "*args, **kwargs", []),
    ],
)
def test_what_contradicts_a_record(recorded: str, real: str, changed: list[str]) -> None:
    assert list(agreement(entry(recorded), parse_signature(real)).changed) == changed


def test_a_list_that_is_not_complete_is_added_to() -> None:
    record = entry(
        "q",
        complete=False,
        rejected={"out": "Leave it out."},
        unrecorded=("s_aux", "sinks"),
        unlisted={"seqused_k": "Leave it out."},
    )
    found = agreement(record, parse_signature("q, s_aux=None, out=None"))
    assert found.changed == ("out was refused and is taken now",)
    assert found.news == (
        "it also takes s_aux=None",
        "it does not take sinks",
        "it does not take seqused_k",
    )


def test_a_signature_that_hands_everything_on_decides_nothing() -> None:
    found = agreement(entry("q", rejected={"out": ""}), parse_signature("q, **kwargs"))
    assert (found.changed, found.news) == ((), ())
    assert found.open == "it takes (q, **kwargs): what it hands on to is not visible"


def test_a_default_that_is_no_literal_is_not_said_to_be_the_same() -> None:
    assert same_default("torch.float32", "torch.float32") is True
    assert same_default("EMPTY", "None") is None
    found = agreement(entry("q, d=EMPTY"), parse_signature("q, d=None"))
    assert found.changed == ()
    assert found.news == ("whether d=None is the recorded EMPTY cannot be told",)


def test_every_recorded_build_takes_and_refuses_its_own_calls() -> None:
    """The calls are bound to the recorded signature itself, as a real function has it."""
    for record in (e for b in all_builds() for e in b.entries):
        signature = signature_named(record)
        assert agreement(record, parse_signature(record.parameters)).changed == ()
        for probe in probes(record):
            is_taken = True
            try:
                signature.bind(*range(probe.positions), **dict.fromkeys(probe.keywords))
            except TypeError:
                is_taken = False
            assert is_taken == probe.taken, (record.name, probe)


def signature_named(record: Entry) -> inspect.Signature:
    """The recorded parameters as those of a function."""
    space: dict[str, object] = {"torch": type("torch", (), {"float32": 0})}
    names = {p.default: None for p in record.signature.parameters if p.default}
    space.update({name: None for name in names if name.isidentifier()})
    exec(f"def f({record.parameters}): ...", space)
    return inspect.signature(space["f"])  # type: ignore[arg-type]


def test_what_a_build_refuses_is_among_the_calls() -> None:
    builds = {b.id: b for b in all_builds()}
    record = builds["metax-2"].entry("flash_attn_varlen_func")
    assert record is not None
    words = {p.what: p.taken for p in probes(record)}
    assert words["with return_attn_probs"] is True
    assert all(words[f"with {name}"] is False for name in record.rejected)
    assert "with no_such_parameter" not in words  # its list is not known to be complete
