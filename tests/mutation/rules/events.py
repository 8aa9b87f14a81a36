"""Rules of the concrete event structure."""

from __future__ import annotations

from mutation.switching import EVENTS, Table

PLAYER = "fencepost.model.events.state:Player."
HOSTS = "fencepost.model.events.hosts:HostOperations."
QUESTIONS = "fencepost.model.events.questions:HostTests."
REFERENCES = "fencepost.model.events.references:References."
STRUCTURE = "fencepost.model.events.structure:"
VALUES = "fencepost.model.events.values:"
PARTS = "fencepost.model.events.parts:"
CLOCKS = "fencepost.model.events.clocks:VectorClocks."

RULES = Table()
_rule = RULES.enter

# fmt: off

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
_rule(EVENTS, "the allocator cannot attribute every view", "S72, S84", "NoteUse View", "view_is_not_attributed; device_view_is_not_attributed",
      (REFERENCES + "_note", " and ref.attributed",
       ""))
_rule(EVENTS, "the host allocator is the process's", "S80", "Alloc", "pinned_blocks_of_two_processes",
      (REFERENCES + "_allocator", "self.program.threads[thread].process if o.stream is None",
       '"" if o.stream is None'))
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
_rule(EVENTS, "parts that share no byte do not conflict", "theory 1", "Touch Enqueue", "parts_in_a_run",
      (STRUCTURE + "overlap", "(a.tenant != b.tenant or paths_overlap(a.path, b.path))",
       "True"))
_rule(EVENTS, "slots of a ring are disjoint", "theory 1", "Touch Enqueue", "ring_of_three_events; fixed_slot_in_one_turn",
      (REFERENCES + "_named", "self._index(thread, operand.index) % depth",
       "0"))
_rule(EVENTS, "a fresh block is undefined until it is written", "theory 1", "Alloc", "read_before_it_is_written; view_of_a_part",
      (STRUCTURE + "undefined_reads", "if not all(any(",
       "if False and not all(any("))
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
      (VALUES + "value_change", "if changed is not None:",
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
      (PARTS + "pieces_overlap", "return max(a.start, b.start) < min(a.stop, b.stop)",
       "return True"))
_rule(EVENTS, "rows tell parts apart", "theory 1", "", "rows_by_index; rows_come_back",
      (PARTS + "pieces_overlap", "return a.number == b.number",
       "return True"))

_rule(EVENTS, "no owner continues what another one wrote", "theory 1", "Touch Enqueue", "same_bytes_of_another_owner",
      (VALUES + "Contents.write", "if t.tenant is not None and all(entry.tenant != t.tenant for entry in entries):",
       "if False:"))
