"""Calls of the public conventions reach the callable as its own interface has them."""

import functools

import pytest
import torch

from attngate.gpu_runner.worker.adapters import flash_attn_varlen, merge_attn_states
from attngate.gpu_runner.worker.adapters.signature import DoesNotFitError, parameters_of

LENGTHS = {"cu_seqlens_q": 4, "cu_seqlens_k": torch.tensor([0, 3, 5]), "max_seqlen_q": 6}
ARGUMENTS = {"q": 1, "k": 2, "v": 3, **LENGTHS, "max_seqlen_k": 7}


def upstream(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
    softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
    deterministic=False, return_attn_probs=False, block_table=None,
):  # fmt: skip
    given = dict(locals())
    out = torch.zeros(1)
    return (out, given, None) if return_attn_probs else out


def vllm(
    q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, cu_seqlens_k=None, seqused_k=None,
    softmax_scale=None, causal=False, window_size=None, softcap=0.0, alibi_slopes=None,
    block_table=None, return_softmax_lse=False, out=None, s_aux=None,
):  # fmt: skip
    given = dict(locals())
    return (out, given) if return_softmax_lse else out


def test_upstream_call_returns_the_lse():
    fit = flash_attn_varlen.fit(upstream, {})
    assert fit.features == {"softcap", "alibi_slopes", "block_table", "return_lse"}
    arguments = {**ARGUMENTS, "causal": True, "return_lse": True, "window_size": (7, 0)}
    result = flash_attn_varlen.call(upstream, arguments, fit)
    assert set(result) == {"out", "lse"}
    given = result["lse"]
    assert given["return_attn_probs"] is True
    assert (given["causal"], given["window_size"], given["max_seqlen_k"]) == (True, (7, 0), 7)


def test_upstream_call_without_lse_gives_the_output_alone():
    fit = flash_attn_varlen.fit(upstream, {})
    assert set(flash_attn_varlen.call(upstream, dict(ARGUMENTS), fit)) == {"out"}


def test_vllm_call_takes_used_lengths_a_list_window_and_out():
    fit = flash_attn_varlen.fit(vllm, {"convention": "vllm"})
    assert fit.features >= {"s_aux", "out", "seqused_k", "return_lse"}
    arguments = {**ARGUMENTS, "block_table": 9, "return_lse": True, "window_size": (7, 0)}
    result = flash_attn_varlen.call(vllm, {**arguments, "out": torch.zeros(1)}, fit)
    assert set(result) == {"lse"}
    given = result["lse"]
    assert given["seqused_k"].tolist() == [3, 2]
    assert given["cu_seqlens_k"] is None
    assert (given["window_size"], given["max_seqlen_q"]) == ([7, 0], 6)


def test_vllm_call_without_pages_keeps_cumulative_lengths():
    fit = flash_attn_varlen.fit(vllm, {"convention": "vllm"})
    result = flash_attn_varlen.call(vllm, {**ARGUMENTS, "return_lse": True}, fit)
    assert result["lse"]["seqused_k"] is None
    assert result["lse"]["cu_seqlens_k"] is ARGUMENTS["cu_seqlens_k"]


@pytest.mark.parametrize(
    ("target", "options", "advice"),
    [(vllm, {}, 'convention = "vllm"'), (upstream, {"convention": "vllm"}, '"flash_attn"')],
)
def test_the_other_interfaces_order_is_refused(target, options, advice):
    with pytest.raises(DoesNotFitError, match="takes its lengths in the order of") as caught:
        flash_attn_varlen.fit(target, options)
    assert advice in caught.value.advice


def test_the_other_interfaces_lse_switch_is_refused():
    def mixed(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
              softmax_scale, causal, window_size, return_softmax_lse):  # fmt: skip
        pass

    with pytest.raises(DoesNotFitError, match="returns the LSE through `return_softmax_lse`"):
        flash_attn_varlen.fit(mixed, {})


def test_missing_and_unknown_parameters_are_named():
    def other(query, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
              layer, softmax_scale=None, causal=False, window_size=None):  # fmt: skip
        pass

    with pytest.raises(DoesNotFitError) as caught:
        flash_attn_varlen.fit(other, {})
    message = caught.value.message
    assert "it takes no q" in message
    assert "it requires query, layer, which the suite does not give" in message
    assert "The suite calls it with q, k, v, cu_seqlens_q" in message
    assert "it takes (query, k, v" in message
    assert "adapter" in caught.value.advice


def test_unknown_convention():
    with pytest.raises(DoesNotFitError, match="no convention 'fa5'"):
        flash_attn_varlen.fit(upstream, {"convention": "fa5"})


def test_open_ended_callables_get_the_conventions_own_features_and_declared_sinks():
    def wrapper(*args, **kwargs):
        pass

    fit = flash_attn_varlen.fit(wrapper, {})
    assert fit.features == {"softcap", "alibi_slopes", "block_table", "return_lse"}
    assert "s_aux" in flash_attn_varlen.fit(wrapper, {"sinks": True}).features
    assert not flash_attn_varlen.fit(functools.wraps(upstream)(wrapper), {}).parameters.open_ended


def test_merge_is_called_by_its_own_names():
    seen = {}

    def merge(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None):
        seen.update(locals())

    fit = merge_attn_states.fit(merge, {})
    assert fit.features == {"output_lse"}
    arguments = {name: name for name in merge_attn_states.REQUIRED}
    assert merge_attn_states.call(merge, {**arguments, "output_lse": 5}, fit) == {}
    assert (seen["suffix_lse"], seen["output_lse"]) == ("suffix_lse", 5)


def test_flashinfers_merge_is_another_suite():
    with pytest.raises(DoesNotFitError) as caught:
        merge_attn_states.fit(lambda v_a, s_a, v_b, s_b: None, {})
    assert 'suite = "merge_states"' in caught.value.advice


def test_a_torch_operators_schema_is_its_signature():
    parameters = parameters_of(torch.ops.aten.softmax.int)
    assert parameters.names == ("self", "dim", "dtype")
    assert parameters.required == ("self", "dim")
    assert not parameters.open_ended
