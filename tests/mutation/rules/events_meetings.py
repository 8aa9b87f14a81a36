"""Rules of the concrete event structure: streams that meet."""

from __future__ import annotations

from mutation.switching import EVENTS, Table

EVENT_MEETINGS = "fencepost.model.events.meetings:Meetings."
PLAYER = "fencepost.model.events.state:Player."
REFERENCES = "fencepost.model.events.references:References."

RULES = Table()
_rule = RULES.enter

# fmt: off

_rule(EVENTS, "a signal -> its await", "S131", "Signal Await", "after_a_message; messages_in_order",
      (EVENT_MEETINGS + "_meet", "self.clocks.absorb(fifo, clock)",
       "pass"))
_rule(EVENTS, "an await -> the channel's next await on another stream", "theory 2", "Await", "second_await_of_a_channel",
      (EVENT_MEETINGS + "_meet", "self.clocks.absorb(fifo, before)",
       "pass"))
_rule(EVENTS, "the stream's earlier items -> a signal", "theory 2", "Signal", "after_a_message",
      (EVENT_MEETINGS + "_meet", "(o.tag, self.clocks.snapshot(fifo))",
       "(o.tag, item.caller)"))
_rule(EVENTS, "the signal's call -> the signal", "S2", "Signal", "call_before_a_message",
      (EVENT_MEETINGS + "_meet", "self._make_room(fifo, o)\n        self.clocks.launch(item.thread, fifo, item.caller)",
       "self._make_room(fifo, o)"))
_rule(EVENTS, "an await waits for its message", "S131", "Await", "after_a_message",
      (EVENT_MEETINGS + "_can_run", "return bool(messages) and messages[0][0] == o.tag",
       "return True"),
      (EVENT_MEETINGS + "_meet", "(_tag, clock), *rest = self.messages[o.channel]",
       'clock, rest = (self.messages[o.channel] or (("", item.caller),))[0][1], self.messages[o.channel][1:]'))
_rule(EVENTS, "an await takes its own message only", "S130", "Await", "another_match_never_meets",
      (EVENT_MEETINGS + "_can_run", "bool(messages) and messages[0][0] == o.tag",
       "bool(messages)"))
_rule(EVENTS, "a message is taken once", "S130", "Await", "messages_in_order",
      (EVENT_MEETINGS + "_meet", "self.messages[o.channel] = tuple(rest)",
       "pass"))
_rule(EVENTS, "a signal waits for room", "language", "Signal", "no_room_holds_the_stream",
      (EVENT_MEETINGS + "_can_run", "capacity is None or len(messages) < capacity",
       "True"))
_rule(EVENTS, "the store that is there -> the wait", "S118", "StoreFlag WaitFlag", "store_then_wait; host_store_then_wait; store_then_host_wait",
      (EVENT_MEETINGS + "_word", "self.clocks.absorb(agent, clock)",
       "pass"))
_rule(EVENTS, "a store overwrites", "S118", "StoreFlag", "waits_for_the_higher_value; flags_there_and_back",
      (EVENT_MEETINGS + "_word", "self.words[o.flag] = (value, self.clocks.snapshot(agent))",
       "self.words[o.flag] = (value, clock or self.clocks.snapshot(agent))"))
_rule(EVENTS, "a wait waits while the flag is too low", "S118", "WaitFlag", "store_then_wait; waits_for_the_higher_value",
      (EVENT_MEETINGS + "_can_run", "self.words[o.flag][0] >= o.value",
       "True"))
_rule(EVENTS, "a wait resets", "S118", "WaitFlag", "flags_there_and_back; host_resets_what_it_saw",
      (EVENT_MEETINGS + "_word", "isinstance(o, p.StoreFlag) or o.reset",
       "isinstance(o, p.StoreFlag)"))
_rule(EVENTS, "items behind a meeting are pending", "theory 3", "Enqueue Await WaitFlag", "after_a_message; store_then_wait",
      (PLAYER + "_enqueue", "if self.pending[fifo]:",
       "if False:"))
_rule(EVENTS, "a record behind a meeting is pending", "theory 3", "RecordEvent Await", "waits_for_a_pending_record; record_behind_an_await",
      (PLAYER + "_record_event", "if self.pending[fifo]:",
       "if False:"))
_rule(EVENTS, "a host waits for a pending record", "S23", "JoinEvent Await", "record_behind_an_await",
      (PLAYER + "_join_event", "self._waits_for(step.thread, self.unfinished[event][0])",
       "pass"))
_rule(EVENTS, "a host waits for a pending stream", "S32", "JoinStream JoinDevice Await", "stream_behind_an_await; device_behind_an_await",
      (PLAYER + "_join_fifo", "self._waits_for(step.thread, self._mark(fifo, step, stream))",
       "pass"))
_rule(EVENTS, "a pending capture -> who waits for it", "S23", "JoinEvent JoinStream Await", "record_behind_an_await; stream_behind_an_await; device_behind_an_await",
      (EVENT_MEETINGS + "_complete", "self.clocks.sync(thread, capture.clock, capture.source)",
       "pass"))
_rule(EVENTS, "a stream waits for a pending record", "S20", "StreamJoinsEvent Await", "waits_for_a_pending_record",
      (PLAYER + "_stream_joins_event", "self._stream_waits(step, stream, *self.unfinished[event])",
       "pass"))
_rule(EVENTS, "a stream waits for a pending stream", "S22", "StreamJoinsStream Await", "stream_waits_for_a_pending_stream",
      (PLAYER + "_stream_joins_stream", "self._stream_waits(step, stream, number, self.pending[behind][-1].call)",
       "pass"))
_rule(EVENTS, "a query of what is pending says no", "S24", "EventQuery StreamQuery Await", "asked_behind_an_await; stream_asked_behind_an_await",
      (PLAYER + "_query_answers", 'return {"no"}',
       'return {"yes"}'),
      (PLAYER + "_query", "if self._waits_on_the_device(thread, question):",
       "if False:"))
_rule(EVENTS, 'the calls -> who is told "no" of what is pending', "theory 2 [T]", "EventQuery StreamQuery Await", "no_of_a_pending_stream_comes_after_the_call; no_of_a_pending_record_comes_after_the_call",
      (PLAYER + "_query", "self.clocks.absorb(thread, call)\n        return",
       "return"))
_rule(EVENTS, 'the call of an await is kept for a "no"', "theory 2 [T]", "Await StreamQuery", "no_of_a_pending_stream_comes_after_the_call",
      (EVENT_MEETINGS + "_meeting", "self._called(step.thread, stream)",
       "pass"))
_rule(EVENTS, 'the call of a pending record is kept for a "no"', "theory 2 [T]", "RecordEvent EventQuery", "no_of_a_pending_record_comes_after_the_call",
      (PLAYER + "_pending_record", "call = merged(self.calls[lane], self.clocks.now[thread])",
       "call = self.calls[lane]"))
_rule(EVENTS, "pending work of a noted stream -> reuse", "S65", "NoteUse Drop Await", "pending_use_of_a_noted_block",
      (EVENT_MEETINGS + "_complete", "merged(one.clock, capture.clock)",
       "one.clock"))
_rule(EVENTS, "a block whose noted use is pending is not free", "S67", "NoteUse Drop Await", "pending_use_of_a_noted_block",
      (REFERENCES + "_let_go", "if block is not None and records:",
       "if False:"))
_rule(EVENTS, "a row behind a pending record is not free", "language", "Give Await", "rows_behind_a_pending_record",
      ("fencepost.model.events.hosts:HostOperations._give", "self._frees(frozenset((captured,)), clock, None, (o.pool, token))\n        return",
       "captured = None"))
