"""Placements of waits and depths for a loop whose open points are parameters: every combination, and which are minimal."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args, get_origin

import msgspec
from fencepost.check import Case, Outcome, cases, decide_all
from fencepost.errors import InputError
from fencepost.loader import Target
from fencepost.model import program as p
from fencepost.model.answer import PROVED, REFUTED, Answer
from fencepost.parameters import parse, signature, spelled, type_name

MOST = 1024
"""Combinations that one plan may ask for: more is a slip of the finger."""


class Combination(msgspec.Struct, frozen=True):
    """One combination with its answer. `kept`: the Boolean parameters that are true; `rest`: the other parameters."""

    kept: frozenset[str]
    rest: tuple[tuple[str, Any], ...]
    outcome: Outcome

    @property
    def answer(self) -> Answer | None:
        """The answer; None when there is an error instead."""
        return self.outcome.answer

    @property
    def proved(self) -> bool:
        """Whether it is safe, and waits for nothing for ever."""
        return self.answer is not None and self.answer.verdict == PROVED and not self.answer.stops

    @property
    def known(self) -> bool:
        """Whether it is proved, or known not to be fine."""
        return self.answer is not None and (self.answer.verdict in (PROVED, REFUTED) or bool(self.answer.stops))


class Plan(msgspec.Struct, frozen=True):
    """`waits`: the Boolean parameters that were varied; `settings`: the settings of the others, in order."""

    target: str
    fixed: dict[str, Any]
    waits: tuple[str, ...]
    settings: tuple[tuple[tuple[str, Any], ...], ...]
    table: dict[tuple[frozenset[str], tuple[tuple[str, Any], ...]], Combination]
    minimal: dict[tuple[tuple[str, Any], ...], tuple[frozenset[str], ...]]
    """For each setting the minimal sets of waits that are safe there."""
    axis: str | None
    """The integer parameter whose values are the columns of the table; the other settings belong to the rows."""
    lost: tuple[tuple[frozenset[str], tuple[tuple[str, Any], ...]], ...]
    """(waits, other settings) that no value of `axis` saves: known not to be fine wherever the design can be built."""
    implies: tuple[tuple[str, str], ...]
    """(a, b): wherever `a` is kept, `b` changes neither the verdict nor a hazard, and elsewhere it does."""

    def split(self, setting: tuple[tuple[str, Any], ...]) -> tuple[tuple[tuple[str, Any], ...], Any]:
        """(the settings that belong to the row, the value of `axis`)."""
        return tuple((n, v) for n, v in setting if n != self.axis), dict(setting).get(self.axis or "")

    def memory(self, setting: tuple[tuple[str, Any], ...], kept: frozenset[str]) -> int | None:
        """Bytes that the combination needs beyond the least of all combinations; None without a program."""
        mine = self.table[kept, setting].outcome.program
        sizes = [size_of(c.outcome.program) for c in self.table.values() if c.outcome.program is not None]
        return None if mine is None else size_of(mine) - min(sizes)

    def break_even(self, setting: tuple[tuple[str, Any], ...], kept: frozenset[str]) -> list[tuple[str, str]]:
        """(wait, when it is free and what it costs otherwise) for each kept wait whose synchronisations are told apart."""
        from fencepost.model.platform import platform as platform_named
        from fencepost.proofs.waits.catalogue import synchronisations
        from fencepost.wait_costs import wait_costs

        here = self.table[kept, setting].outcome
        if here.program is None or not kept:
            return []
        platform = platform_named(here.case.platform)
        syncs = synchronisations(here.program, platform)
        costs = wait_costs(here.program, platform, syncs)
        texts = costs.texts
        found: list[tuple[str, str]] = []
        for wait in (w for w in self.waits if w in kept):
            fewer = self.table.get((kept - {wait}, setting))
            if fewer is None or fewer.outcome.program is None:
                continue
            other = fewer.outcome.program
            before = {(s.kind, _frames(other, s.at)) for s in synchronisations(other, platform)}
            added = [k for k, s in enumerate(syncs) if (s.kind, _frames(here.program, s.at)) not in before]
            told = sorted((texts[k] for k in added if k in texts), key=lambda text: text.startswith("costs nothing"))
            found += [(wait, text) for text in told[:1]]
        return [*found, ("of steady steps with", costs.of)] if found and costs.of else found

    def margin(self, setting: tuple[tuple[str, Any], ...], kept: frozenset[str]) -> int | None:
        """How far `axis` could fall before the combination is no longer proved; None where the table does not say."""
        if self.axis is None or not self.table[kept, setting].proved:
            return None
        value = lower = dict(setting)[self.axis]
        while True:
            below = tuple((n, lower - 1 if n == self.axis else v) for n, v in setting)
            found = self.table.get((kept, below))
            if found is None or not found.known:
                return None
            if not found.proved:
                return int(value - lower)
            lower -= 1


def _frames(program: p.Program, at: tuple[int, int]) -> tuple[p.Place, ...]:
    site = program.threads[at[0]].nodes[at[1]].site
    return program.places[site] if 0 <= site < len(program.places) else ()


def size_of(program: p.Program) -> int:
    """Bytes of all memory that lives for ever."""
    return sum(o.bytes * (o.depth or 1) for o in program.objects if isinstance(o, p.Memory))


def axes_of(target: Target, overs: Sequence[str]) -> dict[str, list[Any]]:
    """The axes that `--over W1,W2,depth=1..4` names: Booleans and Literals by their name, others with their values.

    Raises `InputError` for an unknown or doubly given name, or a value of another type.
    """
    known = signature(target)
    texts: dict[str, list[str]] = {}
    last: str | None = None
    for text in (part.strip() for over in overs for part in over.split(",")):
        if not text:
            continue
        name, equals, value = text.partition("=")
        if not equals and name not in known and last is not None:
            texts[last].append(text)  # a further value of the axis before: depth=1,2,4
            continue
        if name not in known:
            raise InputError(
                f"{target.place}: {target.design} has no parameter {name!r}; it has: {', '.join(known) or 'none'}"
            )
        if name in texts:
            raise InputError(f"--over {text}: parameter {name!r} is given twice")
        texts[name] = [value] if equals else []
        last = name if equals else None
    return {name: _values(target, name, known[name][0], parts) for name, parts in texts.items()}


def _values(target: Target, name: str, declared: Any, parts: list[str]) -> list[Any]:
    if not parts:
        if declared is bool:
            return [False, True]
        if get_origin(declared) is Literal:
            return list(get_args(declared))
        raise InputError(f"--over {name}: {type_name(declared)} has no few values; write {name}=1..4 or {name}=a,b")
    found: list[Any] = []
    for part in parts:
        low, dots, high = part.partition("..")
        if dots and low.lstrip("-").isdigit() and high.lstrip("-").isdigit():
            if int(high) - int(low) >= MOST:
                raise InputError(f"--over {name}={part}: more than {MOST} values")
            found += [str(n) for n in range(int(low), int(high) + 1)]
        else:
            found.append(part)
    if not found:
        raise InputError(f"--over {name}={','.join(parts)}: an empty range")
    try:
        return [parse(text, declared) for text in found]
    except (ValueError, KeyError):
        raise InputError(
            f"{target.place}: parameter {name!r} of {target.design} is {type_name(declared)}, not {','.join(parts)!r}"
        ) from None


def shared(
    targets: Sequence[Target], overs: Sequence[str], sets: Sequence[str]
) -> list[tuple[Target, list[str], list[str]]]:
    """For each design the open points and settings that it has; designs that have no open point are left out.

    With one design everything is its own, so that a wrong name is said. Raises `InputError` for a name that no design has.
    """
    if len(targets) == 1:
        return [(targets[0], list(overs), list(sets))]
    parts: list[list[str]] = []
    everything = {name for target in targets if target.function is not None for name in signature(target)}
    for text in (part.strip() for over in overs for part in over.split(",") if part.strip()):
        name, equals, _ = text.partition("=")
        if not equals and name not in everything and parts and "=" in parts[-1][0]:
            parts[-1].append(text)  # a further value of the axis before
        else:
            parts.append([text])
    known = {part[0].partition("=")[0] for part in parts} | {text.partition("=")[0] for text in sets}
    missing = sorted(known - everything)
    if missing:
        raise InputError(f"no design of the targets has a parameter {missing[0]!r}; they have: {', '.join(sorted(everything))}")
    result = []
    for target in targets:
        mine = signature(target) if target.function is not None else {}
        own = [",".join(part) for part in parts if part[0].partition("=")[0] in mine]
        if own:
            result.append((target, own, [text for text in sets if text.partition("=")[0] in mine]))
    if not result:
        raise InputError("plan needs open points: --over W1,W2,depth=1..4")
    return result


def plan(
    target: Target,
    overs: Sequence[str],
    sets: Sequence[str] = (),
    *,
    platform: str | None = None,
    budget: float | None = None,
    jobs: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Plan:
    """Decide every combination of the axes. Raises `InputError` as `axes_of` does, and for more than `MOST`."""
    axes = axes_of(target, overs)
    (base,) = cases([target], sets=sets or [], platform=platform, budget=budget) if sets else [Case(target.spelling, target.design, {})]
    for name in base.parameters:
        if name in axes:
            raise InputError(f"--set {spelled({name: base.parameters[name]})}: {name!r} is an axis of --over, too")
    count = 1
    for values in axes.values():
        count *= len(values)
    if not axes or count < 2:
        raise InputError("plan needs open points: --over W1,W2,depth=1..4")
    if count > MOST:
        raise InputError(f"--over asks for {count} combinations; at most {MOST} are decided, fix some with --set")
    waits = tuple(name for name, values in axes.items() if set(map(type, values)) == {bool})
    others = {name: values for name, values in axes.items() if name not in waits}
    numbers = [n for n, values in others.items() if len(values) > 1 and set(map(type, values)) == {int}]
    axis = numbers[-1] if numbers else None
    columns = tuple(tuple(zip(others, values, strict=True)) for values in itertools.product(*others.values()))
    rows = [
        frozenset(name for name, on in zip(waits, choice, strict=True) if on)
        for choice in itertools.product(*(axes[name] for name in waits))
    ]
    keys = [(kept, column) for kept in rows for column in columns]
    asked = [
        msgspec.structs.replace(
            base, parameters={**base.parameters, **{w: w in kept for w in waits}, **dict(column)}, label=None,
            expected=None, hazard=None, explain=False, platform=platform or base.platform, budget=budget,
        )
        for kept, column in keys
    ]  # fmt: skip
    table = {
        key: Combination(key[0], key[1], outcome)
        for key, outcome in zip(keys, decide_all(asked, jobs, progress), strict=True)
    }
    minimal = {column: tuple(_minimal([kept for kept in rows if table[kept, column].proved])) for column in columns}
    made = Plan(target.design, dict(base.parameters), waits, columns, table, minimal, axis, (), ())
    groups: dict[tuple[frozenset[str], Any], list[Combination]] = {}
    for kept, column in keys:
        groups.setdefault((kept, made.split(column)[0]), []).append(table[kept, column])
    bad = [row for row, cells in groups.items() if _none_is_fine(cells)]
    lost = sorted(bad, key=lambda row: (len(row[0]), sorted(row[0])))
    return msgspec.structs.replace(made, lost=tuple(lost), implies=_implications(waits, rows, columns, table))


def _minimal(sets: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    return sorted((one for one in sets if not any(other < one for other in sets)), key=lambda s: (len(s), sorted(s)))


def _none_is_fine(cells: Sequence[Combination]) -> bool:
    """Whether each that can be built is known not to be fine, and some can."""
    built = [one for one in cells if one.answer is not None]
    return bool(built) and all(one.known and not one.proved for one in built)


def _seen(combination: Combination) -> tuple[Any, ...] | None:
    """What a combination shows: its verdict, its hazards by name and operations, and its hangs; None where that is not known."""
    answer = combination.answer
    if answer is None:
        return ("error",)
    if not combination.known:
        return None
    hazards = {(h.name, h.first and (h.first.operation, h.first.places), h.second.operation, h.second.places) for h in answer.hazards}
    return (answer.verdict, frozenset(hazards), frozenset(stop.partition(" - ")[0] for stop in answer.stops))


def _implications(
    waits: Sequence[str], rows: Sequence[frozenset[str]], columns: Sequence[Any], table: dict[Any, Combination]
) -> tuple[tuple[str, str], ...]:
    """Pairs (a, b) such that beside `a`, `b` never changes anything, though without `a` it does.

    What is not known may change, and is no change: nothing is said of it.
    """

    def changes(b: str, kept: frozenset[str], unknown: bool) -> bool:
        pairs = [
            (_seen(table[kept - {b}, column]), _seen(table[kept | {b}, column]))
            for column in columns
            if (kept - {b}, column) in table and (kept | {b}, column) in table
        ]
        return any(unknown if None in pair else pair[0] != pair[1] for pair in pairs)

    return tuple(
        (a, b)
        for a in waits
        for b in waits
        if a != b
        and not any(changes(b, kept, unknown=True) for kept in rows if a in kept)
        and any(changes(b, kept, unknown=False) for kept in rows if a not in kept)
    )
