"""What liveness looks at: control, and of every shared object as much as decides who can move.

No bits, no antichain, no device: as long as no stream item can wait for a host, all enqueued work ends, so that event and
stream waits end too and a query can go either way (theory: liveness). A thread's own operations are run together up to
the next one that touches what another thread touches; only these interleave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fencepost.model import program as p
from fencepost.model.idle import between_turns
from fencepost.proofs.liveness.hosts import Hosts
from fencepost.proofs.liveness.moves import COUNTED_TO, SHARED, Block, Bounded, Move, Run, State, Value, with_value
from fencepost.proofs.liveness.text import end_of, turn_ends


class Semantics(Hosts):
    """Successors of states of one program. Reads the program alone; no engine's code is used."""

    def __init__(self, program: p.Program, alone: bool = False) -> None:
        """`alone`: what no order of other threads' steps can change is run without theirs in between (see `alone`)."""
        super().__init__(program)
        self._visible: list[list[bool]] = []
        self._blocks: list[list[Block | None]] = []
        self._runs: list[list[Run]] = []
        self._compile()
        self._commuting: list[list[bool]] = [[False] * len(row) for row in self._visible]
        if alone:
            self._find_commuting()
        self._stops: list[list[bool]] = [
            [seen or number == thread.entry for number, seen in enumerate(row)] + [True]
            for thread, row in zip(self.threads, self._visible, strict=True)
        ]
        """For each thread and node whether a run of own steps ends in front of it. At the end of the thread it does (END is the last)."""
        self._beginnings: dict[int, frozenset[int]] = {}
        """For idle threads the nodes at which they count as between two turns."""

    # ------------------------------------------------------------ start

    def start(self) -> State:
        """All objects as they are made; loops and scripts wait until the setups are done."""
        count = len(self.threads)
        return State(
            tuple(thread.entry for thread in self.threads), (0,) * count, ((),) * count, tuple(self._first.values()),
            tuple((name, (), (0,) * len(self._askers[name])) for name in self._agreed),
        )  # fmt: skip

    # ------------------------------------------------------------ successors

    def ready(self, state: State) -> list[int]:
        """Threads that have not ended and may run: setups first, one after the other."""
        at = state.at
        for number in self._setups:
            if at[number] != p.END:
                return [number]
        return [number for number in self._others if at[number] != p.END]

    def obstacle(self, state: State, thread: int) -> int | str | None:
        """The object (or an event made in a body, by its local's name) that the thread waits for; None when it can move."""
        blocked = self._blocks[thread][state.at[thread]]
        return None if blocked is None else blocked(state)

    def begins(self, thread: int, node: int) -> bool:
        """Whether the thread comes to a node before it has done anything in its turn that another one could notice."""
        if thread not in self._beginnings:
            row = self._visible[thread]
            unnoticed = [number for number, seen in enumerate(row) if not seen and self._blocks[thread][number] is None]
            self._beginnings[thread] = between_turns(self.program, thread, unnoticed)
        return node in self._beginnings[thread]

    def successors(self, state: State, thread: int) -> Iterator[tuple[tuple[Move, ...], State]]:
        """What a thread that does not wait can do next: one shared operation, then all of its own up to the next shared one.

        Each is the steps and the state after them.
        """
        blocks, stops, runs = self._blocks[thread], self._stops[thread], self._runs[thread]
        todo: list[tuple[tuple[Move, ...], State]] = [((), state)]
        while todo:
            moves, now = todo.pop()
            number = now.at[thread]
            # A whole turn without a shared operation ends the run of own steps, too: others get their chance.
            if moves and (stops[number] or ((block := blocks[number]) is not None and block(now) is not None)):
                yield moves, now
                continue
            for answer, after in reversed(runs[number](now)):
                todo.append(((*moves, Move(thread, number, answer)), after))

    def alone(self, state: State, able: list[int]) -> int | None:
        """Of those that can move, a thread whose next steps commute with whatever the others do, and which they cannot disable; None if there is none.

        A wait that can be lost, or ended, can be so with those steps done first. None at the start of its turn: each
        thread passes it on every cycle, so that every cycle has a state from which all threads move.
        """
        for thread in able:
            number = state.at[thread]
            if self._commuting[thread][number] and number != self.threads[thread].entry:
                return thread
        return None

    def _find_commuting(self) -> None:
        """The one putter and the one getter of a queue commute where both can move: they work at its two ends. Only a
        test by the other side tells their order."""
        users: dict[tuple[str, int], set[int]] = {}
        whats = [[n.operation if isinstance(n, p.Do) else n.question for n in thread.nodes] for thread in self.threads]
        for thread, row in enumerate(whats):
            for what in row:
                users.setdefault((end_of(what), getattr(what, "queue", -1)), set()).add(thread)
        for thread, row in enumerate(whats):
            if not turn_ends(self.threads[thread]):
                continue  # it need not pass the start of a turn
            for number, what in enumerate(row):
                end = end_of(what)
                if end in ("put", "get"):
                    queue = what.queue  # type: ignore[union-attr]
                    others = users.get(("test", queue), set()) - {thread}
                    if len(users[end, queue]) == 1 and not others:
                        self._commuting[thread][number] = True
                        self._visible[thread][number] = False
                elif not self._visible[thread][number]:
                    self._commuting[thread][number] = True

    def _is_visible(self, what: p.Operation | p.Question) -> bool:
        return isinstance(what, SHARED) or (isinstance(what, p.Choose) and what.agreed) or (
            self._tracked and isinstance(what, p.Advance)
        )  # fmt: skip

    def _compile(self) -> None:
        """For each thread and node: whether others can notice it, what it waits for, and what it does."""
        for thread, source in enumerate(self.threads):
            what = [node.operation if isinstance(node, p.Do) else node.question for node in source.nodes]
            self._visible.append([self._is_visible(one) for one in what])
            self._blocks.append([self._block(thread, number, one) for number, one in enumerate(what)])
            self._runs.append([self._run(thread, number, node) for number, node in enumerate(source.nodes)])

    def _block(self, thread: int, number: int, what: p.Operation | p.Question) -> Block | None:
        """What says which object a node waits for; None for a node that never waits."""
        if isinstance(what, (p.Put, p.Get, p.QueueTag)):
            queue, at = what.queue, self._place[what.queue]
            if isinstance(what, p.Put):
                thing = self.program.objects[queue]
                assert isinstance(thing, p.Queue)
                capacity = thing.capacity
                return lambda s: queue if len(s.objects[at]) >= capacity else None
            if isinstance(what, p.Get):
                tag = what.tag
                return lambda s: queue if not s.objects[at] or s.objects[at][0] != tag else None
            return lambda s: queue if not s.objects[at] else None
        if isinstance(what, p.CounterWait):
            counter, at, value, per_turn = what.counter, self._place[what.counter], what.value, what.per_turn
            return lambda s: counter if s.objects[at] < value + (s.turns[thread] if per_turn else 0) else None
        if isinstance(what, (p.Take, p.Acquire, p.FlagWait)):
            oid = what.pool if isinstance(what, p.Take) else what.lock if isinstance(what, p.Acquire) else what.flag
            at = self._place[oid]
            return lambda s: None if s.objects[at] else oid
        return None

    def _run(self, thread: int, number: int, node: p.Node) -> Run:
        """What a node does: the answers and the states behind them."""
        if isinstance(node, p.Do):
            change, go = self._change(thread, node.operation), self._goto(thread, node.next)
            if change is None:
                return lambda s: [(None, go(s, s.objects))]
            if isinstance(node.operation, p.Advance):
                return lambda s: [(None, go(self._advanced(s, thread, node.operation), change(s)))]
            return lambda s: [(None, go(s, change(s)))]
        question = node.question
        ways = {answer: self._goto(thread, target) for answer, target in node.branches}
        if isinstance(question, p.TryLock) or (isinstance(question, p.Choose) and question.agreed):

            def asked(s: State) -> list[tuple[str | None, State]]:
                result: list[tuple[str | None, State]] = []
                for answer in self._answers(s, thread, question):
                    if answer in ways:
                        after = self._answered(s, thread, question, answer)
                        result.append((answer, ways[answer](after, after.objects)))
                return result

            return asked
        return lambda s: [(answer, ways[answer](s, s.objects)) for answer in self._answers(s, thread, question) if answer in ways]

    def _goto(self, thread: int, node: int) -> Callable[[State, tuple[Value, ...]], State]:
        """The thread goes on at `node`, with these objects."""
        ends, behind = node == p.END, thread + 1
        if ends and self.threads[thread].kind == "loop":
            node = self.threads[thread].entry
        here = (node,)
        if not self._counting and not self._tracked:

            def go(s: State, objects: tuple[Value, ...]) -> State:
                at = s.at
                return State(at[:thread] + here + at[behind:], s.turns, s.indices, objects, s.agreed, s.device)

            return go
        turned = ends and self.threads[thread].kind == "loop"

        def count(s: State, objects: tuple[Value, ...]) -> State:
            at, turns, indices = s.at, s.turns, s.indices
            if ends and indices[thread]:
                indices = with_value(indices, thread, ())
            if turned:
                turns = with_value(turns, thread, self._next_turn(thread, turns[thread]))
            if self._counters:
                objects = self._counted(objects)
            if self._waiters:
                objects, turns = self._relative(objects, turns)
            return State(at[:thread] + here + at[behind:], turns, indices, objects, s.agreed, s.device)

        return count

    def _next_turn(self, thread: int, turn: int) -> int:
        """The turn after this one, without what no test can tell apart, so that states repeat."""
        turn += 1
        if thread in self._waiters or turn < self._below:
            return turn
        return self._below + (turn - self._below) % self._period

    def _counted(self, objects: tuple[Value, ...]) -> tuple[Value, ...]:
        """Counters no further than any test of them looks."""
        return tuple([
            min(value, self._goals.get(number, 0)) if number in self._counters and self._goals.get(number, 0) >= 0 else value
            for number, value in zip(self.kept, objects, strict=True)
        ])  # fmt: skip

    def _relative(
        self, objects: tuple[Value, ...], turns: tuple[int, ...]
    ) -> tuple[tuple[Value, ...], tuple[int, ...]]:
        """Counters and the turns that wait for them: all fall by the same multiple of the period, when all are large."""
        named = list(zip(self.kept, objects, strict=True))
        levels = [value for number, value in named if self._goals.get(number, 0) < 0]
        levels += [turns[number] for number in self._waiters]
        floor = self._below + max((abs(node.operation.value) for t in self.threads for node in t.nodes
                                   if isinstance(node, p.Do) and isinstance(node.operation, p.CounterWait)), default=0)  # fmt: skip
        low = min(levels)
        if max(levels) - low > COUNTED_TO + floor:
            raise Bounded("a counter runs ahead of the turns that wait for it, or a turn of a counter, without bound")
        # Waits for constants see no difference above the greatest of them.
        fall = max(0, low - floor) // self._period * self._period
        if not fall:
            return objects, turns
        return (
            tuple(value - fall if self._goals.get(number, 0) < 0 else value for number, value in named),
            tuple(turn - fall if number in self._waiters else turn for number, turn in enumerate(turns)),
        )
