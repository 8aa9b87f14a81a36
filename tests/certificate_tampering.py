"""Certificates that were tampered with: what was changed, and what `verify` must say of it.

Each is a change of a copy of one certificate, of a ring of 3 behind a queue of capacity 1.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fencepost.designs import ring
from fencepost.model.language.build import program_of
from fencepost.model.platform import platform
from fencepost.proofs.certificates import files, obligations, verifying, writing

HAND_OVER = (ring.hand_over, {"depth": 3, "capacity": 1})


def checked(directory: str, *use: str) -> verifying.Report:
    """What `verify` says of a folder."""
    manifest = files.load_manifest(directory)
    program = verifying.read_program(directory, manifest)
    return verifying.verify(directory, manifest, program, use=use or ("z3",))


@functools.lru_cache(maxsize=1)
def original() -> dict[str, bytes]:
    """The files of the certificate that is tampered with, written once."""
    with tempfile.TemporaryDirectory() as folder:
        writing.write_certificate(f"{folder}/x", program_of(*HAND_OVER), platform(None))
        return {path.name: path.read_bytes() for path in Path(folder, "x").iterdir()}


def report_of(what: str) -> verifying.Report:
    """What `verify` says when `what` was done to the certificate."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in original().items():
            (folder / file).write_bytes(content)
        TAMPERED[what][0](folder)
        return checked(name)


def edit_manifest(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """A change of the manifest's JSON."""

    def apply(folder: Path) -> None:
        data = json.loads((folder / files.MANIFEST).read_text())
        change(data)
        (folder / files.MANIFEST).write_text(json.dumps(data))

    return apply


def edit_lines(change: Callable[[list[str]], list[str]], name: str = "class-0.smt2") -> Callable[[Path], None]:
    """A change of an SMT-LIB file's lines."""

    def apply(folder: Path) -> None:
        lines = (folder / name).read_text().splitlines()
        after = change(lines[:])
        assert after != lines, "nothing was tampered with"
        (folder / name).write_text("\n".join(after) + "\n")

    return apply


def without_last(start: str) -> Callable[[list[str]], list[str]]:
    """Leave out the last line that starts so."""

    def change(lines: list[str]) -> list[str]:
        at = max(k for k, line in enumerate(lines) if line.startswith(start))
        return lines[:at] + lines[at + 1 :]

    return change


def edge_added(lines: list[str]) -> list[str]:
    """An update claims that a bit is set: an edge of happens-before that the program does not have."""
    at = max(k for k, line in enumerate(lines) if line.startswith("(define-fun u") and "(bvor" in line)
    start = lines[at].index("(bvor")
    depth = 0
    for stop in range(start, len(lines[at])):
        depth += {"(": 1, ")": -1}.get(lines[at][stop], 0)
        if depth == 0:
            break
    lines[at] = lines[at][:start] + "#b1" + lines[at][stop + 1 :]
    return lines


def guard_strengthened(lines: list[str]) -> list[str]:
    """A step may happen only when all bits are set."""
    at = max(k for k, line in enumerate(lines) if "(not (inv_" in line)
    lines[at] = lines[at].replace("(and (inv_", "(and (= (bvnot b) (bvxor b b)) (inv_", 1)
    return lines


def bit_too_many(lines: list[str]) -> list[str]:
    """A set with a bit that no state has."""
    at = max(k for k, line in enumerate(lines) if line.startswith("(define-fun inv_") and "Bool (= " in line)
    lines[at] = lines[at].replace("Bool (= ((_ extract 0 0) b) #b1)", "Bool (and (= ((_ extract 0 0) b) #b1) (= ((_ extract 90 90) b) #b1))")
    return lines


def trans_false(lines: list[str]) -> list[str]:
    """No step at all: everything is closed under it."""
    begin = lines.index(f"; {obligations.OBLIGATIONS[1]}") + 2
    stop = begin + lines[begin:].index("(check-sat)")
    return [*lines[:begin], "(assert false)", *lines[stop:]]


def check_dropped(lines: list[str]) -> list[str]:
    """An access is not checked any more."""
    at = max(k for k, line in enumerate(lines) if line.startswith("(and (inv_") and "(not (inv_" not in line)
    return lines[:at] + lines[at + 1 :]


def other_program(folder: Path) -> None:
    """The proof of a design in front of another design: one slot fewer."""
    for name in (files.PROGRAM, files.MANIFEST):
        text = (folder / name).read_text()
        assert '"depth":3' in text
        (folder / name).write_text(text.replace('"depth":3', '"depth":2'))


def remove(key: str, at: int = -1) -> Callable[[Path], None]:
    """Leave out one entry of a list of the manifest."""
    return edit_manifest(lambda data: data[key].pop(at))


def reach_dropped(data: dict[str, Any]) -> None:
    data["reach"]["at"].pop("0.1")


def reach_claimed_never(data: dict[str, Any]) -> None:
    data["reach"]["at"].pop("0.1")
    data["reach"]["never"].append("0.1")


def access_claimed_never(data: dict[str, Any]) -> None:
    access = data["accesses"][0]
    name = f"{access['thread']}.{access['node']}.{access['which']}"
    data["reach"]["at"].pop(name)
    data["reach"]["never"].append(name)


def pair_claimed_never(data: dict[str, Any]) -> None:
    pair = " ".join(data["pairs"][0])
    data["reach"]["at"].pop(pair)
    data["reach"]["never"].append(pair)


def run_shortened(data: dict[str, Any]) -> None:
    for one in data["reach"]["runs"]:
        one["steps"] = one["steps"][:2]


def run_impossible(data: dict[str, Any]) -> None:
    data["reach"]["runs"][0]["steps"].insert(0, data["reach"]["runs"][0]["steps"][-1])


def other_program_file(folder: Path) -> None:
    """Only the program beside the manifest is another one."""
    text = (folder / files.PROGRAM).read_text()
    (folder / files.PROGRAM).write_text(text.replace('"depth":3', '"depth":2'))


def control_added(lines: list[str]) -> list[str]:
    """A control that is none of the program's."""
    at = max(k for k, line in enumerate(lines) if line.startswith("(define-fun inv_"))
    return [*lines[: at + 1], "(define-fun inv_" + "0" * 12 + " ((b B)) Bool (= ((_ extract 0 0) b) #b1)) ; nothing leads here", *lines[at + 1 :]]


def not_a_set(lines: list[str]) -> list[str]:
    """The invariant of one control is no disjunction of bit sets any more: it holds of everything."""
    at = max(k for k, line in enumerate(lines) if line.startswith("(define-fun inv_"))
    lines[at] = lines[at].replace("Bool (", "Bool (or true (", 1).replace(") ;", ")) ;")
    return lines


def lines_repeated(lines: list[str]) -> list[str]:
    """The last check twice."""
    return [*lines, *lines[-3:]]


TAMPERED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a state removed": (edit_lines(without_last("(define-fun inv_")), "Inv & step => Inv'"),
    "an edge of happens-before added": (edit_lines(edge_added), "relation (update)"),
    "a step removed": (edit_lines(without_last("(and (inv_")), "the file lacks it"),
    "a guard strengthened": (edit_lines(guard_strengthened), "relation (edge)"),
    "trans = false": (edit_lines(trans_false), "relation (edge)"),
    "a bit that no state has": (edit_lines(bit_too_many), "bits that no state has"),
    "a check dropped": (edit_lines(check_dropped), "hazard check"),
    "an access dropped": (remove("accesses"), "accesses: the manifest lacks"),
    "a pair dropped": (remove("pairs"), "conflict pairs: the manifest lacks"),
    "a class dropped": (remove("classes"), "classes: the manifest lacks"),
    "a slice operation dropped": (edit_manifest(lambda d: d["classes"][0]["slice"].pop(0)), "slice: the manifest lacks"),
    "an access dropped from a class": (edit_manifest(lambda d: d["classes"][0]["accesses"].pop()), "accesses: the manifest lacks"),
    "a class without its file": (edit_manifest(lambda d: d["classes"][0].update(file=None)), "no obligations"),
    "an assumption added": (edit_manifest(lambda d: d["assumptions"].append("kernels are instant")), "assumptions: "),
    "another environment": (edit_manifest(lambda d: d.update(environment="launch-blocking")), "environment: "),
    "other rules": (edit_manifest(lambda d: d.update(rules="0" * 16)), "rules: "),
    "another name": (edit_manifest(lambda d: d.update(design="other")), "design: the manifest says 'other'"),
    "another number of states": (edit_manifest(lambda d: d["classes"][0].update(states=1)), "the manifest says 1"),
    "another design": (other_program, "class slot"),
    "a spared pair added": (edit_manifest(lambda d: d["spared"].append("nothing reads: w of slot")), "spared pairs: "),
    "an operation without a run": (edit_manifest(reach_dropped), "reach: 0.1 has no run"),
    "an operation said never to run": (edit_manifest(reach_claimed_never), "it can occur"),
    "an access said never to be made": (edit_manifest(access_claimed_never), "it can occur"),
    "a pair said never to meet": (edit_manifest(pair_claimed_never), "it can occur"),
    "a run cut short": (edit_manifest(run_shortened), "does not reach"),
    "a run that cannot happen": (edit_manifest(run_impossible), "cannot happen"),
    "a run that is not there": (edit_manifest(lambda d: d["reach"]["at"].update({"0.1": 99})), "names run 99"),
    "something that the program has not": (edit_manifest(lambda d: d["reach"]["never"].append("9.9")), "9.9 is nothing of the program"),
    "both reached and never": (edit_manifest(lambda d: d["reach"]["unsure"].append("0.1")), "listed twice"),
    "another program beside it": (other_program_file, "program.json is not the manifest's program"),
    "a platform switch added": (edit_manifest(lambda d: d["platform"].update(warp="late")), "platform: switches"),
    "another kind of class": (edit_manifest(lambda d: d["classes"][0].update(kind="pool")), "kind and file: "),
    "a control that nothing leads to": (edit_lines(control_added), "nothing leads to control 000000000000"),
    "an invariant that holds of everything": (edit_lines(not_a_set), "no disjunction of bit sets"),
    "a check repeated": (edit_lines(lines_repeated), "lines are repeated"),
}  # fmt: skip
