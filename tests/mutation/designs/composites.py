"""Small designs of calls that are several operations at once."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import declared


@declared(fp.PROVED)
def peer_copy_behind_the_target() -> fp.Design:
    """A copy between GPUs waits for the target's stream, too (S59)."""
    d = fp.Design("peer copy behind the target")
    a, b = d.device("a", gpu=0), d.device("b", gpu=1)
    on_a, on_b = d.stream("on a", gpu=0), d.stream("on b", gpu=1)

    @d.script("worker")
    def worker() -> None:
        d.launch("use before", reads=[b], stream=on_b)
        d.peer_copy(b, a, source=on_a, target=on_b)
        d.launch("use", reads=[b], stream=on_b)

    return d


@declared(fp.PROVED)
def strided_source_is_staged() -> fp.Design:
    """A temporary stands between a strided pinned source and the copy, so that it may be rewritten at once (S55)."""
    d = fp.Design("strided source is staged")
    m, g = d.pinned("m"), d.device("g")

    @d.loop("worker")
    def worker() -> None:
        m.write()
        g.copy_(m, non_blocking=True, strided=True)

    return d


@declared(fp.PROVED)
@declared(fp.REFUTED, "RAW contiguous copy", platform="cuda-late-pageable")
def strided_target_is_spread() -> fp.Design:
    """The temporary is spread over a strided target when the call returns (S56)."""
    d = fp.Design("strided target is spread")
    m, g = d.pinned("m"), d.device("g")

    @d.script("worker")
    def worker() -> None:
        d.launch("fill", writes=[g])
        m.copy_(g, non_blocking=True, strided=True)
        m.read()

    return d


@declared(fp.REFUTED, "RAW g")
def memcpy_has_a_pending_tail() -> fp.Design:
    """cudaMemcpy from pageable memory returns when the source is staged: the target is not there for other streams (S50)."""
    d = fp.Design("memcpy has a pending tail")
    m, g, side = d.pageable("m"), d.device("g"), d.stream("side")

    @d.script("worker")
    def worker() -> None:
        m.write()
        d.memcpy(g, m)
        m.write()
        d.launch("use", reads=[g], stream=side)

    return d


@declared(fp.PROVED)
def memcpy_to_the_host_is_complete() -> fp.Design:
    """To the host it returns when it is done, on the legacy stream (S50)."""
    d = fp.Design("memcpy to the host is complete")
    m, g = d.pinned("m"), d.device("g")

    @d.loop("worker")
    def worker() -> None:
        d.launch("fill", writes=[g], stream=d.default_stream())
        d.memcpy(m, g)
        m.read()

    return d


@declared(fp.PROVED)
def agent_after_a_stream() -> fp.Design:
    """A transfer with `after` waits for the stream; its handle tells of its end."""
    d = fp.Design("agent after a stream")
    x, stream, nic = d.pinned("x"), d.stream("stream"), d.agent("nic")

    @d.loop("worker")
    def worker() -> None:
        d.launch("fill", writes=[x], stream=stream)
        nic.post("send", reads=[x], after=stream).synchronize()

    return d


@declared(fp.REFUTED, "WAR x")
def device_does_not_know_the_agent() -> fp.Design:
    """No device synchronisation reaches an agent."""
    d = fp.Design("device does not know the agent")
    x, nic = d.pinned("x"), d.agent("nic")

    @d.loop("worker")
    def worker() -> None:
        x.write()
        nic.post("send", reads=[x])
        d.synchronize()

    return d
