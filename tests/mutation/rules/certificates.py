"""Rules of certificates: the relation that their obligations are derived from, and what `verify` compares.

Without a rule of the relation an obligation of a proved design does not hold any more, or all of a refuted one hold. Without
one of `verify` something that was changed in a certificate (tests/certificate_tampering.py) is not named.
"""

from __future__ import annotations

from mutation.switching import CERTIFICATES, VERIFY, Table

MACHINE = "fencepost.proofs.certificates.machine:Machine."
MEETINGS = "fencepost.proofs.certificates.meetings:Meetings."
ACCESSING = "fencepost.proofs.certificates.accessing:Accessing."
RELATION = "fencepost.proofs.certificates.relation:Relation."
RELATIONS = "fencepost.proofs.certificates.relation:"
FOOTPRINT = "fencepost.proofs.certificates.footprint:Footprint."
WORLD = "fencepost.proofs.certificates.world:"
VERIFYING = "fencepost.proofs.certificates.verifying:"

RULES = Table()
_rule = RULES.enter

# fmt: off

# ---- streams and events

_rule(CERTIFICATES, "enqueue -> start", "S2", "Enqueue", "copy_then_synchronize",
      (MACHINE + "_enqueue", "w.streams[s] |= w.tb[t]\n    if self.track:",
       "if self.track:"))
_rule(CERTIFICATES, 'the calls that put work there -> a "no" of stream.query', "S34", "Enqueue StreamQuery", "no_comes_after_the_enqueue",
      (MACHINE + "_enqueue", "w.calls[s] |= w.tb[t]",
       "pass"))
_rule(CERTIFICATES, "a stream with work may be busy", "S34", "Enqueue StreamQuery", "no_of_a_busy_stream",
      (MACHINE + "_enqueue", "w.busy[s] = True",
       "pass"))
_rule(CERTIFICATES, "a record starts after its call", "S2", "RecordEvent", "record_starts_after_its_call",
      (MACHINE + "_recordevent", "w.streams[s] |= w.tb[t]  # a record is an item of the stream (S2, S19)",
       "pass"))
_rule(CERTIFICATES, "a record captures the stream", "S19", "RecordEvent", "event_guard; event_between_streams",
      (MACHINE + "_recordevent", "w.events[k] = w.streams[s]",
       "w.events[k] = 0"))
_rule(CERTIFICATES, "a record forgets the earlier capture", "S19", "RecordEvent", "recorded_again",
      (MACHINE + "_recordevent", "w.events[k] = w.streams[s]",
       "w.events[k] |= w.streams[s]"))
_rule(CERTIFICATES, 'the record call -> a "no" of event.query', "S24", "RecordEvent EventQuery", "no_comes_after_the_record",
      (MACHINE + "_recordevent", "w.called[k] = w.tb[t]\n        w.known[k] = RECORDED |",
       "w.known[k] = RECORDED |"))
_rule(CERTIFICATES, "a recorded event may be pending", "S24", "RecordEvent EventQuery", "no_of_a_recorded_event",
      (MACHINE + "_recordevent", "(0 if w.busy[s] else COMPLETE)",
       "COMPLETE"))
_rule(CERTIFICATES, "capture -> synchronize", "S23", "JoinEvent", "event_guard",
      (MACHINE + "_joinevent", "w.tb[t] |= w.events[k]",
       "pass"))
_rule(CERTIFICATES, "stream -> stream.synchronize", "S32", "JoinStream", "copy_then_synchronize; item_waits",
      (MACHINE + "_join", "w.tb[t] |= w.streams[s]",
       "pass"))
_rule(CERTIFICATES, "streams of the GPU -> synchronize", "S32", "JoinDevice", "device_is_synchronized",
      (MACHINE + "_joindevice", "self._join(w, t, self.stream_at[oid, slot])",
       "pass"))
_rule(CERTIFICATES, "synchronize is of one GPU and process", "S32", "JoinDevice", "other_device_is_synchronized",
      ("fencepost.proofs.certificates.footprint:device_streams", "if isinstance(o, p.Stream) and o.gpu == effect.gpu and o.process == effect.process",
       "if isinstance(o, p.Stream)"))
_rule(CERTIFICATES, "capture -> later items of the waiting stream", "S20", "StreamJoinsEvent", "hop_over_a_stream; waited_for_after_the_record",
      (MACHINE + "_streamjoinsevent", "w.streams[s] |= w.events[k]\n",
       "pass\n"))
_rule(CERTIFICATES, 'the wait call -> a "no" of stream.query', "S34", "StreamJoinsEvent StreamQuery", "no_comes_after_a_wait_for_the_event",
      (MACHINE + "_streamjoinsevent", "w.calls[s] |= w.tb[t] | called",
       "w.calls[s] |= called"))
_rule(CERTIFICATES, 'the record call that the wait is for -> a "no"', "S34", "StreamJoinsEvent StreamQuery", "told_of_a_wait_for_an_event",
      (MACHINE + "_streamjoinsevent", "w.calls[s] |= w.tb[t] | called",
       "w.calls[s] |= w.tb[t]"))
_rule(CERTIFICATES, "a stream that waits for an event may be busy", "S34", "StreamJoinsEvent StreamQuery", "no_of_a_stream_that_waits_for_an_event",
      (MACHINE + "_streamjoinsevent", "w.busy[s] = w.busy[s] or not w.known[k] & COMPLETE",
       "pass"))
_rule(CERTIFICATES, "a wait for a never recorded event does nothing", "S18", "StreamJoinsEvent StreamQuery", "wait_for_nothing_in_a_pending_stream",
      (MACHINE + "_streamjoinsevent", "if self.track and not w.known[k]:",
       "if False:"))
_rule(CERTIFICATES, "a stream wait's record starts after its call", "S22", "StreamJoinsStream", "stream_wait_starts_after_its_call",
      (MACHINE + "_streamjoinsstream", "w.streams[other] |= w.tb[t]  # the record there",
       "pass"))
_rule(CERTIFICATES, "the other stream -> later items of the waiting stream", "S22", "StreamJoinsStream", "one_kernel_reads_and_writes; event_between_streams",
      (MACHINE + "_streamjoinsstream", "w.streams[s] |= w.streams[other]",
       "pass"))
_rule(CERTIFICATES, 'the calls of the other stream -> a "no"', "S34", "StreamJoinsStream StreamQuery", "told_of_a_wait",
      (MACHINE + "_streamjoinsstream", "w.calls[s] |= w.tb[t] | called",
       "w.calls[s] |= w.tb[t]"))
_rule(CERTIFICATES, "a stream that waits for a busy one may be busy", "S34", "StreamJoinsStream StreamQuery", "no_of_a_waiting_stream",
      (MACHINE + "_streamjoinsstream", "w.busy[s] = w.busy[s] or w.busy[other]",
       "pass"))
_rule(CERTIFICATES, 'query "yes" -> as synchronize', "S24", "EventQuery", "query_says_yes",
      (MACHINE + "_query", "one.tb[t] |= one.events[k]",
       "pass"))
_rule(CERTIFICATES, 'stream.query "yes" -> as synchronize', "S34", "StreamQuery", "stream_says_yes",
      (MACHINE + "_query", "self._join(one, t, s)",
       "pass"))
_rule(CERTIFICATES, 'the record call -> who is told "no"', "theory 2", "EventQuery", "no_comes_after_the_record",
      (MACHINE + "_query", "one.tb[t] |= one.called[k]",
       "pass"))
_rule(CERTIFICATES, 'the enqueue calls -> who is told "no"', "theory 2", "StreamQuery", "no_comes_after_the_enqueue",
      (MACHINE + "_query", "one.tb[t] |= one.calls[s]",
       "pass"))

# ---- host threads meet

_rule(CERTIFICATES, "get i -> put i + capacity", "theory 2", "Put", "slots_behind_a_queue",
      (MACHINE + "_put", "w.tb[t] |= q.frees[0]",
       "pass"))
_rule(CERTIFICATES, "put i -> get i", "theory 2", "Put Get", "get, written before; first_turn",
      (MACHINE + "_get", "w.tb[t] |= mask | q.last",
       "w.tb[t] |= q.last"))
_rule(CERTIFICATES, "get i -> get i + 1", "theory 2", "Get", "second_item",
      (MACHINE + "_get", "w.tb[t] |= mask | q.last",
       "w.tb[t] |= mask"))
_rule(CERTIFICATES, "put -> every later test of the queue", "theory 2 [T]", "Put QueueFull QueueHolds", "holds, written before; full, written before",
      (MACHINE + "_put", "q.every | w.tb[t] if",
       "q.every if"))
_rule(CERTIFICATES, "get -> every later test of the queue", "theory 2 [T]", "Get QueueHolds", "queue_is_emptied",
      (MACHINE + "_get", "q.every | w.tb[t] if",
       "q.every if"))
_rule(CERTIFICATES, "a queue holds at most its capacity", "theory 2", "Put", "slots_behind_a_queue",
      (MACHINE + "ready", "len(w.queues[self.queue[what.queue]].items) < self.object(what.queue, p.Queue).capacity",
       "len(w.queues[self.queue[what.queue]].items) < self.object(what.queue, p.Queue).capacity + 1"))
_rule(CERTIFICATES, "earlier operations on the cell -> later ones", "theory 2", "CellSet CellGet CellClear", "set_comes_after_a_set",
      (MACHINE + "_cell", "w.tb[t] |= mask",
       "pass"))
_rule(CERTIFICATES, "cell.set -> later operations on the cell", "theory 2", "CellSet", "cell take, written before; cell empty, written before",
      (MACHINE + "_cellset", "w.cells[k] = (values, w.tb[t])",
       "w.cells[k] = (values, 0)"))
_rule(CERTIFICATES, "cell.clear -> later operations on the cell", "theory 2", "CellClear", "cell_is_cleared",
      (MACHINE + "_cellclear", "w.cells[k] = (None, w.tb[t])",
       "w.cells[k] = (None, 0)"))
_rule(CERTIFICATES, "cell.get -> later operations on the cell", "theory 2", "CellGet", "cell_is_taken",
      (MACHINE + "_cellget", "w.cells[k] = (None if effect.take else values, w.tb[t])",
       "w.cells[k] = (None if effect.take else values, 0)"))
_rule(CERTIFICATES, "unlock -> acquire", "theory 2", "Acquire Unlock", "locked; try_lock_takes",
      (MACHINE + "_acquire", "w.tb[t] |= unlocked",
       "pass"))
_rule(CERTIFICATES, "a lock is held by one", "theory 2", "Acquire", "locked",
      (MACHINE + "ready", "return w.locks[self.lock[what.lock]][0] > 0",
       "return True"))
_rule(CERTIFICATES, "acquire -> a later try-lock", "theory 2 [T]", "Acquire TryLock", "try lock, written before",
      (MACHINE + "_acquire", "(free - 1, unlocked, every | w.tb[t])",
       "(free - 1, unlocked, every)"))
_rule(CERTIFICATES, "a try-lock that says yes takes the lock", "language", "TryLock", "try_lock_takes",
      (MACHINE + "_answers", "(free - 1, unlocked, every | one.tb[t])",
       "(free, unlocked, every | one.tb[t])"))
_rule(CERTIFICATES, "flag store -> the load that saw it", "theory 2", "FlagSet FlagWait", "flag wait, written before",
      (MACHINE + "_flagset", "(True, stores | w.tb[t], every | w.tb[t])",
       "(True, stores, every | w.tb[t])"))
_rule(CERTIFICATES, "earlier stores -> flag.clear", "theory 2", "FlagClear", "clear_comes_after_the_stores",
      (MACHINE + "_flagclear", "w.tb[t] |= every",
       "pass"))
_rule(CERTIFICATES, "flag.wait waits", "language", "FlagWait", "flag_there_and_back; flag wait, written before",
      (MACHINE + "ready", "return w.flags[self.flag[what.flag]][0]",
       "return True"))
_rule(CERTIFICATES, "add -> counter.wait", "theory 2", "CounterAdd CounterWait", "counter wait, written before; counter_per_turn",
      (MACHINE + "_counteradd", "(more, mask | w.tb[t])",
       "(more, mask)"))
_rule(CERTIFICATES, "counter.wait waits", "language", "CounterWait", "counter_per_turn",
      (MACHINE + "ready", "return w.counters[self.counter[what.counter]][0][slot] >= what.value",
       "return True"))
_rule(CERTIFICATES, "every earlier operation -> a test", "theory 2 [T]", "QueueFull QueueHolds CellEmpty FlagIsSet CounterAtLeast TryLock", "flag is set, written before; counter at least, written before; try lock, written before",
      (MACHINE + "_answers", "one.tb[t] |= mask",
       "pass"))
_rule(CERTIFICATES, "put i and get i - 1 -> the tag's test", "theory 2 [T]", "QueueTag", "tag_tells_of_the_put; tag_tells_of_the_get_before",
      (MACHINE + "_test", "(mask or 0) | queue.last, tag",
       "0, tag"))
_rule(CERTIFICATES, "a question about the turn follows the turn", "language", "TurnBelow", "first_turn",
      (MACHINE + "_answers", '"yes" if w.turns[t] < q.value else "no"',
       '"yes"'))
_rule(CERTIFICATES, "an open choice may fall any way", "language", "Choose Maybe", "open_choice",
      (MACHINE + "_answers", "[(option, None) for option in options]",
       "[(option, None) for option in options[-1:]]"))
_rule(CERTIFICATES, "an agreed choice is agreed", "language", "Choose", "agreed_choice",
      (MACHINE + "_answers", "return self._agreed(w, t, q, options)",
       "return [(option, None) for option in options]"))
_rule(CERTIFICATES, "setup -> start", "theory 2", "", "setup_comes_first",
      (MACHINE + "end_turn", "w.tb = [m | carried for m in w.tb]",
       "pass"))
_rule(CERTIFICATES, "setups run before all other threads", "theory 2", "", "setup_comes_first; queue_is_emptied",
      (RELATION + "_movers", "[t for t in m.setups if w.pc[t] != DONE] or",
       "[t for t in m.setups if w.pc[t] != DONE] +"))
_rule(CERTIFICATES, "give -> the take of that token", "theory 2", "Give Take", "rows_come_back",
      (MACHINE + "_take", "one.tb[t] |= guessed",
       "pass"))
_rule(CERTIFICATES, "give(after): captured work -> the take", "theory 2", "Give", "rows_come_back_behind_an_event",
      (MACHINE + "_give", "mask |= w.events[event] if event is not None and not number else 0",
       "pass"))
_rule(CERTIFICATES, "a token has one holder", "theory 2", "Take", "pages_are_exclusive",
      (MACHINE + "_take", "one.pools[k] = (free, None)",
       "one.pools[k] = (free, guessed)"))
_rule(CERTIFICATES, "a cursor moves on", "language", "Advance", "ring_by_cursor",
      (MACHINE + "_advance", "w.pos[k] = (w.pos[k] + 1) % self.depth(effect.cursor)",
       "pass"))

_rule(CERTIFICATES, "all setups -> start", "theory 2", "", "setup_comes_first",
      (MACHINE + "end_turn", "carried |= w.tb[u]",
       "pass"))
_rule(CERTIFICATES, "another free token carries what its giver knew", "theory 2", "Give Take", "pool_as_a_lock",
      (MACHINE + "_take", "one.tb[t] |= free[i]",
       "pass"))
_rule(CERTIFICATES, "unlock -> acquire (the unlock's side)", "theory 2", "Unlock", "locked",
      (MACHINE + "_unlock", "unlocked | w.tb[t], every",
       "unlocked, every"))
_rule(CERTIFICATES, "flag.clear -> later tests", "theory 2", "FlagClear", "flag_is_cleared",
      (MACHINE + "_flagclear", "(False, stores, every | w.tb[t])",
       "(False, stores, every)"))
_rule(CERTIFICATES, "store -> flag.wait", "theory 2", "FlagWait", "flag wait, written before",
      (MACHINE + "_flagwait", "w.tb[t] |= w.flags[self.flag[effect.flag]][1]",
       "pass"))
_rule(CERTIFICATES, "counter.wait comes after the adds", "theory 2", "CounterWait", "counter wait, written before",
      (MACHINE + "_counterwait", "w.tb[t] |= w.counters[self.counter[effect.counter]][1]",
       "pass"))

# ---- accesses and values

_rule(CERTIFICATES, "host accesses are in program order", "theory 2", "Touch", "copy_then_synchronize",
      (ACCESSING + "accessed_by_host", "chosen.tb[t] = TRUE",
       "pass"))
_rule(CERTIFICATES, "end -> start of the next item in the stream", "S2", "Enqueue", "one_kernel_reads_and_writes; copy_then_synchronize",
      (ACCESSING + "accessed_on", "chosen.streams[stream] = TRUE",
       "pass"))
_rule(CERTIFICATES, "one item never conflicts with itself", "theory 1", "Enqueue", "one_kernel_reads_and_writes",
      (ACCESSING + "accessed_on", "one.streams[stream] if had else TRUE",
       "one.streams[stream] if had else 0"))
_rule(CERTIFICATES, "two reads do not conflict", "theory 1", "Touch Enqueue", "two_readers",
      (ACCESSING + "judge_at", "mask |= w.reader",
       "pass"))
_rule(CERTIFICATES, "two accesses of common bytes, one a write, conflict", "theory 1", "Touch Enqueue", "host_writes; target_unguarded",
      (ACCESSING + "judge_at", "elif not mask & TRUE:",
       "elif False:"))
_rule(CERTIFICATES, "every access may be the witness", "theory 3", "Touch Enqueue", "host_writes; copy_unguarded",
      (ACCESSING + "judge_at", "return Witness(same, self.epochs and counted, slot, path, counted)",
       "return None"))
_rule(CERTIFICATES, "slots of a ring are disjoint", "theory 1", "Touch Enqueue", "ring_of_two; streams_in_turn",
      (ACCESSING + "judge_at", "if slot is not None and wit.slot is not None and slot != wit.slot:",
       "if False:"))
_rule(CERTIFICATES, "an access of the whole meets every slot", "theory 1", "Touch Enqueue", "all_rows",
      (ACCESSING + "judge_at", "if slot is not None and wit.slot is not None and slot != wit.slot:",
       "if slot != wit.slot or wit.path != path:"))
_rule(CERTIFICATES, "parts without a common byte are disjoint", "theory 1", "Touch Enqueue", "named_parts; spans; rows_by_index",
      (ACCESSING + "judge_at", "if wit.tenant and counted and not may_overlap(wit.path, path):",
       "if False:"))
_rule(CERTIFICATES, "parts with a common byte are not", "theory 1", "Touch Enqueue", "same_named_part; overlapping_spans; any_part",
      (WORLD + "may_overlap", "return True\n    return True",
       "return False\n    return False"))
_rule(CERTIFICATES, "an unknown part may be any", "theory 1", "Touch Enqueue", "any_part",
      (WORLD + "pieces_disjoint", "return False  # two ways of cutting that cannot be compared",
       "return True"))
_rule(CERTIFICATES, "a fresh block is undefined until it is written", "theory 1", "Alloc", "read_before_it_is_written",
      (ACCESSING + "_defined", 'self.fault(w, "UNDEFINED", t, n, which)',
       "pass"))
_rule(CERTIFICATES, "a write defines", "theory 1", "Touch Enqueue", "block_handed_over; record_stream",
      (ACCESSING + "_defined", "w.block = w.block._replace(former=now) if former else w.block._replace(written=now)",
       "pass"))
_rule(CERTIFICATES, "an access through a raw pointer to a freed block is a use after free", "S65", "View Drop", "raw_pointer",
      (ACCESSING + "judge_at", 'self.fault(w, "UNDEFINED", t, n, which)  # a use after the free, in whatever order',
       "pass"))
_rule(CERTIFICATES, "the same bytes in the same epoch change nothing", "theory 1", "Host", "same_bytes_again",
      (ACCESSING + "judge_at", "if wit.epoch and (same or (wit.same and not write)):",
       "if False:"))
_rule(CERTIFICATES, "other bytes end the epoch", "theory 1", "Host", "other_bytes_between",
      (ACCESSING + "judge_at", "w.witness = wit._replace(epoch=False)",
       "pass"))
_rule(CERTIFICATES, "writes that nobody reads change nothing", "theory 1", "Touch Enqueue", "nobody_reads",
      (ACCESSING + "judge_at", "elif self.unread:",
       "elif False:"))

# ---- blocks of the caching allocators

_rule(CERTIFICATES, "a held block is counted", "S65", "Put CellGet View", "block_in_a_cell; view_holds",
      (ACCESSING + "_hold", "w.block = w.block._replace(refs=w.block.refs + 1)",
       "pass"))
_rule(CERTIFICATES, "every holder's release -> the free", "theory 2", "Drop", "both_threads_hold",
      (ACCESSING + "_let_go", "block.free | w.tb[t], block.uses",
       "block.free, block.uses"))
_rule(CERTIFICATES, "work of a noted stream -> reuse", "S65", "NoteUse Drop", "record_stream; pinned_source_noted",
      (ACCESSING + "_let_go", "free |= w.streams[s]",
       "pass"))
_rule(CERTIFICATES, "the free of the bytes -> the allocation that gets them", "theory 2", "Alloc", "block_handed_over; both_threads_hold",
      (ACCESSING + "_alloc", "got.tb[t] |= block.free",
       "pass"))
_rule(CERTIFICATES, "a block is not handed out while it is held", "S63", "Alloc", "block_handed_over; both_threads_hold",
      (ACCESSING + "_alloc", "if block.refs or block.waits or",
       "if block.waits or"))
_rule(CERTIFICATES, "a block is reused", "S63", "Alloc", "no_record_stream; raw_copy_is_not_noted",
      (ACCESSING + "_alloc", "return [w, got]",
       "return [w] if w.witness is not None else [w, got]"))
_rule(CERTIFICATES, "a note is kept", "S64", "NoteUse", "record_stream; pinned_target_noted",
      (ACCESSING + "_noteuse", "w.block = block._replace(uses=tuple(sorted((*block.uses, used))))",
       "pass"))
_rule(CERTIFICATES, "a note of the owner stream is ignored", "S64", "NoteUse", "record_stream_of_the_owner",
      (ACCESSING + "_noteuse", "if used != block.owner and used not in block.uses:",
       "if used not in block.uses:"))
_rule(CERTIFICATES, "record_stream is not for pinned blocks", "S72", "NoteUse RecordStream", "device_note_on_a_pinned_block",
      (ACCESSING + "_noteuse", 'effect.space != ("pinned" if pinned else "device")',
       "False"))
_rule(CERTIFICATES, "the allocator cannot attribute every view", "S72, S84", "View NoteUse", "view_is_not_attributed; device_view_is_not_attributed",
      (ACCESSING + "_noteuse", "or not value[1]",
       ""))
_rule(CERTIFICATES, "the host allocator is the process's", "S80", "Alloc", "pinned_blocks_of_two_processes",
      (FOOTPRINT + "class_of", "self._pinning.index(self.program.threads[t].process)",
       "0"))
_rule(CERTIFICATES, "the end of the turn lets go", "S65", "Drop", "scope_ends_with_the_turn",
      (MACHINE + "end_turn", "self._let_go(w, t, value)",
       "pass"))
_rule(CERTIFICATES, "a release lets go", "S65", "Drop", "released_early",
      (ACCESSING + "set_local", "self._let_go(w, t, old)",
       "pass"))
_rule(CERTIFICATES, "cell.set lets the old item go", "S65", "CellSet", "cell_lets_go",
      (MACHINE + "_cellset", "self._let_go(w, t, value)",
       "pass"))
_rule(CERTIFICATES, "cell.clear lets the item go", "S65", "CellClear", "cell_lets_go_when_cleared",
      (MACHINE + "_cellclear", "self._let_go(w, t, value)",
       "pass"))

# ---- streams that meet

_rule(CERTIFICATES, "signal -> await", "S130, S131", "Signal Await", "after_a_message; there_and_back",
      (MEETINGS + "execute", "w.streams[s] |= message | last",
       "w.streams[s] |= last"))
_rule(CERTIFICATES, "among several receivers: await -> await", "S130", "Await", "second_await_of_a_channel",
      (MEETINGS + "execute", "w.streams[s] |= message | last",
       "w.streams[s] |= message"))
_rule(CERTIFICATES, "an await takes its own message only", "S130", "Await", "another_match_never_meets",
      (MEETINGS + "able", "bool(messages) and messages[0][0] == what[2]",
       "bool(messages)"))
_rule(CERTIFICATES, "a message is taken once", "S130", "Await", "messages_in_order",
      (MEETINGS + "execute", "w.channels[k] = (tuple(left), w.streams[s] if what[1] in self.open else 0)",
       "w.channels[k] = (w.channels[k][0], w.streams[s] if what[1] in self.open else 0)"))
_rule(CERTIFICATES, "pending work starts after its call", "S2", "Enqueue Await", "call_of_what_is_pending; call_before_a_message",
      (MEETINGS + "execute", "w.streams[s] |= mask",
       "pass"))
_rule(CERTIFICATES, "store -> wait of a stream", "S118", "StoreFlag WaitFlag", "store_then_wait; host_store_then_wait",
      (MEETINGS + "execute", "w.streams[s] |= stored",
       "pass"))
_rule(CERTIFICATES, "a stream waits while the flag is too low", "S118", "WaitFlag", "store_then_wait; waits_for_the_higher_value",
      (MEETINGS + "able", "bool(w.words[self.word[what[1]]][0] >= what[2])",
       "True"))
_rule(CERTIFICATES, "only the latest store is in a flag", "S118", "StoreFlag", "only_the_latest_store_of_two_streams",
      (MEETINGS + "execute", "w.words[self.word[what[1]]] = (what[2], w.streams[s])",
       "w.words[self.word[what[1]]] = (what[2], w.streams[s] | w.words[self.word[what[1]]][1])"))
_rule(CERTIFICATES, "only the latest store of hosts is in a flag", "S118", "StoreFlag", "only_the_latest_store_of_two_hosts",
      (MEETINGS + "_storeflag", "(effect.value, w.tb[t])",
       "(effect.value, w.tb[t] | w.words[self.word[effect.flag]][1])"))
_rule(CERTIFICATES, "store -> wait of a host", "S118", "WaitFlag", "store_then_host_wait; host_resets_what_it_saw",
      (MEETINGS + "_waitflag", "w.tb[t] |= w.words[k][1]",
       "pass"))
_rule(CERTIFICATES, "a host's reset is a store", "S118", "WaitFlag", "host_resets_what_it_saw",
      (MEETINGS + "_waitflag", "w.words[k] = (0, w.tb[t])",
       "pass"))
_rule(CERTIFICATES, "a wait's reset is a store", "S118", "WaitFlag", "flags_there_and_back",
      (MEETINGS + "execute", "w.words[k] = (0, w.streams[s]) if what[3] else (value, stored)",
       "w.words[k] = (value, stored)"))
_rule(CERTIFICATES, "a record behind a meeting is pending", "S23", "RecordEvent Await", "record_behind_an_await",
      (MACHINE + "_recordevent", "w.latest[k] = number",
       "pass"))
_rule(CERTIFICATES, "a host that waits for a pending record is ordered by it", "S23", "JoinEvent Await", "record_behind_an_await",
      (MEETINGS + "_complete", "w.tb[t] |= mask",
       "pass"))
_rule(CERTIFICATES, "a pending record's handle carries what it captured", "S19", "RecordEvent Await", "handle_of_a_record_that_was_pending",
      (MEETINGS + "_complete", "w.events[k] = mask",
       "pass"))
_rule(CERTIFICATES, "a stream waits for the record that was there at the call", "S20", "StreamJoinsEvent Await", "waits_for_a_pending_record",
      (MEETINGS + "_complete", 'Pending(("go",), item.mask | mask)',
       'Pending(("go",), item.mask)'))
_rule(CERTIFICATES, "a call waits for what is pending in its stream", "S32", "JoinStream Await", "stream_behind_an_await; device_behind_an_await",
      (MACHINE + "_join", "if w.fifos[s]:  # the call waits for what is there now",
       "if False:"))
_rule(CERTIFICATES, "a query of what is pending says only no", "S24", "EventQuery StreamQuery Await", "asked_behind_an_await",
      (MACHINE + "_query", "if w.latest[k]:",
       "if False:"))
_rule(CERTIFICATES, 'the calls of a pending stream -> who is told "no"', "S34", "StreamQuery Await", "no_of_a_pending_stream_comes_after_the_call",
      (MACHINE + "_query", 'return [("no", busy)]',
       'return [("no", None)]'))
_rule(CERTIFICATES, 'the call of a pending record -> who is told "no"', "S24", "EventQuery Await", "no_of_a_pending_record_comes_after_the_call",
      (MACHINE + "_query", 'return [("no", pending)]',
       'return [("no", None)]'))
_rule(CERTIFICATES, "a block whose noted use is pending is not free", "S67", "NoteUse Drop Await", "pending_use_of_a_noted_block",
      (ACCESSING + "_let_go", "waits = (*waits, self.record(w, s, w.tb[t]))",
       "free |= w.streams[s]"))
_rule(CERTIFICATES, "a row behind a pending record is not free", "language", "Give Await", "rows_behind_a_pending_record",
      (MACHINE + "_give", "number = w.latest[event] if event is not None else 0",
       "number = 0"))
_rule(CERTIFICATES, "what is pending of a former owner is before all of the next", "theory 1", "Alloc Drop Await", "pending_use_of_a_former_owner",
      (ACCESSING + "judge_at", "mask = 0  # that it comes later is what is wrong",
       "pass"))

_rule(CERTIFICATES, "pending work makes its accesses", "theory 3", "Enqueue WaitFlag", "pending_work_is_work",
      (MACHINE + "_enqueue", "self.pend(w, s, t, n, which, effect.accesses)",
       "pass"))
_rule(CERTIFICATES, 'the call of pending work -> a "no"', "S34", "Await StreamQuery", "no_of_a_pending_stream_comes_after_the_call",
      (MEETINGS + "called_on", "w.tb[t] | before",
       "before"))
_rule(CERTIFICATES, 'the call of what a pending stream waits for -> a "no"', "S34", "StreamJoinsEvent Await StreamQuery", "told_of_a_wait_for_a_pending_record; no_of_a_stream_that_waits_for_a_pending_stream",
      (MEETINGS + "called_on", "w.tb[t] | before",
       "w.tb[t]"))
_rule(CERTIFICATES, "pending noted use -> reuse", "S67", "NoteUse Drop Await", "reuse_behind_a_pending_use",
      (MEETINGS + "_complete", "free=w.block.free | mask",
       "free=w.block.free"))
_rule(CERTIFICATES, "pending record -> the take of a row", "language", "Give Await", "rows_behind_a_pending_record",
      (MEETINGS + "_complete", "(free, token.mask | mask) if token.guessed",
       "(free, token.mask) if token.guessed"))
_rule(CERTIFICATES, "what makes no access hands its call on", "theory 3, normal forms", "Enqueue Await", "call_handed_on_in_a_pending_stream",
      (MEETINGS + "normalise_pending", "carried |= mask",
       "pass"))
_rule(CERTIFICATES, "and to the item behind it", "theory 3, normal forms", "Enqueue Await", "call_handed_on_in_a_pending_stream",
      (MEETINGS + "normalise_pending", "Pending(what, mask | carried)",
       "Pending(what, mask)"))
_rule(CERTIFICATES, "a synchronized event is known complete", "S24", "JoinEvent EventQuery", "never no, event",
      (MACHINE + "_joinevent", "w.known[k] |= COMPLETE",
       "pass"))
_rule(CERTIFICATES, "a synchronized stream is idle", "S34", "JoinStream StreamQuery", "never no, stream",
      (MACHINE + "_join", "w.busy[s] = False",
       "pass"))
_rule(CERTIFICATES, "a record behind completed work is complete", "S24", "RecordEvent EventQuery", "never no, idle",
      (MACHINE + "_recordevent", "(0 if w.busy[s] else COMPLETE)",
       "0"))

# ---- stretches, slices, normal forms

_rule(CERTIFICATES, "what others can see ends a stretch", "theory 3, visible steps", "", "two_may_enter; counter_one_short",
      (RELATION + "_stops", "return len(users[what]) > 1",
       "return False"))
_rule(CERTIFICATES, "a put that a test can see ends a stretch", "theory 3, visible steps", "", "one_of_two_puts_is_seen",
      (RELATION + "_stops", "return len(put if kind == \"put\" else get) > 1 or bool(test - {t})",
       "return len(put if kind == \"put\" else get) > 1"))
_rule(CERTIFICATES, "the device may move in front of an allocation", "theory 3, visible steps", "Alloc WaitFlag", "reuse_behind_a_pending_use_and_beside_another",
      (RELATION + "_stops", 'or (kind == "class" and self.machine.steps)',
       ""))
_rule(CERTIFICATES, "the device may move in front of a take", "theory 3, visible steps", "Take WaitFlag", "row_behind_a_pending_record",
      (RELATION + "_touches", 'result.add(("device", x.pool))',
       "pass"))
_rule(CERTIFICATES, "the device may move in front of a query", "theory 3, visible steps", "EventQuery StreamQuery WaitFlag", "asked_behind_a_gate; event_asked_behind_a_gate",
      (RELATION + "_touches", 'result.add(("device", None))',
       "pass"))
_rule(CERTIFICATES, "a fixed slot is not rotated", "theory 3, positions", "", "fixed_slot_in_one_turn",
      (ACCESSING + "_positions", "fixed.add(self.depth(x.id))",
       "pass"))
_rule(CERTIFICATES, "a slice keeps the records of a stream that matters", "theory 3, slicing", "", "event_guard; event_between_streams",
      (FOOTPRINT + "slice", "if node not in kept and any(writes & read for _, writes in pairs):",
       "if False:"))
_rule(CERTIFICATES, "no slice where something is queried", "theory 3, slicing", "", "no_of_a_stream_that_waits_for_an_event",
      (FOOTPRINT + "slice", "if self.queries:",
       "if False:"))
_rule(CERTIFICATES, "a slice never loses an overwrite", "theory 3, slicing", "RecordEvent", "recorded_again",
      (FOOTPRINT + "_flow", "return {me, stream}, {stream, *self.events(t, effect.event)}",
       "return {me, stream}, {stream}"))
_rule(CERTIFICATES, "a slice keeps what a stream wait leads to", "theory 3, slicing", "StreamJoinsStream", "hop_by_stream_waits",
      (FOOTPRINT + "_flow", '{("stream", effect.stream.id), ("stream", effect.other.id)}',
       "set()"))
_rule(CERTIFICATES, "memory flows along hand-overs", "theory 1", "Put Get", "too_few_slots_behind_a_queue",
      (FOOTPRINT + "_origins", "yield item.get((*holder, k), set()), local.setdefault((t, target), set())",
       "yield set(), local.setdefault((t, target), set())"))

# ---- what `verify` compares

_rule(VERIFY, "the program beside the manifest is the manifest's", "theory 6", "", "another program beside it",
      (VERIFYING + "verify", "if stored != program:",
       "if False:"))
_rule(VERIFY, "the design's name is the program's", "theory 6", "", "another name",
      (VERIFYING + "verify", "if manifest.design != program.name:",
       "if False:"))
_rule(VERIFY, "the environment is bare", "theory 6", "", "another environment",
      (VERIFYING + "_environment", 'if manifest.environment != "bare":',
       "if False:"))
_rule(VERIFY, "the rule set is today's", "theory 6", "", "other rules",
      (VERIFYING + "_environment", "if manifest.rules != files.rules_version():",
       "if False:"))
_rule(VERIFY, "the platform's switches are known", "theory 6", "", "a platform switch added",
      (VERIFYING + "_environment", "if derive.switches(platform) != manifest.platform:",
       "if False:"))
_rule(VERIFY, "assumptions are derived again", "theory 6", "", "an assumption added",
      (VERIFYING + "_claims", '("assumptions", derive.assumptions(footprint.program, platform), manifest.assumptions)',
       '("assumptions", (), ())'))
_rule(VERIFY, "accesses are derived again", "theory 6 (i)", "", "an access dropped",
      (VERIFYING + "_claims", '("accesses", footprint.accesses, manifest.accesses)',
       '("accesses", (), ())'))
_rule(VERIFY, "pairs are derived again", "theory 6 (i)", "", "a pair dropped",
      (VERIFYING + "_claims", '("conflict pairs", derive.named_pairs(footprint), manifest.pairs)',
       '("conflict pairs", (), ())'))
_rule(VERIFY, "classes are derived again", "theory 6 (i)", "", "a class dropped",
      (VERIFYING + "_claims", 'derived.append(("classes", [e.label for e in entries], [c.label for c in manifest.classes]))',
       "pass"))
_rule(VERIFY, "the accesses of a class are derived again", "theory 6 (i)", "", "an access dropped from a class",
      (VERIFYING + "_claims", 'derived.append((f"class {entry.label}, accesses", entry.accesses, claimed.accesses))',
       "pass"))
_rule(VERIFY, "slices are derived again", "theory 6 (i)", "", "a slice operation dropped",
      (VERIFYING + "_claims", 'derived.append((f"class {entry.label}, slice", entry.slice, claimed.slice))',
       "pass"))
_rule(VERIFY, "kinds of classes are derived again", "theory 6 (i)", "", "another kind of class",
      (VERIFYING + "_claims", 'derived.append((f"class {entry.label}, kind and file", *kinds))',
       "pass"))
_rule(VERIFY, "a class with conflicts has obligations", "theory 6", "", "a class without its file",
      (VERIFYING + "verify", 'report.failures.append(f"class {entry.label}: it has conflicting accesses and no obligations")',
       "pass"))
_rule(VERIFY, "the invariant is a disjunction of bit sets", "theory 6", "", "an invariant that holds of everything",
      (VERIFYING + "_class", 'report.failures.append(f"class {label}, invariant: {error}")',
       "pass"))
_rule(VERIFY, "bits of the invariant are the program's", "theory 6", "", "a bit that no state has",
      (VERIFYING + "_class", 'report.failures.append(f"class {label}, invariant: a set has bits that no state has")',
       "pass"))
_rule(VERIFY, "states are counted", "theory 6", "", "another number of states",
      (VERIFYING + "_class", "if states != claimed.states:",
       "if False:"))
_rule(VERIFY, "controls of the invariant are the program's", "theory 6", "", "a control that nothing leads to",
      (VERIFYING + "_class", "if derived.missing:",
       "if False:"))
_rule(VERIFY, "the relation is derived again", "theory 6 (i)", "", "an edge of happens-before added; trans = false; a guard strengthened",
      (VERIFYING + "_class", "for what in itertools.islice(_changed(text, lines), 3)",
       "for what in ()"))
_rule(VERIFY, "no line is repeated", "theory 6 (i)", "", "a check repeated",
      (VERIFYING + "_changed", "if have == want:",
       "if False:"))
_rule(VERIFY, "what a solver finds is a failure", "theory 6 (iii)", "", "a state removed",
      (VERIFYING + "_solve", "if result.status == solvers.SAT:",
       "if False:"))
_rule(VERIFY, "spared pairs are derived again", "theory 6", "", "a spared pair added",
      (VERIFYING + "verify", "if spared != set(manifest.spared):",
       "if False:"))
_rule(VERIFY, "everything is reached or listed", "theory 6 (iv)", "", "an operation without a run",
      (VERIFYING + "_reach", "for name in sorted(goals - set(listed)):",
       "for name in ():"))
_rule(VERIFY, "what is listed is the program's", "theory 6 (iv)", "", "something that the program has not",
      (VERIFYING + "_reach", "for name in sorted(set(listed) - goals):",
       "for name in ():"))
_rule(VERIFY, "nothing is listed twice", "theory 6 (iv)", "", "both reached and never",
      (VERIFYING + "_reach", "if len(set(listed)) != len(listed):",
       "if False:"))
_rule(VERIFY, "runs are replayed", "theory 6 (iv)", "", "a run cut short",
      (VERIFYING + "_reach", "for name in sorted(claimed - got):",
       "for name in ():"))
_rule(VERIFY, "runs can happen", "theory 6 (iv)", "", "a run that cannot happen",
      (VERIFYING + "_reach", 'report.failures.append(f"reach: run {number} cannot happen: {error}")',
       "pass"))
_rule(VERIFY, "runs are there", "theory 6 (iv)", "", "a run that is not there",
      (VERIFYING + "_reach", "if not 0 <= at < len(entry.runs):",
       "if False:"))
_rule(VERIFY, "what never occurs is decided", "theory 6 (iv)", "", "an operation said never to run; an access said never to be made; a pair said never to meet",
      (VERIFYING + "_reach", "if name in goals and search.find(name) is not False:",
       "if False:"))

# fmt: on
