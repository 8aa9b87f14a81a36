"""Class J: deadlock, hang, livelock. Each is safe as far as memory goes, and never ends.

Each design is a model of the reported mechanism, with the number that it has in the list of cases.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp


@fp.variant(
    "before: the lock is held across the launch",
    fp.PROVED,
    hang="deadlock callbacks in flight",
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
    callbacks = d.queue("callbacks in flight", capacity=1, item=())
    state = d.pageable("python state")

    @d.loop("executor")
    def launch() -> None:
        if released:
            with gil:
                state.write()
            callbacks.put()  # cudaLaunchHostFunc
        else:
            with gil:
                state.write()
                callbacks.put()

    @d.loop("driver thread")
    def run_callback() -> None:
        callbacks.get()
        with gil:
            state.read()

    return d


@fp.variant(
    "before: an early return", fp.PROVED, hang="deadlock dp rank 1 to rank 0", fix="after: every rank takes part"
)
@fp.variant("#31425: the decision itself is collective", fp.PROVED, decision="agreed")
@fp.variant("after: every rank takes part", fp.PROVED, decision="always")
def case_57_sglang_28429(decision: Literal["local", "agreed", "always"] = "local") -> fp.Design:
    """Case 57, sgl-project/sglang#28429 (siblings vllm#43547, #28774): a rank returns early in front of an all-reduce.

    A model of the reported mechanism (S130). It exists because the queues of the ranks diverge: whether an allocation
    succeeds is a matter of each rank. The all-reduce's result is read, so that the hosts meet in it; a rank that skips it
    comes to the others' call only with its next one.
    """
    d = fp.Design("sglang#28429")
    group = d.communicator("tp", ranks=["rank 0", "rank 1"])
    other = d.communicator("dp", ranks=["rank 0", "rank 1"])

    def rank(name: str) -> None:
        load = d.pageable(f"load of {name}")

        @d.loop(name)
        def step() -> None:
            load.write()
            if decision == "local":
                busy = d.choose(f"queue of {name}", ["empty", "requests"]) == "requests"
            elif decision == "agreed":
                busy = d.choose("queue of any rank", ["empty", "requests"], agreed=True) == "requests"
            else:
                busy = True
            if busy:
                group.host_barrier(name)
            load.read()
            other.host_barrier(name)

    with d.process("rank 0", gpu=0):
        rank("rank 0")
    with d.process("rank 1", gpu=1):
        rank("rank 1")
    return d


@fp.variant(
    "before: two orders and a hidden wait",
    fp.PROVED,
    hang="deadlock X few to many",
    fix="after: one order on all ranks",
)
@fp.variant("without the hidden waits", fp.PROVED, hidden_wait=False)
@fp.variant("after: one order on all ranks", fp.PROVED, same_order=True)
def case_59_torchrec_4149(same_order: bool = False, hidden_wait: bool = True) -> fp.Design:
    """Case 59, meta-pytorch/torchrec#4149: two process groups in different orders, and a device synchronisation nobody sees.

    A model of the reported mechanism (S132). It exists because neither order is wrong by itself: the 62 ranks stand in X
    when they synchronise, the 2 ranks read the result of Y first when they tune. Enqueuing is an announcement; a hidden wait is where the
    host learns that the others have come.
    """
    d = fp.Design("torchrec#4149")
    x = d.communicator("X", ranks=["many", "few"])
    y = d.communicator("Y", ranks=["many", "few"])

    def collective(group: fp.Communicator, rank: str, wait_now: bool) -> None:
        group.host_announce(rank)
        if wait_now:
            group.host_wait(rank)

    def rank(name: str, tunes: bool) -> None:
        results = d.pageable(f"results of {name}")

        @d.loop(name)
        def step() -> None:
            order = (x, y)
            if tunes and not same_order and d.choose("tuning", ["no", "yes"]) == "yes":
                order = (y, x)
            for group in order:
                collective(group, name, hidden_wait)
            if not hidden_wait:
                for group in order:
                    group.host_wait(name)
            results.write()
            results.read()

    with d.process("many", gpu=0):
        rank("many", tunes=False)
    with d.process("few", gpu=1):
        rank("few", tunes=True)
    return d


@fp.variant(
    "before: the signal for the next replay comes too early",
    fp.PROVED,
    hang="deadlock finished replays",
    fix="after: the record follows the previous replay",
)
@fp.variant("after: the record follows the previous replay", fp.PROVED, wait=True)
def case_61_vllm_ascend_4233(wait: bool = False) -> fp.Design:
    """Case 61, vllm-project/vllm-ascend#4233: a signal is recorded before the previous replay has consumed it.

    A model of the reported mechanism. It exists because a flag holds one signal: two records in front of one reset are
    one. The graph that waits for the flag and resets it is an agent of its own, here a thread; the host launches two
    replays before it looks at their results.
    """
    d = fp.Design("vllm-ascend#4233")
    signal = d.flag("E")
    launched = d.queue("launched replays", capacity=2, item=())
    finished = d.queue("finished replays", capacity=1, item=())
    parameters = d.pageable("attention parameters")

    @d.loop("host")
    def host() -> None:
        for _ in range(2):
            launched.put()
            signal.set()
            if wait:
                finished.get()
        if not wait:
            finished.get()
            finished.get()

    @d.loop("graph replay")
    def replay() -> None:
        launched.get()
        signal.wait()
        signal.clear()
        parameters.write()
        finished.put()

    return d


@fp.variant(
    "before: a device free in the loop",
    fp.PROVED,
    hang="deadlock device idle",
    fix="after: no free inside the loop",
)
@fp.variant(
    "mlx#2099: frees inside the callback",
    fp.PROVED,
    hang="no source device idle",
    fix="after: no free inside the loop",
    never=("device idle.get",),
    free="in the callback",
)
@fp.variant("after: no free inside the loop", fp.PROVED, free="after the loop")
def case_62_amrex_4044(
    free: Literal["in the loop", "in the callback", "after the loop"] = "in the loop",
) -> fp.Design:
    """Case 62, AMReX-Codes/amrex#4044 and ml-explore/mlx#2099: host callbacks against a device free.

    A model of the reported mechanism, with the inferred part said: a free may wait for the whole device (S38) while it
    holds the runtime's lock; the device waits for the callback executor; the executor needs the runtime. It exists
    because AMReX makes no runtime call in its callback, so "no API in callbacks" is not the rule that would catch it.
    """
    d = fp.Design("amrex#4044")
    runtime = d.lock("runtime lock")
    callbacks = d.queue("callbacks of stream", capacity=1, item=())
    done = d.queue("device idle", capacity=1, item=())
    data = d.pageable("data of the callback")

    @d.loop("main")
    def main() -> None:
        callbacks.put()
        if free == "in the loop":
            with runtime:
                done.get()  # cudaFree waits for the device
        else:
            done.get()

    @d.loop("callback executor")
    def execute() -> None:
        callbacks.get()
        data.write()
        with runtime:  # the executor's own way back into the runtime
            data.read()
        if free == "in the callback" and d.choose("the last reference dies here", ["no", "yes"]) == "yes":
            done.get()  # a free in the callback waits for the device, which waits for this callback
        done.put()

    return d


@fp.variant(
    "before: blocks come back with a later step's output",
    fp.PROVED,
    hang="no source block",
    fix="after: preemption returns blocks at once",
)
@fp.variant("after: preemption returns blocks at once", fp.PROVED, at_once=True)
def case_c17_vllm_49674(at_once: bool = False) -> fp.Design:
    """Case C-17, vllm-project/vllm#49674 and vllm-ascend#16315: deferred frees make preemption free nothing.

    A model of the reported mechanism. It exists because a safety fix costs progress: the block comes back when a later
    step's output is processed, and no later step comes without a block.
    """
    d = fp.Design("vllm#49674")
    blocks = d.pool("block", size=2, of="row")
    deferred = d.queue("deferred frees", capacity=3, item=(fp.HANDLE,))

    @d.loop("scheduler")
    def step() -> None:
        block = blocks.take()
        if at_once:
            blocks.give(block)
        elif d.choose("preempted", ["no", "yes"]) == "no":
            blocks.give(block)
            for late in deferred.drain():  # the output of this step is processed
                blocks.give(late)
        else:
            deferred.put(block)

    return d
