"""The operational machine: runs a design on host threads, streams, engines and allocators with values and time.

It is the second, independent way: it knows queues, memory and clocks, and nothing of happens-before. Next to the memory
that its operations reach when they really run, it keeps that of the reference (theory section 1, val): the same host
order and outcomes, each operation completed as soon as it can start, fresh memory for each allocation. What a kernel,
copy or host read gets in the one and would get in the other are compared; the first difference is the machine's answer.
"""

from __future__ import annotations

import msgspec
from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.idle import between_turns
from fencepost.model.platform import BARE, PLATFORMS, Environment, Platform
from fencepost.simulator.machine_host import Host, Unsupported
from fencepost.simulator.machine_meetings import what_it_waits_for
from fencepost.simulator.machine_script import DEFAULTS, Chooser, Follow, Recorder, Script
from fencepost.simulator.machine_state import (
    MEETING,
    ORIGIN,
    PARTLY,
    WORK,
    WRITES,
    DesignFault,
    Engine,
    Fifo,
    HostThread,
    Mark,
    Marks,
    Node,
    Observation,
    Origin,
    Stream,
    Waiting,
)
from fencepost.simulator.machine_timing import Clockwork, Profile

__all__ = ["DesignFault", "Hardware", "Machine", "Outcome", "Unsupported"]


class Hardware(msgspec.Struct, frozen=True):
    """What runs at the same time. `queues`: hardware queues per GPU that streams share in turn (S115-S117), 0 for one
    each. `copies`: "free", "direction" (one engine for each direction, S61) or "serial" (one for all). `allocator`: "any",
    "sized" or "split" (simulator/machine_allocators.py)."""

    queues: int = 0
    copies: str = "free"
    allocator: str = "any"


class Outcome(msgspec.Struct):
    """What became of a run. `ended`: "wrong" | "done" | "blocked" (for ever) | "limit" | "fault" (of the design).
    "blocked" with no blocked thread: only streams wait, and no thread for them.

    `observations`: wrong reads in the order of time; `run` is the host order, in the form that the other engines read;
    `script` replays it. `operations` counts host steps and device items; `turns` the turns that each thread finished.
    """

    ended: str
    observations: list[Observation]
    run: Run
    script: Script
    operations: int
    time: int
    turns: list[int]
    starts: list[list[int]]
    """For each thread the times at which its turns began."""
    blocked: list[str]
    """Threads that can never move again, when `ended` is "blocked"."""
    waiting: list[Waiting] = []
    """Then also who waits for what, threads and streams."""
    fault: str | None = None
    origins: dict[int, Origin] = {}
    """Where the values of the observations come from."""
    stalled: list[Origin] = []
    """The work that was stalled, when there are observations."""

    @property
    def wrong(self) -> Observation | None:
        """The first read that got something else than in the reference."""
        return self.observations[0] if self.observations else None


class Machine(Host):
    """A design compiled for one platform, environment and hardware. `run` may be called any number of times.

    Raises `Unsupported` for an operation that it does not know, `ValueError` for a duration that is none.
    """

    def __init__(self, program: p.Program, platform: Platform = PLATFORMS["cuda"], environment: Environment = BARE,
                 hardware: Hardware | None = None) -> None:  # fmt: skip
        self.program, self.platform, self.environment = program, platform, environment
        if hardware is None:
            hardware = Hardware(1 if environment.one_queue else 0,
                                "serial" if environment.name == "serial-copy-engine" else "free")  # fmt: skip
        self.hardware = hardware
        self.clockwork: Clockwork | None = None
        self.chooser: Chooser = Follow(DEFAULTS)
        self.recorder = Recorder()
        self._make_streams()
        self._make_engines()
        self._make_objects()
        self._end = Node(p.END)
        self._reset_host()
        self._reset_device()
        self._reset_allocators()
        self.threads: list[HostThread] = []
        self.nodes: list[list[Node]] = []
        self._sizes = {o.name: o.bytes for o in program.objects if isinstance(o, p.Memory)}
        for index, thread in enumerate(program.threads):
            nodes = [Node(k) for k in range(len(thread.nodes))]
            for node, made in zip(thread.nodes, nodes, strict=True):
                self.compile(thread, node, made, nodes, self._end)
                time = getattr(made.operation, "time", None)
                if time is not None and not 0 <= time < float("inf"):
                    raise ValueError(f"thread {thread.name!r}, node {made.index}: time={time}; a duration is in seconds, from 0 on")
                if isinstance(node, p.Do) and isinstance(node.operation, p.Alloc):
                    self._sizes[thread.locals[node.operation.local].name] = node.operation.bytes
            self.nodes.append(nodes)
            entry = self._end if thread.entry == p.END else nodes[thread.entry]
            self.threads.append(HostThread(index, thread.name, thread.kind, entry, len(thread.locals), between_turns(program, index) if thread.idle else frozenset()))

    def _make_streams(self) -> None:
        self.fifos: list[Fifo] = []
        self.streams: dict[tuple[int, int], Stream] = {}
        queues: dict[tuple[int, str], list[Fifo]] = {}
        used: dict[tuple[int, str], int] = {}
        for id_, stream in enumerate(self.program.objects):
            if not isinstance(stream, p.Stream):
                continue
            home = (stream.gpu, stream.process)
            for slot in range(stream.depth or 1):
                mine = queues.setdefault(home, [])
                if not self.hardware.queues or len(mine) < self.hardware.queues:
                    fifo = Fifo()
                    self.fifos.append(fifo)
                    mine.append(fifo)
                else:
                    fifo = mine[used[home] % self.hardware.queues]
                used[home] = used.get(home, 0) + 1
                name = stream.name if stream.depth is None else f"{stream.name}[{slot}]"
                self.streams[(id_, slot)] = Stream(name, (id_, slot), fifo, *home)

    def _make_engines(self) -> None:
        kinds = self.hardware.copies
        serial = Engine(1)
        self._engine: dict[str, Engine] = {
            "free": {},
            "serial": {"h2d": serial, "d2h": serial, "d2d": serial},
            "direction": {"h2d": Engine(1), "d2h": Engine(1)},
        }[kinds]
        self.engines = list(dict.fromkeys(self._engine.values()))

    def engine_of(self, what: str) -> Engine | None:
        """The engine that serves this kind of item."""
        return self._engine.get(what)

    def pick_engine(self, engine: Engine) -> int:
        """The chooser's."""
        which = self.chooser.engine(engine)
        self.recorder.engines.append(which)
        return which

    # ------------------------------------------------------------ a run

    def run(self, chooser: Chooser, *, turns: int = 8, limit: int = 20000, profile: Profile | None = None, seed: int = 0,
            stop: bool = True) -> Outcome:  # fmt: skip
        """One run: every loop makes at most `turns` turns, all threads together at most `limit` steps.

        With a `profile` the clock counts nanoseconds and the thread whose time comes first moves; without, host steps,
        and the chooser decides who moves. `stop`: end at the first wrong read. Deterministic for equal arguments.
        """
        self.chooser, self.recorder = chooser, Recorder()
        self.clockwork = None if profile is None else Clockwork(profile, self._sizes, seed)
        self._reset_host()
        self._reset_device()
        self._reset_allocators()
        for thread in self.threads:
            thread.reset(self._end)
        self.log = []
        self.late = []
        self.step = 0
        fault = None
        ended = "done"
        try:
            ended = self._loop(turns, limit, stop)
        except DesignFault as error:
            fault, ended = str(error), "fault"
        if self.observed and stop:
            ended = "wrong"
        return self._outcome(ended, fault)

    def _loop(self, turns: int, limit: int, stop: bool) -> str:
        threads, end, log, observed = self.threads, self._end, self.log, self.observed
        before = getattr(self.chooser, "before", None)
        setups = [th for th in threads if th.setup and not th.done]
        active = list(setups) or [th for th in threads if not th.done]
        timed = self.clockwork
        heap = self.heap
        last = 0
        while True:
            if heap and heap[0][0] <= self.now:
                self.tick()
            if observed and stop:
                return "wrong"
            able = []
            for th in active:
                waits = th.waits
                if waits is not None:
                    if not waits.done:
                        continue
                    th.waits = None
                ready = th.node.ready
                if ready is None or ready(th):
                    able.append(th)
            if before is not None and before(self, able):
                continue
            if timed is not None and able:
                now = self.now
                soonest = min(th.at for th in able)
                if soonest > now:
                    if heap and heap[0][0] <= soonest:
                        self.now = heap[0][0]
                        continue
                    self.now = soonest
                able = [th for th in able if th.at <= self.now]
            if not able or self.step >= limit:
                if setups and not active and all(th.waits is None or th.waits.done for th in setups):
                    # Setup has returned; work that it enqueued may still be late.
                    setups = []
                    active = [th for th in threads if not th.done and not th.setup]
                elif heap:
                    self.now = heap[0][0]
                elif self.held:
                    self._release()
                elif self.step >= limit:
                    return "limit"
                else:
                    # Who waits for a thread that made all its turns is not stuck.
                    stuck = any(th.stuck for th in threads) or any(fifo.items for fifo in self.fifos)
                    enough = any(th.loop and th.turn >= turns and not th.stuck for th in threads)
                    return "blocked" if stuck and not enough else "done"
                continue
            th = able[0]
            if len(able) > 1:
                able.sort(key=lambda x: (x.index - last) % len(threads))
                which = self.chooser.thread(able)
                self.recorder.thread(which)
                th = able[which]
            last = th.index
            node = th.node
            if node is th.entry and (not th.starts or len(th.starts) <= th.turn):
                th.starts.append(self.now)
            self.given = self.block = None
            self.step = len(log)
            log.append((last, node.index, None, None, None))  # before what the device does at once
            try:
                following = node.run(th)
            except DesignFault:
                log.pop()
                raise
            if following is None:
                following = node.next
            log[self.step] = (last, node.index, self.given, self.block, None)
            self.step = len(log)
            if timed is None:
                self.now += 1
            else:
                th.at = self.now + timed.call(th)
            if following is end:
                values = th.locals
                th.locals = [None] * len(values)
                for value in values:
                    if value is not None:
                        self.let_die(value)
                th.turn += 1
                th.node = th.entry
                if not th.loop or th.turn >= turns:
                    th.done = True
                    active.remove(th)
                    if setups and not active:
                        continue
            else:
                th.node = following

    def _release(self) -> None:
        """Nothing else can move: the chooser lets some held work go."""
        which = 0
        if len(self.held) > 1:
            which = self.chooser.release(self.held)
            self.recorder.releases.append(which)
        work = self.held[which]
        entry, work.entry = work.entry, None  # it stays "forever" in the script
        self.let_go(work)
        work.entry = entry

    # ------------------------------------------------------------ what became of it

    def _outcome(self, ended: str, fault: str | None) -> Outcome:
        origins = {}
        for seen in self.observed:
            origins[seen.expected] = self.origin(seen.expected)
            origins[seen.got] = self.origin(seen.got)
        return Outcome(
            ended,
            self.observed,
            Run(tuple(Step(*step) for step in self.log), tuple(dict.fromkeys(self.late))),
            self.recorder.script(),
            self.step + self.worked,
            self.now,
            [th.turn for th in self.threads],
            [th.starts for th in self.threads],
            [th.name for th in self.threads if th.stuck] if ended == "blocked" else [],
            self.waiting() if ended == "blocked" else [],
            fault,
            origins,
            [self.origin((step + 1) << WRITES) for step in dict.fromkeys(self.late)] if self.observed else [],
        )

    def waiting(self) -> list[Waiting]:
        """Who waits for what: threads that are not done, and streams whose first item is stuck."""
        found = []
        begun = {step[0]: number for number, step in enumerate(self.log) if step[4] is None}
        for th in self.threads:
            if not th.stuck or (not th.setup and any(other.setup and other.stuck for other in self.threads)):
                continue
            node, turn, step, what = th.node.index, th.turn, None, self.waits_for(th)
            if th.waits is not None:
                step = begun[th.index]
                node, turn = self.log[step][1], self.origin((step + 1) << WRITES).turn
            found.append(Waiting(th.name, False, th.name, step, turn, node, what))
        for fifo in self.fifos:
            if not fifo.items:
                continue
            stream, kind, item = fifo.items[0]
            if kind == WORK and item.what == MEETING:
                o = item.operation
                place = self.places[o.channel if isinstance(o, (p.Signal, p.Await)) else o.flag]
                what = what_it_waits_for(place, o)
                found.append(Waiting(stream.name, True, item.thread.name, item.step, item.turn, item.node, what))
        return found

    def waits_for(self, th: HostThread) -> str:
        """What a thread waits for that cannot move, in words."""
        if th.waits is not None:
            marks = th.waits.marks if isinstance(th.waits, Marks) else [th.waits]
            streams = dict.fromkeys(mark.stream for mark in marks if isinstance(mark, Mark) and not mark.done)
            return f"the work in {', '.join(map(repr, streams))}"
        o = th.node.operation
        if isinstance(o, p.WaitFlag):
            return what_it_waits_for(self.places[o.flag], o)
        number = next((getattr(o, name) for name in ("queue", "pool", "lock", "flag", "counter") if hasattr(o, name)), None)
        name = getattr(self.program.objects[number], "name", "") if number is not None else ""
        return f"{name!r} ({type(o).__name__})"

    def origin(self, value: int) -> Origin:
        """What is known of a value."""
        if value <= 0:
            if value == 0:
                return Origin(None, "", 0, 0, "undefined: fresh memory that nothing was written to")
            return Origin(None, "", 0, 0, "the content at the start")
        number = ((value & ORIGIN) >> WRITES) - 1
        thread, node = self.log[number][:2] if number < len(self.log) else (0, 0)
        turn = 0
        nodes = self.program.threads[thread].nodes
        for t, n, answer, _, stream in self.log[:number]:
            if t == thread and stream is None:
                made = nodes[n]
                target = made.next if isinstance(made, p.Do) else dict(made.branches)[answer or ""]
                turn += target == p.END
        found = nodes[node]
        what = type(found.operation).__name__ if isinstance(found, p.Do) else "?"
        what = getattr(found.operation, "name", what) if isinstance(found, p.Do) else what
        return Origin(number, self.program.threads[thread].name, turn, node, what, bool(value >> 61), bool(value & PARTLY))
