"""The long campaign of certificates (`make soak`): that of every proved variant is written and checked by both solvers; resumable.

`python tests/soak_certificates.py` writes the certificate of each variant of designs/ that is declared proved to a folder
of its own and verifies it from the files alone, with every solver that is installed. The evidence file is written after
each variant; a variant is done again only when its program, model/ or proofs/certificates changed. Exit code 1 while one
fails, is left undecided or has no certificate for a reason that is not in `ALLOWED`.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
EVIDENCE = HERE / "evidence" / "certificates.json"
CAMPAIGN = "certificates of the proved variants"
VERIFIED = "verified"
ALLOWED = ("certificates do not cover this: ",)
"""Beginnings of why there is no certificate: said by `check --certificate` and by docs/certificates.md, and no failure."""


def sources() -> str:
    """Ten digits that stand for the text of model/ and of proofs/certificates, as they are imported."""
    import fencepost.model
    import fencepost.proofs.certificates

    digest = hashlib.sha256()
    for package in (fencepost.model, fencepost.proofs.certificates):
        folder = Path(package.__path__[0])
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.relative_to(folder).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:10]


def proved(targets: Sequence[str]) -> list[Any]:
    """The variants of the targets that are declared proved: certificates are about the bare platform alone."""
    from fencepost.check import cases
    from fencepost.loader import load
    from fencepost.model.answer import PROVED

    return [case for case in cases(load(list(targets))) if case.expected == PROVED and case.environment is None]


def name_of(case: Any) -> str:
    """How the evidence names a variant."""
    return f"{case.target.removeprefix(str(ROOT) + '/')} [{case.title}]"


def program_hash(program: Any) -> str:
    """Ten digits that stand for a program."""
    from fencepost.model import program as p

    return hashlib.sha256(p.to_json(program)).hexdigest()[:10]


def one(case: Any, program: Any, seconds: float) -> dict[str, Any]:
    """What becomes of one variant: `status` is "verified", or the line that says what is wrong."""
    from fencepost.model.platform import platform
    from fencepost.proofs.certificates import files, solvers, verifying
    from fencepost.proofs.certificates.invariant import Limits
    from fencepost.proofs.certificates.writing import NoCertificate, write_certificate

    row: dict[str, Any] = {"date": str(datetime.date.today()), "program": program_hash(program)}
    use = [solver for solver in solvers.SOLVERS if solvers.installed(solver)]
    with tempfile.TemporaryDirectory() as folder:
        begin = time.process_time()
        try:
            write_certificate(
                folder, program, platform(case.platform), variant=case.label, parameters=case.parameters,
                limits=Limits(2_000_000, seconds),
            )  # fmt: skip
        except NoCertificate as why:
            return {**row, "status": str(why), "seconds": {"write": round(time.process_time() - begin, 2)}}
        spent = {"write": round(time.process_time() - begin, 2)}
        begin = time.process_time()
        manifest = files.load_manifest(folder)
        report = verifying.verify(folder, manifest, verifying.read_program(folder, manifest), seconds=seconds, use=use)
        spent["verify"] = round(time.process_time() - begin, 2)
    for solver in use:
        mine = [answer for answer in report.solved if answer.solver == solver]
        spent[solver] = round(sum(answer.seconds for answer in mine), 2)
        row[solver] = sorted({answer.status for answer in mine}) or ["nothing to decide"]
    row |= {"classes": len(manifest.classes), "pairs": len(manifest.pairs), "runs": len(manifest.reach.runs),
            "states": report.states, "edges": report.edges, "seconds": spent}  # fmt: skip
    row["status"] = VERIFIED if report.verified else "; ".join([*report.failures, *report.open])
    return row


def load(path: Path) -> dict[str, Any]:
    """The evidence so far. Raises `ValueError` when the file is none."""
    if not path.exists():
        return {"campaign": CAMPAIGN, "solvers": {}, "totals": {}, "variants": {}}
    try:
        state: dict[str, Any] = json.loads(path.read_text())
        if state["campaign"] == CAMPAIGN:
            state["variants"].items()
            return state
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise ValueError(f"{path} is no evidence of this campaign; move it away, or name another with --evidence")


def refused(row: dict[str, Any]) -> bool:
    """Whether the variant has no certificate for a reason that is allowed."""
    return any(row["status"].startswith(start) for start in ALLOWED)


def save(path: Path, state: dict[str, Any]) -> None:
    """Write the file with its totals; a half-written one never replaces a whole one."""
    rows = state["variants"].values()
    state["totals"] = {
        "variants": len(rows), "verified": sum(row["status"] == VERIFIED for row in rows),
        "not covered": sum(refused(row) for row in rows),
        "minimal bit sets": sum(row.get("states", 0) for row in rows), "edges": sum(row.get("edges", 0) for row in rows),
        "seconds": {key: round(sum(row["seconds"].get(key, 0.0) for row in rows), 1) for key in ("write", "verify", "z3", "cvc5")},
    }  # fmt: skip
    half = path.with_name(path.name + ".half")
    half.write_text(json.dumps(state, indent=1, sort_keys=True) + "\n")
    half.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is missing; 1 when something is open."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", default=[str(ROOT / "designs")])
    parser.add_argument("--seconds", type=float, default=600.0, help="of one variant, and of one query to a solver (default 600)")
    parser.add_argument("--evidence", type=Path, default=EVIDENCE)
    options = parser.parse_args(arguments)
    from fencepost.check import build
    from fencepost.errors import InputError
    from fencepost.loader import load as load_target
    from fencepost.proofs.certificates import solvers

    try:
        state = load(options.evidence)
        cases = proved(options.targets)
    except (ValueError, InputError) as error:
        print(error, file=sys.stderr)
        return 2
    state["solvers"] = {one: solvers.version(one) for one in solvers.SOLVERS if solvers.installed(one)}
    code = sources()
    if options.targets == [str(ROOT / "designs")]:
        names = {name_of(case) for case in cases}
        state["variants"] = {k: v for k, v in state["variants"].items() if k in names}
    todo = []
    for number, case in enumerate(cases):
        (target,) = load_target([case.target])
        program = build(target, case.parameters)
        row = state["variants"].get(name_of(case))
        current = row is not None and (row["program"], row["sources"]) == (program_hash(program), code)
        if not current or not (row["status"] == VERIFIED or refused(row)):
            # What is short comes first, so that an interrupted campaign has covered most.
            todo.append((sum(len(thread.nodes) for thread in program.threads), number, case, program))
    print(f"{len(cases)} proved variants, {len(todo)} to do", flush=True)
    for _, _, case, program in sorted(todo, key=lambda entry: entry[:2]):
        row = {**one(case, program, options.seconds), "sources": code}
        state["variants"][name_of(case)] = row
        save(options.evidence, state)
        print(f"{sum(row['seconds'].values()):7.1f} s  {row.get('states', 0):8d}  {name_of(case)}: {row['status']}", flush=True)
    save(options.evidence, state)
    rows = state["variants"]
    still = [f"{name}: {row['status']}" for name, row in sorted(rows.items()) if row["status"] != VERIFIED and not refused(row)]
    print(f"{state['totals']['verified']} of {len(rows)} verified, {state['totals']['not covered']} not covered, {len(still)} open")
    for line in still:
        print(f"OPEN {line}")
    return 1 if still else 0


if __name__ == "__main__":
    sys.exit(main())
