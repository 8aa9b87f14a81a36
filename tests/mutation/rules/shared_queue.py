"""Rules of streams that share one hardware queue (S115-S117): explorer and concrete event structure."""

from __future__ import annotations

from mutation.switching import EVENTS, EXPLORER, Table

COMPILE = "fencepost.proofs.explore.compile:ThreadCompiler."
MEMORY = "fencepost.proofs.explore.memory:LocationRules."
PENDING = "fencepost.proofs.explore.pending:Device."
CALLS = "fencepost.proofs.explore.pending_calls:MeetingCompiler."
PLAYER = "fencepost.model.events.state:Player."
EVENT_MEETINGS = "fencepost.model.events.meetings:Meetings."
WORLD = " one-hardware-queue"

RULES = Table()


def _rule(home: str, says: str, source: str, covers: str, red: str, *changes: tuple[str, str, str]) -> None:
    """All designs are of this one environment."""
    named = "; ".join(name + WORLD for name in red.split("; "))
    RULES.enter(home, f"one hardware queue: {says}", source, covers, named, *changes)


# fmt: off

# ---- the explorer: work that runs

_rule(EXPLORER, "an item is behind all that is in the queue", "S116", "Enqueue", "own_work_is_behind",
      (COMPILE + "_own", "x.streams[slot(x)] = x.streams[queue(x)]",
       "pass"))
_rule(EXPLORER, "a record starts after its call", "S2", "RecordEvent", "record_starts_after_its_call",
      (COMPILE + "_recorded", "s.streams[i] |= s.tb[t]",
       "pass"))
_rule(EXPLORER, "a record is its stream's own item", "S116", "RecordEvent", "record_is_the_own_item; stream_wait_makes_an_item_of_the_waiting_stream",
      (COMPILE + "_recorded", "s.streams[k] = s.streams[i]",
       "pass"))
_rule(EXPLORER, "a record behind others' work may be pending", "S24", "RecordEvent StreamQuery EventQuery", "no_of_a_stream_with_a_record; no_of_an_event_behind_others",
      (COMPILE + "_recorded", "s.calls[one] & PENDING for one in sharers",
       "s.calls[one] & PENDING for one in (k,)"))
_rule(EXPLORER, "a record in an idle queue is complete", "S24", "RecordEvent StreamQuery EventQuery", "no_of_an_idle_queue; no_of_an_event_in_an_idle_queue",
      (COMPILE + "_recorded", "any([s.calls[one] & PENDING for one in sharers])",
       "True"))
_rule(EXPLORER, "a stream whose record is pending may say no", "S34", "RecordEvent StreamQuery", "no_of_a_stream_with_a_record",
      (COMPILE + "_recorded", "(PENDING if busy else 0)",
       "0"))
_rule(EXPLORER, 'the record call -> a "no" of the stream', "S34", "RecordEvent StreamQuery", "no_comes_after_the_record_call",
      (COMPILE + "_recorded", "s.tb[t] | (PENDING if busy else 0)",
       "(PENDING if busy else 0)"))
_rule(EXPLORER, "a record captures the queue", "S19", "RecordEvent", "record_of_an_idle_stream; event_of_another_gpu_then_the_stream",
      (COMPILE + "_record_shared", "(s.streams[stream(s)] & BIT) | RECORDED",
       "RECORDED"))
_rule(EXPLORER, "a recorded event may be pending", "S24", "RecordEvent EventQuery", "no_of_an_event_behind_others",
      (COMPILE + "_record_shared", "| RECORDED |",
       "|"))
_rule(EXPLORER, 'the record call -> a "no" of the event', "S24", "RecordEvent EventQuery", "no_of_the_event_comes_after_the_record_call",
      (COMPILE + "_record_shared", "(CALLED if s.tb[t] else 0)",
       "0"))
_rule(EXPLORER, "the event of a complete record is complete", "S24", "RecordEvent EventQuery", "no_of_an_event_in_an_idle_queue",
      (COMPILE + "_record_shared", "0 if recorded(s) else COMPLETE",
       "recorded(s) and 0 or 0"))
_rule(EXPLORER, "a free's record is behind all that is in the queue", "S65", "NoteUse Drop", "free_records_behind_others",
      (MEMORY + "_record_shared", "s.streams[slot] = s.streams[queue]",
       "pass"))
_rule(EXPLORER, "a stream with a free's record may say no", "S34", "NoteUse StreamQuery", "free_leaves_an_item",
      (COMPILE + "_stream_query", "& PENDING or noted",
       "& PENDING"))
_rule(EXPLORER, "a synchronised GPU has no busy stream", "S32", "JoinDevice StreamQuery", "no_behind_a_synchronised_device",
      (COMPILE + "_slots_of", "return [k for i in streams for k in self.layout.own_slots(i)] if self.layout.one_queue else streams",
       "return streams"))

# ---- the explorer: waits for events and streams

_rule(EXPLORER, "what is waited for -> what comes later in the queue", "S20", "StreamJoinsEvent", "event_of_another_gpu_then_the_queue; wait_for_an_event_starts_after_its_call",
      (COMPILE + "_join_event_shared", "s.streams[stream(s)] |= bit",
       "pass"))
_rule(EXPLORER, "what is waited for -> who waits for the stream", "S20", "StreamJoinsEvent", "event_of_another_gpu_then_the_stream",
      (COMPILE + "_join_event_shared", "s.streams[k] |= bit",
       "pass"))
_rule(EXPLORER, "a wait for what may be over is no item for sure", "S20", "StreamJoinsEvent", "wait_that_may_be_over_is_no_item",
      (COMPILE + "_join_event_shared", "s.streams[k] |= bit",
       "s.streams[k] |= s.streams[stream(s)]"))
_rule(EXPLORER, "capture -> what comes later", "S20", "StreamJoinsEvent", "event_of_another_gpu_then_the_queue; event_of_another_gpu_then_the_stream",
      (COMPILE + "_join_event_shared", "(flags & BIT) | s.tb[t]",
       "s.tb[t]"))
_rule(EXPLORER, "a wait for an event starts after its call", "S2", "StreamJoinsEvent", "wait_for_an_event_starts_after_its_call",
      (COMPILE + "_join_event_shared", "(flags & BIT) | s.tb[t]",
       "(flags & BIT)"))
_rule(EXPLORER, "a wait for a never recorded event does nothing", "S18", "StreamJoinsEvent StreamQuery", "wait_for_a_never_recorded_event_is_no_item",
      (COMPILE + "_join_event_shared", "if flags & RECORDED:",
       "if True:"))
_rule(EXPLORER, 'the wait call -> a "no" of the stream', "S34", "StreamJoinsEvent StreamQuery", "no_comes_after_the_wait_call",
      (COMPILE + "_join_event_shared", "s.calls[k] |= s.tb[t] | (0 ",
       "s.calls[k] |= (0 "))
_rule(EXPLORER, "a stream that waits for an event may be busy", "S34", "StreamJoinsEvent StreamQuery", "no_of_a_stream_that_waits_for_another_gpu; no_comes_after_the_wait_call",
      (COMPILE + "_join_event_shared", "(0 if flags & COMPLETE else PENDING)",
       "0"))
_rule(EXPLORER, "a stream that waits for what is complete is idle", "S34", "StreamJoinsEvent StreamQuery", "wait_for_what_is_complete_is_no_item",
      (COMPILE + "_join_event_shared", "(0 if flags & COMPLETE else PENDING)",
       "PENDING"))
_rule(EXPLORER, 'the record call that the wait is for -> a "no" of the stream', "S34", "StreamJoinsEvent StreamQuery", "no_comes_after_the_call_of_what_is_waited_for",
      (COMPILE + "_join_event_shared", "(BIT if flags & CALLED else 0)",
       "0"))
_rule(EXPLORER, "a wait for a stream makes an item there", "S22", "StreamJoinsStream", "stream_wait_makes_an_item_of_the_waiting_stream; no_comes_after_the_stream_wait_call",
      (COMPILE + "_join_stream_shared", "        recorded(s)\n",
       "        pass\n"))
_rule(EXPLORER, "the other stream -> what comes later in the queue", "S22", "StreamJoinsStream", "stream_of_another_gpu_then_the_queue",
      (COMPILE + "_join_stream_shared", "s.streams[stream(s)] |= s.streams[behind]",
       "pass"))
_rule(EXPLORER, "the other stream -> who waits for the waiting one", "S22", "StreamJoinsStream", "stream_of_another_gpu_then_the_stream; stream_wait_makes_an_item_of_the_waiting_stream",
      (COMPILE + "_join_stream_shared", "s.streams[k] |= s.streams[behind]",
       "pass"))
_rule(EXPLORER, "a wait for a stream that may be over is no item for sure", "S22", "StreamJoinsStream", "wait_for_a_stream_that_may_be_over_is_no_item",
      (COMPILE + "_join_stream_shared", "s.streams[k] |= s.streams[behind]",
       "s.streams[k] |= s.streams[stream(s)]"))
_rule(EXPLORER, 'the calls of the other stream, and the wait -> a "no" of the stream', "S34", "StreamJoinsStream StreamQuery", "no_comes_after_the_stream_wait_call; no_comes_after_the_calls_of_the_other_stream",
      (COMPILE + "_join_stream_shared", "s.calls[k] |= s.calls[behind]",
       "pass"))

# ---- the explorer: a queue in which something is pending

_rule(EXPLORER, "pending work is its stream's own last item", "S116", "Enqueue Await", "own_work_that_was_pending; event_of_another_gpu_behind_pending_work",
      (CALLS + "_last", "s.meet.ends[slot(s)] = device.record(s, stream(s), 0)",
       "pass"))
_rule(EXPLORER, "a pending record is its stream's own last item", "S116", "RecordEvent", "own_record_that_was_pending; pending_record_of_a_stream_wait_is_an_item",
      (PENDING + "record_is_last", "m.ends[slot] = number",
       "pass"))
_rule(EXPLORER, 'the call of a pending record -> a "no" of the stream', "S34", "RecordEvent StreamQuery", "pending_record_comes_after_its_call; no_comes_after_the_call_of_a_pending_stream_wait",
      (PENDING + "record_is_last", "|= bit | PENDING",
       "|= PENDING"))
_rule(EXPLORER, "a record that was pending may still be behind others' work", "S34", "RecordEvent StreamQuery", "no_of_a_record_behind_a_store_that_was_seen",
      (PENDING + "record_is_last", "|= bit | PENDING",
       "|= bit"))
_rule(EXPLORER, "an own item that was pending tells of what was before it", "S116", "Await", "own_work_that_was_pending; own_record_that_was_pending",
      (PENDING + "_complete", "s.streams[k] |= bit",
       "pass"))
_rule(EXPLORER, "an own item that has run is not pending", "S116", "Await", "no_behind_a_wait_for_pending_work; stream_with_pending_work_says_no",
      (PENDING + "_complete", "m.ends[k] = 0",
       "pass"))
_rule(EXPLORER, "a stream that was waited for is idle", "S34", "JoinStream StreamQuery", "no_behind_a_wait_for_pending_work",
      (PENDING + "_complete", "s.calls[k] &= ~(PENDING | JOINED)",
       "pass"))
_rule(EXPLORER, "only what the call waited for", "S34", "JoinStream StreamQuery", "no_behind_a_record_that_came_during_the_call",
      (PENDING + "_complete", "if waited and not m.ends[k] and s.calls[k] & JOINED:",
       "if not m.ends[k] and s.calls[k] & JOINED:"))
_rule(EXPLORER, "only if no own item came later", "S34", "JoinStream StreamQuery", "no_behind_a_record_that_came_during_the_call",
      (PENDING + "_complete", "if waited and not m.ends[k] and s.calls[k] & JOINED:",
       "if waited and s.calls[k] & JOINED:"))
_rule(EXPLORER, "only if no wait came later", "S34", "JoinStream StreamQuery", "no_behind_a_stream_wait_that_came_during_the_call",
      (PENDING + "_complete", "if waited and not m.ends[k] and s.calls[k] & JOINED:",
       "if waited and not m.ends[k]:"))
_rule(EXPLORER, "a call waits for the stream's own last item", "S116", "JoinStream", "own_work_that_was_pending; own_record_that_was_pending",
      (CALLS + "_join_own", "s.meet.inside[t] = (*s.meet.inside[t], s.meet.ends[k])",
       "pass"))
_rule(EXPLORER, "and for what the stream waits for beside", "S20", "JoinStream", "event_of_another_gpu_behind_pending_work; stream_of_another_gpu_behind_pending_work",
      (CALLS + "_join_own", "s.tb[t] |= s.streams[k]",
       "pass"))
_rule(EXPLORER, "what was waited for while it was pending is known complete", "S34", "JoinStream StreamQuery", "no_behind_a_wait_for_pending_work",
      (CALLS + "_join_own", "s.calls[k] |= JOINED",
       "pass"))
_rule(EXPLORER, "capture -> who waits for the pending stream", "S20", "StreamJoinsEvent", "event_of_another_gpu_behind_pending_work",
      (CALLS + "_streamjoinsevent", "s.streams[slot(s)] |= bit | flags & BIT",
       "s.streams[slot(s)] |= bit"))
_rule(EXPLORER, "a wait behind pending work starts after its call", "S2", "StreamJoinsEvent", "wait_for_an_event_behind_pending_work_starts_after_its_call",
      (CALLS + "_streamjoinsevent", "s.streams[slot(s)] |= bit | flags & BIT",
       "s.streams[slot(s)] |= flags & BIT"))
_rule(EXPLORER, "a record elsewhere that a pending stream waits for starts after its call", "S22", "StreamJoinsStream", "wait_of_a_pending_stream_makes_an_item_elsewhere",
      (CALLS + "_join_shared", "            recorded(s)\n",
       "            pass\n"))
_rule(EXPLORER, "a stream elsewhere -> what comes later in the pending queue", "S22", "StreamJoinsStream", "stream_of_another_gpu_then_the_pending_queue",
      (CALLS + "_join_shared", "device.append(s, i, s.streams[behind], None)",
       "pass"))
_rule(EXPLORER, "a stream elsewhere -> who waits for the pending stream", "S22", "StreamJoinsStream", "stream_of_another_gpu_behind_pending_work",
      (CALLS + "_join_shared", "s.streams[k] |= s.streams[behind]",
       "pass"))
_rule(EXPLORER, "the pending record of a stream wait is the other stream's item", "S22", "StreamJoinsStream", "pending_record_of_a_stream_wait_is_an_item; pending_record_of_a_stream_wait_comes_after_its_call",
      (CALLS + "_join_shared", "device.record_is_last(s, k_behind, number, s.tb[t])",
       "pass"))
_rule(EXPLORER, "the pending record of a stream wait starts after its call", "S2", "StreamJoinsStream", "pending_record_of_a_stream_wait_comes_after_its_call",
      (CALLS + "_join_shared", "device.record(s, behind, s.tb[t])",
       "device.record(s, behind, 0)"))
_rule(EXPLORER, "a pending wait for a stream is an item of the waiting one", "S22", "StreamJoinsStream", "pending_stream_wait_is_an_item; stream_of_another_gpu_behind_pending_work",
      (CALLS + "_join_shared", "            last(s)\n",
       "            pass\n"))
_rule(EXPLORER, 'the calls of a pending stream, and the wait -> a "no" of the waiting one', "S34", "StreamJoinsStream StreamQuery", "no_comes_after_the_calls_of_a_pending_stream; no_comes_after_the_call_of_a_pending_stream_wait",
      (CALLS + "_join_shared", "(s.calls[k] | s.calls[k_behind])",
       "(s.calls[k])"))
_rule(EXPLORER, "a wait that comes during a call is not covered by it", "S34", "StreamJoinsStream StreamQuery", "no_behind_a_stream_wait_that_came_during_the_call",
      (CALLS + "_join_shared", "(s.calls[k] | s.calls[k_behind]) & ~JOINED",
       "(s.calls[k] | s.calls[k_behind])"))
_rule(EXPLORER, "a stream with a pending own item says no", "S34", "StreamQuery", "stream_with_pending_work_says_no",
      (CALLS + "_stream_query", "s.meet.ends[i] if shared else",
       "False if shared else"))

# ---- the concrete event structure

_rule(EVENTS, "what is waited for -> who waits for the stream", "S20", "StreamJoinsEvent", "event_of_another_gpu_then_the_stream",
      (PLAYER + "_waits_too", "merged(merged(clock, capture.clock), caller)",
       "merged(clock, caller)"))
_rule(EVENTS, "what is waited for is not forgotten when own items run", "S20", "StreamJoinsEvent Await", "event_of_another_gpu_behind_pending_work; stream_of_another_gpu_behind_pending_work",
      (EVENT_MEETINGS + "_pop", "self._waits_too(item.stream, found, item.caller)",
       "pass"))
