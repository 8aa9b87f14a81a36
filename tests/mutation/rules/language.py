"""Rules of the language: what a trace writes down for the legacy stream, graphs, composites and communicators."""

from __future__ import annotations

from mutation.switching import LANGUAGE, Table

COMPOSITES = "fencepost.model.language.composites:"
GRAPH = "fencepost.model.language.graphs:Graph."
COMMUNICATOR = "fencepost.model.language.communicators:Communicator."
WORK = "fencepost.model.language.communicators:Work."
ORDERED = "fencepost.model.language.ordered:"
SHARING = "fencepost.model.language.sharing:"
DESIGN = "fencepost.model.language.design:Design."
RECORDING = "fencepost.model.language.tracer:Recording."

RULES = Table()
_rule = RULES.enter

# fmt: off

# ---- the legacy default stream

_rule(LANGUAGE, "blocking streams -> what is enqueued on the legacy stream", "S11", "WaitStream", "legacy_behind_blocking; record_on_the_legacy_stream",
      (COMPOSITES + "Composites._legacy_waits", "recording.do(p.WaitStream(stream, p.Obj(number)))",
       "pass"))
_rule(LANGUAGE, "the legacy stream -> what is enqueued on a blocking stream", "S11", "WaitStream", "blocking_behind_legacy",
      (COMPOSITES + "Composites._legacy_waits", "recording.do(p.WaitStream(stream, home._operand(recording)))",
       "pass"))
_rule(LANGUAGE, "a call beside the legacy stream is one step for other threads", "S11", "Acquire Unlock", "per_thread_stream_beside_the_legacy_one",
      (COMPOSITES + "Composites._as_one_step", "if lock is not None or name is None or",
       "if lock is not None or name is not None or"))
_rule(LANGUAGE, "a launch of a graph is one step beside the legacy stream", "S11, S93", "Acquire Unlock", "launch_beside_the_legacy_stream",
      (COMPOSITES + "Composites._lock_of_calls", "self._beside_legacy(stream) if ruled else None",
       "None"))
_rule(LANGUAGE, "streams are not blocking unless they say so", "S9", "WaitStream", "non_blocking_beside_legacy",
      (DESIGN + "stream", "if blocking:",
       "if True:"))
_rule(LANGUAGE, "each GPU and process has its legacy stream", "S11", "WaitStream", "legacy_of_another_gpu",
      (COMPOSITES + "Composites._legacy_waits", "(other.process, other.gpu) != (thing.process, thing.gpu)",
       "other.process != thing.process"))
_rule(LANGUAGE, "wait_stream records on the other stream", "S22", "WaitStream", "waits_for_the_legacy_stream",
      (COMPOSITES + "Composites._legacy_edges", '(getattr(operation, "other", None), getattr(operation, "stream", None))',
       '(getattr(operation, "stream", None),)'))
_rule(LANGUAGE, "a host wait enqueues nothing", "S11", "StreamSync", "synchronize_enqueues_nothing",
      (COMPOSITES + "Composites._legacy_edges", "(p.Alloc, p.RecordStream, p.StreamSync)",
       "(p.Alloc, p.RecordStream)"))

# ---- graphs

_rule(LANGUAGE, "a capture runs nothing on the device", "S91", "Launch", "capture_runs_nothing",
      (GRAPH + "_take", "self._nodes.append((operation, changed))\n    return True",
       "self._nodes.append((operation, changed))\n    return False"))
_rule(LANGUAGE, "earlier launches of a graph -> its next launch", "S93", "StreamWaitEvent", "launches_of_one_graph",
      (GRAPH + "_enqueue", "recording.do(p.StreamWaitEvent(target, p.Obj(self._done)))",
       "pass"))
_rule(LANGUAGE, "a launch of a graph is known by its end", "S93", "Record", "launches_of_one_graph",
      (GRAPH + "_enqueue", "recording.do(p.Record(p.Obj(self._done), target))",
       "pass"))
_rule(LANGUAGE, "a graph keeps nothing alive", "S97", "View CellSet", "freed_after_the_capture",
      (GRAPH + "_bake", "p.View(alias.local, whole, False, False)",
       "p.View(alias.local, whole, False, True)"))
_rule(LANGUAGE, "no allocator sees what a replay does", "S83", "Copy", "replayed_copy_is_not_noted",
      (GRAPH + "_take", 'changed["raw"] = True',
       "pass"),
      (GRAPH + "_bake", "p.View(alias.local, whole, False, False)",
       "p.View(alias.local, whole, True, True)"))
_rule(LANGUAGE, "record_stream during a capture is discarded", "S74", "RecordStream", "note_in_a_capture_is_discarded",
      (GRAPH + "_take", "if isinstance(operation, p.RecordStream):",
       "if isinstance(operation, p.RecordStream):\n        return False\n    if isinstance(operation, p.RecordStream):"))
_rule(LANGUAGE, "a block that was released in a capture goes to the next allocation", "S96", "Launch", "graphs_share_a_pool",
      ("fencepost.model.language.graphs:private_memory", "if fitting:",
       "if False:"))
_rule(LANGUAGE, "a block of a graph goes to allocations of its own stream", "S62", "Launch", "graphs_share_a_pool_and_no_stream",
      ("fencepost.model.language.graphs:private_memory", "home = (space, stream)",
       "home = (space, None)"))
_rule(LANGUAGE, "what record_stream noted in a capture is held until its end", "S74", "Launch", "noted_block_of_a_graph",
      ("fencepost.model.language.graphs:PrivateMemory.release", "held = self._id in graph._noted",
       "held = False"))
_rule(LANGUAGE, "an operation is in the current stream of its tensors' GPU", "S16", "Copy Launch", "block_of_another_gpus_stream",
      (DESIGN + "_current", "return self._stream_now(recording, homes.pop() if len(homes) == 1 else None)",
       "return self._stream_now(recording, None)"))
_rule(LANGUAGE, "a stream of another GPU is not the current one of this GPU", "S16", "Launch", "kernel_of_another_gpus_memory",
      (DESIGN + "_stream_now", "if self._gpu_of(stream) == wanted:",
       "if True:"))
_rule(LANGUAGE, "forks and joins of streams are edges of the graph", "S94", "WaitStream", "branches_of_a_graph",
      (GRAPH + "_again", "p.WaitStream(streams[node.stream], streams[node.other])",
       "p.WaitStream(streams[node.stream], streams[node.stream])"))
_rule(LANGUAGE, "waits for events are edges of the graph", "S28", "StreamWaitEvent", "events_of_a_graph",
      (GRAPH + "_again", "p.StreamWaitEvent(streams[node.stream], p.Obj(self._events[node.event]))",
       "p.WaitStream(streams[node.stream], streams[node.stream])"))
_rule(LANGUAGE, "a branch runs in a stream of the graph's own", "S94", "Launch", "branch_is_not_the_captured_stream",
      (GRAPH + "replay", "{s: p.Obj(number) for s, number in self._branches.items()}",
       "{s: s for s, number in self._branches.items()}"))
_rule(LANGUAGE, "what is allocated inside a capture belongs to the graph", "S74", "Alloc", "memory_of_the_capture",
      (DESIGN + "empty", "if recording.capturing is not None:",
       "if False:"))
_rule(LANGUAGE, "a replay needs the capture to have been made", "S91", "CellGet", "replayed_before_it_is_captured",
      (GRAPH + "replay", "recording.do(p.CellGet(p.Obj(self._captured[0]), ()))",
       "pass"))

# ---- calls that are several operations

_rule(LANGUAGE, "the target's stream -> a peer copy", "S59", "WaitStream", "peer_copy_behind_the_target",
      (COMPOSITES + "peer_copy", "source.wait_stream(target)",
       "pass"))
_rule(LANGUAGE, "a peer copy -> the target's stream", "S59", "WaitStream", "peer_copy_behind_the_target",
      (COMPOSITES + "peer_copy", "target.wait_stream(source)",
       "pass"))
_rule(LANGUAGE, "a strided source is made contiguous at the call", "S55", "Copy", "strided_source_is_staged",
      (COMPOSITES + "strided_copy", "dst.copy_(temporary, non_blocking, stream=stream, time=time)",
       "dst.copy_(src, non_blocking, stream=stream, time=time)"))
_rule(LANGUAGE, "a strided target is spread from a temporary", "S56", "Copy", "strided_target_is_spread cuda-late-pageable; strided_target_is_spread",
      (COMPOSITES + "strided_copy", "temporary.copy_(src, non_blocking, stream=stream, time=time)",
       "dst.copy_(src, non_blocking, stream=stream, time=time)"))
_rule(LANGUAGE, "cudaMemcpy from pageable memory returns early", "S50", "Copy", "memcpy_has_a_pending_tail",
      (COMPOSITES + "memcpy", "dst.copy_(staging, non_blocking=True, stream=legacy, time=time)",
       "dst.copy_(staging, stream=legacy, time=time)"))
_rule(LANGUAGE, "cudaMemcpy to the host returns when it is done", "S50", "Copy", "memcpy_to_the_host_is_complete",
      (COMPOSITES + "memcpy", "dst.copy_(src, stream=legacy, time=time)",
       "dst.copy_(src, non_blocking=True, stream=legacy, time=time)"))
_rule(LANGUAGE, "a stream -> a transfer that comes after it", "language", "WaitStream", "agent_after_a_stream",
      (COMPOSITES + "Agent.post", "stream.wait_stream(after)",
       "pass"))
_rule(LANGUAGE, "an agent is outside of all GPUs", "language", "DeviceSync", "device_does_not_know_the_agent",
      (COMPOSITES + "Composites._outside", "-1 - len(self._objects)",
       "0"))
_rule(LANGUAGE, "a rank's coming -> the others' going on", "language", "Put Get", "barrier_of_hosts",
      ("fencepost.model.language.communicators:Communicator.host_wait", "for other in self._others(mine):\n        recording.do(p.Get(self._mail(other, mine), \"\", ()))",
       "pass"))

# ---- what threads and processes share

_rule(LANGUAGE, "a stream -> the body of a callback in it", "S103", "StoreFlag WaitFlag", "callback_behind_a_copy",
      ("fencepost.model.language.meetings:Callback.launch", "self._stream.write_value(self._due, 1)",
       "self._due.store(1)"))
_rule(LANGUAGE, "the body of a callback -> what follows in its stream", "S103", "StoreFlag WaitFlag", "copy_behind_a_callback",
      ("fencepost.model.language.meetings:Callback.launch", "self._stream.wait_value(self._returned, 1, reset=True)",
       "pass"))
_rule(LANGUAGE, "a free in the order of a stream is an access", "S38", "Launch", "used_while_it_is_freed",
      (ORDERED + "free_async", 'recording.do(p.Launch(f"{_FREE}{tensor.name}", where, (p.Access(operand, "r"), p.Access(operand, "w")), None, False))',
       'recording.do(p.Launch(f"{_FREE}{tensor.name}", where, (p.Access(operand, "r"), p.Access(operand, "r")), None, False))'))
_rule(LANGUAGE, "an allocation in the order of a stream is an access", "S76", "Launch", "used_before_it_is_there",
      (ORDERED + "malloc_async", 'recording.do(p.Launch(f"malloc {name}", where, (p.Access(tensor._operand(recording), "w"),), None, False))',
       "pass"))
_rule(LANGUAGE, "the next owner of ordered memory comes after its free", "S76", "RecordStream", "freed_on_another_stream",
      (ORDERED + "free_async", "recording.do(p.RecordStream(operand, where))",
       "pass"))
_rule(LANGUAGE, "the sender's stream -> the stream of who receives a tensor", "S135", "StreamWaitEvent", "received_from_a_process",
      (SHARING + "IpcQueue.get", "sent.wait(self._design.current_stream(self._gpu))",
       "pass"))
_rule(LANGUAGE, "a storage that is open already is waited for by nobody", "S137", "StreamWaitEvent", "received_where_it_is_open",
      (SHARING + "IpcQueue.get", "if not opened:",
       "if True:"))
_rule(LANGUAGE, "a feeder thread's current stream is the default one", "S136", "Record", "received_through_a_feeder",
      (SHARING + "IpcQueue.put", "if feeder else",
       "if False else"))
_rule(LANGUAGE, "the end of an imported storage waits for the receiver's stream", "S138", "StreamSync", "received_from_a_process",
      (SHARING + "_Opened._scope_ends", "recording.at(p.StreamSync(self._design.current_stream(self._gpu)._operand(recording)), site)",
       "pass"))
_rule(LANGUAGE, "a lock that is let go of inside is free meanwhile", "language", "Acquire Unlock", "lock_let_go_inside",
      (SHARING + "Released.__enter__", "self._lock.release()",
       "pass"),
      (SHARING + "Released.__exit__", "self._lock.acquire()",
       "pass"))
_rule(LANGUAGE, "a token may be freed by a call that waits for the device", "S38", "DeviceSync Give", "token_freed_by_a_call cuda-synchronising-free",
      ("fencepost.model.language.hosts:Pool.free", "recording.do(p.DeviceSync(self._design._gpu(None), self._design._process(), None, True))",
       "pass"))
_rule(LANGUAGE, "a free is a host write", "S38", "Host", "free_beside_a_fill",
      (DESIGN + "free", 'recording.do(p.Host(f"free {x.name}", (written,), objects._time(time)))',
       "pass"))
_rule(LANGUAGE, "a root that waits for room orders nothing by that", "language", "Put", "root_that_waits_for_room",
      (COMMUNICATOR + "host_broadcast", 'p.Put(self._mail(mine, other, " broadcast"), "", (), False)',
       'p.Put(self._mail(mine, other, " broadcast"), "", ())'))

# ---- communicators

_rule(LANGUAGE, "a rank whose data others need tells them", "theory 2", "Signal", "back_through_a_broadcast",
      (COMMUNICATOR + "_from", "((), (root,))",
       "((root,), (root,))"),
      (COMMUNICATOR + "_from", "(self._others(rank), ())",
       "(self._others(rank), self._others(rank))"))
_rule(LANGUAGE, "a rank that needs others' data waits for them", "theory 2", "Await", "through_an_all_reduce; through_a_broadcast; through_a_reduce",
      (COMMUNICATOR + "_meet", "recording.do(p.Await(self._channel(other, rank, apart), operand, tag))",
       "pass"))
_rule(LANGUAGE, "an exchange meets exchanges alone", "S131", "Signal Await", "exchange_beside_a_collective",
      (COMMUNICATOR + "_call", '" (exchange)" if exchange else ""',
       '""'))
_rule(LANGUAGE, "what nobody awaits goes back when the group's stream is through", "S128", "RecordStream", "work_that_nobody_awaits",
      (WORK + "_abandoned", "recording.at(p.RecordStream(tensor._operand(recording), self._stream._operand(recording)), site)",
       "pass"))
_rule(LANGUAGE, "calls of different kinds do not match", "S130", "Signal Await", "another_kind_never_meets",
      (COMMUNICATOR + "_meet", 'kind if match is None else f"{kind} {match}"',
       '""'))
_rule(LANGUAGE, "a collective's kernel lasts until its peers have come", "S131", "Launch", "peer_writes_what_still_runs",
      (COMMUNICATOR + "_meet", 'if accesses and (awaits or len(signals) > 1 or any(a.mode == "w" for a in accesses)):',
       "if False:"))
_rule(LANGUAGE, "the caller's stream -> the group's stream", "S121", "WaitStream", "asynchronous_behind_the_caller",
      (COMMUNICATOR + "_call", "stream.wait_stream(current)",
       "pass"))
_rule(LANGUAGE, "the end of a call -> the stream that waits for its work", "S123", "StreamWaitEvent", "asynchronous_behind_the_caller",
      (WORK + "wait", "self._event.wait(design.current_stream(design._gpu_of(stream)) if stream is not None else None)",
       "pass"))
_rule(LANGUAGE, "an asynchronous call is in a stream of the group's own", "S121", "Launch", "asynchronous_and_not_awaited",
      (COMMUNICATOR + "_call", 'if not async_op and self._version == "new":',
       'if self._version == "new":'))
_rule(LANGUAGE, "a blocking wait holds the host", "S124", "EventSync", "blocking_wait_holds_the_host",
      (WORK + "wait", "self._event.synchronize()",
       "pass"))
_rule(LANGUAGE, "an asynchronous work keeps its buffers", "S127", "View Drop", "work_keeps_its_memory",
      (COMMUNICATOR + "_call", "held = tuple(self._hold(tensor, kind) for tensor in tensors)",
       "pass"))
_rule(LANGUAGE, "the old version notes the group's stream", "S127", "RecordStream", "old_calls_note_their_memory",
      (COMMUNICATOR + "_call", "tensor.record_stream(stream)",
       "pass"))
_rule(LANGUAGE, "two threads use the communicator that they drive", "S133", "Host", "two_threads_drive_one_communicator",
      (COMMUNICATOR + "_drive", '(p.Access(state, "r"), p.Access(state, "w"))',
       "()"))
_rule(LANGUAGE, "under a rendezvous no rank is ahead of another", "S131", "Signal", "rendezvous_bounds_the_mailbox",
      (COMMUNICATOR + "_channel", "1 if self._rendezvous else self._capacity",
       "self._capacity"))
_rule(LANGUAGE, "under a rendezvous a sender waits for its receiver", "S131", "Signal", "sender_waits_for_its_receiver",
      (COMMUNICATOR + "_meet", "if self._rendezvous:",
       "if False:"))

# ---- managed memory without concurrent access

_rule(LANGUAGE, "a kernel keeps the host away from managed memory", "S111", "Launch", "host_beside_a_kernel",
      ("fencepost.model.language.managed:by_kernel", '(*operation.accesses, p.Access(p.Obj(token), "r"))',
       "operation.accesses"))
_rule(LANGUAGE, "a host access keeps away from kernels", "S111", "Host", "host_beside_a_kernel",
      ("fencepost.model.language.managed:by_host", "return (p.Access(p.Obj(token, p.Named(who)), \"w\"),)",
       "return ()"))
_rule(LANGUAGE, "host accesses of two threads do not exclude each other", "S111", "Host", "hosts_beside_each_other",
      ("fencepost.model.language.managed:by_host", "p.Obj(token, p.Named(who))",
       "p.Obj(token)"))
_rule(LANGUAGE, "a graph's branch is on the captured stream's GPU", "S32", "Launch", "branch_of_another_gpu",
      (GRAPH + "_end", "self._home_of(stream), False",
       "self._design._gpu(None), False"))

# ---- the current device, and what a call waits for

_rule(LANGUAGE, "a device-wide wait is of the current device", "S16, S32", "DeviceSync", "sync_of_another_device; sync_of_the_thread_s_device",
      (DESIGN + "synchronize", "self._current_device() if gpu is None else self._gpu(gpu)",
       "self._gpu(gpu)"))
_rule(LANGUAGE, "the default stream is that of the current device", "S16", "StreamSync", "default_stream_of_another_device",
      (DESIGN + "default_stream", "self._current_device() if gpu is None else self._gpu(gpu)",
       "self._gpu(gpu)"))
_rule(LANGUAGE, "the stream of a thread sets its device", "S16", "DeviceSync", "sync_of_the_thread_s_device",
      (DESIGN + "_current_device", "recording.streams[-1] if recording.streams else recording.tracer.default",
       "recording.streams[-1] if recording.streams else None"))
_rule(LANGUAGE, "one step within the device does not hold the host", "S49", "StreamSync", "one_step_and_no_wait",
      (RECORDING + "_without_its_wait", "holds_host(operation, source, target)",
       "not operation.non_blocking"))
_rule(LANGUAGE, "one step to the host is followed by its wait", "S33", "StreamSync", "one_step_and_its_wait",
      (RECORDING + "_do_alone", "self._take_down(p.StreamSync(stream))",
       "pass"))
_rule(LANGUAGE, "one step that waits tells no allocator", "S79", "Copy", "one_step_and_no_note",
      (RECORDING + "_without_its_wait", "raw=True",
       "non_blocking=True"))
