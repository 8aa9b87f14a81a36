"""An independent, plain reference for waits that never end: every step interleaves, every state is kept, nothing is reduced.

Written from theory section 7 alone; uses no code of `fencepost.proofs` and none of the effects in `fencepost.model`. It knows
the operations of small random programs; any other raises `Unknown`. A program with more states than asked for raises `TooMany`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm
from typing import Any

from fencepost.model import program as p


class Unknown(Exception):
    """An operation that the reference does not know."""


class TooMany(Exception):
    """More states than asked for."""


DONE = "complete"
"""What an event's latest record may be; a number is a record that stands in a stream."""


class World:
    """A mutable state. `key` freezes it; `World.of` thaws it again."""

    def __init__(self) -> None:
        self.at: list[int] = []
        self.turn: list[int] = []
        self.env: list[dict[int, Any]] = []
        self.things: dict[int, Any] = {}
        """Per object: queue items, cell slots, free tokens, lock counts, booleans, integers, messages, words."""
        self.later: dict[int, list[int]] = {}
        """Per pool the records behind which its tokens come back."""
        self.streams: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
        self.events: dict[Any, Any] = {}
        """("fixed", object, slot) or ("fresh", number) -> what its latest record is."""
        self.agreed: dict[str, list[str]] = {}
        self.asked: dict[tuple[str, int], int] = {}

    def key(self) -> Any:
        """Hashable; numbers of records and fresh events are given anew, and what nobody can name is forgotten."""
        fresh: dict[int, int] = {}
        records: dict[int, int] = {}

        def value(x: Any) -> Any:
            if isinstance(x, tuple) and x and x[0] == "fresh":
                return ("fresh", fresh.setdefault(x[1], len(fresh)))
            return tuple(value(y) for y in x) if isinstance(x, tuple) else x

        env = tuple(tuple(sorted((k, value(v)) for k, v in row.items())) for row in self.env)
        things = tuple((k, value(tuple(v) if isinstance(v, list) else v)) for k, v in sorted(self.things.items()))
        events = []
        for name, state in sorted(self.events.items(), key=lambda one: (one[0][0], fresh.get(one[0][1], -1) if one[0][0] == "fresh" else one[0])):
            if name[0] == "fresh" and name[1] not in fresh:
                continue
            events.append((value(name), ("r", records.setdefault(state, len(records))) if isinstance(state, int) else state))
        later = tuple((k, tuple(sorted(records.setdefault(r, len(records)) for r in row))) for k, row in sorted(self.later.items()))
        used = {x[1] for row in self.streams.values() for x in row if x[0] == "join"}
        streams = []
        for name, row in sorted(self.streams.items()):
            kept = []
            for x in row:
                if x[0] == "record" and x[1] not in records and x[1] not in used:
                    continue
                kept.append((x[0], ("r", records.setdefault(x[1], len(records)))) if x[0] in ("record", "join") else x)
            streams.append((name, tuple(kept)))
        return (
            tuple(self.at), tuple(self.turn), env, things, tuple(events), later, tuple(streams),
            tuple((k, tuple(v)) for k, v in sorted(self.agreed.items())), tuple(sorted(self.asked.items())),
        )  # fmt: skip

    @classmethod
    def of(cls, key: Any) -> World:
        """The state behind a key."""
        self = cls()
        at, turn, env, things, events, later, streams, agreed, asked = key

        def plain(x: Any) -> Any:
            return x[1] if isinstance(x, tuple) and x and x[0] == "r" else x

        self.at, self.turn, self.env = list(at), list(turn), [dict(row) for row in env]
        self.things = {k: list(v) if isinstance(v, tuple) else v for k, v in things}
        self.events = {name: plain(state) for name, state in events}
        self.later = {k: list(v) for k, v in later}
        self.streams = {k: [(x[0], x[1][1]) if x[0] in ("record", "join") else x for x in row] for k, row in streams}
        self.agreed = {k: list(v) for k, v in agreed}
        self.asked = dict(asked)
        return self


class Reference:
    """All states of a program, and which of them leave an agent waiting for ever. Agents: threads by number, streams by slot."""

    def __init__(self, program: p.Program, limit: int) -> None:
        """Raises `Unknown` or `TooMany`."""
        self.program, self.limit = program, limit
        depths = [getattr(x, "depth", None) or 1 for x in program.objects]
        self.period = lcm(*depths) if depths else 1
        whats = [n.operation if isinstance(n, p.Do) else n.question for t in program.threads for n in t.nodes]
        self.below = max((q.value for q in whats if isinstance(q, p.TurnBelow)), default=0)
        self.most: dict[int, int] = {}
        for x in whats:
            if isinstance(x, (p.CounterWait, p.CounterAtLeast)):
                if isinstance(x, p.CounterWait) and x.per_turn:
                    raise Unknown("counter.wait by turn")
                self.most[x.counter] = max(self.most.get(x.counter, 0), x.value)
        self.slow = any(isinstance(x, (p.EventQuery, p.StreamQuery)) for x in whats)
        """Whether kernels take their time: a query looks at what is there. Nobody else can tell whether they have ended."""
        self.states: list[Any] = []
        self.number: dict[Any, int] = {}
        self.after: list[list[tuple[Any, int]]] = []
        """Per state (agent, next state)."""
        self.labels: list[list[tuple[Any, ...]]] = []
        """Beside each of them what was done: (node, answer)."""
        self._explore()

    # ------------------------------------------------------------ states

    def start(self) -> World:
        world = World()
        for thread in self.program.threads:
            world.at.append(thread.entry)
            world.turn.append(0)
            world.env.append({})
        for number, thing in enumerate(self.program.objects):
            slots = range(getattr(thing, "depth", None) or 1)
            if isinstance(thing, (p.Queue, p.Channel)):
                world.things[number] = []
            elif isinstance(thing, p.Cell):
                world.things[number] = [None for _ in slots]
            elif isinstance(thing, p.Pool):
                world.things[number], world.later[number] = thing.size, []
            elif isinstance(thing, p.Lock):
                world.things[number] = thing.count
            elif isinstance(thing, p.Flag):
                world.things[number] = False
            elif isinstance(thing, (p.Counter, p.DeviceFlag)):
                world.things[number] = 0
            elif isinstance(thing, p.Cursor):
                world.things[number] = thing.depth - 1
            elif isinstance(thing, p.Stream):
                for slot in slots:
                    world.streams[number, slot] = []
            elif isinstance(thing, p.Event):
                for slot in slots:
                    world.events["fixed", number, slot] = DONE  # never recorded: nothing to wait for
        return world

    def _explore(self) -> None:
        self._enter(self.start().key())
        while len(self.after) < len(self.states):
            now = self.states[len(self.after)]
            row, labels = [], []
            for agent in self.agents(now):
                for label, then in self.steps(now, agent):
                    row.append((agent, self._enter(then)))
                    labels.append(label)
            self.after.append(row)
            self.labels.append(labels)

    def _enter(self, key: Any) -> int:
        if key not in self.number:
            if len(self.states) >= self.limit:
                raise TooMany
            self.number[key] = len(self.states)
            self.states.append(key)
        return self.number[key]

    def agents(self, key: Any) -> list[Any]:
        """Who has something to do: threads that have not ended (setups alone before all others), and streams with something in them."""
        at = key[0]
        setups = [t for t, thread in enumerate(self.program.threads) if thread.kind == "setup" and at[t] != p.END]
        if setups:
            threads: list[Any] = setups[:1]
        else:
            threads = [t for t in range(len(at)) if at[t] != p.END]
        return threads + [name for name, row in key[6] if row]

    def steps(self, key: Any, agent: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """(what is done, the state after it); nothing when the agent waits."""
        if isinstance(agent, tuple):
            world = World.of(key)
            if self._runs(world, world.streams[agent][0]):
                item = world.streams[agent].pop(0)
                self._execute(world, item)
                self._settle(world)
                yield ("item", item), world.key()
            return
        node = self.program.threads[agent].nodes[key[0][agent]]
        if isinstance(node, p.Ask):
            targets = dict(node.branches)
            for answer in self._answers(World.of(key), agent, node.question):
                if answer in targets:
                    world = World.of(key)
                    self._answered(world, agent, node.question, answer)
                    self._goto(world, agent, targets[answer])
                    yield (key[0][agent], answer), world.key()
            return
        world = World.of(key)
        if self._do(world, agent, node.operation):
            self._goto(world, agent, node.next)
            yield (key[0][agent], None), world.key()

    def _goto(self, world: World, t: int, node: int) -> None:
        thread = self.program.threads[t]
        if node == p.END:
            world.env[t] = {}
            world.turn[t] += 1
            if world.turn[t] > self.below:
                world.turn[t] = self.below + (world.turn[t] - self.below) % self.period
            if thread.kind == "loop":
                node = thread.entry
        world.at[t] = node

    # ------------------------------------------------------------ the device

    def _runs(self, world: World, item: tuple[Any, ...]) -> bool:
        kind, thing = item[0], item[1]
        if kind == "signal":
            channel = self.program.objects[thing]
            assert isinstance(channel, p.Channel)
            return channel.capacity is None or len(world.things[thing]) < channel.capacity
        if kind == "await":
            return bool(world.things[thing]) and world.things[thing][0] == item[2]
        if kind == "wait":
            return bool(world.things[thing] >= item[2])
        if kind == "join":
            return not self._stands(world, thing)
        return True

    @staticmethod
    def _stands(world: World, record: int) -> bool:
        return any(x[0] == "record" and x[1] == record for row in world.streams.values() for x in row)

    def _execute(self, world: World, item: tuple[Any, ...]) -> None:
        kind, thing = item[0], item[1]
        if kind == "signal":
            world.things[thing].append(item[2])
        elif kind == "await":
            world.things[thing].pop(0)
        elif kind == "store":
            world.things[thing] = item[2]
        elif kind == "wait" and item[3]:
            world.things[thing] = 0
        elif kind == "record":
            for name, state in world.events.items():
                if state == thing:
                    world.events[name] = DONE
            for pool, row in world.later.items():
                world.things[pool] += row.count(thing)
                world.later[pool] = [r for r in row if r != thing]

    def _settle(self, world: World) -> None:
        """Records, and waits for records that are there, take no time."""
        moving = True
        while moving:
            moving = False
            for row in world.streams.values():
                while row and (row[0][0] == "record" or (row[0][0] == "join" and self._runs(world, row[0]))):
                    self._execute(world, row.pop(0))
                    moving = True

    def _record(self, world: World, stream: tuple[int, int]) -> Any:
        if not world.streams[stream]:
            return DONE
        taken = [x[1] for row in world.streams.values() for x in row if x[0] in ("record", "join")]
        number = max([*taken, *(s for s in world.events.values() if isinstance(s, int)), -1]) + 1
        world.streams[stream].append(("record", number))
        return number

    # ------------------------------------------------------------ operands

    def _slot(self, world: World, t: int, operand: p.Operand) -> tuple[int, int]:
        assert not isinstance(operand, p.Local)
        depth = getattr(self.program.objects[operand.id], "depth", None) or 1
        if isinstance(operand, p.Obj):
            return operand.id, 0
        return operand.id, self._position(world, t, operand.index) % depth

    @staticmethod
    def _position(world: World, t: int, index: p.Index) -> int:
        if isinstance(index, p.Fixed):
            return index.slot
        if isinstance(index, p.Turn):
            return world.turn[t] + index.offset
        if isinstance(index, p.Last):
            return int(world.things[index.cursor]) + index.offset
        if index.local not in world.env[t]:
            raise Unknown("a token as an index")
        return int(world.env[t][index.local]) + index.offset

    def _event(self, world: World, t: int, operand: p.Operand) -> Any:
        if isinstance(operand, p.Local):
            return world.env[t].get(operand.id)
        return ("fixed", *self._slot(world, t, operand))

    def _value(self, world: World, t: int, value: Any) -> Any:
        if isinstance(value, p.Local):
            return world.env[t].get(value.id)
        if isinstance(value, (p.Obj, p.Slot)):
            return ("fixed", *self._slot(world, t, value)) if isinstance(self.program.objects[value.id], p.Event) else None
        if isinstance(value, p.Var) and value.local not in world.env[t]:
            return None  # a token
        return self._position(world, t, value)

    # ------------------------------------------------------------ host steps

    def _do(self, world: World, t: int, x: p.Operation) -> bool:
        """Do it; False when it has to wait."""
        things = world.things
        if isinstance(x, (p.Host, p.Alloc, p.View, p.Drop, p.RecordStream)):
            return True  # memory makes nobody wait
        if isinstance(x, p.Copy):
            return self._copy(world, t, x)
        if isinstance(x, (p.Launch, p.Memset)):
            row = world.streams[self._slot(world, t, x.stream)]
            if self.slow and (not row or row[-1][0] != "work"):
                row.append(("work", None))
            return True
        if isinstance(x, p.NewEvent):
            name = ("fresh", max([n[1] for n in world.events if n[0] == "fresh"], default=-1) + 1)
            world.events[name] = DONE
            world.env[t][x.local] = name
            return True
        if isinstance(x, p.Record):
            event = self._event(world, t, x.event)
            if event is not None:
                world.events[event] = self._record(world, self._slot(world, t, x.stream))
            return True
        if isinstance(x, p.EventSync):
            event = self._event(world, t, x.event)
            if event is not None:
                return not isinstance(world.events[event], int)
            return True
        if isinstance(x, p.StreamWaitEvent):
            event = self._event(world, t, x.event)
            if event is not None and isinstance(world.events[event], int):
                world.streams[self._slot(world, t, x.stream)].append(("join", world.events[event]))
            return True
        if isinstance(x, p.WaitStream):
            record = self._record(world, self._slot(world, t, x.other))
            if record != DONE:
                world.streams[self._slot(world, t, x.stream)].append(("join", record))
            return True
        if isinstance(x, (p.StreamSync, p.Item)):
            return not world.streams[self._slot(world, t, x.stream)]
        if isinstance(x, p.DeviceSync):
            return not any(row for (s, _), row in world.streams.items() if self._on(s, x))
        if isinstance(x, p.Signal):
            world.streams[self._slot(world, t, x.stream)].append(("signal", x.channel, x.tag))
            return True
        if isinstance(x, p.Await):
            world.streams[self._slot(world, t, x.stream)].append(("await", x.channel, x.tag))
            return True
        if isinstance(x, p.StoreFlag):
            if x.stream is None:
                things[x.flag] = x.value
            else:
                world.streams[self._slot(world, t, x.stream)].append(("store", x.flag, x.value))
            return True
        if isinstance(x, p.WaitFlag):
            if x.stream is not None:
                world.streams[self._slot(world, t, x.stream)].append(("wait", x.flag, x.value, x.reset))
                return True
            if things[x.flag] < x.value:
                return False
            if x.reset:
                things[x.flag] = 0
            return True
        return self._host(world, t, x)

    def _copy(self, world: World, t: int, x: p.Copy) -> bool:
        """Bare CUDA: a call without non_blocking, and one into pageable memory, returns when it is done; none within the device does."""
        source, target = self._space(t, x.src), self._space(t, x.dst)
        hosts = [space for space in (source, target) if space in ("pinned", "pageable")]
        if len(hosts) == 2:
            return True
        row = world.streams[self._slot(world, t, x.stream)]
        if (hosts and not x.non_blocking and not x.raw) or target == "pageable":
            return not row
        if self.slow and (not row or row[-1][0] != "work"):
            row.append(("work", None))
        return True

    def _space(self, t: int, operand: p.Operand) -> str:
        if isinstance(operand, p.Local):
            thread = self.program.threads[t]
            pool = thread.locals[operand.id].pool
            found = {self.program.objects[pool].of} if pool is not None else set()  # type: ignore[union-attr]
            for node in thread.nodes:
                x = node.operation if isinstance(node, p.Do) else None
                if isinstance(x, p.Alloc) and x.local == operand.id:
                    found.add(x.space)
                elif isinstance(x, p.View) and x.local == operand.id:
                    found.add(self._space(t, x.base))
            if len(found) != 1 or "row" in found:
                raise Unknown("memory of an unknown kind")
            return str(*found)
        thing = self.program.objects[operand.id]
        assert isinstance(thing, p.Memory)
        return thing.space

    def _on(self, stream: int, x: p.DeviceSync) -> bool:
        thing = self.program.objects[stream]
        assert isinstance(thing, p.Stream)
        return (thing.gpu, thing.process) == (x.gpu, x.process)

    def _host(self, world: World, t: int, x: p.Operation) -> bool:
        things = world.things
        if isinstance(x, p.Put):
            queue = self.program.objects[x.queue]
            assert isinstance(queue, p.Queue)
            if len(things[x.queue]) >= queue.capacity:
                return False
            things[x.queue].append((x.tag, tuple(self._value(world, t, v) for v in x.values)))
        elif isinstance(x, p.Get):
            if not things[x.queue] or things[x.queue][0][0] != x.tag:
                return False
            _, values = things[x.queue].pop(0)
            world.env[t].update((k, v) for k, v in zip(x.locals, values, strict=False) if v is not None)
        elif isinstance(x, (p.CellSet, p.CellClear, p.CellGet)):
            cell, slot = self._slot(world, t, x.cell)
            if isinstance(x, p.CellSet):
                things[cell][slot] = ("item", *(self._value(world, t, v) for v in x.values))
            elif isinstance(x, p.CellClear):
                things[cell][slot] = None
            else:
                if things[cell][slot] is None:
                    raise Unknown("get from an empty cell")
                world.env[t].update((k, v) for k, v in zip(x.locals, things[cell][slot][1:], strict=False) if v is not None)
                if x.take:
                    things[cell][slot] = None
        elif isinstance(x, p.Take):
            if things[x.pool] <= 0:
                return False
            things[x.pool] -= 1
        elif isinstance(x, p.Give):
            event = None if x.after is None else self._event(world, t, x.after)
            record = None if event is None else world.events[event]
            if isinstance(record, int):
                world.later[x.pool].append(record)
            else:
                things[x.pool] += 1
            pool = self.program.objects[x.pool]
            assert isinstance(pool, p.Pool)
            if things[x.pool] > pool.size:
                raise Unknown("more tokens than there are")
        elif isinstance(x, p.Acquire):
            if things[x.lock] <= 0:
                return False
            things[x.lock] -= 1
        elif isinstance(x, p.Unlock):
            things[x.lock] += 1
            if things[x.lock] > 6:
                raise Unknown("a lock is released without end")
        elif isinstance(x, (p.FlagSet, p.FlagClear)):
            things[x.flag] = isinstance(x, p.FlagSet)
        elif isinstance(x, p.FlagWait):
            return bool(things[x.flag])
        elif isinstance(x, p.CounterAdd):
            things[x.counter] = min(things[x.counter] + x.amount, self.most.get(x.counter, 0))
        elif isinstance(x, p.CounterWait):
            return bool(things[x.counter] >= x.value)
        elif isinstance(x, p.Advance):
            cursor = self.program.objects[x.cursor]
            assert isinstance(cursor, p.Cursor)
            things[x.cursor] = (things[x.cursor] + 1) % cursor.depth
            world.env[t][x.local] = things[x.cursor]
        else:
            raise Unknown(type(x).__name__)
        return True

    # ------------------------------------------------------------ questions

    def _answers(self, world: World, t: int, q: p.Question) -> tuple[str, ...]:
        things = world.things
        if isinstance(q, p.Choose):
            if not q.agreed:
                return q.options
            given, at = world.agreed.get(q.name, []), world.asked.get((q.name, t), 0)
            return (given[at],) if at < len(given) else q.options
        if isinstance(q, p.Maybe):
            return ("yes", "no")
        if isinstance(q, p.EventQuery):
            event = self._event(world, t, q.event)
            return ("no",) if event is not None and isinstance(world.events[event], int) else ("yes",)
        if isinstance(q, p.StreamQuery):
            return ("no",) if world.streams[self._slot(world, t, q.stream)] else ("yes",)
        if isinstance(q, p.QueueTag):
            return (things[q.queue][0][0],) if things[q.queue] else ()
        if isinstance(q, p.QueueFull):
            queue = self.program.objects[q.queue]
            assert isinstance(queue, p.Queue)
            holds = len(things[q.queue]) >= queue.capacity
        elif isinstance(q, p.QueueHolds):
            holds = len(things[q.queue]) >= q.count
        elif isinstance(q, p.CellEmpty):
            cell, slot = self._slot(world, t, q.cell)
            holds = things[cell][slot] is None
        elif isinstance(q, p.FlagIsSet):
            holds = things[q.flag]
        elif isinstance(q, p.CounterAtLeast):
            holds = things[q.counter] >= q.value
        elif isinstance(q, p.TryLock):
            holds = things[q.lock] > 0
        else:
            assert isinstance(q, p.TurnBelow)
            holds = world.turn[t] < q.value
        return ("yes" if holds else "no",)

    def _answered(self, world: World, t: int, q: p.Question, answer: str) -> None:
        if isinstance(q, p.TryLock) and answer == "yes":
            world.things[q.lock] -= 1
        elif isinstance(q, p.Choose) and q.agreed:
            given = world.agreed.setdefault(q.name, [])
            at = world.asked.get((q.name, t), 0)
            if at == len(given):
                given.append(answer)
            world.asked[q.name, t] = at + 1
            askers = [
                k for k, thread in enumerate(self.program.threads)
                if any(isinstance(n, p.Ask) and isinstance(n.question, p.Choose) and n.question.name == q.name for n in thread.nodes)
            ]  # fmt: skip
            past = min(world.asked.get((q.name, k), 0) for k in askers)
            del given[:past]
            for k in askers:
                world.asked[q.name, k] = world.asked.get((q.name, k), 0) - past

    # ------------------------------------------------------------ hangs

    def waits(self, number: int, agent: Any) -> bool:
        """Whether an agent has something to do in a state, and cannot. A driver thread between two calls waits for nothing."""
        key = self.states[number]
        if agent not in self.agents(key) or any(who == agent for who, _ in self.after[number]):
            return False
        if isinstance(agent, tuple):
            return True
        thread = self.program.threads[agent]
        return not (thread.idle and key[0][agent] == thread.entry)

    def hopeless(self) -> dict[Any, set[int]]:
        """For each agent the states in which it waits, and from which none is reached in which it can go on."""
        before: list[list[int]] = [[] for _ in self.states]
        agents: dict[Any, None] = {}
        for number, row in enumerate(self.after):
            for agent in self.agents(self.states[number]):
                agents[agent] = None
            for _, to in row:
                before[to].append(number)
        result = {}
        for agent in agents:
            good = [n for n in range(len(self.states)) if not self.waits(n, agent)]
            seen = set(good)
            while good:
                for other in before[good.pop()]:
                    if other not in seen:
                        seen.add(other)
                        good.append(other)
            lost = set(range(len(self.states))) - seen
            if lost:
                result[agent] = lost
        return result
