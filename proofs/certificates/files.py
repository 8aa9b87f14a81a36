"""The files of a certificate: a folder with the program, the manifest, and one SMT-LIB file for each class.

Data only: nothing in them is ever executed.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import msgspec
from fencepost.model import program as p
from fencepost.model.answer import Run
from fencepost.model.operations.registry import QUESTIONS, RULES
from fencepost.proofs.certificates.footprint import Access

CERTIFICATE_VERSION = 2
MANIFEST, PROGRAM = "manifest.json", "program.json"

TRUSTED = (
    "tracing: that the program is what the design's function gives with the parameters named, and what the code does",
    "platform rules: model/operations, and the switches of the platform",
    "theory: the witness theorem, the antichain, and stretches that no other thread notices",
    "code: proofs/certificates, which derives the relation, and model/events, which replays runs",
    "the solvers",
)
"""What a verified certificate still rests on."""


class CertificateError(ValueError):
    """A folder that is no certificate of this version; the message is one line."""


class ClassEntry(msgspec.Struct, frozen=True):
    """One class of memory. `file` None: no two of its accesses conflict, nothing to prove."""

    label: str
    kind: str
    id: int
    accesses: tuple[str, ...]
    slice: tuple[str, ...]
    file: str | None
    states: int = 0


class ReachEntry(msgspec.Struct, frozen=True):
    """`at`: for each operation "t.n", outcome "t.n=answer", access "t.n.w" and pair the number of a run that reaches it.

    An operation is reached when it is called. Its accesses are, when its item runs: an item behind a wait on the device that
    never ends is called, and its accesses stand in `never`.
    """

    runs: tuple[Run, ...]
    at: dict[str, int]
    never: tuple[str, ...]
    unsure: tuple[str, ...] = ()


class Manifest(msgspec.Struct, frozen=True):
    """Everything that a certificate claims beside its obligations."""

    fencepost_certificate: int
    design: str
    variant: str | None
    parameters: dict[str, Any]
    program_schema: int
    rules: str
    platform: dict[str, str]
    environment: str
    assumptions: tuple[str, ...]
    trusted: tuple[str, ...]
    accesses: tuple[Access, ...]
    pairs: tuple[tuple[str, str], ...]
    classes: tuple[ClassEntry, ...]
    spared: tuple[str, ...]
    """Unordered pairs that are no hazard, because they change no value."""
    reach: ReachEntry
    program: msgspec.Raw


def rules_version() -> str:
    """Identifies the rule set: a digest of every operation's and question's sentences in the registry."""
    said = sorted(
        repr((kind.__name__, rule.name, rule.accesses, rule.edges, rule.enabled, rule.rules))
        for table in (RULES, QUESTIONS)
        for kind, rule in table.items()
    )
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]


def save(directory: str, manifest: Manifest, program: p.Program, texts: dict[str, list[str]]) -> None:
    """Write the folder; files of an earlier certificate there are replaced. Raises `OSError`."""
    os.makedirs(directory, exist_ok=True)
    for name in os.listdir(directory):
        if name.endswith(".smt2") and name.startswith("class-") and name not in texts:
            os.remove(os.path.join(directory, name))
    for name, lines in texts.items():
        with open(os.path.join(directory, name), "w", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n")
    with open(os.path.join(directory, PROGRAM), "wb") as out_bytes:
        out_bytes.write(p.to_json(program) + b"\n")
    with open(os.path.join(directory, MANIFEST), "wb") as out_bytes:
        out_bytes.write(msgspec.json.encode(manifest) + b"\n")


def load_file(directory: str, name: str) -> bytes:
    """The bytes of one file of the folder. Raises `CertificateError` when it is missing."""
    try:
        with open(os.path.join(directory, name), "rb") as source:
            return source.read()
    except OSError as error:
        raise CertificateError(f"{os.path.join(directory, name)}: {error.strerror or error}; a certificate needs this file") from None


def load_manifest(directory: str) -> Manifest:
    """Read and check the shape of a manifest. Raises `CertificateError`."""
    where = os.path.join(directory, MANIFEST)
    if not os.path.isdir(directory):
        raise CertificateError(f"{directory}: no such folder; write one with `fencepost check TARGET --certificate DIR`")
    data = load_file(directory, MANIFEST)

    class Head(msgspec.Struct):
        fencepost_certificate: int

    try:
        version = msgspec.json.decode(data, type=Head).fencepost_certificate
    except msgspec.DecodeError as error:
        raise CertificateError(f"{where}: not the manifest of a certificate ({error})") from None
    if version != CERTIFICATE_VERSION:
        raise CertificateError(
            f"{where}: certificate of version {version}, this fencepost reads version {CERTIFICATE_VERSION}; "
            "write it again with `fencepost check --certificate`"
        )
    try:
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise CertificateError(f"{where}: damaged ({error})") from None


def load_text(directory: str, name: str) -> list[str]:
    """The lines of an SMT-LIB file. Raises `CertificateError`."""
    if os.path.basename(name) != name:
        raise CertificateError(f"{directory}: the manifest names a file outside of the folder: {name!r}")
    try:
        return load_file(directory, name).decode("utf-8").split("\n")[:-1]
    except UnicodeDecodeError:
        raise CertificateError(f"{os.path.join(directory, name)}: not a text file") from None
