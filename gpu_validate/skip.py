"""Whether a test that needs a GPU can run here, and why not: what the pytest marker `fencepost_gpu` asks."""

from __future__ import annotations

import functools


@functools.cache
def gpu_missing(gpus: int = 1) -> str | None:
    """None when that many GPUs and the gates can be used; else the reason, in one line."""
    from fencepost.gpu_validate.device import NoGpu, out_of_memory, torch_or_error
    from fencepost.gpu_validate.gates import NoGates, make

    try:
        torch = torch_or_error()
        make("auto")
    except (NoGpu, NoGates) as error:
        return str(error)
    except RuntimeError as error:
        lacking = out_of_memory(error)
        if lacking is None:
            raise
        return lacking
    count = int(torch.cuda.device_count())
    return None if count >= gpus else f"needs {gpus} GPUs, there is {count}"
