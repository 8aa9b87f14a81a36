"""Words and evidence around a verdict: the missing edge, what closes it, what masks it, what protects, lints."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from fencepost.model import answer as a
from fencepost.model import program as p
from fencepost.model.idle import between_turns
from fencepost.model.names import Names
from fencepost.model.platform import BARE, ENVIRONMENTS, Environment, Platform
from fencepost.proofs import edits
from fencepost.proofs.explore.locations import Location, locations, operands, operations
from fencepost.proofs.explore.search import DEVICE_STEP, Budget, Found, OutOfBudget, Reach, Search
from fencepost.proofs.explore.serial import sole_agent
from fencepost.proofs.explore.setting import Setting
from fencepost.proofs.explore.state import Unsupported
from fencepost.proofs.explore.watch import watching

if TYPE_CHECKING:
    from fencepost.proofs.judge import Judged

SIDE_STATES = 20_000
"""States that one side question (a fix, a mask, a margin) may store; what does not end within it is left out."""

LOOSER = 500
"""So many more states than the proof a question may store that takes one of its synchronisations away: what leaves no more runs
than that stays within, and what lets somebody run ahead without bound would fill any number."""

ASKED = 12
"""Synchronisations, and channels, that are asked about one by one."""

MEETING = 4_000
"""States that all these questions of one design store in which streams meet, where a state costs ten times as much as elsewhere."""

NONE_ALONE = "program, stream and hand-over order; no single synchronisation is needed alone"
NOT_ASKED = "program, stream and hand-over order; whether a single synchronisation is needed alone was not decided"


def place(program: p.Program, at: tuple[int, int]) -> str:
    """`file:line` of a node, or thread and node number when the program carries no positions."""
    node = program.threads[at[0]].nodes[at[1]]
    if 0 <= node.site < len(program.places) and program.places[node.site]:
        spot = program.places[node.site][-1]
        return f"{spot.file}:{spot.line}"
    return f"thread {program.threads[at[0]].name}, node {at[1]}"


def describe(program: p.Program, at: tuple[int, int]) -> str:
    """One operation in a few words."""
    node = program.threads[at[0]].nodes[at[1]]
    if isinstance(node, p.Ask):
        return type(node.question).__name__
    operation = node.operation
    thread = program.threads[at[0]]
    if isinstance(operation, (p.Host, p.Launch)):
        return operation.name
    if isinstance(operation, p.Copy):
        return f"copy {name(program, thread, operation.src)} -> {name(program, thread, operation.dst)}"
    if isinstance(operation, p.EventSync):
        return f"{name(program, thread, operation.event)}.synchronize()"
    if isinstance(operation, p.StreamWaitEvent):
        return f"{name(program, thread, operation.stream)}.wait_event({name(program, thread, operation.event)})"
    if isinstance(operation, p.WaitStream):
        return f"{name(program, thread, operation.stream)}.wait_stream({name(program, thread, operation.other)})"
    if isinstance(operation, p.StreamSync):
        return f"{name(program, thread, operation.stream)}.synchronize()"
    if isinstance(operation, p.RecordStream):
        return f"{name(program, thread, operation.block)}.record_stream({name(program, thread, operation.stream)})"
    if isinstance(operation, (p.Put, p.Get)):
        return f"{program.objects[operation.queue].name}.{type(operation).__name__.lower()}"
    if isinstance(operation, p.DeviceSync):
        return "a free, waiting for the device" if operation.implied else "torch.cuda.synchronize()"
    if isinstance(operation, (p.Signal, p.Await)):
        return f"{program.objects[operation.channel].name}.{type(operation).__name__.lower()}"
    if isinstance(operation, (p.StoreFlag, p.WaitFlag)):
        return f"{program.objects[operation.flag].name}.{'store' if isinstance(operation, p.StoreFlag) else 'wait'}"
    return type(operation).__name__.lower()


def name(program: p.Program, thread: p.Thread, operand: p.Operand) -> str:
    """An operand's name as the user wrote it."""
    if isinstance(operand, p.Local):
        return Names(program).local(operand.id, thread)
    return program.objects[operand.id].name


def stuck(
    program: p.Program,
    steps: tuple[tuple[int, int, str | None, bool], ...],
    what: str = "a state is reachable from which no thread can move",
) -> str:
    """A state from which the design does not go on, in one sentence: who is where."""
    pc = {t: thread.entry for t, thread in enumerate(program.threads)}
    last: dict[int, int] = {}
    for t, node, answer, _ in steps:
        if node == DEVICE_STEP:
            continue
        thread = program.threads[t]
        if node < 0:
            pc[t] = thread.entry if thread.kind == "loop" else -1
            continue
        at = thread.nodes[node]
        last[t] = node
        pc[t] = at.next if isinstance(at, p.Do) else dict(at.branches)[answer or ""]
    for t in pc:
        pc[t] = _held(program, t, pc[t], last.get(t))
    where = [
        f"{program.threads[t].name} at {describe(program, (t, n))} ({place(program, (t, n))})"
        for t, n in pc.items()
        if n >= 0 and program.threads[t].kind != "setup" and not (program.threads[t].idle and n in between_turns(program, t))
    ]
    return f"{what}: {'; '.join(where)}"


_PASSES = (
    p.Launch, p.Host, p.Memset, p.Record, p.StreamWaitEvent, p.WaitStream, p.Signal, p.Await, p.StoreFlag, p.NewEvent,
    p.Alloc, p.Drop, p.View, p.RecordStream, p.Unlock, p.FlagSet, p.FlagClear, p.CounterAdd, p.Advance,
)  # fmt: skip
"""Calls that return at once: no thread is held there."""


def _held(program: p.Program, t: int, at: int, last: int | None) -> int:
    """Where a thread that cannot move stands: in the call that it made last, where that may wait for the device, or at one behind."""
    nodes = program.threads[t].nodes
    before = nodes[last] if last is not None else None
    if isinstance(before, p.Do) and isinstance(before.operation, (p.EventSync, p.StreamSync, p.DeviceSync, p.Item)):
        node = nodes[at] if at >= 0 else None
        if last is not None and (node is None or (isinstance(node, p.Do) and isinstance(node.operation, _PASSES))):
            return last
    for _ in nodes:
        node = nodes[at] if at >= 0 else None
        if not isinstance(node, p.Do) or not isinstance(node.operation, _PASSES) or node.next < 0:
            break
        at = node.next
    return at


def access_level(judged: Iterable[Judged]) -> list[str]:
    """Notes on hazards that change no value."""
    return list(
        dict.fromkeys(
            f"{j.hazard.name}: unordered, but access-level only ({j.why or 'the bytes are the same'})"
            for j in judged
            if j.hazard.value_changing is False
        )
    )


def _recorded_again(program: p.Program) -> list[str]:
    """Events that live for ever and are recorded more than once."""
    times: dict[int, int] = {}
    for thread, _, node in operations(program):
        event = node.operation.event if isinstance(node.operation, p.Record) else None
        if isinstance(event, (p.Obj, p.Slot)):
            times[event.id] = times.get(event.id, 0) + (2 if thread.kind == "loop" else 1)
    return [program.objects[number].name for number, count in sorted(times.items()) if count > 1]


def assumptions(program: p.Program, platform: Platform) -> list[str]:
    """What the verdict rests on besides the design."""
    result = []
    pageable = {i for i, o in enumerate(program.objects) if isinstance(o, p.Memory) and o.space == "pageable"}
    copies = [n.operation for _, _, n in operations(program) if isinstance(n.operation, p.Copy)]
    if any(c.src.id in pageable for c in copies if not isinstance(c.src, p.Local)):
        result.append(f"pageable H2D sources: {platform.pageable_h2d} (S47, platform {platform.name})")
    if any(c.dst.id in pageable for c in copies if not isinstance(c.dst, p.Local)):
        result.append(f"pageable D2H: {platform.pageable_d2h} (S48, platform {platform.name})")
    if platform.free == "synchronises" and any(isinstance(n.operation, p.DeviceSync) and n.operation.implied for _, _, n in operations(program)):
        result.append(f"a free waits for all work of its GPU (S38, S40, platform {platform.name})")
    again = _recorded_again(program) if platform.rerecord == "undefined" else []
    if again:
        result.append(
            f"recorded again while an earlier record may be outstanding, which is undefined here (S30, platform {platform.name}) and is "
            f"taken as on CUDA: {', '.join(again)}"
        )
    asked = {type(n.question) for t in program.threads for n in t.nodes if isinstance(n, p.Ask)}
    locked = asked & {p.QueueFull, p.QueueHolds, p.CellEmpty, p.FlagIsSet, p.CounterAtLeast, p.TryLock}
    if (locked and len(program.threads) > 1) or any(isinstance(o, p.Cell) for o in program.objects):
        result.append("tests and cells go through a lock, so they order host threads")
    guessed = _parts_of_undefined(program)
    if guessed:
        result.append(f"what is read by fp.ANY or by row was written before, whichever part that is: {', '.join(guessed)}")
    return result


def _parts_of_undefined(program: p.Program) -> list[str]:
    """Memory that an allocator handed out (its content is undefined, S62) of which an unknown part is used: by name."""
    if not any(isinstance(n.operation, p.Alloc) for _, _, n in operations(program)):
        return []
    found = {
        thread.locals[x.id].name
        for thread, _, n in operations(program)
        for x in operands(n.operation)
        if isinstance(x, p.Local) and isinstance(x.part, (p.Anything, p.At))
    }
    return sorted(found)


def lints(program: p.Program) -> list[str]:
    """Memory never written or never read, events recorded and never waited."""
    read: set[int] = set()
    written: set[int] = set()
    recorded: set[int] = set()
    waited: set[int] = set()
    travels: set[int] = set()
    memory = [i for i, o in enumerate(program.objects) if isinstance(o, p.Memory)]
    loose = False
    for _, _, node in operations(program):
        op = node.operation
        if isinstance(op, (p.Host, p.Launch)):
            for access in op.accesses:
                if not isinstance(access.target, p.Local):
                    (written if access.mode == "w" else read).add(access.target.id)
                else:
                    loose = True
        if isinstance(op, p.Copy):
            read |= {op.src.id} if not isinstance(op.src, p.Local) else set()
            written |= {op.dst.id} if not isinstance(op.dst, p.Local) else set()
        if isinstance(op, (p.Memset, p.Item)):
            target = op.dst if isinstance(op, p.Memset) else op.src
            if not isinstance(target, p.Local):
                (written if isinstance(op, p.Memset) else read).add(target.id)
        if isinstance(op, p.Record) and not isinstance(op.event, p.Local):
            recorded.add(op.event.id)
        if isinstance(op, (p.EventSync, p.StreamWaitEvent)) and not isinstance(op.event, p.Local):
            waited.add(op.event.id)
        if isinstance(op, (p.Put, p.CellSet)):
            travels |= {v.id for v in op.values if isinstance(v, (p.Obj, p.Slot))}
        if isinstance(op, p.Give) and op.after is not None and not isinstance(op.after, p.Local):
            waited.add(op.after.id)
    for thread in program.threads:
        for asked in thread.nodes:
            if isinstance(asked, p.Ask) and isinstance(asked.question, p.EventQuery):
                event = asked.question.event
                waited |= set() if isinstance(event, p.Local) else {event.id}
    result = []
    for i in memory:
        if i in travels and loose:
            continue
        if i in read and i not in written:
            result.append(f"{program.objects[i].name} is read and never written")
        if i in written and i not in read:
            result.append(f"{program.objects[i].name} is written and never read")
    result += [
        f"{program.objects[i].name} is recorded and never waited on" for i in sorted(recorded - waited - travels)
    ]
    result += [f"{program.objects[i].name} is waited on and never recorded (S18: no wait)" for i in sorted(waited - recorded - travels)]  # fmt: skip
    return result


def writes(program: p.Program) -> bool:
    """Whether some operation writes memory."""
    return any(
        isinstance(n.operation, (p.Copy, p.Memset))
        or (isinstance(n.operation, (p.Host, p.Launch)) and any(access.mode == "w" for access in n.operation.accesses))
        for _, _, n in operations(program)
    )


def unreached(program: p.Program, reached: set[tuple[int, int]]) -> list[tuple[str, tuple[int, int]]]:
    """Operations that no run executes: (name, node). A place that any of its nodes reaches counts as reached."""
    places = {program.threads[t].nodes[n].site for t, n in reached} - {-1}
    result = []
    for t, thread in enumerate(program.threads):
        for i, node in enumerate(thread.nodes):
            if isinstance(node, p.Do) and (t, i) not in reached and node.site not in places:
                result.append((describe(program, (t, i)), (t, i)))
    return list({key: (key, at) for key, at in result}.values())


def one_sided(program: p.Program, answers: set[tuple[int, int, str]]) -> list[str]:
    """Tests that always get the same answer."""
    result = []
    for t, thread in enumerate(program.threads):
        for i, node in enumerate(thread.nodes):
            if isinstance(node, p.Ask) and len(node.branches) > 1:
                seen = [x for x, _ in node.branches if (t, i, x) in answers]
                if len(seen) == 1 and not isinstance(node.question, (p.Choose, p.Maybe)):
                    result.append(f"{type(node.question).__name__} at {place(program, (t, i))} is always {seen[0]!r}")
    return list(dict.fromkeys(result))


def closing(program: p.Program, platform: Platform, environment: Environment, judged: Judged) -> tuple[str, ...]:
    """What closes the hazard that a refutation shows: the `fixes` of its answer, asked later."""
    return tuple(Explainer(Setting(program, platform, environment)).fixes(judged))


def protecting(
    program: p.Program, platform: Platform, environment: Environment, objects: Collection[str] | None = None
) -> tuple[a.Protection, ...]:
    """What protects the objects of a proved program, or those named: the `protections` of its answer, asked later."""
    asked = [one for one in locations(program) if objects is None or one.label(program) in objects]
    if not asked:
        return ()
    setting = Setting(program, platform, environment)
    where = Explainer(setting)
    searches: list[tuple[Search, Reach]] = []
    telling: dict[Location, set[tuple[int, int]]] = {}
    serial: list[a.Protection] = []
    for location in asked:
        label = location.label(program)
        sole = sole_agent(setting, location)
        if sole is not None:
            serial.append(alone(label, sole[0]))
            continue
        search = Search(setting, location, proof=True)
        nodes = where.synchronisations(search)
        watched, telling[location] = watching(search, nodes if len(nodes) <= ASKED else ())
        with contextlib.suppress(OutOfBudget, Unsupported):
            searches.append((search, watched.run(Budget())))
    return (*where.protections(searches, telling), *serial)


def alone(label: str, agent: str) -> a.Protection:
    """Of an object that one agent accesses: an agent is serial."""
    return a.Protection(label, (f"{agent} alone accesses it, in order",))


class Explainer:
    """Side questions about one program, each answered by the explorer on an edited program."""

    def __init__(self, setting: Setting) -> None:
        """`setting`: of the program, its platform and its environment."""
        self.setting = setting
        self.program = setting.program
        self.platform = setting.platform
        self.environment = setting.environment

    def clean(self, program: p.Program, location: Location, states: int = SIDE_STATES) -> bool | None:
        """Whether no hazard but of the same bytes is reachable at the location; None when that is not known."""
        return self._decided(program, location, states)[0]

    def _decided(self, program: p.Program, location: Location, states: int = SIDE_STATES) -> tuple[bool | None, Found | None]:
        """That, and where it is not so a hazard."""
        try:
            search = Search(Setting(program, self.platform, self.environment), location, proof=True)
        except Unsupported:  # what was added makes it a program that the explorer does not know
            return None, None
        return self._searched(search, states)

    def _clean(self, search: Search, states: int = SIDE_STATES) -> bool | None:
        return self._searched(search, states)[0]

    @staticmethod
    def _searched(search: Search, states: int) -> tuple[bool | None, Found | None]:
        budget = Budget(states=states, seconds=5.0)
        try:
            hazards = search.run(budget).hazards
            if hazards and hazards[0].kind == "same bytes":
                hazards = search.listing().run(budget).hazards  # which may hide others
        except (OutOfBudget, Unsupported):
            return None, None
        found = next((one for one in hazards if one.kind != "same bytes"), None)
        return found is None, found

    def missing_edge(self, judged: Judged) -> str:
        """The hazard as one sentence."""
        h = judged.hazard
        second = h.second
        doing = "writes" if second.mode == "w" else "reads"
        if h.kind == "UNDEFINED":
            return f"{second.agent} reads {h.object} in step {second.step} before anything wrote it"
        assert h.first is not None
        before = "read" if h.first.mode == "r" else "write"
        if h.held_back:
            return (
                f"{second.agent} {doing} {second.tenant} in step {second.step} ({second.operation}) when its block belongs to "
                f"{h.first.tenant} already: it is held back until after {h.first.operation} of step {h.first.step} on {h.first.agent}"
            )
        if judged.location.kind == "block" and h.new_owner and h.new_owner != h.object:
            what = f"{h.new_owner}, in the block that was {h.object},"
        else:
            what = h.object
        return (
            f"{second.agent} {doing} {what} in step {second.step} ({second.operation}) while {h.first.operation} of step "
            f"{h.first.step} on {h.first.agent} may still {before} it: nothing orders the end of the one before the other"
        )

    def _candidates(self, judged: Judged) -> list[tuple[str, p.Operation, tuple[int, int]]]:
        """Single edges that the platform offers in front of the second access, existing events first."""
        found, h = judged.found, judged.hazard
        if found.first is None or h.first is None:
            return []
        t, n = found.second
        events: list[p.Operand] = []
        for _, _, node in operations(self.program):
            op = node.operation
            if isinstance(op, p.Record) and not isinstance(op.event, p.Local):
                for one in (op.event, p.Slot(op.event.id, p.Turn()) if isinstance(op.event, p.Slot) else op.event):
                    if one not in events and not (isinstance(one, p.Slot) and isinstance(one.index, p.Var)):
                        events.append(one)
        result: list[tuple[str, p.Operation, tuple[int, int]]] = []
        thread = self.program.threads[t]
        node2 = thread.nodes[n]
        assert isinstance(node2, p.Do)
        spot = place(self.program, (t, n))
        stream = getattr(node2.operation, "stream", None)
        first_stream = self._stream_of(found.first)
        for event in events:
            label = name(self.program, thread, event)
            if not h.second.on_device:
                result.append((f"{label}.synchronize() before {spot}", p.EventSync(event), (t, n)))
            elif stream is not None:
                result.append((f"{name(self.program, thread, stream)}.wait_event({label}) before {spot}", p.StreamWaitEvent(stream, event), (t, n)))  # fmt: skip
                result.append((f"{label}.synchronize() before {spot}", p.EventSync(event), (t, n)))
        if first_stream is not None:
            label = self.program.objects[first_stream.id].name
            if h.second.on_device and stream is not None and stream != first_stream:
                result.append((f"{name(self.program, thread, stream)}.wait_stream({label}) before {spot}", p.WaitStream(stream, first_stream), (t, n)))  # fmt: skip
            result.append((f"{label}.synchronize() before {spot}", p.StreamSync(first_stream), (t, n)))
        result += self._lifetime(judged)
        return result

    def _lifetime(self, judged: Judged) -> list[tuple[str, p.Operation, tuple[int, int]]]:
        """record_stream right behind the first access of a block that changed hands (S64, S65)."""
        first = judged.found.first
        if judged.location.kind != "block" or judged.location.id is None or first is None:
            return []
        node = self.program.threads[first[0]].nodes[first[1]]
        assert isinstance(node, p.Do)
        stream = self._stream_of(first)
        locals_ = [o for o in operands(node.operation) if isinstance(o, p.Local)]
        if stream is None or not locals_:
            return []
        thread = self.program.threads[first[0]]
        source = locals_[-1]
        spot = place(self.program, first)
        return [(f"{name(self.program, thread, source)}.record_stream({self.program.objects[stream.id].name}) at {spot}",
                 p.RecordStream(p.Local(source.id), stream), first)]  # fmt: skip

    def _stream_of(self, at: tuple[int, int]) -> p.Obj | None:
        node = self.program.threads[at[0]].nodes[at[1]]
        stream = getattr(node.operation, "stream", None) if isinstance(node, p.Do) else None
        return stream if isinstance(stream, p.Obj) else None

    def fixes(self, judged: Judged, most: int = 3) -> list[str]:
        """The cheapest single additions that leave no hazard at the location, each decided by the explorer."""
        from fencepost.proofs.judge import changing, shows

        result: list[str] = []
        location, world = judged.location, (self.platform, self.environment)
        known = [(judged.found, judged.run)]
        """Hazards with their runs, without what was put in: most additions leave one that an earlier one left, too."""
        for text, operation, (t, n) in self._candidates(judged):
            if len(result) >= most or not edits.writable(self.program, t, operation):
                continue
            front = edits.before_call(self.program.threads[t], n)
            program = edits.insert_before(self.program, t, front, operation)
            lowered = self.setting.lowered.copy()
            if any(shows(program, run, location, found, *world, lowered) for found, run in known):
                continue
            clean, found = self._decided(program, location)
            if clean:
                result.append(text)
            run = changing(program, location, found, *world, lowered) if found is not None else None
            if found is not None and run is not None:
                count = [len(thread.nodes) for thread in self.program.threads]
                known.append((found, a.Run(tuple(step for step in run.steps if step.node < count[step.thread]))))
        return result

    def masks(self, judged: Judged) -> list[str]:
        """Environments under which the location shows no hazard: do not trust a debug run there."""
        if self.environment.name != "bare":
            return []
        result: list[str] = []
        masking: list[Environment] = []
        for environment in ENVIRONMENTS.values():
            if environment.name == "bare":
                continue
            # More waits leave fewer runs, and order more in each.
            if any(environment.blocks(other) for other in masking):
                found: bool | None = True
            elif BARE.blocks(environment) and judged.found.kind != "same bytes":
                found = False  # nothing waits that does not wait here, where there is one
            else:
                setting = Setting(self.program, self.platform, environment, self.setting)
                found = self._clean(Search(setting, judged.location, proof=True))
            if found:
                masking.append(environment)
                result.append(environment.name)
        return result

    def synchronisations(self, search: Search) -> list[tuple[int, int]]:
        """Those that matter to a search."""
        return [
            (t, i) for t, thread in enumerate(self.program.threads) for i, n in enumerate(thread.nodes)
            if isinstance(n, p.Do) and isinstance(n.operation, edits.SYNCHRONISATIONS) and i not in search.passed[t]
        ]  # fmt: skip

    def protections(
        self, searches: list[tuple[Search, Reach]], telling: Mapping[Location, set[tuple[int, int]]] | None = None
    ) -> list[a.Protection]:
        """For each reused object: the synchronisations whose absence alone would expose it, and the margin of rings.

        `telling`: for locations where that is known those that the proof may rest on (`watching`).
        """
        result = []
        channels = {
            n.operation.channel: (n.operation.tag, (t, i)) for t, thread in enumerate(self.program.threads)
            for i, n in enumerate(thread.nodes) if isinstance(n, p.Do) and isinstance(n.operation, p.Await)
        }  # fmt: skip
        """Meetings of streams: (kind, where it is awaited)."""
        merged: dict[str, tuple[list[str], int | None]] = {}
        loose: set[tuple[int, int] | int] = set()
        """Synchronisations and channels without which somebody runs ahead without bound: asked about once."""
        left = MEETING
        for search, reach in searches:
            location = reach.location
            assert location is not None
            label = location.label(self.program)
            matter = self.synchronisations(search)
            ways: list[tuple[tuple[int, int] | int, str]] = []
            if len(matter) <= ASKED and reach.size <= 2_000:
                ways += [(at, f"{describe(self.program, at)} ({place(self.program, at)})") for at in matter]
            if len(channels) <= ASKED and reach.size <= 2_000:
                for channel, (tag, at) in channels.items():
                    words = f"{tag or 'the signals'} on {self.program.objects[channel].name} ({place(self.program, at)})"
                    ways.append((channel, words))
            needed: list[str] = []
            told = telling.get(location) if telling is not None and not reach.hazards else None
            if told is None:
                told = self._telling(search, reach, [way for way, _ in ways if not isinstance(way, int)])
            asked, most = len(ways) == len(matter) + len(channels), reach.size + LOOSER
            for way, words in ways:
                clean = None if isinstance(way, int) or way in told else True
                if clean is None and way not in loose and (left > 0 or not channels):
                    if isinstance(way, int):
                        clean = self.clean(edits.without_channel(self.program, way), location, most)
                    else:
                        clean = self._clean(search.without(*way), most)
                    if clean is None:
                        loose.add(way)
                    left -= most if clean is None else reach.size if clean else 0
                asked = asked and clean is not None
                if clean is False:
                    needed.append(words)
            alone = NONE_ALONE if asked else NOT_ASKED
            merged[label] = (list(dict.fromkeys(needed)) or [alone], self._margin(location, reach))
        for label, (needed, margin) in merged.items():
            by = tuple(needed)
            result.append(a.Protection(label, by, margin))
        return result

    @staticmethod
    def _telling(search: Search, reach: Reach, nodes: list[tuple[int, int]]) -> set[tuple[int, int]]:
        """Those of some synchronisations that the proof may rest on. Where there are few, it is as well to search without each."""
        watched, telling = watching(search, nodes)
        if reach.hazards or len(nodes) < 2 or watched is search:
            return set(nodes)
        try:
            watched.run(Budget(states=reach.size + LOOSER, seconds=5.0))
        except OutOfBudget:
            return set(nodes)
        return telling

    def _margin(self, location: Location, reach: Reach) -> int | None:
        """Slots that the ring could lose: it is decided at smaller depths until one is refuted, by steps that double, and then
        between the last two. The depth that is found is proved and the next smaller one is not."""
        if location.kind != "memory" or location.id is None or reach.size > 2_000:
            return None
        depth = getattr(self.program.objects[location.id], "depth", None)
        if not depth or edits.ring_group(self.program, location.id) is None:
            return None
        safe, unsafe, step = int(depth), 0, 1
        while safe - unsafe > 1:
            smaller = max(safe - step, unsafe + 1) if unsafe == 0 else (safe + unsafe) // 2
            if self.clean(edits.resized(self.program, location.id, smaller), location):
                safe, step = smaller, 2 * step
            else:
                unsafe = smaller
        return int(depth) - safe
