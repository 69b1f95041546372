"""Where jobs run: one slot for the CPU and one for each GPU, one job at a time in each.

What a GPU is called is read from what the system shows without loading a vendor's library. NVIDIA
GPUs have been tried; the device files of others are untested.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_DEVICE_FILES = (re.compile(r"nvidia(\d+)"), re.compile(r"mxcd?(\d+)"))


@dataclass(frozen=True)
class DeviceSlot:
    """A place for one running job.

    Attributes:
        name: "cpu", "cuda:0", ...
        device: What jobs ask for: "cpu" or "cuda".
        index: Number of the GPU among the visible ones.
    """

    name: str
    device: str
    index: int = 0

    def environment(self, env: dict[str, str]) -> dict[str, str]:
        """`env` with only this slot's GPU visible; what it already hides stays hidden.

        On the CPU, cases are small and threads only wait for each other: beside other work a job
        with two of them took six times as long. A count that the user sets stays.
        """
        if self.device == "cpu":
            return {"OMP_NUM_THREADS": "1", **env, "TRITON_INTERPRET": "1"}
        chosen = {name: value for name, value in env.items() if name != "TRITON_INTERPRET"}
        visible = [part.strip() for part in env.get("CUDA_VISIBLE_DEVICES", "").split(",")]
        if visible == [""]:
            if "CUDA_VISIBLE_DEVICES" not in env:
                chosen["CUDA_VISIBLE_DEVICES"] = str(self.index)
        else:
            chosen["CUDA_VISIBLE_DEVICES"] = visible[self.index % len(visible)]
        return chosen


def slots(device_folder: Path = Path("/dev")) -> list[DeviceSlot]:
    """The slots of this machine.

    There is always one for "cuda": where no GPU is found the worker itself says so, in the words of
    the interpreter's torch.
    """
    count = max(1, gpu_count(device_folder))
    return [
        DeviceSlot("cpu", "cpu"),
        *(DeviceSlot(f"cuda:{index}", "cuda", index) for index in range(count)),
    ]


def gpu_count(device_folder: Path) -> int:
    """How many GPUs have a device file there, of the vendor that has the most."""
    try:
        names = [entry.name for entry in device_folder.iterdir()]
    except OSError:
        return 0
    return max(sum(bool(pattern.fullmatch(name)) for name in names) for pattern in _DEVICE_FILES)
