"""Rules of the explorer: streams, events and queries."""

from __future__ import annotations

from mutation.switching import EXPLORER, Table

COMPILE = "fencepost.proofs.explore.compile:ThreadCompiler."
MEMORY = "fencepost.proofs.explore.memory:LocationRules."
LAYOUT = "fencepost.proofs.explore.layout:Layout."

RULES = Table()
_rule = RULES.enter

# fmt: off

_rule(EXPLORER, "enqueue -> start", "S2", "Enqueue", "two_streams launch-blocking-kernels; copy_unguarded launch-blocking",
      (COMPILE + "_enqueue", "s.streams[stream(s)] |= s.tb[t]",
       "pass"),
      (COMPILE + "_enqueue", "s.streams[only] |= s.tb[t]",
       "pass"),
      (MEMORY + "item", "s.streams[known[0]] |= s.tb[t]",
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
      (COMPILE + "_recordevent", "write(s, ((s.streams[i] & BIT) | RECORDED",
       "write(s, (((s.streams[i] | self._event_read(effect.event)(s)) & BIT) | RECORDED"))
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
      (COMPILE + "_newevent", "s.events = [*s.events, 0]",
       "s.events = [*s.events, BIT | RECORDED]"))
_rule(EXPLORER, "a new event carries nothing", "S17", "NewEvent", "fresh_event_says_nothing",
      (COMPILE + "_newevent", "self._set_local(effect.local, lambda s: 0)",
       "self._set_local(effect.local, lambda s: BIT)"))
_rule(EXPLORER, "a cursor moves on", "language", "Advance", "ring_by_cursor",
      (COMPILE + "_advance", "s.pos[var] = (s.pos[var] + 1) % depth",
       "pass"),
      (COMPILE + "_advance", "i = (s.pos[var] + 1) % depth",
       "i = s.pos[var] % depth"))
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
