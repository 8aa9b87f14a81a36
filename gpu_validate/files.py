"""Files that travel to a GPU: counterexamples and proved designs as self-contained JSON, and the evidence that comes back.

A file holds the programs themselves, so that the machine with the GPU needs neither the designs nor a solver.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from fencepost.model import program as p
from fencepost.model.answer import Hazard, Run
from fencepost.model.program import Data

VERSION = 1


class Subject(Data, frozen=True):
    """A design to be replayed (`run`, `hazard`: its counterexample) or attacked (neither)."""

    design: str
    variant: str
    program: p.Program
    verdict: str
    platform: str | None = None
    run: Run | None = None
    hazard: Hazard | None = None
    fixed_variant: str | None = None
    fixed: p.Program | None = None

    @property
    def title(self) -> str:
        """Design and variant."""
        return f"{self.design} [{self.variant}]" if self.variant else self.design

    @property
    def design_hash(self) -> str:
        """Of the program, source positions left out."""
        return design_hash(self.program)


class _File(msgspec.Struct, frozen=True):
    fencepost_replay: int
    subjects: tuple[Subject, ...]


def design_hash(program: p.Program) -> str:
    """First 16 hexadecimal digits of the SHA-256 of the program's content, its source positions left out.

    Fields that have their default value are left out too: a field that the program's data gets later changes no hash.
    """
    content = msgspec.json.encode(_content(program.bare()))
    return hashlib.sha256(content).hexdigest()[:16]


def _content(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(type(value))
        kept = {f.encode_name: getattr(value, f.name) for f in fields}
        return {
            "type": type(value).__name__,
            **{f.encode_name: _content(kept[f.encode_name]) for f in fields if f.required or kept[f.encode_name] != f.default},
        }
    return [_content(one) for one in value] if isinstance(value, tuple) else value


def dump(subjects: list[Subject]) -> bytes:
    """Subjects -> versioned JSON."""
    return msgspec.json.encode(_File(VERSION, tuple(subjects)))


def parse(data: bytes, source: str) -> tuple[Subject, ...] | None:
    """Versioned JSON -> subjects; None when it is no such file. Raises `ValueError` (one line) for another version or
    a damaged file."""

    class Head(msgspec.Struct):
        fencepost_replay: int | None = None

    try:
        version = msgspec.json.decode(data, type=Head).fencepost_replay
    except msgspec.DecodeError:
        return None
    if version is None:
        return None
    if version != VERSION:
        raise ValueError(
            f"{source}: replay file of version {version}, this fencepost reads version {VERSION}; "
            "write it again with `fencepost replay --save`"
        )
    try:
        return msgspec.json.decode(data, type=_File).subjects
    except msgspec.DecodeError as error:
        raise ValueError(f"{source}: damaged replay file ({error})") from None


def machine(gates: str, limit: float) -> dict[str, Any]:
    """What an evidence file says about the machine: date, device, driver, versions, kind of gate, watchdog."""
    import datetime
    import platform

    import torch

    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "gates": gates,
        "watchdog_ms": 1e3 * limit,
    }
    if torch.cuda.is_available():
        found["devices"] = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
        found["driver"] = driver_version()
    try:
        import cuda.bindings

        found["cuda_bindings"] = cuda.bindings.__version__
    except ImportError:
        found["cuda_bindings"] = None
    return found


def driver_version() -> str | None:
    """The display driver's version, by nvidia-smi; None where it is not there."""
    import subprocess

    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.split("\n")[0].strip() or None
