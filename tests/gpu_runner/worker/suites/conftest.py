"""The kernels of tests/kernels as importable modules, and one thread, so that times add up."""

import sys
from pathlib import Path

import torch

KERNELS = Path(__file__).resolve().parents[3] / "kernels"
sys.path.insert(0, str(KERNELS))
torch.set_num_threads(1)
