"""What platforms, versions and vendors disagree on: every switch with its default, and where it is said."""

from __future__ import annotations

from typing import NamedTuple


class Switch(NamedTuple):
    """`where` it is said; `values`, the default first; what it decides; `rules` that say why there are several answers."""

    where: str
    values: tuple[str, ...]
    decides: str
    rules: tuple[str, ...]


PROFILE = (
    Switch("pageable_h2d", ("staged", "late", "blocking"), "when a copy from pageable memory reads its source: before the call returns, "
           "when the stream reaches it, or before the call returns and the host waits for the copy", ("S47", "S52")),
    Switch("pageable_d2h", ("blocking", "late"), "whether an asynchronous copy into pageable memory returns when it is done", ("S48",)),
    Switch("free", ("orders nothing", "synchronises"), "whether the host knows after `d.free` and `pool.free` that the device is done; a "
           "free may wait in either case, which hangs are searched for with", ("S38", "S40")),
    Switch("rerecord", ("defined", "undefined"), "whether an event may be recorded while its last record is outstanding; it is decided as "
           "if it may, and where it may not the answer says so as an assumption", ("S19", "S30")),
)
"""Switches of a platform profile (model/platform.py): `--platform`, `platform=` of a variant."""

IN_DESIGNS = (
    Switch("d.stream(blocking=)", ("False", "True"), "whether the legacy default stream's rule applies; True also for a per-thread default "
           "stream", ("S8", "S11", "S12", "S14", "S15")),
    Switch("d.stream(several_threads=)", ("False", "True"), "whether a blocking stream and the legacy one in two threads, or a callback or "
           "graph beside another thread's work on its stream, are refused, or each call is one step", ("S11", "S12", "S93", "S103")),
    Switch("d.event(interprocess=)", ("False", "True"), "whether an event that another process uses is refused, or its handle is there", ("S140",)),
    Switch("d.graph(several_threads=)", ("False", "True"), "whether a graph that two threads replay is refused, or each launch is one step",
           ("S93",)),
    Switch("d.queue(several_threads=)", ("False", "True"), "whether a queue of several kinds of items from which two threads get is refused, "
           "or each get is one step", ()),
    Switch("d.managed(concurrent=)", ("True", "False"), "the attribute concurrentManagedAccess: whether the host may touch managed memory while "
           "a kernel runs", ("S110", "S111")),
    Switch("y.copy_(x, strided=)", ("False", "True"), "whether a pageable temporary stands between", ("S55", "S56")),
    Switch("d.agent(name) for copies", ("not used", "used"), "whether copies run in the order of the queue or on an engine with completion "
           "handles of its own", ("S61",)),
    Switch("d.communicator(version=)", ("new", "old"), "on which stream a synchronous collective runs, and what keeps memory alive",
           ("S122", "S127")),
    Switch("d.communicator(record_streams=)", ("as the version", "True", "False"), "record_stream or references held by the work "
           "(TORCH_NCCL_AVOID_RECORD_STREAMS)", ("S127", "S129")),
    Switch("d.communicator(blocking_wait=)", ("False", "True"), "whether wait holds the host (TORCH_NCCL_BLOCKING_WAIT)", ("S123", "S124")),
    Switch("d.communicator(protocol=)", ("eager", "rendezvous"), "whether a sender or root waits until its receivers have taken the data",
           ("S131",)),
    Switch("d.communicator(capacity=)", ("None", "a number"), "how many calls a rank may be ahead of a peer that it does not need", ("S131",)),
    Switch("d.communicator(serial=)", ("False", "True"), "whether calls of one rank on several streams run one after the other", ("S130",)),
    Switch("d.communicator(several_threads=)", ("False", "True"), "whether a second thread that drives a rank is refused, or checked for "
           "being ordered with the first", ("S133",)),
    Switch("d.ipc_queue().put(feeder=)", ("False", "True"), "whether the event is recorded on the sender's current stream or a feeder "
           "thread's default one", ("S135", "S136")),
    Switch("d.ipc_queue().get(opened=)", ("False", "True"), "whether the storage is open already, so that nothing is waited for", ("S137",)),
    Switch("d.callback(calls_cuda=)", ("False", "True"), "whether a host function that calls CUDA is refused, or written down as it is",
           ("S104",)),
    Switch("e.record(may_fail=)", ("False", "True"), "whether a record can fail without anybody looking", ("S25",)),
    Switch("x.view(attributed=)", ("True", "False"), "whether the allocator can tell whose memory a view is", ("S72", "S84")),
    Switch("wait_value(reset=)", ("False", "True"), "whether a wait for a device flag stores 0 behind it", ("S118",)),
)
"""Switches in the text of a design, for what is a matter of a call, a library or a device."""
