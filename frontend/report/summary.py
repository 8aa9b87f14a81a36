"""What every format says alike: the cells of the verdict table, the closing line, the sentences of one answer."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from fencepost.check import FAILED, OK, Outcome, alive, code_of, open_hazards
from fencepost.model.answer import BOUNDED, REFUTED, Answer, Hazard
from fencepost.parameters import spelled
from fencepost.report.words import access_text, missing_edge

ALWAYS_IN_FULL = 3
"""Up to so many answers each is printed in full; from then on only those that fail, unless asked for."""


class TableRow(msgspec.Struct, frozen=True):
    """Cells of the verdict table, as text."""

    design: str
    variant: str
    verdict: str
    declared: str
    because: str
    time: str


def verdict_text(answer: Answer) -> str:
    """The verdict, with its bound and with what hangs: never a stronger word than what was established."""
    word = f"{answer.verdict}({answer.bound})" if answer.verdict == BOUNDED else answer.verdict
    return f"{word}, hangs" if answer.hangs else f"{word}, livelock" if answer.stops else word


def table_row(outcome: Outcome) -> TableRow:
    """The row of one outcome."""
    case, answer = outcome.case, outcome.answer
    if answer is None:
        return TableRow(case.design, case.title, "error", "", "see the message", "")
    if answer.expected is None:
        declared = "-"
    else:
        declared = "as declared" if answer.matches else f"DECLARED {_declared(answer, outcome)}"
    return TableRow(
        case.design, case.title, verdict_text(answer), declared, _because(answer), f"{answer.seconds * 1000:.0f} ms"
    )


def _declared(answer: Answer, outcome: Outcome) -> str:
    parts = [answer.expected, outcome.case.hazard, outcome.case.hang and f"hang {outcome.case.hang}"]
    parts += [f"never {name}" for name in alive(answer, outcome.case)]
    return ", ".join(part for part in parts if part)


def _because(answer: Answer) -> str:
    parts = list(dict.fromkeys(hazard.name for hazard in answer.hazards)) if answer.verdict == REFUTED else []
    parts = [f"{name} (accepted)" if name in answer.accepted else name for name in parts]
    # The waiters stand with the full answer.
    parts += [one.partition(" - ")[0] for one in (*answer.hangs, *answer.progress)]
    if answer.environment not in (None, "bare"):
        parts.append(f"under {answer.environment}")
    if answer.reason is not None:
        # The whole reason stands with the full answer; the table has room for its head.
        parts.append(answer.reason.partition(": ")[0])
    return "; ".join(parts)


def closing_line(outcomes: Sequence[Outcome], seconds: float | None) -> str:
    """How many answers of which kind, and how many are not as declared."""
    answers = [outcome.answer for outcome in outcomes if outcome.answer is not None]
    counts = Counter(answer.verdict for answer in answers)
    parts = [f"{len(answers)} answer{'' if len(answers) == 1 else 's'}"]
    if counts:
        parts[0] += ": " + ", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items()))
    declared = [answer for answer in answers if answer.expected is not None]
    if declared:
        wrong = sum(not answer.matches for answer in declared)
        parts.append("all as declared" if not wrong and len(declared) == len(answers) else f"{wrong} not as declared")
    errors = len(outcomes) - len(answers)
    if errors:
        parts.append(f"{errors} without an answer")
    if seconds is not None:
        parts.append(f"{seconds:.2f} s")
    return "; ".join(parts)


def in_full(outcomes: Sequence[Outcome], verbose: bool) -> list[Outcome]:
    """The outcomes whose answers are printed in full."""
    answered = [outcome for outcome in outcomes if outcome.answer is not None]
    if verbose or len(outcomes) <= ALWAYS_IN_FULL:
        return answered
    failing = [outcome for outcome in answered if code_of(outcome) != OK]
    # Over a range of parameters the first failure of each kind tells; the others are in the table.
    first: dict[tuple[str, str, str], Outcome] = {}
    for outcome in failing:
        assert outcome.answer is not None
        names = ",".join(open_hazards(outcome.answer))
        key = (outcome.case.target, outcome.answer.verdict + names, outcome.case.label or "")
        first.setdefault(key, outcome)
    return list(first.values())


def headline(outcome: Outcome) -> str:
    """`design [variant]: verdict`, with what was declared when that is something else."""
    answer = outcome.answer
    assert answer is not None
    title = f" [{outcome.case.title}]" if outcome.case.title else ""
    text = f"{outcome.case.design}{title}: {verdict_text(answer).upper()}"
    if code_of(outcome) == FAILED and answer.expected is not None:
        text += f", but declared {_declared(answer, outcome)}"
    return text


def again(outcome: Outcome) -> str:
    """The command that asks the same question again."""
    case = outcome.case
    words = ["fencepost", "check", case.target]
    if case.label is not None:
        words += ["-k", case.label]
    else:
        for name, value in case.parameters.items():
            words += ["--set", spelled({name: value})]
    if case.environment is not None and case.label is None:
        words += ["--environment", case.environment]
    if case.platform is not None and case.label is None:
        words += ["--platform", case.platform]
    if case.strict:
        words.append("--strict")
    if case.engine != "explore":
        words += ["--engine", case.engine]
    if case.steps is not None:
        words += ["--steps", str(case.steps)]
    return shlex.join(words)


def hazard_lines(hazard: Hazard, outcome: Outcome) -> Iterator[tuple[str, str]]:
    """(heading, sentence) for one hazard: its name, the missing edge, the two accesses."""
    answer = outcome.answer
    harm = "" if hazard.harm == "value" else f", harm {hazard.harm}"
    change = {True: "value-changing", False: "access-level only", None: "value change neither shown nor excluded"}
    accepted = ", accepted" if answer is not None and hazard.name in answer.accepted else ""
    yield "hazard", f"{hazard.name} ({change[hazard.value_changing]}{harm}{accepted})"
    yield "missing", missing_edge(hazard, outcome.program)
    if hazard.first is not None:
        yield "[1]", access_text(hazard.first)
    yield "[2]", access_text(hazard.second)


def remark_lines(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """(heading, sentence) for what follows in every answer: reason, hangs, progress, fixes, masks, notes, assumptions, lints."""
    answer = outcome.answer
    assert answer is not None
    if answer.reason is not None:
        yield "reason", answer.reason
    for hang in answer.hangs:
        name, _, waiters = hang.partition(" - ")
        yield "hangs", name
        for waiter in waiters.split("; "):
            yield "", waiter
    for one in answer.progress:
        yield "progress", one
    for fix in answer.fixes:
        yield "fix", fix
    if answer.verdict == REFUTED and outcome.case.fix is not None:
        yield "fix", f"declared: variant {outcome.case.fix!r}"
    if answer.masked_by:
        yield "masked by", ", ".join(answer.masked_by) + " (the hazard cannot show there)"
    for accept in outcome.program.accepted if outcome.program is not None else ():
        if accept.hazard in [hazard.name for hazard in answer.hazards]:
            yield "accepted", f"{accept.hazard}, because {accept.because}"
    for heading, sentences in (("note", answer.notes), ("assumes", answer.assumptions), ("lint", answer.lints)):
        for sentence in sentences:
            yield heading, sentence
    certificate = answer.certificate
    if certificate is not None:
        checked = "checked by the separate checker" if certificate.checked else "NOT CHECKED"
        yield "certificate", f"{certificate.hash}, {certificate.states} states, {checked}"
    yield "again", again(outcome)
