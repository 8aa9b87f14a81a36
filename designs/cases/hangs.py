"""Class J: deadlock, hang, livelock. Each is safe as far as memory goes, and never ends.

Each design is a model of the reported mechanism, with the number that it has in the list of cases.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp


@fp.variant(
    "before: the lock is held across the launch",
    fp.PROVED,
    hang="deadlock GIL",
    fix="after: released around the call",
)
@fp.variant("after: released around the call", fp.PROVED, released=True)
def case_55_tensorrt_llm_15855(released: bool = False) -> fp.Design:
    """Case 55, NVIDIA/TensorRT-LLM#15855 (and NVIDIA/numba-cuda#317): the interpreter lock is held across a launch.

    A model of the reported mechanism (S106). It exists because a fix was lost in a refactoring: the driver waits in the
    launch of a host function while an earlier callback is in flight, and that callback needs the interpreter lock. The
    driver's room for callbacks in flight is a queue of one.
    """
    d = fp.Design("TensorRT-LLM#15855")
    gil = d.lock("GIL")
    in_flight = d.queue("callbacks in flight", capacity=1, item=())
    state = d.pageable("python state")

    @d.callback("python callback", d.stream("stream"))
    def callback() -> None:
        with gil:
            state.read()
        in_flight.get()

    def launch_host_function() -> None:
        in_flight.put()  # the driver spins while there is no room
        callback.launch()

    @d.loop("executor")
    def step() -> None:
        with gil:
            state.write()
            if released:
                with gil.released():
                    launch_host_function()
            else:
                launch_host_function()

    return d


@fp.variant(
    "before: an early return",
    fp.PROVED,
    hang="deadlock tp rank 0 -> rank 1",
    fix="after: every rank takes part",
)
@fp.variant("#31425: the decision itself is collective", fp.PROVED, decision="agreed")
@fp.variant("after: every rank takes part", fp.PROVED, decision="always")
def case_57_sglang_28429(decision: Literal["local", "agreed", "always"] = "local") -> fp.Design:
    """Case 57, sgl-project/sglang#28429 (siblings vllm#43547, #28774): a rank returns early in front of an all-reduce.

    A model of the reported mechanism (S130). It exists because the queues of the ranks diverge: whether an allocation
    succeeds is a matter of each rank. The all-reduce's result is read, which is where the host of one rank stops; the other
    rank, which has skipped it, stops where the hosts meet.
    """
    d = fp.Design("sglang#28429")
    names = ("rank 0", "rank 1")
    group, hosts = d.communicator("tp", names), d.communicator("dp", names)

    def rank(name: str) -> None:
        load = d.device(f"load of {name}")

        @d.loop(name)
        def step() -> None:
            if decision == "local":
                busy = d.choose(f"queue of {name}", ["empty", "requests"]) == "requests"
            elif decision == "agreed":
                busy = d.choose("queue of any rank", ["empty", "requests"], agreed=True) == "requests"
            else:
                busy = True
            if busy:
                group.all_reduce(load)
                load.item()
            hosts.host_barrier()

    for number, name in enumerate(names):
        with d.process(name, gpu=number):
            rank(name)
    return d


@fp.variant(
    "before: two orders and a hidden wait",
    fp.PROVED,
    hang="deadlock X few -> many",
    fix="after: one order on all ranks",
)
@fp.variant("without the hidden waits", fp.PROVED, hidden_wait=False)
@fp.variant("after: one order on all ranks", fp.PROVED, same_order=True)
def case_59_torchrec_4149(same_order: bool = False, hidden_wait: bool = True) -> fp.Design:
    """Case 59, meta-pytorch/torchrec#4149: two process groups in different orders, and a device synchronisation nobody sees.

    A model of the reported mechanism (S132). It exists because neither order is wrong by itself, as each group has a
    stream of its own (S134): the 62 ranks synchronise the device behind X, the 2 ranks read the result of Y first when they tune.
    """
    d = fp.Design("torchrec#4149")
    names = ("many", "few")
    x, y = d.communicator("X", names), d.communicator("Y", names)

    def rank(name: str, tunes: bool) -> None:
        tables, results = d.device(f"embeddings of {name}"), d.device(f"results of {name}")

        @d.loop(name)
        def step() -> None:
            order = ("X", "Y")
            if tunes and not same_order and d.choose("tuning", ["no", "yes"]) == "yes":
                order = ("Y", "X")
            works = []
            for group in order:
                works.append(
                    x.all_reduce(tables, async_op=True) if group == "X" else y.all_reduce(results, async_op=True)
                )
                if hidden_wait:
                    d.synchronize()
            for work in works:
                work.wait()
            results.item()

    with d.process("many", gpu=0):
        rank("many", tunes=False)
    with d.process("few", gpu=1):
        rank("few", tunes=True)
    return d


@fp.variant(
    "before: the signal for the next replay comes too early",
    fp.PROVED,
    hang="lost signal E",
    fix="after: the record follows the previous replay",
)
@fp.variant("after: the record follows the previous replay", fp.PROVED, wait=True)
def case_61_vllm_ascend_4233(wait: bool = False) -> fp.Design:
    """Case 61, vllm-project/vllm-ascend#4233: a signal is recorded before the previous replay has consumed it.

    A model of the reported mechanism (S118). It exists because a flag holds one signal: two records in front of one reset are
    one. The graph waits for the flag and resets it; the host launches the next replay, and its record, before it looks at
    the result of this one.
    """
    d = fp.Design("vllm-ascend#4233")
    signal, hidden = d.device_flag("E"), d.device("hidden states")
    stream, update = d.stream("stream"), d.stream("update stream")
    replayed = d.event("replayed", depth=2)
    graph = d.graph("decode")

    @d.setup
    def capture() -> None:
        with graph.capture(stream):
            stream.wait_value(signal, 1, reset=True)
            d.launch("attention", writes=[hidden])

    @d.loop("host", stream=stream)
    def step(n: fp.Turn) -> None:
        graph.replay()
        if wait:
            update.wait_event(replayed[n - 1])
        update.write_value(signal, 1)
        replayed[n].record()
        replayed[n - 1].synchronize()
        if d.choose("more requests", ["yes", "no"]) == "no":
            replayed[n].synchronize()  # the last result

    return d


@fp.variant(
    "before: a device free in the loop",
    fp.PROVED,
    hang="deadlock callback returned",
    fix="after: no free inside the loop",
)
@fp.variant(
    "mlx#2099: frees inside the callback",
    fp.PROVED,
    hang="deadlock callback returned",
    fix="after: no free inside the loop",
    free="in the callback",
)
@fp.variant("after: no free inside the loop", fp.PROVED, free="after the loop")
def case_62_amrex_4044(
    free: Literal["in the loop", "in the callback", "after the loop"] = "in the loop",
) -> fp.Design:
    """Case 62, AMReX-Codes/amrex#4044 and ml-explore/mlx#2099: host callbacks against a device free.

    A model of the reported mechanism, with the inferred part said: a free may wait for the whole device (S38) while it
    holds the runtime's lock; the device waits for the callback; the callback's executor needs the runtime. It exists
    because AMReX makes no runtime call in its callback, so "no API in callbacks" is not the rule that would catch it.
    """
    d = fp.Design("amrex#4044")
    runtime, stream, data = d.lock("runtime lock"), d.stream("stream"), d.pinned("data of the callback")
    scratch = d.device("scratch")

    @d.callback("callback", stream, calls_cuda=free == "in the callback")
    def callback() -> None:
        data.write()
        with runtime:  # the executor's own way back into the runtime
            data.read()
        if free == "in the callback" and d.choose("the last reference dies here", ["no", "yes"]) == "yes":
            d.free(scratch)  # it waits for the device, which waits for this callback

    @d.loop("main")
    def main() -> None:
        d.launch("kernel", writes=[data], stream=stream)
        callback.launch()
        if free == "in the loop":
            with runtime:
                d.free(scratch)  # cudaFree may wait for the device
        stream.synchronize()

    return d


@fp.variant(
    "before: blocks come back with a later step's output",
    fp.PROVED,
    hang="livelock free blocks",
    fix="after: preemption returns blocks at once",
)
@fp.variant("after: preemption returns blocks at once", fp.PROVED, at_once=True)
def case_c17_vllm_49674(at_once: bool = False) -> fp.Design:
    """Case C-17, vllm-project/vllm#49674 and vllm-ascend#16315: deferred frees make preemption free nothing.

    A model of the reported mechanism. It exists because a safety fix costs progress: the block comes back when a later
    step's output is processed, and no later step comes without a block: the scheduler goes round for ever and schedules nothing.
    """
    d = fp.Design("vllm#49674")
    free = d.queue("free blocks", capacity=2, item=())
    running = d.queue("blocks of running requests", capacity=2, item=())
    deferred = d.queue("deferred frees", capacity=2, item=())

    @d.setup
    def blocks() -> None:
        free.put()
        free.put()

    @d.loop("scheduler")
    def step() -> None:
        if d.choose("a request ends", ["no", "yes"]) == "yes" and not running.empty():
            running.get()
            free.put()
        if not free.empty():
            free.get()
            running.put()
            if not at_once:
                for _ in deferred.drain():  # the output of this step is processed
                    free.put()
        elif not running.empty():  # no block for the next request: preempt one
            running.get()
            if at_once:
                free.put()
            else:
                deferred.put()

    return d
