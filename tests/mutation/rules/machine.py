"""Rules of the operational machine."""

from __future__ import annotations

from mutation.switching import MACHINE, Table

MACHINE_HOST = "fencepost.simulator.machine_host:Host."
MACHINE_SHARED = "fencepost.simulator.machine_shared:Shared."
MACHINE_DEVICE = "fencepost.simulator.machine_device:Device."
MACHINE_ALLOCATORS = "fencepost.simulator.machine_allocators:Allocators."

RULES = Table()
_rule = RULES.enter

# fmt: off

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
      (MACHINE_HOST + "_item", "wait = wait or reached.get(what, self.environment.blocking_copies)",
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
_rule(MACHINE, "record_stream of what the allocator cannot attribute is ignored", "S72", "RecordStream View", "device_view_is_not_attributed",
      (MACHINE_HOST + "_record_stream", " and ref.attributed",
       ""))
_rule(MACHINE, "the host allocator is the process's", "S80", "Alloc", "pinned_blocks_of_two_processes",
      (MACHINE_ALLOCATORS + "allocate", "home = process if owner is None else owner",
       'home = "" if owner is None else owner'))
_rule(MACHINE, "launch blocking: the call waits for the copy", "S113", "Copy", "copy_unguarded launch-blocking",
      (MACHINE_HOST + "_copy", "(sync and (from_host or to_host)) or blocking",
       "(sync and (from_host or to_host))"))
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
      (MACHINE_HOST + "_record_stream", 'ref.space == "device" and ',
       ""))
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
_rule(MACHINE, "a free waits where the platform says so", "S38 S40", "DeviceSync JoinDevice", "free_beside_a_fill; free_beside_a_fill cuda-synchronising-free",
      (MACHINE_HOST + "_device_sync", 'may = o.implied and self.platform.free != "synchronises"',
       'may = o.implied and self.platform.free == "synchronises"'))
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
      (MACHINE_ALLOCATORS + "allocate", "self.free_blocks.get((space, home), [])",
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
