"""The table: every edge rule, access rule and allocator rule, where it lives, how it is switched off, who notices.

Sources are rules of docs/semantics.md (S...), theory (sections of the shared theory) or the language. [T]: found by trial
against an operational machine. `red` names the designs of tests/mutation_designs.py that must not get their answer.
"""

from __future__ import annotations

import mutation_rules_language
import mutation_rules_meetings
from mutation import EVENTS, EXPLORER, LOWERING, MACHINE, Change, Rule

DEVICE = "fencepost.model.operations.device:"
HOST = "fencepost.model.operations.host:"
SYNC = "fencepost.model.operations.sync:"
COMPILE = "fencepost.proofs.explore.compile:ThreadCompiler."
MEMORY = "fencepost.proofs.explore.memory:LocationRules."
SEARCH = "fencepost.proofs.explore.search:Search."
LAYOUT = "fencepost.proofs.explore.layout:Layout."
FIFO = "fencepost.proofs.explore.fifo:QueueForm."
SLICING = "fencepost.proofs.explore.slicing:"
PLAYER = "fencepost.model.events.state:Player."
HOSTS = "fencepost.model.events.hosts:HostOperations."
QUESTIONS = "fencepost.model.events.questions:HostTests."
REFERENCES = "fencepost.model.events.references:References."
STRUCTURE = "fencepost.model.events.structure:"
VALUES = "fencepost.model.events.values:"
PARTS = "fencepost.model.events.parts:"
CLOCKS = "fencepost.model.events.clocks:VectorClocks."
MACHINE_HOST = "fencepost.simulator.machine_host:Host."
MACHINE_SHARED = "fencepost.simulator.machine_shared:Shared."
MACHINE_DEVICE = "fencepost.simulator.machine_device:Device."
MACHINE_ALLOCATORS = "fencepost.simulator.machine_allocators:Allocators."

_RULES: list[Rule] = []


def _rule(home: str, says: str, source: str, covers: str, red: str, *changes: tuple[str, str, str]) -> None:
    """Enter a rule. `covers`: class names; `red`: names of designs; `changes`: where, text, what stands there instead."""
    made = tuple(Change(*change) for change in changes)
    _RULES.append(Rule(says, source, home, made, tuple(red.split("; ")), tuple(covers.split())))


# fmt: off


# ---- what operations lower to: every engine reads it

_rule(LOWERING, "a kernel's accesses happen while it runs", "S4", "Launch Enqueue", "nobody_reads; nobody_reads strict",
      (DEVICE + "launch", "operation.accesses",
       "()"))
_rule(LOWERING, "a kernel reads", "S107", "Launch", "two_streams; pageable_source_target rocm",
      (DEVICE + "launch", "operation.accesses",
       'tuple(x for x in operation.accesses if x.mode == "w")'))
_rule(LOWERING, "a kernel writes", "S4", "Launch", "nobody_reads; nobody_reads strict",
      (DEVICE + "launch", "operation.accesses",
       'tuple(x for x in operation.accesses if x.mode == "r")'))
_rule(LOWERING, "launch blocking: the call waits for the kernel", "S113", "Launch JoinStream", "two_streams launch-blocking-kernels",
      (DEVICE + "_item", "environment.blocking_kernels if",
       "False if"))
_rule(LOWERING, "launch blocking: the call waits for the copy", "S113", "Copy JoinStream", "copy_unguarded launch-blocking",
      (DEVICE + "_item", "else environment.blocking_copies",
       "else False"))
_rule(LOWERING, "an item does not wait unless it is launched blocking", "S2", "Enqueue", "same_bytes_again strict; nobody_reads strict",
      (DEVICE + "_item", "if blocks else (item,)",
       "if True else (item,)"))
_rule(LOWERING, "a copy between host buffers is host code", "S49", "Copy Touch", "copy_on_the_host",
      (DEVICE + "_copy", "if source in host and target in host:",
       "if False:"))
_rule(LOWERING, "a copy between host buffers reads its source", "S49", "Copy Touch", "host_copy_reads",
      (DEVICE + "_copy", "return (Touch((read, write)),)  # S49",
       "return (Touch((write,)),)"))
_rule(LOWERING, "a copy between host buffers writes its target", "S49", "Copy Touch", "host_copy_writes",
      (DEVICE + "_copy", "return (Touch((read, write)),)  # S49",
       "return (Touch((read,)),)"))
_rule(LOWERING, "a pageable source is read before the call returns", "S47", "Copy Touch", "pageable_source rocm; pageable_source",
      (DEVICE + "_copy", 'if source == "pageable" and context.platform.pageable_h2d != "late":',
       "if False:"))
_rule(LOWERING, "by platform a pageable source is read late", "S47", "Copy", "pageable_source cuda-late-pageable",
      (DEVICE + "_copy", 'and context.platform.pageable_h2d != "late":',
       ":"))
_rule(LOWERING, "a pageable source is read", "S47", "Copy Touch", "pageable_source_is_read",
      (DEVICE + "_copy", "Touch((read,)), *_item(",
       "Touch(()), *_item("))
_rule(LOWERING, "a staged copy writes its target", "S47", "Copy Enqueue", "pageable_source_target; pageable_source_target rocm",
      (DEVICE + "_copy", '*_item(operation.stream, (write,), "copy", context))',
       '*_item(operation.stream, (), "copy", context))'))
_rule(LOWERING, "by platform a copy from pageable memory waits", "S52", "Copy JoinStream", "pageable_source_target rocm",
      (DEVICE + "_copy", 'waits = waits or context.platform.pageable_h2d == "blocking"',
       "waits = waits"))
_rule(LOWERING, "a copy reads its source when the stream reaches it", "S45", "Copy Enqueue", "copy_unguarded launch-blocking-kernels; same_bytes_again strict",
      (DEVICE + "_copy", 'effects = _item(operation.stream, (read, write), "copy", context)',
       'effects = _item(operation.stream, (write,), "copy", context)'))
_rule(LOWERING, "a copy writes its target when the stream reaches it", "S46", "Copy Enqueue", "pageable_target cuda-late-pageable; target_unguarded",
      (DEVICE + "_copy", 'effects = _item(operation.stream, (read, write), "copy", context)',
       'effects = _item(operation.stream, (read,), "copy", context)'))
_rule(LOWERING, "a copy into pageable memory waits", "S48", "Copy JoinStream", "pageable_target",
      (DEVICE + "_copy", 'waits = waits or (target == "pageable" and context.platform.pageable_d2h == "blocking")',
       "waits = waits"))
_rule(LOWERING, "copy_ without non_blocking waits", "S33", "Copy JoinStream", "two_allocators; copy_that_blocks",
      (DEVICE + "_copy", "waits = not operation.non_blocking and not operation.raw",
       "waits = False"))
_rule(LOWERING, "copy_ with non_blocking does not wait", "S45", "Copy", "copy_unguarded launch-blocking-kernels; same_bytes_again strict",
      (DEVICE + "_copy", "waits = not operation.non_blocking and not operation.raw",
       "waits = not operation.raw"))
_rule(LOWERING, "copy_ tells the host allocator of its pinned source", "S79", "Copy NoteUse", "pinned_source_noted",
      (DEVICE + "_copy", "((operation.src, source), (operation.dst, target))",
       "((operation.dst, target),)"))
_rule(LOWERING, "copy_ tells the host allocator of its pinned target", "S79", "Copy NoteUse", "pinned_target_noted",
      (DEVICE + "_copy", "((operation.src, source), (operation.dst, target))",
       "((operation.src, source),)"))
_rule(LOWERING, "memcpy_async tells no allocator", "S83", "Copy NoteUse", "device_note_on_a_pinned_block; raw_copy_is_not_noted",
      (DEVICE + "_copy", "if not operation.raw and operation.non_blocking:",
       "if operation.non_blocking:"))
_rule(LOWERING, "a fill writes its target", "S39", "Memset Enqueue", "memset_runs_later",
      (DEVICE + "memset", '(p.Access(operation.dst, "w"),)',
       "()"))
_rule(LOWERING, "a fill does not wait", "S39", "Memset", "memset_runs_later",
      (DEVICE + "memset", 'return _item(operation.stream, (p.Access(operation.dst, "w"),), "memset", context)',
       'return (*_item(operation.stream, (p.Access(operation.dst, "w"),), "memset", context), JoinStream(operation.stream))'))
_rule(LOWERING, "item() reads", "S33", "Item Enqueue", "streams_in_turn_share; item_reads",
      (DEVICE + "item", "(read,)",
       "()"))
_rule(LOWERING, "item() waits for its stream", "S33", "Item JoinStream", "item_waits; item_reads",
      (DEVICE + "item", ", JoinStream(operation.stream))",
       ",)"))
_rule(LOWERING, "record_stream tells the allocator", "S64", "RecordStream NoteUse", "record_stream",
      (DEVICE + "record_stream", '(NoteUse(operation.block, operation.stream, "device"),)',
       "()"))
_rule(LOWERING, "host code reads", "S45", "Host Touch", "host_copy_writes; host_writes",
      (HOST + "host", "operation.accesses",
       'tuple(x for x in operation.accesses if x.mode == "w")'))
_rule(LOWERING, "host code writes", "S45", "Host Touch", "host_copy_reads; host_writes",
      (HOST + "host", "operation.accesses",
       'tuple(x for x in operation.accesses if x.mode == "r")'))
_rule(LOWERING, "record captures", "S19", "Record RecordEvent", "query_says_yes; event_guard",
      (SYNC + "record", "(RecordEvent(operation.event, operation.stream),)",
       "()"))
_rule(LOWERING, "event.synchronize waits", "S23", "EventSync JoinEvent", "asked_then_waited_for; event_guard",
      (SYNC + "event_sync", "(JoinEvent(operation.event),)",
       "()"))
_rule(LOWERING, "wait_event orders", "S20", "StreamWaitEvent StreamJoinsEvent", "hop_over_a_stream; event_between_streams",
      (SYNC + "stream_wait_event", "(StreamJoinsEvent(operation.stream, operation.event),)",
       "()"))
_rule(LOWERING, "wait_event does not hold the host back", "S20", "StreamWaitEvent", "no_of_a_stream_that_waits_for_an_event",
      (SYNC + "stream_wait_event", "(StreamJoinsEvent(operation.stream, operation.event),)",
       "(StreamJoinsEvent(operation.stream, operation.event), JoinEvent(operation.event))"))
_rule(LOWERING, "wait_stream orders", "S22", "WaitStream StreamJoinsStream", "one_kernel_reads_and_writes; no_comes_after_a_wait_on_the_other_stream",
      (SYNC + "wait_stream", "(StreamJoinsStream(operation.stream, operation.other),)",
       "()"))
_rule(LOWERING, "stream.synchronize waits", "S32", "StreamSync JoinStream", "fixed_slot; named_parts",
      (SYNC + "stream_sync", "(JoinStream(operation.stream),)",
       "()"))
_rule(LOWERING, "torch.cuda.synchronize waits", "S32", "DeviceSync JoinDevice", "known complete by device; device_is_synchronized",
      (SYNC + "device_sync", "(JoinDevice(operation.gpu, operation.process),)",
       "()"))

# ---- the explorer

_rule(EXPLORER, "enqueue -> start", "S2", "Enqueue", "two_streams launch-blocking-kernels; copy_unguarded launch-blocking",
      (COMPILE + "_enqueue", "s.streams[stream(s)] |= s.tb[t]",
       "pass"),
      (COMPILE + "_enqueue", "s.streams[only] |= s.tb[t]",
       "pass"))
_rule(EXPLORER, 'the calls that put work there -> a "no" of stream.query', "S34", "Enqueue StreamQuery", "told_of_a_wait; no_comes_after_the_enqueue",
      (COMPILE + "_called", "s.tb[t] | PENDING",
       "PENDING"))
_rule(EXPLORER, "a stream with work may be busy", "S34", "Enqueue StreamQuery", "no_comes_after_the_enqueue; no_comes_after_a_wait_on_the_other_stream",
      (COMPILE + "_called", "s.tb[t] | PENDING",
       "s.tb[t]"))
_rule(EXPLORER, "a record starts after its call", "S2", "RecordEvent", "record_behind_a_write",
      (COMPILE + "_recordevent", "s.streams[i] |= s.tb[t]  # a record is an item: it starts after its call, and what follows after it (S2)",
       "pass"),
      (COMPILE + "_recordevent", "bit = s.streams[only] = s.streams[only] | s.tb[t]",
       "bit = s.streams[only]"))
_rule(EXPLORER, "a record captures the stream", "S19", "RecordEvent", "event_between_streams; event_guard",
      (COMPILE + "_recordevent", "write(s, s.streams[i] & BIT)",
       "write(s, 0)"),
      (COMPILE + "_recordevent", "s.events[event] = bit & BIT",
       "s.events[event] = 0"))
_rule(EXPLORER, "a record forgets the earlier capture", "S19", "RecordEvent", "recorded_again",
      (COMPILE + "_recordevent", "write(s, s.streams[i] & BIT)",
       "write(s, (s.streams[i] | self._event_read(effect.event)(s)) & BIT)"),
      (COMPILE + "_recordevent", "s.events[event] = bit & BIT",
       "s.events[event] |= bit & BIT"))
_rule(EXPLORER, "a record starts after its call, where something is queried", "S2", "RecordEvent", "record_behind_a_write_where_one_asks",
      (COMPILE + "_recordevent", "s.streams[i] |= s.tb[t]\n        known",
       "known"))
_rule(EXPLORER, "a record captures the stream, where something is queried", "S19", "RecordEvent", "event_between_streams_and_asked; asked_then_waited_for",
      (COMPILE + "_recordevent", "(s.streams[i] & BIT) | RECORDED",
       "RECORDED"))
_rule(EXPLORER, "a record forgets the earlier capture, where something is queried", "S19", "RecordEvent", "recorded_again_and_asked",
      (COMPILE + "_recordevent", "write(s, (s.streams[i] & BIT) | RECORDED",
       "write(s, ((s.streams[i] | self._event_read(effect.event)(s)) & BIT) | RECORDED"))
_rule(EXPLORER, "a recorded event may be pending", "S24", "RecordEvent EventQuery", "event_between_streams_and_asked; asked_then_waited_for",
      (COMPILE + "_recordevent", "| RECORDED |",
       "|"))
_rule(EXPLORER, 'the record call -> a "no" of event.query', "S24", "RecordEvent EventQuery", "no_comes_after_the_record",
      (COMPILE + "_recordevent", "(CALLED if s.tb[t] else 0)",
       "0"))
_rule(EXPLORER, "a record behind completed work is complete", "S24", "RecordEvent EventQuery", "no_is_impossible_on_an_idle_stream",
      (COMPILE + "_recordevent", "else COMPLETE",
       "else 0"))
_rule(EXPLORER, "capture -> synchronize", "S23", "JoinEvent", "recorded_elsewhere one-hardware-queue; event_guard",
      (COMPILE + "_joinevent", "s.tb[t] |= read(s) & BIT",
       "pass"),
      (COMPILE + "_joinevent", "s.tb[t] |= s.events[event] & BIT",
       "pass"),
      (COMPILE + "_joinevent", "s.tb[t] |= flags & BIT",
       "pass"))
_rule(EXPLORER, "capture -> synchronize, where something is queried", "S23", "JoinEvent", "asked_then_waited_for",
      (COMPILE + "_joinevent", "s.tb[t] |= flags & BIT",
       "pass"))
_rule(EXPLORER, "a synchronized event is known complete", "S24", "JoinEvent EventQuery", "known complete by event; known complete by event, waited for",
      (COMPILE + "_joinevent", "write(s, flags | COMPLETE)",
       "pass"))
_rule(EXPLORER, "stream -> stream.synchronize", "S32", "JoinStream", "pageable_target; copy_that_blocks",
      (COMPILE + "_joinstream", "s.tb[t] |= s.streams[i]",
       "pass"))
_rule(EXPLORER, "a synchronized stream is idle", "S34", "JoinStream StreamQuery", "known complete by stream; no_is_impossible_on_an_idle_stream",
      (COMPILE + "_joinstream", "s.calls[i] &= ~PENDING",
       "pass"))
_rule(EXPLORER, "streams of the GPU -> synchronize", "S32", "JoinDevice", "device_is_synchronized",
      (COMPILE + "_joindevice", "s.tb[t] |= s.streams[i]",
       "pass"))
_rule(EXPLORER, "a synchronized GPU is idle", "S34", "JoinDevice StreamQuery", "known complete by device",
      (COMPILE + "_joindevice", "s.calls[i] &= ~PENDING",
       "pass"))
_rule(EXPLORER, "synchronize is of one GPU and process", "S32", "JoinDevice", "other_device_is_synchronized",
      (LAYOUT + "device_streams", "if o.gpu == gpu and o.process == process:",
       "if True:"))
_rule(EXPLORER, "capture -> later items of the waiting stream", "S20", "StreamJoinsEvent", "hop_over_a_stream; waited_for_after_the_record",
      (COMPILE + "_streamjoinsevent", "s.streams[stream(s)] |= read(s) & BIT",
       "pass"),
      (COMPILE + "_streamjoinsevent", "s.streams[only] |= s.events[event] & BIT",
       "pass"))
_rule(EXPLORER, "capture -> later items, where something is queried", "S20", "StreamJoinsEvent", "event_between_streams_and_asked",
      (COMPILE + "_streamjoinsevent", "(flags & BIT) | s.tb[t]",
       "s.tb[t]"))
_rule(EXPLORER, "the wait starts after its call, where something is queried", "S2", "StreamJoinsEvent", "wait_behind_a_write_where_one_asks",
      (COMPILE + "_streamjoinsevent", "(flags & BIT) | s.tb[t]",
       "(flags & BIT)"))
_rule(EXPLORER, "a wait for a never recorded event does nothing", "S18", "StreamJoinsEvent StreamQuery", "waiting_for_a_never_recorded_event",
      (COMPILE + "_streamjoinsevent", "if flags & RECORDED:",
       "if True:"))
_rule(EXPLORER, 'the wait call -> a "no" of stream.query', "S34", "StreamJoinsEvent StreamQuery", "no_comes_after_a_wait_for_the_event",
      (COMPILE + "_streamjoinsevent", "s.calls[i] |= s.tb[t] | (0",
       "s.calls[i] |= (0"))
_rule(EXPLORER, "a stream that waits for an event may be busy", "S34", "StreamJoinsEvent StreamQuery", "told_of_a_wait_for_an_event; no_comes_after_a_wait_for_the_event",
      (COMPILE + "_streamjoinsevent", "(0 if flags & COMPLETE else PENDING)",
       "0"))
_rule(EXPLORER, "a stream that waits for completed work is idle", "S34", "StreamJoinsEvent StreamQuery", "known complete by event, waited for",
      (COMPILE + "_streamjoinsevent", "(0 if flags & COMPLETE else PENDING)",
       "PENDING"))
_rule(EXPLORER, "a stream wait's record starts after its call", "S2", "StreamJoinsStream", "stream_wait_behind_a_write",
      (COMPILE + "_streamjoinsstream", "s.streams[behind] |= s.tb[t]  # the record is an item there",
       "pass"))
_rule(EXPLORER, "the other stream -> later items of the waiting stream", "S22", "StreamJoinsStream", "one_kernel_reads_and_writes; event_between_streams",
      (COMPILE + "_streamjoinsstream", "s.streams[i] |= s.streams[behind]",
       "pass"))
_rule(EXPLORER, 'the stream wait\'s call -> a "no" of stream.query', "S34", "StreamJoinsStream StreamQuery", "no_comes_after_a_wait_on_the_other_stream",
      (COMPILE + "_streamjoinsstream", "s.tb[t] | s.calls[behind]",
       "s.calls[behind]"))
_rule(EXPLORER, "a stream that waits for a busy one may be busy", "S34", "StreamJoinsStream StreamQuery", "told_of_a_wait; no_comes_after_a_wait_on_the_other_stream",
      (COMPILE + "_streamjoinsstream", "s.tb[t] | s.calls[behind]",
       "s.tb[t] | (s.calls[behind] & BIT)"))
_rule(EXPLORER, "a new event was never recorded", "S17", "NewEvent", "recorded_once_after_hand_over",
      (COMPILE + "_newevent", "s.events.append(0)",
       "s.events.append(BIT | RECORDED)"))
_rule(EXPLORER, "a new event carries nothing", "S17", "NewEvent", "fresh_event_says_nothing",
      (COMPILE + "_newevent", "self._set_local(effect.local, lambda s: 0)",
       "self._set_local(effect.local, lambda s: BIT)"))
_rule(EXPLORER, "a cursor moves on", "language", "Advance", "ring_by_cursor",
      (COMPILE + "_advance", "(s.pos[var] + 1) % depth",
       "s.pos[var] % depth"))
_rule(EXPLORER, 'query "yes" is a synchronize', "S24", "EventQuery", "asked_then_waited_for; query_says_yes",
      (COMPILE + "_event_query", "s.tb[t] |= flags & BIT",
       "pass"))
_rule(EXPLORER, 'a "no" is possible while the capture may be pending', "S24", "EventQuery", "asked_then_waited_for; no_comes_after_the_record",
      (COMPILE + "_event_query", "if flags & RECORDED and not flags & COMPLETE:",
       "if False:"))
_rule(EXPLORER, 'never recorded says "yes"', "S18", "EventQuery", "no_comes_after_the_record",
      (COMPILE + "_event_query", "if flags & RECORDED and not flags & COMPLETE:",
       "if not flags & COMPLETE:"))
_rule(EXPLORER, 'known complete says "yes"', "S24", "EventQuery", "known complete by event; known complete by query",
      (COMPILE + "_event_query", "if flags & RECORDED and not flags & COMPLETE:",
       "if flags & RECORDED:"))
_rule(EXPLORER, 'the record call -> who is told "no"', "theory 2", "EventQuery", "no_comes_after_the_record",
      (COMPILE + "_event_query", "busy.tb[t] |= bool(flags & CALLED)  # the record call came before [T]",
       "pass"))
_rule(EXPLORER, 'a "yes" makes the capture known complete', "S24", "EventQuery", "known complete by query",
      (COMPILE + "_event_query", "write(s, flags | COMPLETE)",
       "pass"))
_rule(EXPLORER, 'stream.query "yes" is a synchronize', "S34", "StreamQuery", "stream_says_yes",
      (COMPILE + "_stream_query", "s.tb[t] |= s.streams[i]",
       "pass"))
_rule(EXPLORER, 'a busy stream may say "no"', "S34", "StreamQuery", "no_comes_after_the_enqueue; no_comes_after_a_wait_on_the_other_stream",
      (COMPILE + "_stream_query", "if s.calls[i] & PENDING or noted:",
       "if False:"))
_rule(EXPLORER, 'an idle stream says "yes"', "S34", "StreamQuery", "waiting_for_a_never_recorded_event; no_comes_after_the_enqueue",
      (COMPILE + "_stream_query", "if s.calls[i] & PENDING or noted:",
       "if True:"))
_rule(EXPLORER, 'the enqueue calls -> who is told "no"', "theory 2", "StreamQuery", "no_comes_after_a_wait_for_the_event; no_comes_after_the_enqueue",
      (COMPILE + "_stream_query", "busy.tb[t] |= busy.calls[i] & BIT  # the calls came before [T]",
       "pass"))
_rule(EXPLORER, 'a "yes" makes the stream idle', "S34", "StreamQuery", "known complete by stream query",
      (COMPILE + "_stream_query", "s.calls[i] &= ~PENDING",
       "pass"))
_rule(EXPLORER, "one hardware queue is one stream", "S115", "Enqueue", "two_streams one-hardware-queue",
      (COMPILE + "_stream", "if self.o.environment.one_queue:",
       "if False:"))
_rule(EXPLORER, 'the record call that the wait is for -> a "no" of stream.query', "S34", "StreamJoinsEvent StreamQuery", "told_of_a_wait_for_an_event",
      (COMPILE + "_streamjoinsevent", "| (BIT if flags & CALLED else 0)",
       ""))
_rule(EXPLORER, 'the calls of the other stream -> a "no" of stream.query', "S34", "StreamJoinsStream StreamQuery", "told_of_a_wait",
      (COMPILE + "_streamjoinsstream", "s.tb[t] | s.calls[behind]",
       "s.tb[t] | (s.calls[behind] & PENDING)"))
_rule(EXPLORER, "a cursor of several threads is not decided", "theory 2", "Advance", "cursor_of_two_threads",
      ("fencepost.proofs.explore.compile:Compiler.__init__", "if setting.shared_cursor is not None:",
       "if False:"))
_rule(EXPLORER, "get i -> put i + capacity", "theory 2", "Put", "slots_behind_a_queue",
      (COMPILE + "_put", "s.tb[t] | (free[0] & bound)",
       "s.tb[t]"))
_rule(EXPLORER, "put i -> get i (the put's side)", "theory 2", "Put", "get, written before; first_turn",
      (COMPILE + "_put", "(tag, bit, vs)",
       "(tag, 0, vs)"))
_rule(EXPLORER, "put -> every later test of the queue", "theory 2 [T]", "Put QueueFull QueueHolds", "holds, written before; full, written before",
      (COMPILE + "_put", "every | bit",
       "every"))
_rule(EXPLORER, "put i -> get i (the get's side)", "theory 2", "Get", "get, written before; first_turn",
      (COMPILE + "_get", "s.tb[t] | bit | last_get",
       "s.tb[t] | last_get"))
_rule(EXPLORER, "get i -> get i + 1", "theory 2", "Get", "second_item",
      (COMPILE + "_get", "s.tb[t] | bit | last_get",
       "s.tb[t] | bit"))
_rule(EXPLORER, "get i -> put i + capacity (the get's side)", "theory 2", "Get", "slots_behind_a_queue",
      (COMPILE + "_get", "(*free, bit)",
       "(*free, 0)"))
_rule(EXPLORER, "get -> every later test of the queue", "theory 2 [T]", "Get QueueFull QueueHolds", "queue_is_emptied",
      (COMPILE + "_get", "every | bit",
       "every"))
_rule(EXPLORER, "a queue holds at most its capacity", "theory 2", "Put", "full, written after; full, written before",
      (LAYOUT + "start", "(0,) * program.objects[i].capacity",
       "(0,) * (program.objects[i].capacity + 1)"))
_rule(EXPLORER, "earlier operations on the cell -> cell.set", "theory 2", "CellSet", "set_behind_a_set",
      (COMPILE + "_cellset", "s.tb[t] | bit",
       "s.tb[t]"))
_rule(EXPLORER, "cell.set -> later operations on the cell", "theory 2", "CellSet", "cell take, written before; cell_is_set_over",
      (COMPILE + "_cellset", "(vs, bit)",
       "(vs, 0)"))
_rule(EXPLORER, "cell.set lets the old item go", "S65", "CellSet", "cell_lets_go",
      (COMPILE + "_cellset", "loose(s, old)",
       "pass"))
_rule(EXPLORER, "a cell holds its item", "S65", "CellSet", "cell_lets_go_when_cleared; block_taken_from_a_cell",
      (COMPILE + "_cellset", "hold(s, vs)",
       "pass"))
_rule(EXPLORER, "earlier operations on the cell -> cell.get", "theory 2", "CellGet", "get_behind_a_set",
      (COMPILE + "_cellget", "s.tb[t] | bit",
       "s.tb[t]"))
_rule(EXPLORER, "cell.get -> later operations on the cell", "theory 2", "CellGet", "cell_is_taken",
      (COMPILE + "_cellget", "(None if take else vs, bit)",
       "(None if take else vs, 0)"))
_rule(EXPLORER, "cell.take empties", "language", "CellGet", "cell_is_taken; block_taken_from_a_cell",
      (COMPILE + "_cellget", "None if take else vs",
       "vs"))
_rule(EXPLORER, "cell.get holds once more", "S65", "CellGet", "block_in_a_cell",
      (COMPILE + "_cellget", "hold(s, vs)",
       "pass"))
_rule(EXPLORER, "cell.get on an empty cell is a design error", "language", "CellGet", "cell_may_be_empty",
      (COMPILE + "_cellget", 's.hazard = ("EMPTY", node)',
       "pass"))
_rule(EXPLORER, "earlier operations on the cell -> cell.clear", "theory 2", "CellClear", "clear_behind_a_set",
      (COMPILE + "_cellclear", "s.tb[t] | bit",
       "s.tb[t]"))
_rule(EXPLORER, "cell.clear -> later operations on the cell", "theory 2", "CellClear", "cell_is_cleared",
      (COMPILE + "_cellclear", "(None, bit)",
       "(None, 0)"))
_rule(EXPLORER, "cell.clear empties", "language", "CellClear", "block_in_a_cell; cell_is_cleared",
      (COMPILE + "_cellclear", "(None, bit)",
       "(vs, bit)"))
_rule(EXPLORER, "cell.clear lets the item go", "S65", "CellClear", "cell_lets_go_when_cleared",
      (COMPILE + "_cellclear", "loose(s, vs)",
       "pass"))
_rule(EXPLORER, "unlock -> acquire", "theory 2", "Acquire", "locked; try_lock_takes",
      (COMPILE + "_acquire", "s.tb[t] |= bit & edge",
       "pass"))
_rule(EXPLORER, "acquire -> a later try-lock", "theory 2 [T]", "Acquire TryLock", "try lock, written before",
      (COMPILE + "_acquire", "(free - 1, bit | s.tb[t] & taken)",
       "(free - 1, bit)"))
_rule(EXPLORER, "a lock is held by one", "theory 2", "Acquire", "locked; try_lock_takes",
      (COMPILE + "_ready", "s.locks[k][0] > 0",
       "True"))
_rule(EXPLORER, "unlock -> acquire (the unlock's side)", "theory 2", "Unlock", "locked; try_lock_takes",
      (COMPILE + "_unlock", "bit | s.tb[t]",
       "bit"))
_rule(EXPLORER, "earlier stores -> flag.clear", "theory 2", "FlagClear", "clear_behind_a_flag_set",
      (COMPILE + "_flag_store", "s.tb[t] |= bit",
       "pass"))
_rule(EXPLORER, "flag store -> the load that saw it", "theory 2", "FlagSet FlagClear", "flag_is_cleared; clear_comes_after_the_set",
      (COMPILE + "_flag_store", "(value, bit | s.tb[t])",
       "(value, bit)"))
_rule(EXPLORER, "flag.set sets", "language", "FlagSet", "flag wait, written after; flag is set, written before",
      (COMPILE + "_flagset", "self._flag_store(effect.flag, 1)",
       "self._flag_store(effect.flag, 0)"))
_rule(EXPLORER, "flag.clear unsets", "language", "FlagClear", "flag_is_cleared; flag_there_and_back",
      (COMPILE + "_flagclear", "self._flag_store(effect.flag, 0)",
       "self._flag_store(effect.flag, 1)"))
_rule(EXPLORER, "store -> flag.wait", "theory 2", "FlagWait", "flag wait, written before",
      (COMPILE + "_flagwait", "s.tb[t] |= s.flags[k][1] & edge",
       "pass"))
_rule(EXPLORER, "flag.wait waits", "language", "FlagWait", "flag wait, written after; flag wait, written before",
      (COMPILE + "_ready", "s.flags[k][0] == 1",
       "True"))
_rule(EXPLORER, "add -> counter.wait", "theory 2", "CounterAdd", "counter at least, written before; counter wait, written before",
      (COMPILE + "_counteradd", "bit | s.tb[t]",
       "bit"))
_rule(EXPLORER, "counter.wait comes after the adds", "theory 2", "CounterWait", "counter_one_short; counter wait, written before",
      (COMPILE + "_counterwait", "s.tb[t] |= s.counters[k][1] & edge",
       "pass"))
_rule(EXPLORER, "counter.wait waits", "language", "CounterWait", "counter wait, written after; counter wait, written before",
      (COMPILE + "_ready", "return lambda s: test(s.counters[k][0])",
       "return None"))
_rule(EXPLORER, "a counter per turn counts turns", "language", "CounterWait", "counter_one_short; counter_per_turn",
      (LAYOUT + "end_turn", "else v - 1 for",
       "else v for"))
_rule(EXPLORER, "put i -> the tag's test", "theory 2 [T]", "QueueTag", "tag_tells_of_the_put",
      (COMPILE + "_question", "s.tb[t] |= items[0][1] | last_get",
       "s.tb[t] |= last_get"))
_rule(EXPLORER, "get i - 1 -> the tag's test", "theory 2 [T]", "QueueTag", "tag_tells_of_the_get_before",
      (COMPILE + "_question", "s.tb[t] |= items[0][1] | last_get",
       "s.tb[t] |= items[0][1]"))
_rule(EXPLORER, "a question about the turn follows the turn", "language", "TurnBelow", "first_turn",
      (COMPILE + "_question", '"yes" if s.turns[t] < value else "no"',
       '"yes"'))
_rule(EXPLORER, "an open choice may fall any way", "language", "Choose Maybe", "tag_is_seen; cell_may_be_empty",
      (COMPILE + "_question", "[*[(o, s.copy()) for o in others], (last, s)]",
       "[(options[0], s)]"))
_rule(EXPLORER, "an agreed choice is agreed", "language", "Choose", "agreed_choice",
      (COMPILE + "_question", "if isinstance(q, p.Choose) and q.agreed:",
       "if False:"))
_rule(EXPLORER, "earlier operations on the queue -> full, holds", "theory 2 [T]", "QueueFull QueueHolds", "holds, written before; full, written before",
      (COMPILE + "_state_test", "s.tb[t] |= every\n",
       "pass\n"))
_rule(EXPLORER, "full follows the state", "language", "QueueFull", "full, written after; not_full_does_something",
      (COMPILE + "_state_test", "not free if count is None",
       "True if count is None"))
_rule(EXPLORER, "holds follows the state", "language", "QueueHolds", "holds, written after; holds, written before",
      (COMPILE + "_state_test", "len(items) >= count",
       "True"))
_rule(EXPLORER, "earlier operations on the cell -> empty", "theory 2 [T]", "CellEmpty", "cell empty, written before; cell_is_taken",
      (COMPILE + "_state_test", "s.tb[t] |= bit\n            s.cells[c]",
       "s.cells[c]"))
_rule(EXPLORER, "earlier operations on the flag -> is_set", "theory 2 [T]", "FlagIsSet", "flag is set, written before; flag_is_cleared",
      (COMPILE + "_state_test", "s.tb[t] |= bit\n            s.flags[k]",
       "s.flags[k]"))
_rule(EXPLORER, "earlier adds -> counter >= c", "theory 2 [T]", "CounterAtLeast", "counter at least, written before",
      (COMPILE + "_state_test", "s.tb[t] |= bit\n            s.counters[k]",
       "s.counters[k]"))
_rule(EXPLORER, "earlier operations on the lock -> try-lock", "theory 2 [T]", "TryLock", "try lock, written before; try_lock_takes",
      (COMPILE + "_state_test", "s.tb[t] |= bit\n        s.locks[k]",
       "s.locks[k]"))
_rule(EXPLORER, "a try-lock that says yes takes the lock", "language", "TryLock", "try_lock_takes",
      (COMPILE + "_state_test", "free - 1 if free else free",
       "free"))
_rule(EXPLORER, "two accesses of common bytes, one a write, conflict", "theory 1", "Touch Enqueue", "copy_unguarded launch-blocking-kernels; same_bytes_again strict",
      (MEMORY + "_judge", "if not bit and (write or w.write):",
       "if False:"))
_rule(EXPLORER, "two reads do not conflict", "theory 1", "Touch Enqueue", "reads_only; ring_by_cursor",
      (MEMORY + "_judge", "if not bit and (write or w.write):",
       "if not bit:"))
_rule(EXPLORER, "slots of a ring are disjoint", "theory 1", "Touch Enqueue", "streams_in_turn; fixed_slot",
      (MEMORY + "_judge", "if slot != s.slot and slot != ANY_SLOT and s.slot != ANY_SLOT:",
       "if False:"))
_rule(EXPLORER, "an access of the whole meets every slot", "theory 1", "Touch Enqueue", "all_rows",
      (MEMORY + "_judge", "if slot != s.slot and slot != ANY_SLOT and s.slot != ANY_SLOT:",
       "if slot != s.slot:"))
_rule(EXPLORER, "a fresh block is undefined until it is written", "theory 1", "Alloc", "read_before_it_is_written; unknown_part_written",
      (MEMORY + "_judge", 'if not write:\n                s.hazard = ("UNDEFINED", node, which)',
       "if not write:\n                pass"))
_rule(EXPLORER, "an access through a raw pointer to a freed block is a use after free", "S65", "View", "raw_pointer",
      (MEMORY + "_judge", "if pointer is not None and",
       "if False and"))
_rule(EXPLORER, "a write defines", "theory 1", "Alloc", "scope_ends_with_the_turn; blocks_stay_with_their_stream",
      (MEMORY + "_judge", "s.block = (*s.block[:3], s.block[3] | DEFINED, s.block[4])",
       "pass"))
_rule(EXPLORER, "the same bytes in the same epoch change nothing", "theory 1", "Touch", "same_bytes_again",
      (MEMORY + "_judge", "exempt = w.epoch and (same or (w.same_bytes and not write))",
       "exempt = False"))
_rule(EXPLORER, "other bytes end the epoch", "theory 1", "Touch", "other_bytes_between",
      (MEMORY + "_judge", "s.witness = w._replace(epoch=False)",
       "pass"))
_rule(EXPLORER, "a view of a part defines that part only", "theory 1", "Alloc View", "view_of_a_part",
      (MEMORY + "_defines", "if self.layout.narrowed and self.location.atom and isinstance(target, p.Local):",
       "if False:"))
_rule(EXPLORER, "a write of an unknown part defines none", "theory 1", "Alloc", "unknown_part_written",
      (MEMORY + "_defines", "part is None or (bool(self.location.atom) and not isinstance(part, (p.Anything, p.At)))",
       "True"))
_rule(EXPLORER, "host accesses are in program order", "theory 2", "Touch", "copy_unguarded launch-blocking; same_bytes_again",
      (MEMORY + "host", "states[1].tb[t] = BIT",
       "pass"))
_rule(EXPLORER, "end -> start of the next item in the stream", "S2", "Enqueue", "two_streams one-hardware-queue; two_streams launch-blocking-kernels",
      (MEMORY + "item", "new.streams[stream(new)] = BIT",
       "pass"))
_rule(EXPLORER, "one item never conflicts with itself", "theory 1", "Enqueue", "one_kernel_reads_and_writes",
      (MEMORY + "item", "other(new, BIT)",
       "other(new, 0)"))
_rule(EXPLORER, "a held block is counted", "S65", "Put", "both_threads_hold; block_handed_over",
      (MEMORY + "hold", "s.block = (s.block[0] + n, *s.block[1:])",
       "pass"))
_rule(EXPLORER, "every holder's release -> the free", "theory 2", "Drop", "block_taken_from_a_cell; view_holds",
      (MEMORY + "_loosened", "free |= s.tb[self.t]  # every decrement comes before the free",
       "pass"))
_rule(EXPLORER, "work of a noted stream -> reuse", "S65", "Drop NoteUse", "record_stream; pinned_source_noted",
      (MEMORY + "_loosened", "free |= s.streams[stream]",
       "pass"))
_rule(EXPLORER, "the free of the bytes -> the allocation that gets them", "theory 2", "Alloc", "pinned_source_noted; pinned_target_noted",
      (MEMORY + "alloc", "got.tb[t] |= free",
       "pass"))
_rule(EXPLORER, "a block is not handed out while it is held", "S63", "Alloc", "block_taken_from_a_cell; view_holds",
      (MEMORY + "alloc", "if refs or (owner is not None and owner != mine):",
       "if owner is not None and owner != mine:"))
_rule(EXPLORER, "a block comes back to its stream", "S62", "Alloc", "blocks_stay_with_their_stream",
      (MEMORY + "alloc", "if refs or (owner is not None and owner != mine):",
       "if refs:"))
_rule(EXPLORER, "a block is reused", "S63", "Alloc", "no_record_stream; raw_copy_is_not_noted",
      (MEMORY + "alloc", "return [s, got]",
       "return None if s.block[4] is not None or s.witness is not None else [s, got]"))
_rule(EXPLORER, "a view holds the block", "S65", "View", "view_is_not_attributed; view_holds",
      (MEMORY + "view", "self.hold(s, (value,))",
       "pass"))
_rule(EXPLORER, "the host allocator cannot attribute every view", "S84", "View NoteUse", "view_is_not_attributed",
      (MEMORY + "view", "value if attributed else 2",
       "value"))
_rule(EXPLORER, "a release lets go", "S65", "Drop", "no_record_stream; raw_copy_is_not_noted",
      (MEMORY + "drops", "self._loosened(s, n)",
       "pass"))
_rule(EXPLORER, "record_stream is not for pinned blocks", "S72", "NoteUse", "device_note_on_a_pinned_block",
      (MEMORY + "note_use", "space != effect.space or",
       ""))
_rule(EXPLORER, "a note is kept", "S64", "NoteUse", "record_stream; pinned_source_noted",
      (MEMORY + "note_use", "s.block = (refs, free, tuple(sorted((*uses, used))), defined, owner)",
       "pass"))
_rule(EXPLORER, "a note of the owner stream is ignored", "S64", "NoteUse", "record_stream_of_the_owner",
      (MEMORY + "note_use", "if used != owner and used not in uses:",
       "if used not in uses:"))
_rule(EXPLORER, "the end of the turn lets go", "S65", "Drop Alloc", "scope_ends_with_the_turn",
      (SEARCH + "_end", "self.rules[t].loose(s, s.locals[t])  # the turn's scope ends",
       "pass"))
_rule(EXPLORER, "give -> the take of that token", "theory 2", "Give", "pages_are_exclusive; rows_come_back",
      (MEMORY + "give", "s.tb[t] | ((after(s) & BIT) if after is not None else 0)",
       "((after(s) & BIT) if after is not None else 0)"))
_rule(EXPLORER, "give(after): captured work -> the take", "theory 2", "Give", "rows_come_back_behind_an_event",
      (MEMORY + "give", "s.tb[t] | ((after(s) & BIT) if after is not None else 0)",
       "s.tb[t]"))
_rule(EXPLORER, "the take of a token comes after its give", "theory 2", "Take", "pages_are_exclusive; rows_come_back",
      (MEMORY + "take", "n.tb[t] |= guessed",
       "pass"))
_rule(EXPLORER, "another free token carries what its giver knew", "theory 2", "Take", "pool_as_a_lock",
      (MEMORY + "take", "n.tb[t] |= BIT",
       "pass"))
_rule(EXPLORER, "a token has one holder", "theory 2", "Take", "pages_are_exclusive; rows_come_back",
      (MEMORY + "take", "(zeros, ones, 2)",
       "(zeros, ones, guessed)"))
_rule(EXPLORER, "a pool has so many tokens", "theory 2", "Take", "one_row",
      (LAYOUT + "start", "(o.size - 1, 0, 0) if tracked",
       "(o.size, 0, 0) if tracked"))
_rule(EXPLORER, "parts of other names are disjoint", "theory 1", "Touch Enqueue", "named_parts; written_elsewhere",
      (MEMORY + "_part", "(lambda s: 0) if part.name == atom[1] else None",
       "(lambda s: 0)"))
_rule(EXPLORER, "spans without a common element are disjoint", "theory 1", "Touch Enqueue", "spans",
      (MEMORY + "_part", "(lambda s: 0) if part.start <= lo and hi <= part.stop and lo < hi else None",
       "(lambda s: 0)"))
_rule(EXPLORER, "rows of other tokens are disjoint", "theory 1", "Take Touch", "rows_come_back_too_early; rows_come_back",
      (MEMORY + "_part", "lambda s: 0 if s.locals[t][local] else None",
       "lambda s: 0"))
_rule(EXPLORER, "rows of other indices are disjoint", "theory 1", "Touch Enqueue", "rows_by_index",
      (MEMORY + "_part", 'if kind == "index" and info.kind == p.INDEX and info.depth == atom[1]:',
       "if False:"))
_rule(EXPLORER, "an unknown part meets every other", "theory 1", "Touch Enqueue", "any_part",
      (MEMORY + "_part", "return lambda s: whole",
       "return None if isinstance(part, p.Anything) else (lambda s: whole)"))
_rule(EXPLORER, "a raw pointer is no reference", "S65", "View", "raw_pointer",
      (MEMORY + "view", "if value.__class__ is Tenant and held:",
       "if value.__class__ is Tenant:"))
_rule(EXPLORER, "setup -> start", "theory 2", "", "setup_comes_first",
      (SEARCH + "_end", "s.tb = [1] * len(s.tb)  # setup -> start of every thread",
       "pass"))
_rule(EXPLORER, "setups run before all other threads", "theory 2", "", "cell_is_cleared; setup_comes_first",
      (SEARCH + "_runnable", "if setups:",
       "if False:"))
_rule(EXPLORER, "closed only when whoever may access carries the witness", "theory 3", "", "host_copy_writes; host_copy_reads",
      (SEARCH + "closed", "if not (s.tb[t] or (stream != HOST and s.streams[stream]) or s.pc[t] == DONE):",
       "if False:"))
_rule(EXPLORER, "a state covers those with more bits, not with fewer", "theory 3, antichain", "", "reads_only; blocks_stay_with_their_stream",
      (SEARCH + "_store", "if other & bits == other:",
       "if True:"))
_rule(EXPLORER, "what others can see is not run at once", "theory 3, visible steps", "", "get, written after; holds, written after",
      ("fencepost.proofs.explore.reduction:seen", "return len(users[what]) > 1",
       "return False"))
_rule(EXPLORER, "a put that a test can see is not run at once", "theory 3, visible steps", "", "get_to_next_get",
      ("fencepost.proofs.explore.reduction:seen", 'return len(put if what[0] == "put" else get) > 1 or bool(test - {t})',
       "return False"))
_rule(EXPLORER, "paths within a turn are merged only under fewer bits", "theory 3, antichain", "", "waits_by_choice",
      (SEARCH + "_covered", "if any(other & bits == other for other in row) if self.covering else bits in row:",
       "if row:"))
_rule(EXPLORER, "a fixed slot is not rotated", "theory 3, positions", "", "fixed_slot_in_one_turn",
      (LAYOUT + "_fields", "if d > 1 and d not in self.fixed",
       "if d > 1"))
_rule(EXPLORER, "a handle recorded after hand-over is kept by identity", "theory 3, handles", "", "waited_for_after_the_record",
      (LAYOUT + "__init__", "self.heap_events = any(_recorded_elsewhere(thread) for thread in program.threads)",
       "self.heap_events = False"))
_rule(EXPLORER, "dummies only for a queue of one thread that only waits and drops", "theory 3, normal forms", "", "get, written after; get, written before",
      (FIFO + "__init__", "self.applies = len(users) == 1 and self._handling(program.threads[next(iter(users))], oid)",
       "self.applies = self._handling(program.threads[next(iter(users))], oid)"))
_rule(EXPLORER, "dummies only where popping one is the same as not full", "theory 3, normal forms", "", "not_full_does_something; pops_and_waits_elsewhere",
      (FIFO + "_guarded", 'branches["no"] != self.end',
       "False"))
_rule(EXPLORER, "what is got may only be waited on and dropped", "theory 3, normal forms", "", "pops_and_waits_elsewhere",
      (FIFO + "_no_operation", "return isinstance(operation, p.Host) and all(",
       "return True or all("))
_rule(EXPLORER, "an item behind a carrying one counts as carrying only if that one is surely waited on", "theory 3, normal forms", "", "cursor_of_two_slots; results_outstanding_without_a_wait",
      (FIFO + "_kind", "any(values[i] & BIT for i in self.sure.get(tag, ()))",
       "True"))
_rule(EXPLORER, "slicing keeps the records of a stream that matters", "theory 3, slicing", "", "event_between_streams; event_guard",
      (SLICING + "Slicer._relations", 'self._lead(("stream", effect.stream.id), ("event", key))',
       "pass"))
_rule(EXPLORER, "slicing keeps the streams that the accesses are on", "theory 3, slicing", "", "hop_by_stream_waits; copy_then_synchronize",
      (SLICING + "Slicer._relations", 'self._lead(source, ("stream", effect.stream.id))',
       "pass"))
_rule(EXPLORER, "slicing keeps the waits on what arrives in a queue", "theory 3, slicing", "", "event_of_another_thread; recorded_after_hand_over",
      (SLICING + "Slicer._relations", 'self.roots |= {("event", ("local", t, local)) for local in effect.locals}',
       "pass"))
_rule(EXPLORER, "slicing keeps what a stream wait leads to", "theory 3, slicing", "", "hop_by_stream_waits",
      (SLICING + "Slicer._relations", 'self._lead(("stream", effect.other.id), ("stream", effect.stream.id))',
       "pass"))
_rule(EXPLORER, "no slicing where something is queried", "theory 3, slicing", "", "no_comes_after_the_enqueue; no_comes_after_a_wait_on_the_other_stream",
      (SLICING + "dropped", "if setting.queries:",
       "if False:"))
_rule(EXPLORER, "no slicing with one hardware queue", "theory 3, slicing", "", "recorded_elsewhere one-hardware-queue",
      (SLICING + "dropped", "if setting.queries:",
       "if False:"))
_rule(EXPLORER, "a location with two agents is searched", "S2", "", "nobody_reads strict; host_copy_reads",
      ("fencepost.proofs.explore.serial:sole_agent", "if len(agents) != 1:",
       "if len(agents) != 1 and False:"))

# ---- the concrete event structure

_rule(EVENTS, 'the record call that a wait is for -> a "no" of stream.query', "S34", "StreamJoinsEvent StreamJoinsStream StreamQuery", "told_of_a_wait_for_an_event; told_of_a_wait",
      (PLAYER + "_stream_waits", "self.calls[lane] = merged(self.calls[lane], call)",
       "pass"))
_rule(EVENTS, "enqueue -> start", "S2", "Enqueue", "two_streams launch-blocking-kernels; copy_unguarded launch-blocking",
      (CLOCKS + "launch", "if mine[thread] < caller[thread]:",
       "if False:"))
_rule(EVENTS, "a record starts after its call", "S2", "RecordEvent", "record_behind_a_write; record_behind_a_write_where_one_asks",
      (CLOCKS + "record", "if mine[thread] < caller[thread]:",
       "if False:"))
_rule(EVENTS, "a record captures the stream", "S19", "RecordEvent", "query_says_yes; event_guard",
      (PLAYER + "_record_event", "self.captures[event] = self._capture(step.thread, stream)",
       "self.captures.setdefault(event, self._capture(step.thread, stream))"))
_rule(EVENTS, "capture -> synchronize", "S23", "JoinEvent", "recorded_elsewhere one-hardware-queue; event_guard",
      (PLAYER + "_join_event", "self.clocks.sync(step.thread, capture.clock, capture.source)",
       "pass"))
_rule(EVENTS, "stream -> stream.synchronize", "S32", "JoinStream", "pageable_target; copy_that_blocks",
      (PLAYER + "_join_stream", "self._join_fifo(step, self._fifo(step.thread, effect.stream), self.stream(step.thread, effect.stream))",
       "pass"))
_rule(EVENTS, "streams of the GPU -> synchronize", "S32", "JoinDevice", "device_is_synchronized",
      (PLAYER + "_join_device", "self._join_fifo(step, fifo, (id_, slot))",
       "pass"))
_rule(EVENTS, "synchronize is of one GPU and process", "S32", "JoinDevice", "other_device_is_synchronized",
      (PLAYER + "_join_device", "if stream.gpu == effect.gpu and stream.process == effect.process:",
       "if True:"))
_rule(EVENTS, "capture -> later items of the waiting stream", "S20", "StreamJoinsEvent", "hop_over_a_stream; event_between_streams",
      (PLAYER + "_stream_joins_event", "self._stream_waits(step, stream, self.captures[event], self.captures[event].call)",
       "pass"))
_rule(EVENTS, "the other stream -> later items of the waiting stream", "S22", "StreamJoinsStream", "hop_by_stream_waits; one_kernel_reads_and_writes",
      (PLAYER + "_stream_joins_stream", "self._stream_waits(step, stream, capture, capture.call)",
       "pass"))
_rule(EVENTS, "the wait starts after its call", "S2", "StreamJoinsEvent", "wait_behind_a_write_where_one_asks",
      (CLOCKS + "wait", "elif mine[thread] < caller[thread]:",
       "elif False:"))
_rule(EVENTS, 'query "yes" is a synchronize', "S24", "EventQuery StreamQuery", "stream_says_yes; asked_then_waited_for",
      (PLAYER + "_query", "self.clocks.sync(thread, clock, source)",
       "pass"))
_rule(EVENTS, 'the calls -> who is told "no"', "theory 2 [T]", "EventQuery StreamQuery", "no_comes_after_the_enqueue; no_comes_after_a_wait_on_the_other_stream",
      (PLAYER + "_query", "self.clocks.absorb(thread, call)\n    self.false_queries",
       "self.false_queries"))
_rule(EVENTS, 'the enqueue calls are kept for a "no"', "theory 2 [T]", "Enqueue StreamQuery", "no_comes_after_a_wait_for_the_event; no_comes_after_the_enqueue",
      (PLAYER + "_called", "self.calls[lane] = merged(self.calls[lane], self.clocks.now[thread])",
       "pass"))
_rule(EVENTS, 'the record call is kept for a "no"', "theory 2 [T]", "RecordEvent EventQuery", "no_comes_after_the_record",
      (PLAYER + "_capture", "merged(self.calls[lane], self.clocks.now[thread])",
       "self.calls[lane]"))
_rule(EVENTS, "what a stream waits for makes it busy", "S34", "StreamJoinsEvent StreamJoinsStream StreamQuery", "no_of_a_stream_that_waits_for_an_event; no_of_a_waiting_stream",
      (PLAYER + "_stream_continues", "self.tails[fifo] = tail",
       "pass"))
_rule(EVENTS, 'a "no" is impossible when the work is known complete', "S24", "EventQuery StreamQuery", "no_comes_after_the_record",
      (PLAYER + "_query_answers", '{"yes", "no"} if pending else {"yes"}',
       '{"yes", "no"}'))
_rule(EVENTS, 'a "no" is possible while work is pending', "S24", "EventQuery StreamQuery", "no_of_a_stream_that_waits_for_an_event; no_of_a_waiting_stream",
      (PLAYER + "_query_answers", '{"yes", "no"} if pending else {"yes"}',
       '{"yes"}'))
_rule(EVENTS, "one hardware queue is one stream", "S115", "Enqueue", "two_streams one-hardware-queue; recorded_elsewhere one-hardware-queue",
      ("fencepost.model.events.state:_fifos", "if environment.one_queue else",
       "if False else"))
_rule(EVENTS, "host accesses are in program order", "theory 2", "Touch", "set_behind_a_set; same_bytes_again",
      (CLOCKS + "touch", "tick = mine[agent] = mine[agent] + 1",
       "tick = mine[agent] + 1"))
_rule(EVENTS, "setup -> start", "theory 2", "", "second_item; setup_comes_first",
      (PLAYER + "_start", "self.clocks.sync(thread, self.clocks.snapshot(other), other)",
       "pass"))
_rule(EVENTS, "setups run before all other threads", "theory 2", "", "queue_is_emptied; cell_is_cleared",
      (PLAYER + "_setup_done", 'all(done or t.kind != "setup" for done, t in zip(self._done, self.program.threads, strict=True))',
       "True"))
_rule(EVENTS, "the end of the turn lets go", "S65", "Drop Alloc", "scope_ends_with_the_turn",
      (PLAYER + "_end_turn", "self._release_locals(thread)",
       "self.locals[thread] = [None] * len(self.locals[thread])"))
_rule(EVENTS, "a cursor moves on", "language", "Advance", "ring_by_cursor",
      (HOSTS + "_advance", "(self.cursors[o.cursor] + 1) % cursor.depth",
       "self.cursors[o.cursor]"))
_rule(EVENTS, "get i -> put i + capacity", "theory 2", "Put Get", "slots_behind_a_queue",
      (HOSTS + "_put", "self.clocks.absorb(step.thread, gets[-freed])",
       "pass"))
_rule(EVENTS, "put i -> get i", "theory 2", "Put Get", "get, written before; first_turn",
      (HOSTS + "_get", "self.clocks.absorb(step.thread, first.clock)",
       "pass"))
_rule(EVENTS, "get i -> get i + 1", "theory 2", "Get", "second_item",
      (HOSTS + "_get", "self.clocks.absorb(step.thread, self.gets[o.queue][-1])",
       "pass"))
_rule(EVENTS, "put -> every later test of the queue", "theory 2 [T]", "Put QueueFull QueueHolds", "holds, written before; full, written before",
      (HOSTS + "_put", 'self._add(step.thread, ("queue", o.queue))',
       "pass"))
_rule(EVENTS, "get -> every later test of the queue", "theory 2 [T]", "Get QueueFull QueueHolds", "queue_is_emptied",
      (HOSTS + "_get", 'self._add(step.thread, ("queue", o.queue))',
       "pass"))
_rule(EVENTS, "a queue item holds its references", "S65", "Put", "both_threads_hold; view_holds",
      (HOSTS + "_put", "self._hold(value)",
       "pass"))
_rule(EVENTS, "earlier operations on the cell -> this one", "theory 2", "CellSet CellGet CellClear", "clear_behind_a_set; get_behind_a_set",
      (HOSTS + "_cell", 'self._join(step.thread, ("cell", cell))',
       "pass"))
_rule(EVENTS, "this operation -> later ones on the cell", "theory 2", "CellSet CellGet CellClear CellEmpty", "cell_is_set_over; cell_is_taken",
      (HOSTS + "_cell", 'self._add(step.thread, ("cell", cell))',
       "pass"))
_rule(EVENTS, "cell.take empties", "language", "CellGet", "block_taken_from_a_cell",
      (HOSTS + "_cell", "del self.cells[cell]",
       "pass"))
_rule(EVENTS, "cell.get on an empty cell is a design error", "language", "CellGet", "get_from_an_empty_cell",
      (HOSTS + "_cell", "if old is None:",
       "if False:"))
_rule(EVENTS, "what a cell held loses that reference", "S65", "CellSet CellClear", "cell_lets_go_when_cleared; cell_lets_go",
      (HOSTS + "_cell", "self._let_go(step.thread, value)",
       "pass"))
_rule(EVENTS, "cell.clear empties", "language", "CellClear", "block_in_a_cell",
      (HOSTS + "_cell", "self.cells.pop(cell, None)",
       "pass"))
_rule(EVENTS, "the give of that token -> the take", "theory 2", "Take Give", "one_row; pool_as_a_lock",
      (HOSTS + "_take", "self.clocks.absorb(step.thread, free[token])",
       "pass"))
_rule(EVENTS, "give(after): captured work -> the take", "theory 2", "Give", "rows_come_back_behind_an_event",
      (HOSTS + "_give", "clock = merged(clock, captured)",
       "pass"))
_rule(EVENTS, "unlock -> acquire", "theory 2", "Acquire Unlock", "locked; try_lock_takes",
      (HOSTS + "_acquire", 'self._join(step.thread, ("unlocked", o.lock))',
       "pass"))
_rule(EVENTS, "acquire -> a later try-lock", "theory 2 [T]", "Acquire TryLock", "try lock, written before",
      (HOSTS + "_locked", 'self._add(thread, ("lock", lock))',
       "pass"))
_rule(EVENTS, "unlock -> a later try-lock", "theory 2 [T]", "Unlock TryLock", "try_lock_takes",
      (HOSTS + "_unlock", 'self._add(step.thread, ("unlocked", o.lock), ("lock", o.lock))',
       'self._add(step.thread, ("unlocked", o.lock))'))
_rule(EVENTS, "earlier stores -> flag.clear", "theory 2", "FlagClear", "clear_behind_a_flag_set",
      (HOSTS + "_flag", 'self._join(step.thread, ("flag", o.flag))',
       "pass"))
_rule(EVENTS, "store -> flag.wait", "theory 2", "FlagSet FlagWait", "flag wait, written before",
      (HOSTS + "_flag", 'self._join(step.thread, ("set", o.flag))',
       "pass"))
_rule(EVENTS, "store -> is_set", "theory 2 [T]", "FlagSet FlagClear FlagIsSet", "clear_behind_a_flag_set; flag_is_cleared",
      (HOSTS + "_flag", "self._add(step.thread, *keys)",
       "pass"))
_rule(EVENTS, "add -> counter.wait", "theory 2", "CounterWait", "counter wait, written before; counter_per_turn",
      (HOSTS + "_counter", 'self._join(step.thread, ("counter", o.counter))',
       "pass"))
_rule(EVENTS, "counter.add adds for later tests", "theory 2 [T]", "CounterAdd CounterAtLeast", "counter at least, written before; counter wait, written before",
      (HOSTS + "_counter", 'self._add(step.thread, ("counter", o.counter))',
       "pass"))
_rule(EVENTS, "put waits while the queue is full", "theory 2", "Put", "slots_behind_a_queue; agreed_choice",
      (QUESTIONS + "_obstacle", "if isinstance(what, p.Put) and len(self.queues[what.queue]) >= self._capacity(what.queue):",
       "if False:"))
_rule(EVENTS, "acquire waits while the lock is held", "theory 2", "Acquire", "locked; try_lock_takes",
      (QUESTIONS + "_obstacle", "if isinstance(what, p.Acquire) and self.locks[what.lock] <= 0:",
       "if False:"))
_rule(EVENTS, "flag.wait waits", "language", "FlagWait", "waited_for_after_the_record; flag wait, written before",
      (QUESTIONS + "_obstacle", "if isinstance(what, p.FlagWait) and not self.flags.get(what.flag, False):",
       "if False:"))
_rule(EVENTS, "counter.wait waits", "language", "CounterWait", "counter wait, written before; counter_per_turn",
      (QUESTIONS + "_obstacle", "if self.counters.get(what.counter, 0) < goal:",
       "if False:"))
_rule(EVENTS, "an agreed choice is agreed", "language", "Choose", "agreed_choice",
      (QUESTIONS + "_answered", "(q.name, turn) if q.agreed else (q.name, thread, turn)",
       "(q.name, thread, turn)"))
_rule(EVENTS, "get i - 1 -> the tag's test", "theory 2 [T]", "QueueTag Get", "tag_tells_of_the_get_before",
      (QUESTIONS + "_answered", "self.clocks.absorb(thread, self.gets[q.queue][-1])",
       "pass"))
_rule(EVENTS, "put i -> the tag's test", "theory 2 [T]", "QueueTag", "tag_tells_of_the_put",
      (QUESTIONS + "_answered", "self.clocks.absorb(thread, self.queues[q.queue][0].clock)",
       "pass"))
_rule(EVENTS, "earlier operations on the object -> the test", "theory 2 [T]", "QueueFull QueueHolds CellEmpty FlagIsSet CounterAtLeast TryLock", "cell empty, written before; holds, written before",
      (QUESTIONS + "_test", "self._join(thread, key)",
       "pass"))
_rule(EVENTS, "full follows the state", "language", "QueueFull", "not_full_does_something; pops_and_waits_elsewhere",
      (QUESTIONS + "_holds", "return len(self.queues[q.queue]) >= self._capacity(q.queue)",
       "return True"))
_rule(EVENTS, "holds follows the state", "language", "QueueHolds", "holds, written before",
      (QUESTIONS + "_holds", "return len(self.queues[q.queue]) >= q.count",
       "return True"))
_rule(EVENTS, "empty follows the state", "language", "CellEmpty", "cell empty, written before",
      (QUESTIONS + "_holds", "return self._named(thread, q.cell) not in self.cells",
       "return False"))
_rule(EVENTS, "is_set follows the state", "language", "FlagIsSet", "flag is set, written before; clear_comes_after_the_set",
      (QUESTIONS + "_holds", "return self.flags.get(q.flag, False)",
       "return True"))
_rule(EVENTS, "counter >= c follows the state", "language", "CounterAtLeast", "counter at least, written before",
      (QUESTIONS + "_holds", "return self.counters.get(q.counter, 0) >= q.value",
       "return True"))
_rule(EVENTS, "try-lock follows the state", "language", "TryLock", "try lock, written after",
      (QUESTIONS + "_holds", "return self.locks[q.lock] > 0",
       "return True"))
_rule(EVENTS, "n < c follows the turn", "language", "TurnBelow", "first_turn",
      (QUESTIONS + "_holds", "return self._turn[thread] < q.value",
       "return True"))
_rule(EVENTS, "a try-lock that says yes takes the lock", "language", "TryLock", "try_lock_takes",
      (QUESTIONS + "_answered", "self._locked(q.lock, thread)",
       "pass"))
_rule(EVENTS, "a block may fall to any open choice", "language", "Maybe", "open_choice; other_bytes_between",
      (QUESTIONS + "_answers", 'return {"yes", "no"}',
       'return {"no"}'))
_rule(EVENTS, "every holder's release -> the free", "theory 2", "Drop", "block_in_a_cell; view_holds",
      (REFERENCES + "_let_go", "dropped = now if tenant.dropped is None else merged(tenant.dropped, now)",
       "dropped = now"))
_rule(EVENTS, "work of a noted stream -> reuse", "S65", "Drop NoteUse", "record_stream; pinned_source_noted",
      (REFERENCES + "_let_go", "free = merged(free, recorded)",
       "pass"))
_rule(EVENTS, "the last reference frees", "S65", "Drop", "no_record_stream; raw_copy_is_not_noted",
      (REFERENCES + "_let_go", "if tenant.refs == 0:",
       "if False:"))
_rule(EVENTS, "a note of the owner stream is ignored", "S64", "NoteUse", "record_stream_of_the_owner",
      (REFERENCES + "_note", "tenant.owner != stream and",
       ""))
_rule(EVENTS, "record_stream is not for pinned blocks", "S72", "NoteUse", "device_note_on_a_pinned_block",
      (REFERENCES + "_note", "tenant.space == space and",
       ""))
_rule(EVENTS, "the host allocator cannot attribute every view", "S84", "NoteUse View", "view_is_not_attributed",
      (REFERENCES + "_note", '(ref.attributed or space == "device")',
       "True"))
_rule(EVENTS, "a note is kept", "S64", "NoteUse", "record_stream; pinned_source_noted",
      (REFERENCES + "_note", "self.tenants[ref.tenant] = tenant._replace(noted=tenant.noted | {stream})",
       "pass"))
_rule(EVENTS, "the free of the bytes -> the allocation that gets them", "theory 2", "Alloc", "pinned_source_noted; pinned_target_noted",
      (REFERENCES + "_alloc", "self.clocks.absorb(step.thread, block.free)",
       "pass"))
_rule(EVENTS, "a view holds the block", "S65", "View", "view_holds",
      (REFERENCES + "_view", "self._hold(base)",
       "pass"))
_rule(EVENTS, "a release lets go", "S65", "Drop", "no_record_stream; raw_copy_is_not_noted",
      (REFERENCES + "_drop", "self._let_go(step.thread, value)",
       "pass"))
_rule(EVENTS, "a block is not handed out while it is held", "S63", "Alloc", "block_taken_from_a_cell; view_holds",
      (REFERENCES + "possible_blocks", "if block.free is not None and block.space == operation.space",
       "if block.space == operation.space"),
      (REFERENCES + "_alloc", "if block.free is None:",
       "if False:"),
      (REFERENCES + "_alloc", "assert block.free is not None",
       "block = block._replace(free=block.free or self.clocks.snapshot(step.thread))"))
_rule(EVENTS, "a new event was never recorded", "S17", "NewEvent", "fresh_event_says_nothing",
      (REFERENCES + "_new_event", "self._fresh_events += 1",
       "pass"))
_rule(EVENTS, "a raw pointer is no reference", "S65", "View", "raw_pointer",
      (REFERENCES + "_view", "held=base.held and o.held",
       "held=True"))
_rule(EVENTS, "one access must be a write", "theory 1", "Touch Enqueue", "two_reads_in_a_run",
      (STRUCTURE + "conflicts", "if (before.write or touched.write) and overlap(before, touched):",
       "if overlap(before, touched):"))
_rule(EVENTS, "parts that share no byte do not conflict", "theory 1", "Touch Enqueue", "view_of_a_part; written_elsewhere",
      (STRUCTURE + "overlap", "(a.tenant != b.tenant or paths_overlap(a.path, b.path))",
       "True"))
_rule(EVENTS, "slots of a ring are disjoint", "theory 1", "Touch Enqueue", "ring_of_three_events; fixed_slot_in_one_turn",
      (REFERENCES + "_named", "self._index(thread, operand.index) % depth",
       "0"))
_rule(EVENTS, "a fresh block is undefined until it is written", "theory 1", "Alloc", "read_before_it_is_written; view_of_a_part",
      (STRUCTURE + "undefined_reads", "elif not any(",
       "elif False and not any("))
_rule(EVENTS, "an access through a raw pointer to a freed block is a use after free", "S65", "View", "raw_pointer",
      (STRUCTURE + "undefined_reads", "if touched.freed is not None:",
       "if False:"))
_rule(EVENTS, "a write defines", "theory 1", "Alloc", "unknown_part_written; blocks_stay_with_their_stream",
      (STRUCTURE + "undefined_reads", "written.setdefault(touched.tenant, []).append(touched)",
       "pass"))
_rule(EVENTS, 'a "no" comes before the completion of what it tested', "theory 2 [T]", "EventQuery StreamQuery", "both_say_no",
      (STRUCTURE + "feasible", "return _acyclic([], options)",
       "return True"))
_rule(EVENTS, "swapped accesses that change a reader are value-changing", "theory 1", "", "host_copy_writes; host_copy_reads",
      (VALUES + "value_change", "if changed:",
       "if False:"))
_rule(EVENTS, "what nobody reads is access-level only", "theory 1", "", "nobody_reads; nobody_reads strict",
      (VALUES + "value_change", "if not any(_may_read(structure, t, pair) for t in _reads(structure.program, structure)):",
       "if False:"))
_rule(EVENTS, "the same bytes leave the same content", "theory 1", "", "same_bytes_again",
      (VALUES + "Contents.write", "if not t.same_bytes:",
       "if True:"))
_rule(EVENTS, "names tell parts apart", "theory 1", "", "named_parts; view_of_a_part",
      (PARTS + "pieces_overlap", "return a.name == b.name",
       "return True"))
_rule(EVENTS, "ranges tell parts apart", "theory 1", "", "spans",
      (PARTS + "pieces_overlap", "return a.start < b.stop and b.start < a.stop",
       "return True"))
_rule(EVENTS, "rows tell parts apart", "theory 1", "", "rows_by_index; rows_come_back",
      (PARTS + "pieces_overlap", "return a.number == b.number",
       "return True"))

# ---- the operational machine

_rule(MACHINE, "host code reads", "S45", "Host Touch", "target_unguarded; host_copy_writes",
      (MACHINE_HOST + "_host", "reads, writes)\n",
       "[], writes)\n"))
_rule(MACHINE, "host code writes", "S45", "Host Touch", "host_copy_reads; pageable_source cuda-late-pageable",
      (MACHINE_HOST + "_host", "self.issue(work, th, reads, writes)",
       "self.issue(work, th, reads, [])"))
_rule(MACHINE, "kernels, fills and item() read", "S4", "Launch Item Enqueue", "item_reads; two_streams",
      (MACHINE_HOST + "_item", "self.issue(work, th, reads, writes)",
       "self.issue(work, th, [], writes)"))
_rule(MACHINE, "kernels and fills write", "S4", "Launch Memset Enqueue", "memset_runs_later; two_streams",
      (MACHINE_HOST + "_item", "self.issue(work, th, reads, writes)",
       "self.issue(work, th, reads, [])"))
_rule(MACHINE, "launch blocking: the call waits", "S113", "Launch", "two_streams launch-blocking-kernels",
      (MACHINE_HOST + "_item", 'wait = wait or (self.environment.blocking_kernels if what == "kernel" else self.environment.blocking_copies)',
       "pass"))
_rule(MACHINE, "a kernel does not wait", "S2", "Launch", "two_streams; pageable_source_target rocm",
      (MACHINE_HOST + "_item", "if wait:",
       "if True:"))
_rule(MACHINE, "item() waits for its stream", "S33", "Item JoinStream", "item_waits",
      (MACHINE_HOST + "_to_host", '"d2h", True)',
       '"d2h", False)'))
_rule(MACHINE, "a copy between host buffers is host code", "S49", "Copy Touch", "copy_on_the_host",
      (MACHINE_HOST + "_copy", "if from_host and to_host:  # S49",
       "if False:"))
_rule(MACHINE, "a pageable source is read before the call returns", "S47", "Copy", "pageable_source rocm; pageable_source",
      (MACHINE_HOST + "_copy", 'if src.space == "pageable" and platform.pageable_h2d != "late":',
       "if False:"))
_rule(MACHINE, "by platform a copy from pageable memory waits", "S52", "Copy", "pageable_source_and_another_stream rocm",
      (MACHINE_HOST + "_copy", 'wait = wait or platform.pageable_h2d == "blocking"  # S52',
       "pass"))
_rule(MACHINE, "a copy into pageable memory waits", "S48", "Copy", "pageable_target",
      (MACHINE_HOST + "_copy", 'wait = wait or (dst.space == "pageable" and platform.pageable_d2h == "blocking")  # S48',
       "pass"))
_rule(MACHINE, "copy_ without non_blocking waits", "S33", "Copy JoinStream", "two_allocators; copy_that_blocks",
      (MACHINE_HOST + "_copy", "sync = not o.non_blocking and not o.raw",
       "sync = False"))
_rule(MACHINE, "copy_ tells the host allocator", "S79", "Copy NoteUse", "pinned_source_noted; pinned_target_noted",
      (MACHINE_HOST + "_copy", "note = o.non_blocking and not o.raw",
       "note = False"))
_rule(MACHINE, "memcpy_async tells no allocator", "S83", "Copy NoteUse", "device_note_on_a_pinned_block; raw_copy_is_not_noted",
      (MACHINE_HOST + "_copy", "note = o.non_blocking and not o.raw",
       "note = o.non_blocking"))
_rule(MACHINE, "the host allocator cannot attribute every view", "S84", "Copy View NoteUse", "view_is_not_attributed",
      (MACHINE_HOST + "_copy", "and ref.attributed",
       ""))
_rule(MACHINE, "launch blocking: the call waits for the copy", "S113", "Copy", "copy_unguarded launch-blocking",
      (MACHINE_HOST + "_copy", "wait = sync or blocking",
       "wait = sync"))
_rule(MACHINE, "a view holds the block", "S65", "View", "view_holds",
      (MACHINE_HOST + "_view", "self.hold(ref)",
       "pass"))
_rule(MACHINE, "a raw pointer holds nothing", "S65", "View", "raw_pointer",
      ("fencepost.simulator.machine_state:Ref.view", "self.counted and held",
       "self.counted"))
_rule(MACHINE, "a release lets go", "S65", "Drop", "no_record_stream; raw_copy_is_not_noted",
      (MACHINE_HOST + "_drop", "self.let_die(value)",
       "pass"))
_rule(MACHINE, "record_stream tells the allocator", "S64", "RecordStream NoteUse", "record_stream",
      (MACHINE_HOST + "_record_stream", "self.note(ref, stream(th))",
       "pass"))
_rule(MACHINE, "record_stream is not for pinned blocks", "S72", "RecordStream NoteUse", "device_note_on_a_pinned_block",
      (MACHINE_HOST + "_record_stream", 'if ref.space == "device":',
       "if True:"))
_rule(MACHINE, "a cursor moves on", "language", "Advance", "ring_by_cursor",
      (MACHINE_HOST + "_advance", "(self.cursors[id_] + 1) % depth",
       "self.cursors[id_] % depth"))
_rule(MACHINE, "record captures", "S19", "Record RecordEvent", "query_says_yes; event_guard",
      (MACHINE_HOST + "_record", "event(th).mark = self.mark(stream(th))",
       "pass"))
_rule(MACHINE, "a record forgets the earlier capture", "S19", "Record RecordEvent", "query_says_yes; event_guard",
      (MACHINE_HOST + "_record", "event(th).mark = self.mark(stream(th))",
       "event(th).mark = event(th).mark or self.mark(stream(th))"))
_rule(MACHINE, "event.synchronize waits", "S23", "EventSync JoinEvent", "recorded_elsewhere one-hardware-queue; event_guard",
      (MACHINE_HOST + "_event_sync", "th.waits = event(th).mark",
       "pass"))
_rule(MACHINE, "wait_event orders", "S20", "StreamWaitEvent StreamJoinsEvent", "hop_over_a_stream; event_between_streams",
      (MACHINE_HOST + "_stream_wait_event", "self.wait(stream(th), mark)",
       "pass"))
_rule(MACHINE, "wait_stream orders", "S22", "WaitStream StreamJoinsStream", "hop_by_stream_waits; one_kernel_reads_and_writes",
      (MACHINE_HOST + "_wait_stream", "self.wait(stream(th), self.mark(other(th)))",
       "(self.mark(other(th)), None)[1]"))
_rule(MACHINE, "stream.synchronize waits", "S32", "StreamSync JoinStream", "fixed_slot; named_parts",
      (MACHINE_HOST + "_stream_sync", "th.waits = self.last(stream(th))",
       "pass"))
_rule(MACHINE, "torch.cuda.synchronize waits", "S32", "DeviceSync JoinDevice", "device_is_synchronized",
      (MACHINE_HOST + "_device_sync", "Marks([self.last(s) for s in streams])",
       "Marks([])"))
_rule(MACHINE, "synchronize is of one GPU and process", "S32", "DeviceSync JoinDevice", "other_device_is_synchronized",
      (MACHINE_HOST + "_device_sync", " if s.gpu == o.gpu and s.process == o.process",
       ""))
_rule(MACHINE, "a fresh event was never recorded", "S17", "NewEvent", "fresh_event_says_nothing",
      (MACHINE_HOST + "_new_event", "EventState()",
       "self.__dict__.setdefault('one for all', EventState())"))
_rule(MACHINE, "a block is reused", "S63", "Alloc", "scope_ends_with_the_turn; raw_copy_is_not_noted",
      (MACHINE_ALLOCATORS + "allocate", "if free:\n",
       "if False:\n"))
_rule(MACHINE, "a block comes back to its stream", "S62", "Alloc", "two_allocators; blocks_stay_with_their_stream",
      (MACHINE_ALLOCATORS + "allocate", "self.free_blocks.get((space, owner), [])",
       "next((v for k, v in self.free_blocks.items() if k[0] == space and v), [])"))
_rule(MACHINE, "a block with noted streams waits for their marks", "S65", "Drop NoteUse", "record_stream; pinned_source_noted",
      (MACHINE_ALLOCATORS + "let_die", "if tenant.noted:",
       "if False:"))
_rule(MACHINE, "the poll looks at the marks", "S67", "Alloc NoteUse", "record_stream; pinned_source_noted",
      (MACHINE_ALLOCATORS + "_poll", "if stop or not all(mark.done for mark in marks):",
       "if stop:"))
_rule(MACHINE, "the last reference frees, none before", "S65", "Drop", "block_taken_from_a_cell; view_holds",
      (MACHINE_ALLOCATORS + "let_die", "if tenant.refs:",
       "if False:"))
_rule(MACHINE, "a note of the owner stream is ignored", "S64", "NoteUse", "record_stream_of_the_owner",
      (MACHINE_ALLOCATORS + "note", "and tenant.block.owner is not stream ",
       ""))
_rule(MACHINE, "a reference is counted", "S65", "Put CellSet View", "block_taken_from_a_cell; view_holds",
      (MACHINE_ALLOCATORS + "hold", "value.tenant.refs += 1",
       "pass"))
_rule(MACHINE, "a queue holds at most its capacity", "theory 2", "Put", "slots_behind_a_queue",
      (MACHINE_SHARED + "_put", "len(self.queues[queue]) < capacity",
       "len(self.queues[queue]) <= capacity"))
_rule(MACHINE, "a queue is first in, first out", "theory 2", "Get", "second_item",
      (MACHINE_SHARED + "_get", "self.queues[queue].popleft()[1]",
       "self.queues[queue].pop()[1]"))
_rule(MACHINE, "what a cell held loses that reference", "S65", "CellSet", "cell_lets_go",
      (MACHINE_SHARED + "_cell_set", "self.let_die(value)",
       "pass"))
_rule(MACHINE, "cell.take empties", "language", "CellGet", "block_taken_from_a_cell",
      (MACHINE_SHARED + "_cell_get", "if take:\n            del self.cells[key]\n",
       "if take:\n            pass\n"))
_rule(MACHINE, "cell.get on an empty cell is a design error", "language", "CellGet", "cell_may_be_empty",
      (MACHINE_SHARED + "_cell_get", 'raise DesignFault(f"get on the empty cell {self.program.objects[key[0]].name!r}; ask empty() first")',
       "item = ()"))
_rule(MACHINE, "cell.clear lets the item go", "S65", "CellClear", "cell_lets_go_when_cleared",
      (MACHINE_SHARED + "_cell_clear", "self.let_die(value)",
       "pass"))
_rule(MACHINE, "a token has one holder", "theory 2", "Take", "one_row; pool_as_a_lock",
      (MACHINE_SHARED + "_take", "token = free.pop(which)",
       "token = free[which]"))
_rule(MACHINE, "give(after): the token waits for the captured work", "theory 2", "Give", "rows_come_back_behind_an_event",
      (MACHINE_SHARED + "_give", "if mark is None or mark.done:",
       "if True:"))
_rule(MACHINE, "acquire waits while the lock is held", "theory 2", "Acquire Unlock", "locked; try_lock_takes",
      (MACHINE_SHARED + "_acquire", "self.locks[lock] > 0",
       "True"))
_rule(MACHINE, "a try-lock that says yes takes the lock", "language", "TryLock", "try_lock_takes",
      (MACHINE_SHARED + "_try_lock", "self._locked(lock, th)",
       "pass"))
_rule(MACHINE, "flag.wait waits", "language", "FlagWait FlagSet", "waited_for_after_the_record; flag wait, written before",
      (MACHINE_SHARED + "_flag_wait", "lambda th: self.flags[flag]",
       "lambda th: True"))
_rule(MACHINE, "flag.clear unsets", "language", "FlagClear", "waited_for_after_the_record; flag_there_and_back",
      (MACHINE_SHARED + "_flag_clear", "self.flags.__setitem__(flag, False)",
       "self.flags.__setitem__(flag, True)"))
_rule(MACHINE, "counter.wait waits", "language", "CounterWait CounterAdd", "counter wait, written before; counter_per_turn",
      (MACHINE_SHARED + "_counter_wait", "self.counters[counter] >= value + (th.turn if per_turn else 0)",
       "True"))
_rule(MACHINE, "full follows the state", "language", "QueueFull", "not_full_does_something; pops_and_waits_elsewhere",
      (MACHINE_SHARED + "_queue_full", "len(self.queues[queue]) >= capacity",
       "True"))
_rule(MACHINE, "holds follows the state", "language", "QueueHolds", "holds, written before",
      (MACHINE_SHARED + "_queue_holds", "len(self.queues[queue]) >= count",
       "True"))
_rule(MACHINE, "empty follows the state", "language", "CellEmpty", "cell empty, written before; cell_is_taken",
      (MACHINE_SHARED + "_cell_empty", "cell(th) not in self.cells",
       "cell(th) in self.cells"))
_rule(MACHINE, "event.query follows the mark", "S24", "EventQuery", "asked_then_waited_for; query_says_yes",
      (MACHINE_SHARED + "_event_query", "mark is None or mark.done",
       "True"))
_rule(MACHINE, "stream.query follows the stream", "S34", "StreamQuery", "stream_says_yes; no_of_a_stream_that_waits_for_an_event",
      (MACHINE_SHARED + "_stream_query", "stream(th).pending == 0",
       "True"))
_rule(MACHINE, "is_set follows the state", "language", "FlagIsSet", "flag is set, written before; clear_comes_after_the_set",
      (MACHINE_SHARED + "_flag_is_set", "self.flags[flag]",
       "True"))
_rule(MACHINE, "counter >= c follows the state", "language", "CounterAtLeast", "counter at least, written before",
      (MACHINE_SHARED + "_counter_at_least", "self.counters[counter] >= value",
       "True"))
_rule(MACHINE, "n < c follows the turn", "language", "TurnBelow", "first_turn",
      (MACHINE_SHARED + "_turn_below", "th.turn < value",
       "True"))
_rule(MACHINE, "an agreed choice is agreed", "language", "Choose Maybe", "agreed_choice",
      (MACHINE_SHARED + "_choose", "(q.name, th.turn) if q.agreed else (q.name, th.index, th.turn)",
       "(q.name, th.index, th.turn)"))
_rule(MACHINE, "the queue tells the tag of its oldest item", "language", "QueueTag", "tag_tells_of_the_get_before",
      (MACHINE_SHARED + "_queue_tag", "self.queues[queue][0][0]",
       "self.queues[queue][-1][0]"))
_rule(MACHINE, "a stream runs its work in order", "S2", "Enqueue", "two_streams one-hardware-queue; pageable_source",
      (MACHINE_DEVICE + "_start", "fifo.busy = True\n        self.held.append(work)",
       "self.held.append(work)"))
_rule(MACHINE, "a stream waits at a wait", "S20", "StreamWaitEvent WaitStream", "event_between_streams_and_asked; hop_over_a_stream",
      (MACHINE_DEVICE + "advance", "elif not what.done:",
       "elif False:"))

# fmt: on
RULES = (*mutation_rules_language.RULES, *mutation_rules_meetings.RULES, *_RULES)
"""The table."""
