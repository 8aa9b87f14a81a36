"""All probes, and the platform profile that they add up to: what `fencepost probe` runs and `check --platform` reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from fencepost.gpu_validate.files import machine
from fencepost.gpu_validate.gates import Gates
from fencepost.gpu_validate.probing import PROBES, Bench, Measured, Probe, measure

PROFILE_VERSION = 1


def all_probes() -> list[Probe]:
    """Every probe, in the order of the rules' numbers. Importing the modules enters them."""
    from fencepost.gpu_validate import probes_copy, probes_memory, probes_process, probes_sync

    assert probes_copy and probes_memory and probes_process and probes_sync
    return sorted(PROBES, key=lambda one: (int(one.rules.split(",")[0][1:]), one.what))


def run(gates: Gates, chosen: list[Probe], limit: float = 0.02,
        progress: Callable[[Measured], None] | None = None) -> list[Measured]:  # fmt: skip
    """Make the experiments on the GPU at hand."""
    return measure(Bench(gates, limit), chosen, progress)


def switches(results: list[Measured]) -> dict[str, str]:
    """The switches of `fencepost.model.platform.Platform` that these measurements decide."""
    found: dict[str, str] = {}
    by_rule = {result.rules: result for result in results if result.measured is not None}
    to_device, to_host = by_rule.get("S47"), by_rule.get("S48")
    if to_device is not None:
        calls = to_device.detail.split("; ")
        late = to_device.measured != "none"
        found["pageable_h2d"] = "late" if late else "blocking" if all("blocks" in c for c in calls) else "staged"
    if to_host is not None:
        found["pageable_d2h"] = "blocking" if to_host.measured == "blocks" else "late"
    return found


def profile(results: list[Measured], gates: str, limit: float, name: str) -> bytes:
    """The platform profile as JSON: switches, the machine, and every rule with what was measured."""
    content: dict[str, Any] = {
        "fencepost_platform": PROFILE_VERSION, "name": name, **switches(results), "machine": machine(gates, limit),
        "rules": [msgspec.to_builtins(result) for result in results],
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(content), indent=1)
