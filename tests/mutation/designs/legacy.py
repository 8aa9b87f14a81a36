"""Small designs of the legacy default stream (S11): what it waits for, and what waits for it."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import declared


@declared(fp.PROVED)
def legacy_behind_blocking() -> fp.Design:
    """What is enqueued on the legacy stream waits for every blocking one."""
    d = fp.Design("legacy behind blocking")
    x, side = d.device("x"), d.stream("side", blocking=True)

    @d.script("worker")
    def worker() -> None:
        d.launch("write", writes=[x], stream=side)
        d.launch("read", reads=[x], stream=d.default_stream())

    return d


@declared(fp.PROVED)
def blocking_behind_legacy() -> fp.Design:
    """And what is enqueued on a blocking one waits for the legacy stream."""
    d = fp.Design("blocking behind legacy")
    x, side = d.device("x"), d.stream("side", blocking=True)

    @d.script("worker")
    def worker() -> None:
        d.launch("write", writes=[x], stream=d.default_stream())
        d.launch("read", reads=[x], stream=side)

    return d


@declared(fp.REFUTED, "RAW x")
def non_blocking_beside_legacy() -> fp.Design:
    """A stream of PyTorch's is not blocking (S9): another one that is changes nothing for it."""
    d = fp.Design("non-blocking beside legacy")
    x, side = d.device("x"), d.stream("side")
    d.stream("blocking", blocking=True)

    @d.script("worker")
    def worker() -> None:
        d.launch("write", writes=[x], stream=side)
        d.launch("read", reads=[x], stream=d.default_stream())

    return d


@declared(fp.REFUTED, "RAW x")
def legacy_of_another_gpu() -> fp.Design:
    """Each GPU has a legacy stream of its own."""
    d = fp.Design("legacy of another GPU")
    x, side = d.device("x"), d.stream("side", blocking=True, gpu=1)

    @d.script("worker")
    def worker() -> None:
        d.launch("write", writes=[x], stream=side)
        d.launch("read", reads=[x], stream=d.default_stream())

    return d


@declared(fp.PROVED)
def record_on_the_legacy_stream() -> fp.Design:
    """A record there captures what is in the blocking streams (S31)."""
    d = fp.Design("record on the legacy stream")
    x, side, done = d.pinned("x"), d.stream("side", blocking=True), d.event("done")

    @d.script("worker")
    def worker() -> None:
        d.launch("write", writes=[x], stream=side)
        done.record(d.default_stream())
        done.synchronize()
        x.read()

    return d


@declared(fp.PROVED)
def waits_for_the_legacy_stream() -> fp.Design:
    """`wait_stream` records on the other stream (S22), and the legacy stream's record waits for the blocking ones."""
    d = fp.Design("waits for the legacy stream")
    x, side, third = d.device("x"), d.stream("side", blocking=True), d.stream("third")

    @d.script("worker")
    def worker() -> None:
        d.launch("write", writes=[x], stream=side)
        third.wait_stream(d.default_stream())
        d.launch("read", reads=[x], stream=third)

    return d


@declared(fp.REFUTED, "RAW x")
def synchronize_enqueues_nothing() -> fp.Design:
    """A host wait for the legacy stream puts nothing there, so that it does not wait for the blocking ones."""
    d = fp.Design("synchronize enqueues nothing")
    x, side = d.pinned("x"), d.stream("side", blocking=True)

    @d.script("worker")
    def worker() -> None:
        d.launch("write", writes=[x], stream=side)
        d.default_stream().synchronize()
        x.read()

    return d
