"""A played run as an event structure: accesses, happens-before, conflicts, undefined reads, feasibility."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.model import program as p
from fencepost.model.answer import Run
from fencepost.model.events.parts import Key, asked, cuts, gives, paths_overlap
from fencepost.model.events.state import FalseQuery, InvalidRun, Node, Player, Touched
from fencepost.model.platform import BARE, PLATFORMS, Environment, Platform


class Access(NamedTuple):
    """One access of the run: the `node` that makes it (index into `Structure.nodes`) and what it touches."""

    node: int
    touched: Touched


class Structure:
    """What a run did. `accesses` is in val order: the run's order, each device item where it was enqueued, an item's
    reads before its writes. That order is a linear extension of happens-before."""

    def __init__(self, player: Player, run: Run) -> None:
        self.program: p.Program = player.program
        self.platform = player.platform
        self.environment = player.environment
        self.run = run
        self.program_meets = player.meets
        """Whether work may be held back on the device, and so come after calls that were made later."""
        self.nodes: list[Node] = player.nodes
        self.tenants = player.tenants
        self.false_queries: list[FalseQuery] = player.false_queries
        self.accesses: list[Access] = []
        self.of_node: list[range] = []
        """For each node the indices of its accesses."""
        for number, node in enumerate(self.nodes):
            self.of_node.append(range(len(self.accesses), len(self.accesses) + len(node.accesses)))
            self.accesses += [Access(number, touched) for touched in node.accesses]


def execute(program: p.Program, run: Run, *, platform: Platform = PLATFORMS["cuda"],
            environment: Environment = BARE) -> Structure:  # fmt: skip
    """Play `run` from the start. Raises `InvalidRun` naming the first step that is not possible, and why."""
    player = Player(program, platform, environment)
    player.play(run)
    return Structure(player, run)


def happens_before(a: Node, b: Node) -> bool:
    """Whether the end of `a` comes before the start of `b` under every timing."""
    if a.agent == b.agent:
        return a.tick < b.tick
    return b.clock[a.agent] >= a.tick


def overlap(a: Touched, b: Touched) -> bool:
    """Whether two accesses may share a byte. Parts of different tenants of a block cannot be compared."""
    return a.key == b.key and (a.tenant != b.tenant or paths_overlap(a.path, b.path))


def conflicts(structure: Structure) -> list[tuple[int, int]]:
    """Pairs of accesses (indices, in val order) of common bytes, one a write, that are not ordered: the hazards.

    And those of two owners of a block that are ordered the wrong way round (`late`). Per buffer and agent the search goes back from the newest access and stops at the first that is ordered: what
    that agent did earlier is ordered, too.
    """
    found: list[tuple[int, int]] = []
    nodes, accesses = structure.nodes, structure.accesses
    earlier: dict[Key, dict[int, list[int]]] = {}
    for index, (number, touched) in enumerate(accesses):
        node = nodes[number]
        agents = earlier.setdefault(touched.key, {})
        for other_agent, indices in agents.items():
            if other_agent == node.agent:
                continue  # one agent's accesses are in order, and an item never conflicts with itself
            known = node.clock[other_agent]
            for other in reversed(indices):
                if nodes[accesses[other].node].tick <= known:
                    break
                before = accesses[other].touched
                if (before.write or touched.write) and overlap(before, touched):
                    found.append((other, index))
        agents.setdefault(node.agent, []).append(index)
    if structure.program_meets:
        found += _late(structure)
    found.sort()
    return found


def conflicting(structure: Structure, first: int, second: int) -> bool:
    """Whether two accesses (indices, in val order) are a pair of `conflicts`."""
    (number, before), (other, touched) = structure.accesses[first], structure.accesses[second]
    if number == other or not (before.write or touched.write):
        return False
    if structure.program_meets and late(structure, first, second):
        return before.freed is None and touched.freed is None
    return not happens_before(structure.nodes[number], structure.nodes[other]) and overlap(before, touched)


def late(structure: Structure, first: int, second: int) -> bool:
    """Whether `second` is by an earlier owner of the block than `first`, which surely comes before it.

    Such work was held back until its block had another owner. No order of the two is in question: with memory of its own for
    each owner (theory section 1) neither would see the other.
    """
    a, b = structure.accesses[first], structure.accesses[second]
    if a.touched.tenant is None or b.touched.tenant is None or a.touched.key != b.touched.key:
        return False
    return a.touched.tenant > b.touched.tenant and happens_before(structure.nodes[a.node], structure.nodes[b.node])


def _late(structure: Structure) -> list[tuple[int, int]]:
    """The pairs of `late`, one a write."""
    found: list[tuple[int, int]] = []
    owned: dict[Key, list[int]] = {}
    for index, (_, touched) in enumerate(structure.accesses):
        if touched.tenant is None or touched.freed is not None:
            continue
        before = owned.setdefault(touched.key, [])
        for other in before:
            if (structure.accesses[other].touched.write or touched.write) and late(structure, other, index):
                found.append((other, index))
        before.append(index)
    return found


def undefined_reads(structure: Structure) -> list[int]:
    """Accesses that read an allocated block, in val order, before each piece of it was written for that tenant.

    Through a raw pointer to a freed block any access is one: its bytes may be anybody's by then.
    """
    written: dict[int, list[Touched]] = {}
    found: list[int] = []
    by = cuts(structure.program)
    for index, (_, touched) in enumerate(structure.accesses):
        if touched.tenant is None:
            continue  # made outside the bodies: starts with known content
        if touched.freed is not None:
            found.append(index)
            continue
        if touched.write:
            if not touched.same_bytes:
                written.setdefault(touched.tenant, []).append(touched)
        else:
            done = written.get(touched.tenant, ())
            if not all(any(gives(w.path, touched.path, piece) for w in done) for piece in asked(touched.path, by, structure.tenants[touched.tenant].bytes)):
                found.append(index)
    return found


def feasible(structure: Structure) -> bool:
    """Whether timings exist under which the run happens (theory section 2 [T]).

    HB, the order of host calls on every shared object, and each "no" of a query before the completion of what it
    tested must be acyclic. All edges but the last kind go forward in the run, so a cycle passes through queries only:
    play the run once more with the calls' order among the edges, and look which query can only come after the end of
    an item that an earlier (or the same) query saw pending. A record has no length: it completes with the last of its
    items, so each query needs one item that ends after it.
    """
    if not structure.false_queries:
        return True
    player = Player(structure.program, structure.platform, structure.environment, keep=False, total_order=True)
    try:
        player.play(structure.run)
    except InvalidRun:
        return False  # a query said "no" though the order of the calls makes its work complete
    queries = player.false_queries
    # Which queries surely come after the end of an item.
    options: list[list[frozenset[int]]] = []
    for query in queries:
        after = {
            frozenset(n for n, other in enumerate(queries) if other.clock[agent] >= tick) for agent, tick in query.items
        }
        options.append(sorted(after, key=len))
    return _acyclic([], options)


def _acyclic(chosen: list[frozenset[int]], options: list[list[frozenset[int]]]) -> bool:
    """Choose for each query the queries that come after its item's end, so that "comes after" has no cycle."""
    this = len(chosen)
    if this == len(options):
        return True
    for after in options[this]:
        # Only queries already chosen can lead back to this one; later choices are checked when they are made.
        if not _reaches(after, this, [*chosen, after]) and _acyclic([*chosen, after], options):
            return True
        if not after:
            return False  # nothing comes after: the best choice, and it did not help
    return False


def _reaches(start: frozenset[int], goal: int, after: list[frozenset[int]]) -> bool:
    """Whether `goal` comes after one of `start`."""
    seen: set[int] = set()
    work = list(start)
    while work:
        query = work.pop()
        if query == goal:
            return True
        if query not in seen and query < len(after):
            seen.add(query)
            work.extend(after[query])
    return False
