"""What such a plugin often has for a test: one random input, and allclose."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from sample_plugin.ops.merge import merge_attn_states
from sample_plugin.ops.varlen import flash_attn_varlen_func


def part(q, k, v, keys):
    ends = torch.tensor([0, len(q)]), torch.tensor([0, keys.stop - keys.start])
    out, lse, _ = flash_attn_varlen_func(
        q, k[keys], v[keys], *ends, len(q), len(k), return_attn_probs=True
    )
    return out, lse


torch.manual_seed(0)
q, k, v = torch.randn(64, 8, 64) / 2, torch.randn(512, 8, 64), torch.randn(512, 8, 64)
merged = torch.empty_like(q)
merge_attn_states(merged, *part(q, k, v, slice(0, 256)), *part(q, k, v, slice(256, 512)))
whole, _ = part(q, k, v, slice(0, 512))
print(f"largest difference {(merged - whole).abs().max():.1e}")
assert torch.allclose(merged, whole, atol=1e-2), "the merged halves are not the whole"
print("allclose(atol=1e-2) holds")
