"""Rules of what operations lower to (model/operations): every engine but the machine reads it."""

from __future__ import annotations

from mutation.switching import LOWERING, Table

DEVICE = "fencepost.model.operations.device:"
HOST = "fencepost.model.operations.host:"
SYNC = "fencepost.model.operations.sync:"

RULES = Table()
_rule = RULES.enter

# fmt: off

_rule(LOWERING, "a kernel's accesses happen while it runs", "S4", "Launch Enqueue", "nobody_reads; nobody_reads strict",
      (DEVICE + "launch", 'operation.accesses, "kernel"',
       '(), "kernel"'))
_rule(LOWERING, "a kernel reads", "S107", "Launch", "two_streams; pageable_source_target rocm",
      (DEVICE + "launch", 'operation.accesses, "kernel"',
       'tuple(x for x in operation.accesses if x.mode == "w"), "kernel"'))
_rule(LOWERING, "a kernel writes", "S4", "Launch", "nobody_reads; nobody_reads strict",
      (DEVICE + "launch", 'operation.accesses, "kernel"',
       'tuple(x for x in operation.accesses if x.mode == "r"), "kernel"'))
_rule(LOWERING, "launch blocking: the call waits for the kernel", "S113", "Launch JoinStream", "two_streams launch-blocking-kernels",
      (DEVICE + "_item", "environment.blocking_kernels if",
       "False if"))
_rule(LOWERING, "launch blocking: the call waits for the copy", "S113", "Copy JoinStream", "copy_unguarded launch-blocking",
      (DEVICE + "_item", 'what != "call" and environment.blocking_copies',
       "False"))
_rule(LOWERING, "an item does not wait unless it is launched blocking", "S2", "Enqueue", "same_bytes_again strict; nobody_reads strict",
      (DEVICE + "_item", "if blocks else (item,)",
       "if True else (item,)"))
_rule(LOWERING, "a copy between host buffers is host code", "S49", "Copy Touch", "copy_on_the_host",
      (DEVICE + "_copy", "if source in HOST and target in HOST:",
       "if False:"))
_rule(LOWERING, "a copy between host buffers reads its source", "S49", "Copy Touch", "host_copy_reads",
      (DEVICE + "_copy", "return (Touch((read, write)),)  # S49",
       "return (Touch((write,)),)"))
_rule(LOWERING, "a copy between host buffers writes its target", "S49", "Copy Touch", "host_copy_writes",
      (DEVICE + "_copy", "return (Touch((read, write)),)  # S49",
       "return (Touch((read,)),)"))
_rule(LOWERING, "a pageable source is read before the call returns", "S47", "Copy Touch", "pageable_source rocm; pageable_source",
      (DEVICE + "_copy", 'if source == "pageable" and context.platform.pageable_h2d != "late":',
       "if False:"))
_rule(LOWERING, "by platform a pageable source is read late", "S47", "Copy", "pageable_source cuda-late-pageable",
      (DEVICE + "_copy", 'and context.platform.pageable_h2d != "late":',
       ":"))
_rule(LOWERING, "a pageable source is read", "S47", "Copy Touch", "pageable_source_is_read",
      (DEVICE + "_copy", "Touch((read,)), *_item(",
       "Touch(()), *_item("))
_rule(LOWERING, "a staged copy writes its target", "S47", "Copy Enqueue", "pageable_source_target; pageable_source_target rocm",
      (DEVICE + "_copy", '*_item(operation.stream, (write,), "copy", context))',
       '*_item(operation.stream, (), "copy", context))'))
_rule(LOWERING, "by platform a copy from pageable memory waits", "S52", "Copy JoinStream", "pageable_source_target rocm",
      (DEVICE + "_copy", 'waits = waits or context.platform.pageable_h2d == "blocking"',
       "waits = waits"))
_rule(LOWERING, "a copy reads its source when the stream reaches it", "S45", "Copy Enqueue", "copy_unguarded launch-blocking-kernels; same_bytes_again strict",
      (DEVICE + "_copy", 'effects = _item(operation.stream, (read, write), "copy", context)',
       'effects = _item(operation.stream, (write,), "copy", context)'))
_rule(LOWERING, "a copy writes its target when the stream reaches it", "S46", "Copy Enqueue", "pageable_target cuda-late-pageable; target_unguarded",
      (DEVICE + "_copy", 'effects = _item(operation.stream, (read, write), "copy", context)',
       'effects = _item(operation.stream, (read,), "copy", context)'))
_rule(LOWERING, "a copy into pageable memory waits", "S48", "Copy JoinStream", "pageable_target",
      (DEVICE + "_copy", 'waits = waits or (target == "pageable" and context.platform.pageable_d2h == "blocking")',
       "waits = waits"))
_rule(LOWERING, "copy_ without non_blocking waits", "S33", "Copy JoinStream", "two_allocators; copy_that_blocks",
      (DEVICE + "holds_host", "return not operation.non_blocking and not operation.raw and",
       "return False and"))
_rule(LOWERING, "copy_ with non_blocking does not wait", "S45", "Copy", "copy_unguarded launch-blocking-kernels; same_bytes_again strict",
      (DEVICE + "holds_host", "return not operation.non_blocking and not operation.raw and",
       "return not operation.raw and"))
_rule(LOWERING, "a copy within the device does not wait", "S49", "Copy", "one_step_and_no_wait",
      (DEVICE + "holds_host", "(source in HOST) != (target in HOST)",
       "True"))
_rule(LOWERING, "copy_ tells the host allocator of its pinned source", "S79", "Copy NoteUse", "pinned_source_noted",
      (DEVICE + "_copy", "((operation.src, source), (operation.dst, target))",
       "((operation.dst, target),)"))
_rule(LOWERING, "copy_ tells the host allocator of its pinned target", "S79", "Copy NoteUse", "pinned_target_noted",
      (DEVICE + "_copy", "((operation.src, source), (operation.dst, target))",
       "((operation.src, source),)"))
_rule(LOWERING, "memcpy_async tells no allocator", "S83", "Copy NoteUse", "device_note_on_a_pinned_block; raw_copy_is_not_noted",
      (DEVICE + "_copy", "if not operation.raw and operation.non_blocking:",
       "if operation.non_blocking:"))
_rule(LOWERING, "a fill writes its target", "S39", "Memset Enqueue", "memset_runs_later",
      (DEVICE + "accesses", 'return (p.Access(operation.dst, "w"),)',
       "return ()"))
_rule(LOWERING, "a fill does not wait", "S39", "Memset", "memset_runs_later",
      (DEVICE + "memset", 'return _item(operation.stream, accesses(operation), "memset", context)',
       'return (*_item(operation.stream, accesses(operation), "memset", context), JoinStream(operation.stream))'))
_rule(LOWERING, "item() reads", "S33", "Item Enqueue", "streams_in_turn_share; item_reads",
      (DEVICE + "item", 'Enqueue(operation.stream, read, "copy")',
       'Enqueue(operation.stream, (), "copy")'))
_rule(LOWERING, "item() waits for its stream", "S33", "Item JoinStream", "item_waits; item_reads",
      (DEVICE + "item", ", JoinStream(operation.stream))",
       ",)"))
_rule(LOWERING, "record_stream tells the allocator", "S64", "RecordStream NoteUse", "record_stream",
      (DEVICE + "record_stream", '(NoteUse(operation.block, operation.stream, "device"),)',
       "()"))
_rule(LOWERING, "host code reads", "S45", "Host Touch", "host_copy_writes; host_writes",
      (HOST + "host", "Touch(operation.accesses)",
       'Touch(tuple(x for x in operation.accesses if x.mode == "w"))'))
_rule(LOWERING, "host code writes", "S45", "Host Touch", "host_copy_reads; host_writes",
      (HOST + "host", "Touch(operation.accesses)",
       'Touch(tuple(x for x in operation.accesses if x.mode == "r"))'))
_rule(LOWERING, "record captures", "S19", "Record RecordEvent", "query_says_yes; event_guard",
      (SYNC + "record", "(RecordEvent(operation.event, operation.stream),)",
       "()"))
_rule(LOWERING, "event.synchronize waits", "S23", "EventSync JoinEvent", "asked_then_waited_for; event_guard",
      (SYNC + "event_sync", "(JoinEvent(operation.event),)",
       "()"))
_rule(LOWERING, "wait_event orders", "S20", "StreamWaitEvent StreamJoinsEvent", "hop_over_a_stream; event_between_streams",
      (SYNC + "stream_wait_event", "(StreamJoinsEvent(operation.stream, operation.event),)",
       "()"))
_rule(LOWERING, "wait_event does not hold the host back", "S20", "StreamWaitEvent", "no_of_a_stream_that_waits_for_an_event",
      (SYNC + "stream_wait_event", "(StreamJoinsEvent(operation.stream, operation.event),)",
       "(StreamJoinsEvent(operation.stream, operation.event), JoinEvent(operation.event))"))
_rule(LOWERING, "wait_stream orders", "S22", "WaitStream StreamJoinsStream", "one_kernel_reads_and_writes; no_comes_after_a_wait_on_the_other_stream",
      (SYNC + "wait_stream", "(StreamJoinsStream(operation.stream, operation.other),)",
       "()"))
_rule(LOWERING, "stream.synchronize waits", "S32", "StreamSync JoinStream", "fixed_slot; named_parts",
      (SYNC + "stream_sync", "(JoinStream(operation.stream),)",
       "()"))
_rule(LOWERING, "a free is an edge where the platform says so", "S38 S40", "DeviceSync JoinDevice", "free_beside_a_fill; free_beside_a_fill cuda-synchronising-free",
      (SYNC + "device_sync", 'if operation.implied and context.platform.free != "synchronises":',
       'if operation.implied and context.platform.free == "synchronises":'))
_rule(LOWERING, "torch.cuda.synchronize waits", "S32", "DeviceSync JoinDevice", "known complete by device; device_is_synchronized",
      (SYNC + "device_sync", "(JoinDevice(operation.gpu, operation.process),)",
       "()"))
