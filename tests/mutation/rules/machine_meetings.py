"""Rules of the operational machine: streams that meet."""

from __future__ import annotations

from mutation.switching import MACHINE, Table

MEETINGS = "fencepost.simulator.machine_meetings:"
MACHINE_DEVICE = "fencepost.simulator.machine_device:Device."
MACHINE_HOST = "fencepost.simulator.machine_host:Host."

RULES = Table()
_rule = RULES.enter

# fmt: off

_rule(MACHINE, "an await waits for its message", "S131", "Await Signal", "after_a_message; there_and_back; call_before_a_message",
      (MEETINGS + "Meetings.meet", "if not _able(place, o):",
       "if not _able(place, o) and not isinstance(o, p.Await):"),
      (MEETINGS + "Meetings.meet", "place.messages.popleft()",
       "place.messages and place.messages.popleft()"))
_rule(MACHINE, "a signal is a message", "S131", "Signal", "behind_a_message; there_and_not_back",
      (MEETINGS + "Meetings.meet", "place.messages.append(o.tag)",
       "pass"))
_rule(MACHINE, "an await takes its own message only", "S130", "Await", "another_match_never_meets",
      (MEETINGS + "_able", "bool(place.messages) and place.messages[0] == o.tag",
       "bool(place.messages)"))
_rule(MACHINE, "a message is taken once", "S130", "Await", "messages_in_order",
      (MEETINGS + "Meetings.meet", "place.messages.popleft()",
       "pass"))
_rule(MACHINE, "a signal waits for room", "language", "Signal", "no_room_holds_the_stream",
      (MEETINGS + "_able", "place.capacity is None or len(place.messages) < place.capacity",
       "True"))
_rule(MACHINE, "what stands behind a meeting waits with it", "S131", "Await WaitFlag", "after_a_message; store_then_wait",
      (MACHINE_DEVICE + "_start", "fifo.busy = True\n            return False\n        self.worked",
       "work.done = True\n            self.follow(fifo)\n            return True\n        self.worked"))
_rule(MACHINE, "a store of a stream is there", "S118", "StoreFlag", "store_before_the_work",
      (MEETINGS + "Meetings.meet", "place.value = o.value",
       "pass"))
_rule(MACHINE, "a store of a host is there", "S118", "StoreFlag", "host_store_before_the_work",
      (MEETINGS + "Meetings.put_flag", "place.value = value",
       "pass"))
_rule(MACHINE, "a stream waits while the flag is too low", "S118", "WaitFlag", "store_then_wait; waits_for_the_higher_value",
      (MEETINGS + "_able", "isinstance(o, p.StoreFlag) or place.value >= o.value",
       "True"))
_rule(MACHINE, "a host spins while the flag is too low", "S118", "WaitFlag", "store_then_host_wait; host_resets_what_it_saw",
      (MACHINE_HOST + "_wait_flag", "self.places[o.flag].value >= o.value",
       "True"))
_rule(MACHINE, "a stream's wait resets", "S118", "WaitFlag", "flags_there_and_back",
      (MEETINGS + "Meetings.meet", "elif o.reset:",
       "elif False:"))
_rule(MACHINE, "a host's wait resets", "S118", "WaitFlag", "host_resets_what_it_saw",
      (MACHINE_HOST + "_wait_flag", "if o.reset else",
       "if False else"))
_rule(MACHINE, "what waits here waits in the reference", "theory 1", "Await WaitFlag", "after_a_message; store_then_wait",
      (MEETINGS + "Meetings.await_in_reference", "work.stream.fifo.later.append((MEET, work))",
       "isinstance(o, p.Signal) and work.stream.fifo.later.append((MEET, work))"))
_rule(MACHINE, "what has no room here has none in the reference", "theory 1", "Signal", "no_room_holds_the_stream",
      (MEETINGS + "Meetings.await_in_reference", "self.places[o.channel].capacity is not None or",
       ""))
_rule(MACHINE, "a record is pending in the reference", "theory 1", "Record Await", "stream_waits_for_a_pending_stream",
      (MACHINE_DEVICE + "mark", "if stream.fifo.later:",
       "if False:"))
_rule(MACHINE, "a stream that waits for a pending record waits in the reference", "theory 1", "StreamWaitEvent WaitStream Await", "stream_waits_for_a_pending_stream",
      (MACHINE_DEVICE + "wait", "if not mark.there:",
       "if False:"))
