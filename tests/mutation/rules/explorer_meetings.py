"""Rules of the explorer: streams that meet, and what is pending behind a meeting."""

from __future__ import annotations

from mutation.switching import EXPLORER, Table

PENDING = "fencepost.proofs.explore.pending:Device."
CALLS = "fencepost.proofs.explore.pending_calls:MeetingCompiler."
MEMORY = "fencepost.proofs.explore.pending_memory:MeetingRules."

RULES = Table()
_rule = RULES.enter

# fmt: off

_rule(EXPLORER, "a signal -> its await", "S131", "Signal Await", "after_a_message; messages_in_order",
      (PENDING + "_meet", "s.streams[i] |= messages[0][1] | last",
       "s.streams[i] |= last"))
_rule(EXPLORER, "the stream's earlier items -> a signal", "theory 2", "Signal", "after_a_message",
      (PENDING + "_meet", ".tag, s.streams[i], node)",
       ".tag, 0, node)"))
_rule(EXPLORER, "the call of a meeting -> the meeting", "S2", "Signal Await", "call_before_a_message",
      (CALLS + "_meeting", "device.append(s, i, s.tb[t], what)",
       "device.append(s, i, 0, what)"),
      (PENDING + "at_once", "s.streams[i] |= bit",
       "pass"))
_rule(EXPLORER, "an await waits for its message", "S131", "Await", "after_a_message",
      (PENDING + "_enabled", "return bool(messages) and messages[0][0] == wanted",
       "return True"),
      (PENDING + "_meet", "messages[0][1] | last",
       "(messages[0][1] if messages else 0) | last"))
_rule(EXPLORER, "an await takes its own message only", "S130", "Await", "another_match_never_meets",
      (PENDING + "_enabled", "bool(messages) and messages[0][0] == wanted",
       "bool(messages)"))
_rule(EXPLORER, "a message is taken once", "S130", "Await", "messages_in_order",
      (PENDING + "_meet", "(messages[1:],",
       "(messages,"))
_rule(EXPLORER, "a signal waits for room", "language", "Signal", "no_room_holds_the_stream",
      (PENDING + "_enabled", "wanted is None or len(m.channels[k][0]) < int(wanted)",
       "True"))
_rule(EXPLORER, "the store that is there -> the wait", "S118", "StoreFlag WaitFlag", "store_then_wait; host_store_then_wait",
      (PENDING + "_meet", "s.streams[i] |= m.words[k][1]",
       "pass"))
_rule(EXPLORER, "a store overwrites", "S118", "StoreFlag", "only_the_latest_store_of_hosts",
      (CALLS + "_storeflag", "(value, s.tb[t])",
       "(value, s.tb[t] | s.meet.words[k][1])"))
_rule(EXPLORER, "a host's store carries what it did", "S118", "StoreFlag", "host_store_then_wait; host_resets_what_it_saw",
      (CALLS + "_storeflag", "s.meet.words[k] = (value, s.tb[t])",
       "s.meet.words[k] = (value, 0)"))
_rule(EXPLORER, "the store that is there -> the host's wait", "S118", "WaitFlag", "store_then_host_wait; host_resets_what_it_saw",
      (CALLS + "_waitflag", "s.tb[t] |= s.meet.words[k][1]",
       "pass"))
_rule(EXPLORER, "a wait waits while the flag is too low", "S118", "WaitFlag", "store_then_wait; waits_for_the_higher_value",
      (PENDING + "_enabled", "m.words[k][0] >= int(wanted)",
       "True"))
_rule(EXPLORER, "a host spins while the flag is too low", "S118", "WaitFlag", "store_then_host_wait; host_resets_what_it_saw",
      (CALLS + "_ready", "s.meet.words[k][0] >= value",
       "True"))
_rule(EXPLORER, "a wait resets", "S118", "WaitFlag", "flags_there_and_back",
      (PENDING + "_meet", "if isinstance(o, p.StoreFlag) or (isinstance(o, p.WaitFlag) and o.reset):",
       "if isinstance(o, p.StoreFlag):"))
_rule(EXPLORER, "a host's wait resets", "S118", "WaitFlag", "host_resets_what_it_saw",
      (CALLS + "_waitflag", "if reset:",
       "if False:"))
_rule(EXPLORER, "items behind a meeting are pending", "theory 3", "Enqueue Await WaitFlag", "after_a_message; store_then_wait",
      (CALLS + "_enqueue", "if not s.meet.pending[i]:",
       "if True:"))
_rule(EXPLORER, "the call of a pending item -> the item", "S2", "Enqueue Await", "call_of_what_is_pending",
      (PENDING + "_pop", "s.streams[i] |= bit",
       "pass"))
_rule(EXPLORER, "what a pending stream was given -> its later items", "S20", "StreamJoinsEvent Await", "item_behind_an_await_and_an_event",
      (PENDING + "_emptied", "s.streams[i] |= m.tails[i]",
       "pass"))
_rule(EXPLORER, "a record behind a meeting is pending", "theory 3", "RecordEvent Await", "waits_for_a_pending_record; record_behind_an_await",
      (CALLS + "_recordevent", "if not s.meet.pending[i]:",
       "if True:"))
_rule(EXPLORER, "a host waits for a pending record", "S23", "JoinEvent Await", "record_behind_an_await",
      (CALLS + "_joinevent", "s.meet.inside[t] = (number,)",
       "pass"))
_rule(EXPLORER, "a host waits for a pending stream", "S32", "JoinStream Await", "stream_behind_an_await",
      (CALLS + "_joinstream", "if s.meet.pending[i]:",
       "if False:"))
_rule(EXPLORER, "a host waits for the pending streams of a device", "S32", "JoinDevice Await", "device_behind_an_await",
      (CALLS + "_joindevice", "if s.meet.pending[i]:",
       "if False:"))
_rule(EXPLORER, "and for the others", "S32", "JoinDevice", "device_with_a_pending_stream",
      (CALLS + "_joindevice", "s.tb[t] |= s.streams[i]",
       "pass"))
_rule(EXPLORER, "a pending capture -> who waits for it", "S23", "JoinEvent JoinStream JoinDevice", "record_behind_an_await; stream_behind_an_await; device_behind_an_await",
      (PENDING + "_complete", "s.tb[t] |= bit",
       "pass"))
_rule(EXPLORER, "a pending capture -> its handles", "S23", "RecordEvent JoinEvent", "handle_of_a_record_that_was_pending",
      (PENDING + "_complete", "return bit | (flags",
       "return (flags"))
_rule(EXPLORER, "a stream waits for a pending record", "S20", "StreamJoinsEvent Await", "waits_for_a_pending_record",
      (CALLS + "_streamjoinsevent", "(WAIT, number) if number else None",
       "None"))
_rule(EXPLORER, "a stream waits for a pending stream", "S22", "StreamJoinsStream Await", "stream_waits_for_a_pending_stream",
      (CALLS + "_streamjoinsstream", "device.append(s, i, s.tb[t], (WAIT, device.record(s, behind, s.tb[t])))",
       "pass"))
_rule(EXPLORER, "a pending capture -> the streams that wait for it", "S20", "StreamJoinsEvent StreamJoinsStream", "waits_for_a_pending_record; stream_waits_for_a_pending_stream",
      (PENDING + "_complete", "carried |= b | bit",
       "pass"))
_rule(EXPLORER, "a stream -> a pending stream that waits for it", "S22", "StreamJoinsStream", "pending_stream_waits_for_another",
      (CALLS + "_streamjoinsstream", "device.append(s, i, s.streams[behind], None)",
       "pass"))
_rule(EXPLORER, "a stream wait's record starts after its call, where the waiting stream is pending", "S2", "StreamJoinsStream", "stream_wait_of_a_pending_stream_behind_a_write",
      (CALLS + "_streamjoinsstream", "s.streams[behind] |= s.tb[t]",
       "pass"))
_rule(EXPLORER, "a query of a pending record says no", "S24", "EventQuery Await", "asked_behind_an_await",
      (CALLS + "_event_query", 'return [("no", s)]',
       'return [("yes", s)]'))
_rule(EXPLORER, "a query of a pending stream says no", "S34", "StreamQuery Await", "stream_asked_behind_an_await",
      (CALLS + "_stream_query", 'return [("no", s)]',
       'return [("yes", s)]'))
_rule(EXPLORER, 'the record call -> who is told "no" of a pending record', "theory 2 [T]", "EventQuery RecordEvent", "no_of_a_pending_record_comes_after_the_call",
      (CALLS + "_event_query", "s.tb[t] |= bool(flags & CALLED)",
       "pass"))
_rule(EXPLORER, 'a pending record is kept for a "no"', "theory 2 [T]", "EventQuery RecordEvent", "no_of_a_pending_record_comes_after_the_call",
      (CALLS + "_recordevent", "RECORDED | (CALLED if s.tb[t] else 0) if track else 0",
       "RECORDED if track else 0"))
_rule(EXPLORER, 'the calls -> who is told "no" of a pending stream', "theory 2 [T]", "StreamQuery Await", "no_of_a_pending_stream_comes_after_the_call",
      (CALLS + "_stream_query", "s.tb[t] |= s.calls[i] & BIT",
       "pass"))
_rule(EXPLORER, 'the call of a wait for a pending record -> a "no" of stream.query', "theory 2 [T]", "StreamJoinsEvent StreamQuery", "no_of_a_stream_that_waits_for_a_pending_record",
      (CALLS + "_streamjoinsevent", "s.calls[k] |= s.tb[t] | (0",
       "s.calls[k] |= (0"))
_rule(EXPLORER, 'the pending record\'s call -> a "no" of stream.query', "theory 2 [T]", "StreamJoinsEvent StreamQuery", "told_of_a_wait_for_a_pending_record",
      (CALLS + "_streamjoinsevent", "| (BIT if flags & CALLED else 0)",
       ""))
_rule(EXPLORER, 'the calls of the other, pending stream -> a "no" of stream.query', "theory 2 [T]", "StreamJoinsStream StreamQuery", "no_of_a_stream_that_waits_for_a_pending_stream",
      (CALLS + "_streamjoinsstream", "s.tb[t] | s.calls[behind]",
       "s.tb[t] | (s.calls[behind] & PENDING)"))
_rule(EXPLORER, 'the call of a wait for a pending stream -> a "no" of stream.query', "theory 2 [T]", "StreamJoinsStream StreamQuery", "no_of_a_stream_that_waits_for_a_pending_stream",
      (CALLS + "_streamjoinsstream", "s.tb[t] | s.calls[behind]",
       "s.calls[behind]"))
_rule(EXPLORER, "what was waited for while it was pending is known complete", "S24", "EventQuery JoinEvent", "known_complete_behind_an_await",
      (PENDING + "_complete", "known = COMPLETE if waited else 0",
       "known = 0"))
_rule(EXPLORER, "a stream that was waited for while it was pending is idle", "S34", "StreamQuery JoinStream", "idle_behind_an_await",
      (PENDING + "_complete", "s.calls[i] &= ~(PENDING | JOINED)",
       "pass"))
_rule(EXPLORER, "pending work of a noted stream -> reuse", "S65", "NoteUse Drop Await", "pending_use_of_a_noted_block",
      (PENDING + "_complete", "(refs, free | bit,",
       "(refs, free,"))
_rule(EXPLORER, "a block whose noted use is pending is not free", "S67", "NoteUse Drop Await", "pending_use_of_a_noted_block",
      (MEMORY + "alloc", "if not s.block[0] and s.block[2]:",
       "if False:"))
_rule(EXPLORER, "a row behind a pending record is not free", "language", "Give Await", "rows_behind_a_pending_record",
      (MEMORY + "give", "if not number:",
       "if True:"))
_rule(EXPLORER, "the pending record -> the take of a row that was given behind it", "language", "Give Take", "rows_behind_a_pending_record",
      (PENDING + "_given_back", "given | bit",
       "given"))
_rule(EXPLORER, "an await -> the channel's next await on another stream", "theory 2", "Await", "second_await_of_a_channel",
      (PENDING + "_meet", "messages[0][1] | last",
       "messages[0][1]"))
_rule(EXPLORER, "an await is kept for the next one on another stream", "theory 2", "Await", "second_await_of_a_channel",
      (PENDING + "_meet", "s.streams[i] if channel in self.meetings.several else 0",
       "0"))
_rule(EXPLORER, "a pending record's call -> who waits for it", "S2", "RecordEvent JoinEvent", "waits_for_the_call_of_a_pending_record",
      (CALLS + "_recordevent", "device.record(s, i, s.tb[t])",
       "device.record(s, i, 0)"))
_rule(EXPLORER, "a call that waits for a pending stream makes it idle", "S34", "JoinStream StreamQuery", "idle_behind_an_await",
      (CALLS + "_waits", "s.calls[k] |= JOINED",
       "pass"))
_rule(EXPLORER, "but for what comes into it during the call", "S34", "JoinStream StreamQuery", "not_idle_when_more_was_given",
      (CALLS + "_called", "s.calls[stream(s)] &= ~JOINED",
       "pass"))
