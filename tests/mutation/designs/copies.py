"""Small designs of copies, kernels and fills: what they access and whether the call waits."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import declared


@declared(fp.PROVED)
def copy_then_synchronize() -> fp.Design:
    """A refilled buffer whose copy is waited for."""
    d = fp.Design("copy then synchronize")
    m, g = d.pinned("m"), d.device("g")

    @d.loop("thread")
    def thread() -> None:
        m.write()
        g.copy_(m, non_blocking=True)
        d.current_stream().synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
@declared(fp.MASKED, environment="launch-blocking")
@declared(fp.REFUTED, "WAR m", environment="launch-blocking-kernels")
def copy_unguarded() -> fp.Design:
    """The source of a copy is rewritten while it may not have run (S45)."""
    d = fp.Design("copy unguarded")
    m, g, scratch = d.pinned("m"), d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        m.write()
        g.copy_(m, non_blocking=True)

    return d


@declared(fp.REFUTED, "RAW h")
def target_unguarded() -> fp.Design:
    """The host reads a copy's target at once, and fills it for something else."""
    d = fp.Design("target unguarded")
    h, g, scratch = d.pinned("h"), d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        h.copy_(g, non_blocking=True)
        h.read()

    return d


@declared(fp.PROVED)
def copy_that_blocks() -> fp.Design:
    """`copy_` without non_blocking has ended when it returns (S33)."""
    d = fp.Design("copy that blocks")
    h, g = d.pinned("h"), d.device("g")

    @d.loop("thread")
    def thread() -> None:
        h.copy_(g)
        h.read()

    return d


@declared(fp.PROVED)
def copy_on_the_host() -> fp.Design:
    """Host to host is host code, whatever non_blocking says (S49)."""
    d = fp.Design("copy on the host")
    a, b = d.pinned("a"), d.pinned("b")

    @d.loop("thread")
    def thread() -> None:
        a.write()
        b.copy_(a, non_blocking=True)
        b.read()

    return d


@declared(fp.REFUTED, "RAW a", "WAR a")
def host_copy_reads() -> fp.Design:
    """Another thread writes the source of a copy between host buffers."""
    d = fp.Design("host copy reads")
    a, b = d.pageable("a"), d.pageable("b")

    @d.loop("copier")
    def copier() -> None:
        b.copy_(a)
        b.read()

    @d.loop("writer")
    def writer() -> None:
        a.write()

    return d


@declared(fp.REFUTED, "RAW b", "WAR b")
def host_copy_writes() -> fp.Design:
    """Another thread reads the target."""
    d = fp.Design("host copy writes")
    a, b = d.pageable("a"), d.pageable("b")

    @d.loop("copier")
    def copier() -> None:
        a.write()
        b.copy_(a)

    @d.loop("reader")
    def reader() -> None:
        b.read()

    return d


@declared(fp.PROVED)
@declared(fp.REFUTED, "WAR a", platform="cuda-late-pageable")
@declared(fp.PROVED, platform="rocm")
def pageable_source() -> fp.Design:
    """A pageable source is read before the call returns (S47), or late, by platform."""
    d = fp.Design("pageable source")
    a, g = d.pageable("a"), d.device("g")

    @d.loop("thread")
    def thread() -> None:
        a.write()
        g.copy_(a, non_blocking=True)

    return d


@declared(fp.REFUTED, "RAW a", "WAR a")
def pageable_source_is_read() -> fp.Design:
    """Another thread writes it during the call."""
    d = fp.Design("pageable source is read")
    a, g = d.pageable("a"), d.device("g")

    @d.loop("copier")
    def copier() -> None:
        g.copy_(a, non_blocking=True)
        d.launch("use", reads=[g])

    @d.loop("writer")
    def writer() -> None:
        a.write()

    return d


@declared(fp.REFUTED, "RAW g", "WAR g")
@declared(fp.REFUTED, "WAR g", platform="rocm")
def pageable_source_target() -> fp.Design:
    """The staged copy writes its target later; on ROCm the call has waited (S52), and only the next one can be early."""
    d = fp.Design("pageable source target")
    a, g, side, scratch = d.pageable("a"), d.device("g"), d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        g.copy_(a, non_blocking=True)
        d.launch("use", reads=[g], stream=side)

    return d


@declared(fp.REFUTED, "RAW g")
@declared(fp.PROVED, platform="rocm")
def pageable_source_and_another_stream() -> fp.Design:
    """On ROCm the call has waited (S52), so that another stream may read the target at once."""
    d = fp.Design("pageable source and another stream")
    a, g, side, scratch = d.pageable("a"), d.device("g"), d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        g.copy_(a, non_blocking=True)
        d.launch("use", reads=[g], stream=side)
        side.synchronize()

    return d


@declared(fp.PROVED)
@declared(fp.REFUTED, "RAW a", platform="cuda-late-pageable")
def pageable_target() -> fp.Design:
    """A copy into pageable memory waits, non_blocking or not (S48)."""
    d = fp.Design("pageable target")
    a, g = d.pageable("a"), d.device("g")

    @d.loop("thread")
    def thread() -> None:
        a.copy_(g, non_blocking=True)
        a.read()

    return d


@declared(fp.REFUTED, "RAW h")
def memset_runs_later() -> fp.Design:
    """A fill is asynchronous (S39)."""
    d = fp.Design("memset runs later")
    h, scratch = d.pinned("h"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        d.memset(h)
        h.read()

    return d


@declared(fp.PROVED)
def item_waits() -> fp.Design:
    """`.item()` waits for its stream (S33)."""
    d = fp.Design("item waits")
    h, g, x = d.pinned("h"), d.device("g"), d.device("x")

    @d.loop("thread")
    def thread() -> None:
        h.copy_(g, non_blocking=True)
        x.item()
        h.read()

    return d


@declared(fp.REFUTED, "RAW x")
def item_reads() -> fp.Design:
    """What another stream writes is read by `.item()`."""
    d = fp.Design("item reads")
    x, side, scratch = d.device("x"), d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        d.launch("produce", writes=[x], stream=side)
        x.item()

    @d.loop("waits")
    def waits() -> None:
        d.current_stream().synchronize()

    return d


@declared(fp.REFUTED, "RAW x", "WAR x")
@declared(fp.MASKED, environment="launch-blocking-kernels")
@declared(fp.MASKED, environment="one-hardware-queue")
@declared(fp.REFUTED, "RAW x", "WAR x", environment="serial-copy-engine")
def two_streams() -> fp.Design:
    """Kernels of two streams are not ordered (S3)."""
    d = fp.Design("two streams")
    x, side, scratch = d.device("x"), d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        d.launch("produce", writes=[x])
        d.launch("consume", reads=[x], stream=side)

    return d


@declared(fp.REFUTED, "RAW m", "WAR m")
def host_writes() -> fp.Design:
    """Two host threads, one writes and one reads."""
    d = fp.Design("host writes")
    m, scratch = d.pinned("m"), d.pageable("scratch")

    @d.loop("writer")
    def writer() -> None:
        scratch.write()
        scratch.read()
        m.write()

    @d.loop("reader")
    def reader() -> None:
        m.read()

    return d


@declared(fp.PROVED)
def reads_only() -> fp.Design:
    """Two reads are no conflict."""
    d = fp.Design("reads only")
    x, side, scratch = d.device("x"), d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        d.launch("one", reads=[x])
        d.launch("two", reads=[x], stream=side)

    return d


@declared(fp.PROVED)
def one_kernel_reads_and_writes() -> fp.Design:
    """One kernel never conflicts with itself; the next one of its stream comes after it."""
    d = fp.Design("one kernel reads and writes")
    x, m, side = d.device("x"), d.pinned("m"), d.stream("side")

    @d.loop("thread")
    def thread() -> None:
        d.launch("step", reads=[x, m], writes=[x])
        d.current_stream().wait_stream(side)
        side.wait_stream(d.current_stream())
        d.launch("look", reads=[x], stream=side)
        d.current_stream().wait_stream(side)

    return d
