"""Pairs of variants: decided on both sides, and judged: worse, not worse, or it cannot be told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from fencepost.check import Case, Outcome
from fencepost.diff.changes import Change, changes, same_text
from fencepost.diff.costs import Costs, Row
from fencepost.diff.decide import Decisions
from fencepost.diff.side import Entry
from fencepost.errors import InputError
from fencepost.model.answer import PROVED, REFUTED, Answer, Hazard, Protection
from fencepost.model.platform import platform
from fencepost.model.program import Program, from_json

WORSE, OPEN, FINE = "worse", "open", "fine"
HARMS = ("address", "value", "shape", "quality")


class Pair(msgspec.Struct, frozen=True):
    """One variant before and after; None where a side lacks it. `because` says in sentences why it is judged so."""

    design: str
    label: str
    before: Outcome | None
    after: Outcome | None
    judged: str
    because: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    lost: tuple[Hazard, ...] = ()
    """Hazards that only the later side has, accepted ones and those of a harm that does not count left out."""
    passed: tuple[str, ...] = ()
    """Hazards that only the later side has and that do not count, or that are accepted only now, each with the reason."""
    rests: tuple[tuple[str, str, str], ...] = ()
    """(object, what protected it before, what protects it now) where that changed; margins included."""
    rests_open: str = ""
    """Why nothing is said of what protects a variant that changed and stayed proved."""
    cost: tuple[Row, ...] = ()
    """(time per step, cycle or wait; its cost before; its cost after) where that changed."""
    cost_open: str = ""
    """Why nothing is said of the cost of a variant that changed."""
    accepts: tuple[str, ...] = ()
    """Hazards that the later side accepts and the earlier one, which is there, does not."""

    @property
    def edited(self) -> bool:
        """Whether the design does something else than before."""
        return any(change.edits for change in self.changes)


def pairs(before: Sequence[Entry], after: Sequence[Entry]) -> list[tuple[Entry | None, Entry | None]]:
    """Variants of the two sides that belong together: same design function and label, else the only design of each side.

    Variants of one side only are paired with None.
    """
    one_each = len({e.case.target for e in before}) == 1 == len({e.case.target for e in after})
    names = {_function(e) for e in before} & {_function(e) for e in after}

    def key(entry: Entry) -> tuple[str, str]:
        design = "" if one_each and not names else entry.case.design if not _unique(entry, before, after) else _function(entry)
        return design, entry.case.title

    news = {key(entry): entry for entry in after}
    found: list[tuple[Entry | None, Entry | None]] = [(entry, news.pop(key(entry), None)) for entry in before]
    # A file that was renamed, while another one has a function of the same name.
    gone, new = [old for old, it in found if it is None and old is not None], list(news.values())
    renamed = {
        (_function(entry), entry.case.title): entry
        for entry in new
        if len({e.case.design for e in new if _function(e) == _function(entry)}) == 1
        and len({e.case.design for e in gone if _function(e) == _function(entry)}) == 1
    }
    found = [(old, renamed.pop((_function(old), old.case.title), None) if it is None and old else it) for old, it in found]
    taken = {id(it) for _, it in found}
    return found + [(None, entry) for entry in new if id(entry) not in taken]


def _function(entry: Entry) -> str:
    return entry.case.design.rpartition("::")[2]


def _unique(entry: Entry, before: Sequence[Entry], after: Sequence[Entry]) -> bool:
    """Whether the function's name names one design on each side, so that a file may be renamed."""
    name = _function(entry)
    return all(len({e.case.design for e in side if _function(e) == name}) <= 1 for side in (before, after))


def compare(
    before: Sequence[Entry], after: Sequence[Entry], *, names: tuple[str, str], fail_on: Sequence[str] = HARMS,
    budget: float | None = None,
) -> list[Pair]:
    """Every pair, decided and judged. `names`: what the sides are called in errors; `fail_on`: harms that count.

    A variant that is the same on both sides is decided once. Raises `InputError` when a variant that both sides have cannot be built on one of them.
    """
    found = pairs(before, after)
    if found and not any(old is not None and new is not None for old, new in found):
        _nothing_in_common(before, after, names)
    programs: list[list[Program | None]] = []
    questions: list[tuple[Case, Program]] = []
    numbers: list[list[int]] = []
    """Of each pair, the numbers of its questions on either side, -1 for none."""
    for couple in found:
        built: list[Program | None] = []
        asked: list[int] = []
        for side, entry in enumerate(couple):
            made = None if entry is None else _built(entry, names[side])
            built.append(made)
            asked.append(len(questions) if made is not None else -1)
            if entry is not None and made is not None:
                questions.append((msgspec.structs.replace(entry.case, budget=budget, explain=False), made))
        programs.append(built)
        numbers.append(asked)
    # Of two sides that are one design the later one is asked, and the answer told of both.
    twins = {id(old): new for old, new in programs if old is not None and new is not None and same_text(old, new)}
    with Decisions(questions, twins) as decisions:
        # Meanwhile, what changed.
        moved = [
            tuple(changes(old, new)) if old is not None and new is not None and id(old) not in twins else ()
            for old, new in programs
        ]
        outcomes = decisions.outcomes()
        done = [
            _judge(*couple, tuple(outcomes[k] if k >= 0 else None for k in asked), one, fail_on)
            for couple, asked, one in zip(found, numbers, moved, strict=True)
        ]
        return _explained(done, numbers, decisions)


def _built(entry: Entry, name: str) -> Program:
    where = f" [{entry.case.title}]" if entry.case.title else ""
    if entry.error is not None or entry.program is None:
        raise InputError(f"{name}: {entry.case.design}{where}: {entry.error}")
    return from_json(entry.program.encode(), name)


def _explained(found: list[Pair], numbers: Sequence[Sequence[int]], decisions: Decisions) -> list[Pair]:
    """The pairs with what closes hazards that are new, what protects objects, and the change of cost of those that changed."""
    closing: dict[int, int] = {}
    protecting: dict[int, tuple[str, ...] | None] = {}
    told: set[object] = set()
    protected: dict[object, int] = {}
    for number, pair in enumerate(found):
        before, after = numbers[number]
        old, new = (outcome.answer.verdict if outcome is not None and outcome.answer is not None else "" for outcome in (pair.before, pair.after))
        if pair.lost:
            # Once for each set of changes and hazards, as the report tells it once.
            key = (pair.design, pair.changes, pair.because, tuple(hazard.name for hazard in pair.lost))
            if key not in told:
                closing[after] = number
                if old == PROVED:
                    protecting[before] = tuple(hazard.object for hazard in pair.lost)
            told.add(key)
        elif pair.edited and old == PROVED == new:
            alike = protected.setdefault((pair.design, pair.changes, pair.because), number)
            if alike == number:
                protecting.update({before: None, after: None})
            else:
                found[number] = msgspec.structs.replace(pair, rests_open=f"not compared, {found[alike].label} changed alike and was")
    costs = Costs(platform(decisions.questions[0][0].platform if decisions.questions else None))
    # The worse first, as few are looked at.
    costed = sorted(((n, pair) for n, pair in enumerate(found) if pair.edited), key=lambda one: one[1].judged != WORSE)
    of = {id(program): number for number, (_, program) in enumerate(decisions.questions)}
    wanted = costs.wanted([_programs(pair) for _, pair in costed])
    closes, protects, cost = decisions.explained(list(closing), protecting, [(of[id(old)], of[id(new)]) for old, new in wanted])
    for compared, costing in zip(wanted, cost, strict=True):
        costs.enter(compared, costing)
    made = list(found)
    for number, pair in enumerate(found):
        before, after = numbers[number]
        pair = msgspec.structs.replace(
            pair, before=_with(pair.before, protects.get(before), None), after=_with(pair.after, protects.get(after), closes.get(after))
        )
        if before in protects and after in protects:
            pair = msgspec.structs.replace(pair, rests=tuple(_rests(protects[before], protects[after])))
        made[number] = pair
    for number, pair in costed:
        old_program, new_program = _programs(pair)
        if old_program is not None and new_program is not None:
            rows, why = costs.change(old_program, new_program)
            made[number] = msgspec.structs.replace(made[number], cost=rows, cost_open=why)
    return made


def _with(outcome: Outcome | None, protections: tuple[Protection, ...] | None, fixes: tuple[str, ...] | None) -> Outcome | None:
    """The outcome with what was asked later, where it was."""
    if outcome is None or outcome.answer is None or (protections is None and fixes is None):
        return outcome
    answer = outcome.answer
    answer = msgspec.structs.replace(
        answer, protections=answer.protections if protections is None else protections, fixes=answer.fixes if fixes is None else fixes
    )
    return msgspec.structs.replace(outcome, answer=answer)


def _programs(pair: Pair) -> tuple[Program | None, Program | None]:
    before, after = pair.before, pair.after
    return before.program if before is not None else None, after.program if after is not None else None


def _nothing_in_common(before: Sequence[Entry], after: Sequence[Entry], names: tuple[str, str]) -> None:
    """Raise the most helpful error for two sides that share no variant, if they are one design with other parameters."""
    olds, news = (
        {name for entry in side for name in entry.case.parameters} for side in (before, after)
    )
    only = sorted(olds ^ news)
    if only and {_function(e) for e in before} & {_function(e) for e in after}:
        where = names[0] if only[0] in olds else names[1]
        raise InputError(
            f"the designs' parameters differ: {only[0]!r} is set only in {where}, and no variant has the same label; "
            "give both sides variants of the same label, or parameters with --set"
        )


# ---------------------------------------------------------------- judging


def _judge(
    old: Entry | None, new: Entry | None, outcomes: tuple[Outcome | None, ...], moved: tuple[Change, ...],
    fail_on: Sequence[str],
) -> Pair:
    one = new or old
    assert one is not None
    before, after = outcomes
    pair = Pair(one.case.design, one.case.title, before, after, FINE)
    if after is None or after.answer is None:
        assert before is not None and before.answer is not None
        return _gone(pair, before.answer)
    earlier = before.answer if before is not None else None
    accepts = _accepts(earlier, after)
    lost, passed = _lost(earlier, after.answer, fail_on, accepts)
    declared = before is None and after.answer.expected is not None and bool(after.answer.matches)
    if declared:
        passed, lost = [*passed, *(f"{hazard.name}: declared" for hazard in lost)], []
    if old is not None and new is not None and before is not None and earlier is not None and earlier.matches and after.answer.matches:
        # Refuted as declared on both sides, and what is declared has another name now: its memory was renamed.
        gone = [hazard.object for hazard in earlier.hazards if hazard.name == old.case.hazard and not _has(after.program, hazard.object)]
        instead = [one for one in lost if one.name == new.case.hazard and gone and not _has(before.program, one.object)]
        lost = [one for one in lost if one not in instead]
        passed = [*passed, *(f"{one.name}: declared, instead of {old.case.hazard}" for one in instead)]
    pair = msgspec.structs.replace(
        pair, changes=moved, lost=tuple(lost), passed=tuple(dict.fromkeys(passed)), accepts=tuple(accepts)
    )
    judged, because = _verdict(earlier, after.answer, lost, declared)
    if judged == FINE and old is not None and new is not None:
        because = list(_asked_elsewhere(old.case, new.case))
        judged = OPEN if because else FINE
    if judged == FINE and old is not None and new is not None and not pair.edited:
        stale = [path for path in new.models if path in old.models and old.models[path] != new.models[path]]
        if stale:
            judged = OPEN
            because = [f"{path} changed, and the design that stands for it did not" for path in stale]
    return msgspec.structs.replace(pair, judged=judged, because=tuple(because))


def _has(program: Program | None, name: str) -> bool:
    """Whether the program has memory of that name."""
    if program is None:
        return False
    names = {thing.name for thing in program.objects} | {one.name for thread in program.threads for one in thread.locals}
    return name.partition("[")[0] in names


def _asked_elsewhere(old: Case, new: Case) -> Iterator[str]:
    """In words, that the variant is decided for another platform or under another environment than before: its answer is about that."""
    was, now = old.platform or "cuda", new.platform or "cuda"
    if was != now:
        yield f"it is decided for platform {now} and was for {was}: nothing says what holds there now"
    if new.environment not in (None, "bare", old.environment):
        yield f"it is decided under {new.environment} and was under {old.environment or 'bare'}"


def _gone(pair: Pair, answer: Answer) -> Pair:
    if answer.verdict == PROVED:
        return msgspec.structs.replace(
            pair, judged=OPEN, because=("the variant is gone; it was proved, and nothing says whether that still holds",)
        )
    return msgspec.structs.replace(pair, because=("the variant is gone",))


def _accepts(before: Answer | None, after: Outcome) -> dict[str, str]:
    """Hazards that are accepted now and were not, each with the reason that is given. A design that is new has no before."""
    if before is None or after.program is None:
        return {}
    return {one.hazard: one.because for one in after.program.accepted if one.hazard not in before.accepted}


def _lost(
    before: Answer | None, after: Answer, fail_on: Sequence[str], accepts: Mapping[str, str]
) -> tuple[list[Hazard], list[str]]:
    """(new hazards that count, new hazards that do not, and old ones that are accepted only now)."""
    # One name may be that of several races: what is known of one whose harm is small says nothing of one whose harm is not.
    known = {(hazard.name, hazard.harm) for hazard in before.hazards} if before is not None and before.verdict == REFUTED else set()
    lost: list[Hazard] = []
    passed: list[str] = []
    for hazard in after.hazards if after.verdict == REFUTED else ():
        if hazard.name in accepts:
            passed.append(f"{hazard.name}: accepted with this change, because: {accepts[hazard.name]}")
        elif (hazard.name, hazard.harm) in known:
            continue
        elif hazard.name in after.accepted:
            passed.append(f"{hazard.name}: accepted")
        elif hazard.harm not in fail_on:
            passed.append(f"{hazard.name}: harm {hazard.harm} is not among --fail-on {','.join(fail_on)}")
        else:
            lost.append(hazard)
    return lost, passed


def _verdict(before: Answer | None, after: Answer, lost: Iterable[Hazard], declared: bool) -> tuple[str, list[str]]:
    names = ", ".join(dict.fromkeys(hazard.name for hazard in lost))
    # By name: the sentence behind it has lines, which move.
    known = {_hang(hang) for hang in before.stops} if before is not None else set()
    hangs = [hang for hang in after.stops if _hang(hang) not in known] if not declared else []
    if names or hangs:
        was = "" if before is None else f"; before: {before.verdict}"
        what = " and ".join(part for part in (names, ", ".join(hangs)) if part)
        return WORSE, [f"new: {what}{was}"]
    # What is proved now is no worse, whatever was known before.
    for when, answer in (("before", before), ("after", after)) if after.verdict != PROVED else ():
        if answer is not None and answer.verdict not in (PROVED, REFUTED) and answer.expected != answer.verdict:
            return OPEN, [f"{when} the change it is {answer.verdict}" + (f": {answer.reason}" if answer.reason else "")]
    if before is not None and before.verdict == PROVED and after.verdict not in (PROVED, REFUTED):
        return OPEN, [f"it was proved and is {after.verdict}"]
    return FINE, []


def _hang(text: str) -> str:
    """The name of a hang: what and where, without its sentence."""
    return text.partition(" - ")[0]


def _rests(before: Sequence[Protection], after: Sequence[Protection]) -> list[tuple[str, str, str]]:
    """Objects whose protection or margin changed: what orders the conflicting accesses, in words, before and after."""
    olds, news = ({p.object: _protection(p.by, p.margin) for p in side} for side in (before, after))
    return [(name, olds[name], news[name]) for name in olds if name in news and olds[name] != news[name]]


def _protection(by: Sequence[str], margin: int | None) -> str:
    return (", ".join(by) or "-") + (f"; margin {margin}" if margin is not None else "")


def exit_code(found: Sequence[Pair]) -> int:
    """0 nothing got worse, 1 a proof was lost, 3 it cannot be told."""
    from fencepost.check import FAILED, OK
    from fencepost.check import OPEN as CANNOT_TELL

    judged = {pair.judged for pair in found}
    return FAILED if WORSE in judged else CANNOT_TELL if OPEN in judged else OK
