"""Pairs of variants: decided on both sides, and judged: worse, not worse, or it cannot be told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from fencepost.check import Case, Outcome, answer_program
from fencepost.diff.changes import Change, changes, same_text
from fencepost.diff.costs import Costs, Row, cost_of
from fencepost.diff.places import moved
from fencepost.diff.side import Entry
from fencepost.errors import InputError
from fencepost.model.answer import PROVED, REFUTED, Answer, Hazard
from fencepost.model.platform import platform
from fencepost.model.program import Ask, Channel, DeviceFlag, EventQuery, Place, Program, StreamQuery, from_json

if TYPE_CHECKING:
    from fencepost.pool import Pool

AT_ONCE = 600
"""Operations and questions of all programs from which several processes are worth starting at once."""

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
    """Hazards that only the later side has and that do not count, each with the reason."""
    rests: tuple[tuple[str, str, str], ...] = ()
    """(object, what protected it before, what protects it now) where that changed; margins included."""
    cost: tuple[Row, ...] = ()
    """(time per step, cycle or wait; its cost before; its cost after) where that changed."""
    cost_open: str = ""
    """Why nothing is said of the cost of a variant that changed."""
    prefixes: tuple[str, str] = ("", "")
    """Folders of the design on either side, for places in their trees."""


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
    for couple in found:
        built: list[Program | None] = []
        for side, entry in enumerate(couple):
            if entry is None:
                built.append(None)
                continue
            where = f" [{entry.case.title}]" if entry.case.title else ""
            if entry.error is not None or entry.program is None:
                raise InputError(f"{names[side]}: {entry.case.design}{where}: {entry.error}")
            built.append(from_json(entry.program.encode(), names[side]))
        programs.append(built)
        for entry, made in zip(couple, built, strict=True):
            if entry is not None and made is not None:
                questions.append((msgspec.structs.replace(entry.case, budget=budget, explain=False), made))
    # Of two sides that are one design the later one is asked, and the answer told of both.
    twins = {id(old): new for old, new in programs if old is not None and new is not None and same_text(old, new)}
    from fencepost.pool import Pool

    with Pool() as pool:
        answers = iter(decide_here(questions, pool, twins))
        outcomes = [[None if made is None else _answered(next(answers)) for made in built] for built in programs]
        done = [_judge(*couple, built, pair, fail_on) for couple, built, pair in zip(found, programs, outcomes, strict=True)]
        unexplained = list(_unexplained(done))
        further: list[tuple[Any, ...]] = [
            ("explain", *_explaining(outcomes[number][side])) for number, side in unexplained
        ]
        costs = Costs(platform((before or after)[0].case.platform if before or after else None))
        costed = [pair for pair in sorted(done, key=lambda pair: pair.judged != WORSE) if pair.changes]
        further += [("cost", program, costs.platform) for program in costs.wanted(map(_programs, costed))]
        # What takes longest is begun first.
        order = sorted(range(len(further)), key=lambda n: further[n][0] == "cost")
        results = dict(zip(order, pool.map(_further, [further[n] for n in order]), strict=True))
    for n, (number, side) in enumerate(unexplained):
        outcomes[number][side] = _answered(results[n])
    for number in dict.fromkeys(number for number, _ in unexplained):
        done[number] = _judge(*found[number], programs[number], outcomes[number], fail_on)
    for n, one in enumerate(further):
        if one[0] == "cost":
            costs.enter(one[1], *results[n])
    return _with_costs(done, costs)


def _further(question: tuple[Any, ...]) -> Any:
    """A question about one variant that changed: its answer with explanations, or what it costs."""
    return _decided((question[1], question[2])) if question[0] == "explain" else cost_of(*question[1:])


def _programs(pair: Pair) -> tuple[Program | None, Program | None]:
    before, after = pair.before, pair.after
    return before.program if before is not None else None, after.program if after is not None else None


def _unexplained(found: Sequence[Pair]) -> Iterator[tuple[int, int]]:
    """(number of the pair, side) of the answers whose explanation tells something.

    What protects an object, where both sides are proved or a proof was lost; what closes a hazard, where it is new. The
    latter once for each set of changes and hazards, as the report tells it once.
    """
    seen: set[object] = set()
    for number, pair in enumerate(found):
        old, new = (outcome.answer if outcome is not None else None for outcome in (pair.before, pair.after))
        proved = old is not None and old.verdict == PROVED
        if pair.lost:
            key = (pair.design, pair.changes, pair.because, tuple(hazard.name for hazard in pair.lost))
            if key not in seen:
                yield from ((number, 0), (number, 1)) if proved else ((number, 1),)
            seen.add(key)
        elif pair.changes and proved and new is not None and new.verdict == PROVED:
            yield from ((number, 0), (number, 1))


def _explaining(outcome: Outcome | None) -> tuple[Case, Program]:
    assert outcome is not None and outcome.program is not None
    # A comparison prints no masks, and each is a search of its own.
    return msgspec.structs.replace(outcome.case, explain=True, masks=False), outcome.program


def _with_costs(found: Sequence[Pair], costs: Costs) -> list[Pair]:
    """The pairs, with the change of cost of those that changed, the worse first as few are looked at."""
    made: dict[int, Pair] = {}
    for number, pair in sorted(enumerate(found), key=lambda one: one[1].judged != WORSE):
        old, new = _programs(pair)
        if pair.changes and old is not None and new is not None:
            rows, why = costs.change(old, new)
            pair = msgspec.structs.replace(pair, cost=rows, cost_open=why)
        made[number] = pair
    return [made[number] for number in range(len(found))]


def _answered(outcome: Outcome) -> Outcome:
    if outcome.answer is None:
        raise (RuntimeError if outcome.crashed else InputError)(outcome.error)
    return outcome


def decide_here(
    questions: Sequence[tuple[Case, Program]], pool: Pool, twins: Mapping[int, Program]
) -> list[Outcome]:
    """The outcomes, each question that two variants or sides share decided once; `twins`: id of a program -> the program
    of the other side that is asked in its place."""
    asked = [(case, twins.get(id(program), program)) for case, program in questions]
    keys = [
        (program.objects, program.threads, program.accepted, case.environment, case.platform, case.never, program.places)
        for case, program in asked
    ]
    unique = dict(zip(reversed(keys), reversed(asked), strict=True))
    # What takes longest is begun first, as far as the text tells.
    todo = sorted(unique, key=lambda key: -_weight(unique[key][1]))
    work = sum(len(thread.nodes) for key in todo for thread in key[1])
    known = dict(zip(todo, pool.map(_decided, [unique[key] for key in todo], work > AT_ONCE), strict=True))
    return [_for(case, program, known[key]) for key, (case, program) in zip(keys, questions, strict=True)]


def _weight(program: Program) -> int:
    """How long a program takes, as far as its text tells: where streams meet or are queried the states are many times as many."""
    asked = {type(node.question) for thread in program.threads for node in thread.nodes if isinstance(node, Ask)}
    times = 8 if any(isinstance(o, (Channel, DeviceFlag)) for o in program.objects) else 4 if asked & {EventQuery, StreamQuery} else 1
    return times * sum(len(thread.nodes) for thread in program.threads)


def _decided(question: tuple[Case, Program]) -> Outcome:
    return answer_program(*question)


def _for(case: Case, program: Program, known: Outcome) -> Outcome:
    """An outcome as the answer to a case that asks the same of an equal program."""
    from fencepost.check import matches

    if known.answer is None:
        return msgspec.structs.replace(known, case=case)
    answer = known.answer
    if known.program is not None and known.program.places != program.places:
        answer = moved(answer, known.program, program)
    answer = msgspec.structs.replace(
        answer, design=case.design, variant=case.label, parameters=dict(case.parameters), expected=case.expected,
        expected_hazard=case.hazard,
    )  # fmt: skip
    answer = msgspec.structs.replace(answer, matches=matches(answer, case))
    return Outcome(case, answer, program)


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
    old: Entry | None, new: Entry | None, built: Sequence[Program | None], outcomes: Sequence[Outcome | None],
    fail_on: Sequence[str],
) -> Pair:
    one = new or old
    assert one is not None
    before, after = outcomes
    prefixes = (old.prefix if old else "", new.prefix if new else "")
    pair = Pair(one.case.design, one.case.title, before, after, FINE, prefixes=prefixes)
    if after is None or after.answer is None:
        assert before is not None and before.answer is not None
        return _gone(pair, before.answer)
    earlier = before.answer if before is not None else None
    lost, passed = _lost(earlier, after.answer, fail_on)
    declared = before is None and after.answer.expected is not None and bool(after.answer.matches)
    if declared:
        passed, lost = [*passed, *(f"{hazard.name}: declared" for hazard in lost)], []
    if old is not None and new is not None and earlier is not None and earlier.matches and after.answer.matches:
        # Refuted as declared on both sides, and what is declared has another name now: its memory was renamed.
        instead = [one for one in lost if one.name == new.case.hazard and old.case.hazard not in (None, one.name)]
        lost = [one for one in lost if one not in instead]
        passed = [*passed, *(f"{one.name}: declared, instead of {old.case.hazard}" for one in instead)]
    moved: tuple[Change, ...] = ()
    if built[0] is not None and built[1] is not None:
        moved = tuple(changes(built[0], built[1], prefixes))
    pair = msgspec.structs.replace(
        pair, changes=moved, lost=tuple(lost), passed=tuple(passed), rests=tuple(_rests(earlier, after.answer))
    )
    judged, because = _verdict(earlier, after.answer, lost, declared)
    if judged == FINE and old is not None and new is not None:
        because = list(_asked_elsewhere(old.case, new.case))
        judged = OPEN if because else FINE
    if judged == FINE and old is not None and new is not None and not moved:
        stale = [path for path in new.models if path in old.models and old.models[path] != new.models[path]]
        if stale:
            judged = OPEN
            because = [f"{path} changed, and the design that stands for it did not" for path in stale]
    return msgspec.structs.replace(pair, judged=judged, because=tuple(because))


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


def _lost(before: Answer | None, after: Answer, fail_on: Sequence[str]) -> tuple[list[Hazard], list[str]]:
    """(new hazards that count, new hazards that do not)."""
    known = {hazard.name for hazard in before.hazards} if before is not None and before.verdict == REFUTED else set()
    lost: list[Hazard] = []
    passed: list[str] = []
    for hazard in after.hazards if after.verdict == REFUTED else ():
        if hazard.name in known:
            continue
        if hazard.name in after.accepted:
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
    for when, answer in (("before", before), ("after", after)):
        if answer is not None and answer.verdict not in (PROVED, REFUTED) and answer.expected != answer.verdict:
            return OPEN, [f"{when} the change it is {answer.verdict}" + (f": {answer.reason}" if answer.reason else "")]
    if before is not None and before.verdict == PROVED and after.verdict not in (PROVED, REFUTED):
        return OPEN, [f"it was proved and is {after.verdict}"]
    return FINE, []


def _hang(text: str) -> str:
    """The name of a hang: what and where, without its sentence."""
    return text.partition(" - ")[0]


def _rests(before: Answer | None, after: Answer) -> list[tuple[str, str, str]]:
    """Objects whose protection or margin changed: what orders the conflicting accesses, in words, before and after."""
    olds = {p.object: _protection(p.by, p.margin) for p in before.protections} if before is not None else {}
    news = {p.object: _protection(p.by, p.margin) for p in after.protections}
    if not olds or not news:
        return []
    return [(name, olds[name], news[name]) for name in olds if name in news and olds[name] != news[name]]


def _protection(by: Sequence[str], margin: int | None) -> str:
    return (", ".join(by) or "-") + (f"; margin {margin}" if margin is not None else "")


def place_in_tree(place: Place, prefix: str) -> Place:
    """A place relative to the root of its tree."""
    if not prefix or place.file.startswith("<"):
        return place
    import posixpath

    return msgspec.structs.replace(place, file=posixpath.normpath(f"{prefix}/{place.file}"))


def exit_code(found: Sequence[Pair]) -> int:
    """0 nothing got worse, 1 a proof was lost, 3 it cannot be told."""
    from fencepost.check import FAILED, OK
    from fencepost.check import OPEN as CANNOT_TELL

    judged = {pair.judged for pair in found}
    return FAILED if WORSE in judged else CANNOT_TELL if OPEN in judged else OK
