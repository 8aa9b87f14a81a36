"""What the model leaves out, and on which side each omission errs: missed bugs, false alarms, or an answer of unknown."""

from __future__ import annotations

from typing import NamedTuple

MISSED, ALARM, UNKNOWN, REFUSED = "missed bugs", "false alarms", "unknown", "refused"


class Limitation(NamedTuple):
    """`what` is not modelled; `errs` on this side; `rules` that say what the platform does."""

    what: str
    errs: str
    rules: tuple[str, ...] = ()


LIMITATIONS = (
    Limitation("any CUDA call may wait for undocumented reasons; such waits are never edges", ALARM, ("S5", "S37", "S40")),
    Limitation("what a free waits for is no edge on the default platform; cuda-synchronising-free has it", ALARM, ("S38", "S40")),
    Limitation("streams that share a hardware queue, and copies that share an engine, are not ordered by that", ALARM,
               ("S61", "S115", "S116", "S117")),
    Limitation("size classes of the pinned allocator and best fit of the device allocator: any free block may be handed out",
               ALARM, ("S70", "S82")),
    Limitation("where in a block its next owner begins: parts of two owners count as overlapping, also spans of pinned blocks, which are not split",
               ALARM, ("S70", "S82")),
    Limitation("a span of a view of a span counts as overlapping with all that lies behind the larger one", ALARM),
    Limitation("what a copy or kernel on a stream with several_threads=True waits for, where it is given received memory or a view: the wait is "
               "part of its step, so that a hang which needs another thread to enqueue meanwhile is told", ALARM, ("S33", "S49")),
    Limitation("the order in which an allocator polls its events: any free block may have been polled", ALARM, ("S67", "S81")),
    Limitation("a flush of the cache, which moves memory between streams behind host waits", ALARM, ("S41", "S71")),
    Limitation("unmapping of expandable segments, which waits for the allocation stream alone", MISSED, ("S42",)),
    Limitation("lazy loading of kernels, which may wait for running work", ALARM, ("S44",)),
    Limitation("elapsed_time and other calls that raise on events that are not complete", MISSED, ("S27",)),
    Limitation("re-recording an event whose record is outstanding is undefined on HIP; it is taken as on CUDA, and the rocm profile says so "
               "as an assumption", MISSED, ("S30",)),
    Limitation("memory that is allocated in a capture stays the graph's unless it is released there, also when its name ends", MISSED,
               ("S74", "S96", "S97")),
    Limitation("reads of undefined bytes of memory that a capture allocates: those outside of the graphs' nodes, and all of them where the "
               "memory is handed over, or seen through a view that was made outside of the captures", MISSED, ("S74", "S97")),
    Limitation("a graph that reads what only a launch of another graph writes, where that launch does not come before it in every turn of the "
               "same thread, nor in a setup", REFUSED, ("S74", "S97")),
    Limitation("reuse during a capture of blocks whose other streams are known to be done (graph_capture_record_stream_reuse)", MISSED,
               ("S75",)),
    Limitation("the synchronisation that entering torch.cuda.graph() makes, and that of destroying a graph on ROCm, are no edges", ALARM,
               ("S43", "S102")),
    Limitation("environments: copies in a graph count as calls that launch blocking reaches, and its branches as streams that share the one "
               "hardware queue; so a hazard inside of one launch may be called masked", MISSED, ("S94", "S113", "S116")),
    Limitation("parts by name: together they count as the whole, so a read of bytes that no name covers and nobody wrote is not found", MISSED),
    Limitation("bytes that nobody wrote, by fp.ANY or by rows: a write of such a part counts as one of whatever is read, and a read of fp.ANY as "
               "one of bytes that were written", MISSED),
    Limitation("a graph whose inputs are indexed by turn or cursor: addresses are baked, so a constant is asked for", REFUSED,
               ("S92",)),
    Limitation("the legacy default stream and a blocking stream used by two threads, unless several_threads=True makes each call one step",
               REFUSED, ("S11",)),
    Limitation("such a step of several_threads=True beside the legacy stream includes the wait of a blocking call, so that a hang which needs "
               "another thread to enqueue meanwhile is told", ALARM, ("S11",)),
    Limitation("host functions may be serialised with each other; that is no edge", ALARM, ("S104",)),
    Limitation("a callback that several threads launch, or that is launched on a ring of streams", REFUSED, ("S103",)),
    Limitation("by default a sender or root does not wait for its receivers; hangs that only such a protocol shows need "
               'protocol="rendezvous"', MISSED, ("S131",)),
    Limitation('that a rank had to wait for room in a communicator (`capacity=`, or `protocol="rendezvous"`) orders nothing', ALARM, ("S131",)),
    Limitation("calls of one communicator that differ and need nothing from each other (a reduce here, a broadcast from the "
               "same root there) are noticed at the next call between the two ranks", MISSED, ("S130",)),
    Limitation("one communicator that two threads drive, unless several_threads=True has their calls checked", REFUSED, ("S133",)),
    Limitation("kernels that spin until their peers come keep other work off the device: write down the wait that this makes",
               MISSED, ("S131", "S132", "S118")),
    Limitation("a work that nobody awaits lets go of its memory at the end of the turn, behind its stream", ALARM, ("S128",)),
    Limitation("a stream that may stay more than 16 turns behind its host, or a channel without capacity that may hold the "
               "signals of more: such a design can be refuted, not proved", UNKNOWN, ("S131",)),
    Limitation("values of a device flag that grow with the turns: they are constants", REFUSED, ("S118",)),
    Limitation("posts of one queue of an agent are served in order", MISSED, ()),
    Limitation("atomics, and the visibility of writes to mapped memory before a synchronisation", MISSED, ("S108", "S109")),
    Limitation("copies and fills keep the host away from managed memory of a device without concurrent access no more than from other "
               "memory: only kernels do", MISSED, ("S111",)),
    Limitation("managed memory of a device without concurrent access that is handed over through a queue or cell", REFUSED, ("S111",)),
    Limitation("sending memory to another process records its event when it is put, not when a feeder thread pickles it, and "
               "never falls back to a synchronisation", ALARM, ("S135", "S136")),
    Limitation("errors of calls other than records, such as CUDA in a forked child", MISSED, ("S25", "S141")),
    Limitation("priorities of streams, which bias what runs first and order nothing", ALARM, ("S10",)),
    Limitation("copies from and to managed memory that the platform makes synchronous", ALARM, ("S51",)),
    Limitation("allocators without caching, where a free may synchronise; large pinned blocks, which are freed and not cached", ALARM,
               ("S77", "S87")),
    Limitation("workspaces that a library keeps for each handle and stream: write them down as memory that its kernels write", MISSED, ("S78",)),
    Limitation("polls of the pinned allocator that a capture keeps from succeeding", ALARM, ("S90",)),
    Limitation("which stream and thread a backward operation gets: write down the launches and the waits that the engine adds", MISSED,
               ("S142", "S143")),
    Limitation("a platform that does not do what it documents, such as an event synchronisation that can miss its wake-up "
               "(vllm-project/vllm#53771)", MISSED, ()),
    Limitation("wake-ups of a condition that nobody notified", MISSED, ()),
    Limitation("stream-ordered memory counts as defined from its allocation on", MISSED, ("S76",)),
    Limitation("a use that is not ordered with a stream-ordered free, where the block is not handed out again", ALARM, ("S76",)),
    Limitation("a read or write of fp.ANY may be any part: two of them count as overlapping", ALARM, ()),
    Limitation("a turn that goes round for ever within itself", UNKNOWN, ()),
    Limitation("a turn number or constant sent through a queue or cell where no ring says what it is relative to", UNKNOWN, ()),
    Limitation("an unordered pair whose change of value is neither shown nor excluded", UNKNOWN, ()),
)
"""In the order of the reference page."""


WITHOUT_WORDS = (
    ("S3", "no operation orders streams but those that say so"),
    ("S7", "`d.default_stream()` is the legacy default stream; a per-thread one is `d.stream(blocking=True)`"),
    ("S13", "streams are non-blocking unless they say otherwise, and have no edge with the default stream"),
    ("S26", "how a thread waits in `synchronize` changes nothing"),
    ("S36", "a debug mode; it orders nothing"),
    ("S53", "a blocking copy orders the host with its own stream alone (S33)"),
    ("S60", "`pin_memory()` is `d.empty_pinned` and `d.host`"),
    ("S68", "`wait_stream` before the release"),
    ("S69", "a fresh block carries what its previous owner still has pending (S63)"),
    ("S73", "expandable segments are memory of the allocator as any other (S62, S64)"),
    ("S86", "memory that the user has registered is `d.pinned`, seen through `view(attributed=False)` and ended by `d.free`"),
    ("S105", "host functions of different streams are not ordered (S103)"),
    ("S114", "an environment holds from the start"),
)
"""Rules that need no operation and no switch of their own, and how a design says what they are about."""
