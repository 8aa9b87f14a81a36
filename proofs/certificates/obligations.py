"""The obligations of one class as SMT-LIB text over bit-vectors, written directly: no solver's library in between.

A file is complete: `z3 FILE` and `cvc5 FILE` print `unsat` three times. The invariant is the upward closure of the
minimal bit sets, `inv_C` for each control C. Each line of the second obligation is one edge of the relation and is
false when what it leads to is covered; each line of the third is one access that is checked.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from fencepost.proofs.certificates.invariant import Sets, image
from fencepost.proofs.certificates.relation import Edge, Relation
from fencepost.proofs.certificates.world import TRUE, Check, Step

BLOCK = 200
OBLIGATIONS = ("init => Inv", "Inv & step => Inv'", "Inv => no hazard")


class Derived(NamedTuple):
    """The relation over the controls of an invariant, in the order in which they are first reached.

    `edges`: (source, number, edge); `missing`: controls of the invariant that nothing leads to.
    """

    order: tuple[str, ...]
    edges: tuple[tuple[str, int, Edge], ...]
    missing: tuple[str, ...]
    width: int


def derive(relation: Relation, sets: Sets) -> Derived:
    """Expand the relation from its start through the controls that the invariant names."""
    order = [relation.start]
    seen = {relation.start}
    edges: list[tuple[str, int, Edge]] = []
    for name in order:
        if name not in sets:
            continue
        for number, edge in enumerate(relation.edges(name)):
            edges.append((name, number, edge))
            if edge.target not in seen:
                seen.add(edge.target)
                order.append(edge.target)
    width = 1 + max(relation.controls[name].width for name in order)
    return Derived(tuple(order), tuple(edges), tuple(sorted(set(sets) - seen)), (width + 3) // 4 * 4)


def number(value: int, width: int) -> str:
    """A bit-vector constant."""
    return f"#x{value:0{width // 4}x}"


def holds(mask: int) -> str:
    """That `b` has all bits of a set: one comparison for each run of them, which solvers decide much faster than a mask."""
    terms = []
    low = 0
    while mask >> low:
        if not mask >> low & 1:
            low += 1
            continue
        high = low
        while mask >> high + 1 & 1:
            high += 1
        terms.append(f"(= ((_ extract {high} {low}) b) {_ones(high - low + 1)})")
        low = high + 1
    return terms[0] if len(terms) == 1 else f"(and {' '.join(terms)})"


def _ones(width: int) -> str:
    return f"#b{'1' * width}" if width <= 8 else f"(bvnot (_ bv0 {width}))"


def _any(terms: list[str]) -> str:
    return "false" if not terms else terms[0] if len(terms) == 1 else f"(or {' '.join(terms)})"


def _bit(mask: int) -> str:
    """One bit of the target: the disjunction of bits of the source."""
    if mask & TRUE:
        return "#b1"
    terms = [f"((_ extract {k} {k}) b)" for k in range(mask.bit_length()) if mask >> k & 1]
    return "#b0" if not terms else terms[0] if len(terms) == 1 else f"(bvor {' '.join(terms)})"


def _update(update: tuple[int, ...], width: int) -> str:
    """The target's bits from the source's `b`: runs of bits that move together are one piece."""
    masks = [TRUE, *update, *[0] * (width - 1 - len(update))]
    pieces: list[str] = []
    k = width - 1
    while k >= 0:
        low = k
        mask = masks[k]
        if mask == 0:
            while low > 0 and masks[low - 1] == 0:
                low -= 1
            pieces.append(f"(_ bv0 {k - low + 1})")
        elif mask & (mask - 1) == 0 and not mask & TRUE:
            while low > 0 and masks[low - 1] << 1 == masks[low] and not masks[low - 1] & TRUE:
                low -= 1
            pieces.append(f"((_ extract {mask.bit_length() - 1} {masks[low].bit_length() - 1}) b)")
        else:
            pieces.append(_bit(mask))
        k = low - 1
    return pieces[0] if len(pieces) == 1 else f"(concat {' '.join(pieces)})"


def steps_in_words(path: tuple[Step, ...]) -> str:
    """A stretch: thread and nodes, answers behind "=", "got" where the guessed bytes were handed out."""
    parts = [f"{s.node if s.node >= 0 else 'end'}{'=' + s.answer if s.answer is not None else ''}{' got' if s.got else ''}" for s in path]
    return f"{path[0].thread}: {', '.join(parts)}"


def _control(relation: Relation, name: str) -> str:
    world = relation.controls[name].world
    wit = world.witness
    chosen = "no witness" if wit is None else "witness" if wit.slot is None else f"witness in slot {wit.slot}"
    return f"at {' '.join(map(str, world.pc))}, {chosen}"


def check_term(check: Check, width: int) -> str:
    """True when the check fails: none of its bits is set."""
    return "true" if not check.mask else f"(= (bvand b {number(check.mask, width)}) {number(0, width)})"


class Block(NamedTuple):
    """Part of an obligation: its number in OBLIGATIONS, the lines of its assertion, the definitions that they use."""

    obligation: int
    lines: tuple[str, ...]
    needs: tuple[str, ...]


class Text(NamedTuple):
    """A file: what it declares, its definitions by name in order, its obligations in blocks."""

    head: tuple[str, ...]
    definitions: dict[str, str]
    blocks: tuple[Block, ...]

    def lines(self) -> list[str]:
        """The file line by line."""
        lines = [*self.head, *self.definitions.values()]
        for block in self.blocks:
            lines += [f"; {OBLIGATIONS[block.obligation]}", "(push 1)", *block.lines, "(check-sat)", "(pop 1)"]
        return lines

    def one(self, block: Block) -> str:
        """One block by itself, without the check."""
        used = (self.definitions[name] for name in block.needs)
        return "\n".join([*self.head, *used, *block.lines]) + "\n"


def write(relation: Relation, sets: Sets, derived: Derived, label: str) -> Text:
    """The text of one class."""
    width = derived.width
    head = (
        f"; fencepost certificate, class {' '.join(label.split())}",
        "(set-logic QF_BV)",
        f"(define-sort B () (_ BitVec {width}))",
        "(declare-const b B)",
    )
    definitions: dict[str, str] = {}
    for name in (*derived.order, *derived.missing):
        if name in sets:
            terms = _any([holds(m) for m in sets[name]])
            about = _control(relation, name) if name in relation.controls else "nothing leads here"
            definitions[f"inv_{name}"] = f"(define-fun inv_{name} ((b B)) Bool {terms}) ; {about}"
    updates: dict[tuple[int, ...], str] = {}
    steps: list[tuple[str, tuple[str, ...]]] = []
    hazards: dict[str, tuple[str, ...]] = {}
    for source, _, edge in derived.edges:
        if edge.update not in updates:
            updates[edge.update] = update = f"u{len(updates)}"
            definitions[update] = f"(define-fun {update} ((b B)) B {_update(edge.update, width)})"
        update, inv, target = updates[edge.update], f"inv_{source}", f"inv_{edge.target}"
        known = edge.target in sets
        covered = f"({target} ({update} b))" if known else "false"
        needs = (inv, *((target,) if known else ()), update)
        steps.append((f"(and ({inv} b) (not {covered})) ; {steps_in_words(edge.path)}", needs))
        for check in edge.checks:
            term = f"(and ({inv} b) {check_term(check, width)})"
            hazards[f"{term} ; {check.what} at {check.thread}.{check.node}.{check.which}"] = (inv,)
    start = f"inv_{relation.start}"
    missing = start not in definitions
    begin = "(assert true)" if missing else f"(assert (not (let ((b {number(TRUE, width)})) ({start} b))))"
    blocks = [Block(0, (begin,), () if missing else (start,))]
    blocks += _blocks(1, steps) + _blocks(2, list(hazards.items()))
    return Text(head, definitions, tuple(blocks))


def _blocks(obligation: int, terms: list[tuple[str, tuple[str, ...]]]) -> list[Block]:
    """Disjunctions of at most BLOCK terms: a solver's time grows faster than their number."""
    return [
        Block(
            obligation,
            ("(assert (or false", *(line for line, _ in part), "))"),
            tuple(dict.fromkeys(name for _, needs in part for name in needs)),
        )
        for part in (terms[k : k + BLOCK] for k in range(0, max(1, len(terms)), BLOCK))
    ]


_INVARIANT = re.compile(r"\(define-fun inv_([0-9a-f]{12}) \(\(b B\)\) Bool (.*)\) ; [^;]*$")
_RUN = re.compile(r"\(= \(\(_ extract (\d+) (\d+)\) b\) (?:#b1+|\(bvnot \(_ bv0 \d+\)\))\)")
_SET = re.compile(r"\(and((?: @\d+:\d+)+)\)|(@\d+:\d+)")


def read_sets(text: str) -> Sets:
    """The minimal bit sets of a file. Raises `ValueError` on a line that is no disjunction of bit sets as `holds` writes them."""
    sets: Sets = {}
    for line in text.splitlines():
        if not line.startswith("(define-fun inv_"):
            continue
        found = _INVARIANT.match(line)
        masks = []
        for both, alone in _SET.findall(_RUN.sub(r"@\1:\2", found[2]) if found else ""):
            mask = 0
            for run in (both or alone).split():
                high, low = map(int, run[1:].split(":"))
                mask |= (1 << high + 1) - (1 << low) if low <= high < 100_000 else 0
            masks.append(mask)
        # Written again it must be the same text: nothing that was not understood is left over.
        if found is None or found[1] in sets or _any([holds(mask) for mask in masks]) != found[2] or 0 in masks:
            raise ValueError(f"no disjunction of bit sets: {line[:70]}")
        sets[found[1]] = tuple(masks)
    return sets


def failures(sets: Sets, derived: Derived, relation: Relation, which: int, bits: int) -> list[str]:
    """What an assignment of `b` breaks, in words: the reason why a solver answered "sat"."""

    def inside(name: str) -> bool:
        return any(m & bits == m for m in sets.get(name, ()))

    if which == 0:
        return ["the start is not covered"]
    found = []
    for source, _, edge in derived.edges:
        if not inside(source):
            continue
        if which == 1:
            after = image(edge.update, bits)
            covered = any(m & after == m for m in sets.get(edge.target, ()))
            if not covered:
                found.append(f"the step {steps_in_words(edge.path)} leads from control {source} to {edge.target}, which is not covered")
        else:
            for check in edge.checks:
                if not check.mask & bits:
                    found.append(f"{check.what} at {check.thread}.{check.node}.{check.which} is not ordered")
    return found
