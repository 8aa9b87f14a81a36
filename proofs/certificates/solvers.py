"""Z3 and cvc5 on SMT-LIB text: two solvers that share no code. Loaded only when used."""

from __future__ import annotations

import importlib.util
import time
from typing import NamedTuple

SOLVERS = ("z3", "cvc5")
UNSAT, SAT, TIMEOUT = "unsat", "sat", "time-out"


class Result(NamedTuple):
    """What a solver said. `bits`: its value of `b` when "sat". `seconds`: processor time of this process."""

    solver: str
    status: str
    bits: int | None
    seconds: float


def installed(solver: str) -> bool:
    """Whether the solver's package is there."""
    return importlib.util.find_spec(solver) is not None


def version(solver: str) -> str:
    """The solver's version."""
    if solver == "z3":
        import z3

        return str(z3.get_version_string())
    import cvc5

    return str(cvc5.__version__)


def solve(solver: str, text: str, seconds: float) -> Result:
    """Decide assertions about one constant `b`. `status`: "unsat" | "sat" | "time-out" | what the solver said."""
    begin = time.process_time()
    status, bits = (_z3 if solver == "z3" else _cvc5)(text, seconds)
    return Result(solver, status, bits, time.process_time() - begin)


def _z3(text: str, seconds: float) -> tuple[str, int | None]:
    import z3

    context = z3.Context()
    solver = z3.SolverFor("QF_BV", ctx=context)
    solver.set("timeout", max(1, int(seconds * 1000)))
    solver.from_string(text)
    answer = solver.check()
    if answer == z3.unsat:
        return UNSAT, None
    if answer == z3.sat:
        model = solver.model()
        values = {d.name(): model[d] for d in model.decls()}
        return SAT, values["b"].as_long() if "b" in values else 0
    why = solver.reason_unknown()
    return (TIMEOUT if why in ("timeout", "canceled") else f"unknown ({why})"), None


def _cvc5(text: str, seconds: float) -> tuple[str, int | None]:
    import cvc5

    terms = cvc5.TermManager()
    solver = cvc5.Solver(terms)
    solver.setOption("tlimit-per", str(max(1, int(seconds * 1000))))
    solver.setOption("produce-models", "true")
    solver.setOption("bitblast", "eager")  # for bit-vectors alone; its lazy solver took 40 times as long here
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "certificate")
    symbols = parser.getSymbolManager()
    while True:
        command = parser.nextCommand()
        if command.isNull():
            break
        command.invoke(solver, symbols)
    answer = solver.checkSat()
    if answer.isUnsat():
        return UNSAT, None
    if answer.isSat():
        b = next((term for term in symbols.getDeclaredTerms() if term.getSymbol() == "b"), None)
        return SAT, int(solver.getValue(b).getBitVectorValue(2), 2) if b is not None else 0
    why = str(answer.getUnknownExplanation())
    return (TIMEOUT if "TIMEOUT" in why.upper() else f"unknown ({why})"), None
