"""Rules of the explorer: setups, covering, reduction, normal forms, slicing."""

from __future__ import annotations

from mutation.switching import EXPLORER, Table

SEARCH = "fencepost.proofs.explore.search:Search."
LAYOUT = "fencepost.proofs.explore.layout:Layout."
FIFO = "fencepost.proofs.explore.fifo:QueueForm."
FLAGS = "fencepost.proofs.explore.flags:Flags."
SLICING = "fencepost.proofs.explore.slicing:"

RULES = Table()
_rule = RULES.enter

# fmt: off

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
_rule(EXPLORER, "a put that a test can see is not run at once", "theory 3, visible steps", "", "one_of_two_puts_is_seen",
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
_rule(EXPLORER, "what decides a query's answer is not sliced away", "theory 3, slicing", "",
      "no_comes_after_the_enqueue; no_comes_after_a_wait_on_the_other_stream",
      (SLICING + "Slicer.__init__", "set(flags.asked()) if flags is not None else set()",
       "set()"))
_rule(EXPLORER, "what a query says of an event follows from the streams that it is recorded on", "theory 3, query", "",
      "no_comes_after_the_record; no_of_a_recorded_event",
      (FLAGS + "_close", 'todo += [("stream", stream) for stream in self._records.get(at, ())]',
       "pass"))
_rule(EXPLORER, "what a query says of a stream follows from the events that it waits for", "theory 3, query", "",
      "no_comes_after_a_wait_for_the_event; told_of_a_wait_for_an_event",
      (FLAGS + "_close", 'todo += [("event", at) for at in self._waits.get(one, ())]',
       "pass"))
_rule(EXPLORER, "what a query says of a stream follows from the streams that it waits for", "theory 3, query", "", "told_of_a_wait; no_of_a_waiting_stream",
      (FLAGS + "_close", 'todo += [("stream", other) for other in self._behind.get(one, ())]',
       "pass"))
_rule(EXPLORER, "what a query says of a stream follows from those in its hardware queue", "S116", "",
      "no_of_an_event_behind_another_stream one-hardware-queue",
      (FLAGS + "_close", "if self._one_queue:",
       "if False:"))
_rule(EXPLORER, "what a query says of an event goes with its handle", "theory 3, query", "", "no_of_an_event_that_was_handed_over",
      (FLAGS + "_travels", "self._near.setdefault(other, set()).add(one)",
       "pass"))
_rule(EXPLORER, "no slicing where something is queried and may be pending", "theory 3, slicing", "",
      "no_comes_after_the_enqueue_where_streams_meet",
      (SLICING + "dropped", "(setting.queries and setting.flags is None)",
       "False"))
_rule(EXPLORER, "no slicing with one hardware queue", "theory 3, slicing", "", "recorded_elsewhere one-hardware-queue",
      (SLICING + "dropped", "setting.environment.one_queue or ",
       ""))
_rule(EXPLORER, "a location with two agents is searched", "S2", "", "nobody_reads strict; host_copy_reads",
      ("fencepost.proofs.explore.serial:sole_agent", "if len(agents) != 1:",
       "if len(agents) != 1 and False:"))
