"""Small designs, each of which stands on few rules of the semantics: without one of them its answer is another one.

`scratch` is memory that one thread alone writes and reads: a conflict in every design, so that a proof says something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import fencepost as fp
from fencepost.model import program as p

from program_writer import Tree, Writer, r, w


class Declared(NamedTuple):
    """A design and its answer."""

    function: Callable[[], fp.Design | p.Program]
    verdict: str
    hazards: tuple[str, ...] = ()
    environment: str | None = None
    platform: str | None = None
    strict: bool = False
    order: tuple[str, ...] = ()
    """Judge one run only: the threads in the order in which they move, a step each."""

    @property
    def answer(self) -> str:
        """Verdict, and the names of all hazards."""
        if self.order and not self.verdict:
            return f"in this run: {', '.join(sorted(self.hazards)) or 'ordered'}"
        return f"{self.verdict}: {', '.join(sorted(self.hazards))}" if self.hazards else self.verdict


DESIGNS: dict[str, Declared] = {}
"""By name of the function, and of the world where a design is decided in several."""


def declared(
    verdict: str, *hazards: str, environment: str | None = None, platform: str | None = None, strict: bool = False
) -> Callable[[Callable[[], fp.Design]], Callable[[], fp.Design]]:
    """Enter a design. Every hazard is named: another one, or one more, is another answer."""

    def enter(function: Callable[[], fp.Design]) -> Callable[[], fp.Design]:
        world = [w for w in (platform, environment, "strict" if strict else None) if w]
        name = " ".join([function.__name__, *world])
        DESIGNS[name] = Declared(function, verdict, hazards, environment, platform, strict)
        return function

    return enter


def in_the_run(order: str, *hazards: str) -> Callable[[Callable[[], fp.Design]], Callable[[], fp.Design]]:
    """Enter a design of which one run is judged. `order`: initials of the threads, one for each step.

    For edges that no verdict shows: the two calls could come in the other order too, and there they are a hazard.
    """

    def enter(function: Callable[[], fp.Design]) -> Callable[[], fp.Design]:
        DESIGNS[function.__name__] = Declared(function, "", hazards, order=tuple(order))
        return function

    return enter


# ---------------------------------------------------------------- copies, kernels, fills


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


# ---------------------------------------------------------------- events and streams


@declared(fp.PROVED)
def event_guard() -> fp.Design:
    """The event of the last turn's copy is waited for before the refill; in the first turn it says nothing (S18)."""
    d = fp.Design("event guard")
    m, g, copied = d.pinned("m"), d.device("g"), d.event("copied")

    @d.loop("thread")
    def thread() -> None:
        copied.synchronize()
        m.write()
        g.copy_(m, non_blocking=True)
        copied.record()

    return d


@declared(fp.REFUTED, "WAR m")
def recorded_again() -> fp.Design:
    """A record forgets the earlier capture (S19)."""
    d = fp.Design("recorded again")
    m, g, copied, side = d.pinned("m"), d.device("g"), d.event("copied"), d.stream("side")
    out, ran, scratch = d.device("out"), d.event("ran"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        m.write()
        g.copy_(m, non_blocking=True)
        copied.record()
        d.launch("other", writes=[out], stream=side)
        ran.record(side)
        copied.record(side)
        copied.synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
def recorded_again_and_asked() -> fp.Design:
    """The same with a query, which keeps more of every event."""
    d = fp.Design("recorded again and asked")
    m, g, copied, side = d.pinned("m"), d.device("g"), d.event("copied"), d.stream("side")

    @d.loop("thread")
    def thread() -> None:
        m.write()
        g.copy_(m, non_blocking=True)
        copied.record()
        copied.record(side)
        if not copied.query():
            copied.synchronize()

    return d


@declared(fp.PROVED)
def asked_then_waited_for() -> fp.Design:
    """Who is told "no" waits."""
    d = fp.Design("asked, then waited for")
    m, g, copied = d.pinned("m"), d.device("g"), d.event("copied")

    @d.loop("thread")
    def thread() -> None:
        m.write()
        g.copy_(m, non_blocking=True)
        copied.record()
        if not copied.query():
            copied.synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
def fresh_event_says_nothing() -> fp.Design:
    """A wait for an event that was made after the record of another one (S17, S18)."""
    d = fp.Design("fresh event says nothing")
    m, g, scratch = d.pinned("m"), d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        m.write()
        g.copy_(m, non_blocking=True)
        copied = d.event("copied")
        copied.record()
        other = d.event("other")
        with d.maybe("record it"):
            other.record()
        other.synchronize()

    return d


@declared(fp.REFUTED, "RAW x", "WAR x")
def recorded_once_after_hand_over() -> fp.Design:
    """The consumer may wait before the record, and launch before or after the producer does (S21)."""
    d = fp.Design("recorded once after hand-over")
    handed = d.queue("handed", capacity=1, item=fp.EVENT)
    x, side = d.device("x"), d.stream("side")

    @d.script("producer")
    def producer() -> None:
        ready = d.event("ready")
        handed.put(ready)
        d.launch("produce", writes=[x])
        ready.record()

    @d.script("consumer", stream=side)
    def consumer() -> None:
        ready = handed.get()
        side.wait_event(ready)
        d.launch("consume", reads=[x])

    return d


@declared(fp.PROVED)
def event_between_streams() -> fp.Design:
    """One stream waits for another's event, and the other way round by a stream wait (S20, S22)."""
    d = fp.Design("event between streams")
    x, side, ready = d.device("x"), d.stream("side"), d.event("ready")

    @d.loop("thread")
    def thread() -> None:
        d.launch("produce", writes=[x])
        ready.record()
        side.wait_event(ready)
        d.launch("consume", reads=[x], stream=side)
        d.current_stream().wait_stream(side)

    return d


@declared(fp.PROVED)
def event_between_streams_and_asked() -> fp.Design:
    """The same where an event is queried."""
    d = fp.Design("event between streams and asked")
    x, side, ready, y = d.device("x"), d.stream("side"), d.event("ready"), d.pinned("y")

    @d.loop("thread")
    def thread() -> None:
        d.launch("produce", writes=[x])
        ready.record()
        side.wait_event(ready)
        d.launch("consume", reads=[x], stream=side)
        d.current_stream().wait_stream(side)
        if ready.query():
            y.write()
        d.launch("late", reads=[y], stream=side)
        side.synchronize()

    return d


@declared(fp.REFUTED, "WAR x")
def waits_before_the_record() -> fp.Design:
    """A wait takes the latest record at its call (S20, S21)."""
    d = fp.Design("waits before the record")
    x, side, ready, scratch = d.device("x"), d.stream("side"), d.event("ready"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        side.wait_event(ready)
        d.launch("consume", reads=[x], stream=side)
        d.launch("produce", writes=[x])
        ready.record()
        d.current_stream().wait_stream(side)

    return d


@declared(fp.PROVED)
def device_is_synchronized() -> fp.Design:
    """`torch.cuda.synchronize` waits for every stream of the GPU (S32)."""
    d = fp.Design("device is synchronized")
    m, g, side = d.pinned("m"), d.device("g"), d.stream("side")

    @d.loop("thread")
    def thread() -> None:
        m.write()
        g.copy_(m, non_blocking=True, stream=side)
        d.synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
def other_device_is_synchronized() -> fp.Design:
    """... and of no other GPU."""
    d = fp.Design("other device is synchronized")
    m, g, side, scratch = d.pinned("m"), d.device("g"), d.stream("side", gpu=1), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        m.write()
        g.copy_(m, non_blocking=True, stream=side)
        d.synchronize(gpu=0)

    return d


@declared(fp.PROVED)
def query_says_yes() -> fp.Design:
    """A "yes" is as good as a synchronize (S24); a "no" leaves the buffer alone."""
    d = fp.Design("query says yes")
    m, g, copied = d.pinned("m"), d.device("g"), d.event("copied")

    @d.loop("thread")
    def thread() -> None:
        if copied.query():
            m.write()
            g.copy_(m, non_blocking=True)
            copied.record()

    return d


@declared(fp.PROVED)
def stream_says_yes() -> fp.Design:
    """An idle stream has done everything (S34)."""
    d = fp.Design("stream says yes")
    m, g, side = d.pinned("m"), d.device("g"), d.stream("side")

    @d.loop("thread")
    def thread() -> None:
        if side.query():
            m.write()
            g.copy_(m, non_blocking=True, stream=side)

    return d


@declared(fp.PROVED)
def no_comes_after_the_record() -> fp.Design:
    """Who is told "no" comes after the record call: a never recorded event says "yes" (S18, S24)."""
    d = fp.Design("no comes after the record")
    m, x, done, side = d.pinned("m"), d.device("x"), d.event("done"), d.stream("side")

    @d.script("main")
    def main() -> None:
        d.launch("work", writes=[x], stream=side)
        m.write()
        done.record(side)

    @d.loop("asks")
    def asks() -> None:
        if not done.query():
            m.read()

    return d


@declared(fp.PROVED)
def no_comes_after_the_enqueue() -> fp.Design:
    """An idle stream says "yes": who is told "no" comes after a call that put work there (S34)."""
    d = fp.Design("no comes after the enqueue")
    m, x, side = d.pinned("m"), d.device("x"), d.stream("side")

    @d.script("main")
    def main() -> None:
        m.write()
        d.launch("work", writes=[x], stream=side)

    @d.loop("asks")
    def asks() -> None:
        if not side.query():
            m.read()

    return d


@declared(fp.PROVED)
def no_comes_after_a_wait_on_the_other_stream() -> fp.Design:
    """A stream that waits for another one is busy while that one is."""
    d = fp.Design("no comes after a wait on the other stream")
    m, x, one, two = d.pinned("m"), d.device("x"), d.stream("one"), d.stream("two")

    @d.script("main")
    def main() -> None:
        d.launch("work", writes=[x], stream=one)
        m.write()
        two.wait_stream(one)

    @d.loop("asks")
    def asks() -> None:
        if not two.query():
            m.read()

    return d


@declared(fp.PROVED)
def no_comes_after_a_wait_for_the_event() -> fp.Design:
    """The same through an event."""
    d = fp.Design("no comes after a wait for the event")
    m, x, one, two, e = d.pinned("m"), d.device("x"), d.stream("one"), d.stream("two"), d.event("e")

    @d.script("main")
    def main() -> None:
        d.launch("work", writes=[x], stream=one)
        e.record(one)
        m.write()
        two.wait_event(e)

    @d.loop("asks")
    def asks() -> None:
        if not two.query():
            m.read()

    return d


def _told_of_a_wait(by_event: bool) -> fp.Design:
    """A stream is busy because it waits: who is told so comes after what the wait is for was called (was UNKNOWN)."""
    d = fp.Design("told of a wait" + (" for an event" if by_event else ""))
    m, x, one, two, e = d.pinned("m"), d.device("x"), d.stream("one"), d.stream("two"), d.event("e")

    @d.script("main")
    def main() -> None:
        m.write()
        d.launch("work", writes=[x], stream=one)
        e.record(one)

    @d.script("waits")
    def waits() -> None:
        if by_event:
            two.wait_event(e)
        else:
            two.wait_stream(one)

    @d.loop("asks")
    def asks() -> None:
        if not two.query():
            m.read()

    return d


DESIGNS["told_of_a_wait"] = Declared(lambda: _told_of_a_wait(False), fp.PROVED)
DESIGNS["told_of_a_wait_for_an_event"] = Declared(lambda: _told_of_a_wait(True), fp.PROVED)


@declared(fp.REFUTED, "RAW m")
def no_of_a_waiting_stream() -> fp.Design:
    """A stream with nothing of its own can be busy: it waits for another one's work."""
    d = fp.Design("no of a waiting stream")
    m, x, one, two = d.pinned("m"), d.device("x"), d.stream("one"), d.stream("two")

    @d.script("main")
    def main() -> None:
        d.launch("work", writes=[x, m], stream=one)
        two.wait_stream(one)
        if not two.query():
            m.read()

    return d


@declared(fp.REFUTED, "RAW m")
def no_of_a_stream_that_waits_for_an_event() -> fp.Design:
    """The same through an event."""
    d = fp.Design("no of a stream that waits for an event")
    m, x, one, two, e = d.pinned("m"), d.device("x"), d.stream("one"), d.stream("two"), d.event("e")

    @d.script("main")
    def main() -> None:
        d.launch("work", writes=[x, m], stream=one)
        e.record(one)
        two.wait_event(e)
        if not two.query():
            m.read()

    return d


def _known(how: str) -> fp.Design:
    """After a wait for the work no query says "no": what stands there never runs, and no proof says so."""
    d = fp.Design(f"known complete by {how}")
    m, e, side, scratch = d.pinned("m"), d.event("e"), d.stream("side"), d.pageable("scratch")
    other = d.stream("other")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        d.launch("work", writes=[m], stream=side)
        e.record(side)
        if how in ("event", "event, waited for"):
            e.synchronize()
        elif how == "stream":
            side.synchronize()
        elif how == "device":
            d.synchronize()
        elif how == "query":
            if not e.query():
                side.synchronize()
                return
        elif how == "stream query" and not side.query():
            side.synchronize()
            return
        asked = side if how in ("stream", "device", "stream query") else e
        if how == "event, waited for":
            other.wait_event(e)
            asked = other
        if not asked.query():
            scratch.read()
        side.synchronize()

    return d


for _how in ("event", "event, waited for", "stream", "device", "query", "stream query"):
    DESIGNS[f"known complete by {_how}"] = Declared(lambda how=_how: _known(how), fp.UNKNOWN)  # type: ignore[misc]


@declared(fp.UNKNOWN)
def no_is_impossible_on_an_idle_stream() -> fp.Design:
    """A record behind completed work is complete at once: "no" never comes, and what stands there never runs."""
    d = fp.Design("no is impossible on an idle stream")
    m, e, side, scratch = d.pinned("m"), d.event("e"), d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        d.launch("work", writes=[m], stream=side)
        side.synchronize()
        e.record(side)
        if not e.query():
            scratch.read()
        side.synchronize()

    return d


@declared(fp.UNKNOWN)
def never_recorded_says_yes() -> fp.Design:
    """An event that nobody records says "yes" (S18): what stands behind a "no" never runs."""
    d = fp.Design("never recorded says yes")
    m, e, side, scratch = d.pinned("m"), d.event("e"), d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        d.launch("work", writes=[m], stream=side)
        if not e.query():
            scratch.read()
        side.synchronize()

    return d


@declared(fp.UNKNOWN)
def waiting_for_a_never_recorded_event() -> fp.Design:
    """A wait for it does nothing, so that the stream stays idle (S18)."""
    d = fp.Design("waiting for a never recorded event")
    m, e, side, scratch = d.pinned("m"), d.event("e"), d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        side.wait_event(e)
        if not side.query():
            scratch.read()
        d.launch("other", writes=[m])

    return d


# ---------------------------------------------------------------- host threads meet


def _meeting(name: str, verdict: str, before: bool) -> None:
    """Enter a design in which one thread writes and another reads after having seen what the first did."""

    def build() -> fp.Design:
        d = fp.Design(f"{name}, written {'before' if before else 'after'}")
        m, scratch = d.pinned("m"), d.pageable("scratch")
        q = d.queue("q", capacity=1, item=())
        tagged = d.queue("tagged", capacity=1, item={"a": (), "b": ()})
        cell, flag, counter, lock = d.cell("cell", item=()), d.flag("flag"), d.counter("counter"), d.lock("lock")

        def call() -> None:
            if name in ("get", "full", "holds"):
                q.put()
            elif name == "tag":
                tagged.put("a")
            elif name in ("cell empty", "cell take"):
                cell.set()
            elif name in ("flag wait", "flag is set"):
                flag.set()
            elif name in ("counter wait", "counter at least"):
                counter.add()
            else:
                lock.acquire()

        @d.script("writer")
        def writer() -> None:
            scratch.write()
            scratch.read()
            if before:
                m.write()
            call()
            if not before:
                m.write()

        @d.script("reader")
        def reader() -> None:
            if name == "get":
                q.get()
            elif name == "tag":
                tagged.get()
            elif name == "flag wait":
                flag.wait()
            elif name == "counter wait":
                counter.wait(1)
            elif name == "cell take":
                if cell.empty():
                    return
                cell.take()
            elif name == "full":
                if not q.full():
                    return
            elif name == "holds":
                if not q.holds(1):
                    return
            elif name == "cell empty":
                if cell.empty():
                    return
            elif name == "flag is set":
                if not flag.is_set():
                    return
            elif name == "counter at least":
                if not counter >= 1:
                    return
            elif lock.try_acquire():
                return
            m.read()

        return d

    hazards = () if verdict == fp.PROVED else ("RAW m", "WAR m")
    DESIGNS[f"{name}, written {'before' if before else 'after'}"] = Declared(build, verdict, hazards)


for _name in ("get", "full", "holds", "cell empty", "cell take", "flag wait", "flag is set", "counter wait",
              "counter at least", "try lock"):  # fmt: skip
    _meeting(_name, fp.PROVED, True)
    _meeting(_name, fp.REFUTED, False)


@declared(fp.PROVED)
def tag_is_seen() -> fp.Design:
    """The tag of the oldest item tells of its put, before the get."""
    d = fp.Design("tag is seen")
    m = d.pinned("m")
    q, back = d.queue("q", capacity=1, item={"a": (), "b": ()}), d.queue("back", capacity=1, item=())

    @d.loop("writer")
    def writer() -> None:
        m.write()
        if d.choose("kind", ["a", "b"]) == "a":
            q.put("a")
        else:
            q.put("b")
        back.get()

    @d.loop("reader")
    def reader() -> None:
        q.get()
        m.read()
        back.put()

    return d


@declared(fp.PROVED)
def slots_behind_a_queue() -> fp.Design:
    """A ring of 3 behind a queue of 1: the put waits for room, and get i -> put i + 1, get i -> get i + 1."""
    d = fp.Design("slots behind a queue")
    m = d.pinned("m", depth=3)
    q = d.queue("q", capacity=1, item=fp.MEMORY)

    @d.loop("producer")
    def producer(n: fp.Turn) -> None:
        m[n].write()
        q.put(m[n])

    @d.loop("consumer")
    def consumer() -> None:
        q.get().read()

    return d


@declared(fp.REFUTED, "RAW m", "WAR m")
def too_few_slots_behind_a_queue() -> fp.Design:
    """A ring of 2 there."""
    d = fp.Design("too few slots behind a queue")
    m, scratch = d.pinned("m", depth=2), d.pageable("scratch")
    q = d.queue("q", capacity=1, item=fp.MEMORY)

    @d.loop("producer")
    def producer(n: fp.Turn) -> None:
        scratch.write()
        scratch.read()
        m[n].write()
        q.put(m[n])

    @d.loop("consumer")
    def consumer() -> None:
        q.get().read()

    return d


@declared(fp.PROVED)
def get_to_next_get() -> fp.Design:
    """Who gets the second item comes after the first get, whoever made it."""
    d = fp.Design("get to next get")
    m, q = d.pinned("m"), d.queue("q", capacity=2, item={"a": (), "b": ()})

    @d.script("puts")
    def puts() -> None:
        q.put("a")
        q.put("b")

    @d.script("first")
    def first() -> None:
        m.write()
        q.get()

    @d.script("second")
    def second() -> None:
        if q.get().tag == "b":
            m.read()

    return d


@declared(fp.PROVED)
def second_item() -> fp.Design:
    """Who gets the second item comes after the get of the first."""
    d = fp.Design("second item")
    x, y, q = d.pinned("x"), d.pinned("y"), d.queue("q", capacity=2, item=fp.MEMORY)

    @d.setup
    def setup() -> None:
        x.write()

    @d.script("puts")
    def puts() -> None:
        q.put(x)
        q.put(y)

    @d.script("first")
    def first() -> None:
        y.write()
        q.get()

    @d.script("second")
    def second() -> None:
        q.get().read()

    return d


@declared(fp.PROVED)
def queue_is_emptied() -> fp.Design:
    """Seeing a queue empty that setup filled comes after the get."""
    d = fp.Design("queue is emptied")
    m, q = d.pinned("m"), d.queue("q", capacity=1, item=())

    @d.setup
    def setup() -> None:
        q.put()

    @d.script("writer")
    def writer() -> None:
        m.write()
        q.get()

    @d.loop("reader")
    def reader() -> None:
        if q.empty():
            m.read()

    return d


@in_the_run("AA")
def two_reads_in_a_run() -> fp.Design:
    """Two reads are no conflict."""
    d = fp.Design("two reads in a run")
    x, side = d.device("x"), d.stream("side")

    @d.script("A")
    def first() -> None:
        d.launch("one", reads=[x])
        d.launch("two", reads=[x], stream=side)

    return d


def _empty_cell() -> fp.Design:
    d = fp.Design("get from an empty cell")
    m, cell = d.pinned("m"), d.cell("cell", item=())

    @d.script("A")
    def first() -> None:
        m.write()
        cell.get()

    return d


DESIGNS["get_from_an_empty_cell"] = Declared(_empty_cell, "design error", order=("A", "A"))


@declared(fp.UNKNOWN)
def both_say_no() -> fp.Design:
    """Each saw the other's event complete and its own not: impossible together, so the two accesses never meet."""
    d = fp.Design("both say no")
    m, x, one, two = d.pinned("m"), d.device("x", depth=2), d.stream("one"), d.stream("two")
    e, f, also_e, also_f = d.event("e"), d.event("f"), d.event("also e"), d.event("also f")

    @d.setup
    def setup() -> None:
        m.write()
        d.launch("one", writes=[x[0]], stream=one)
        e.record(one)
        also_e.record(one)
        d.launch("two", writes=[x[1]], stream=two)
        f.record(two)
        also_f.record(two)

    @d.script("writer")
    def writer() -> None:
        f.synchronize()
        if not e.query():
            m.write()

    @d.script("reader")
    def reader() -> None:
        also_e.synchronize()
        if not also_f.query():
            m.read()

    return d


@in_the_run("AABB")
def set_behind_a_set() -> fp.Design:
    """An operation on a cell comes after every earlier one."""
    d = fp.Design("set behind a set")
    m, cell = d.pinned("m"), d.cell("cell", item=())

    @d.script("A")
    def first() -> None:
        m.write()
        cell.set()

    @d.script("B")
    def second() -> None:
        cell.set()
        m.read()

    return d


@in_the_run("AABB")
def clear_behind_a_set() -> fp.Design:
    """So does a clear."""
    d = fp.Design("clear behind a set")
    m, cell = d.pinned("m"), d.cell("cell", item=())

    @d.script("A")
    def first() -> None:
        m.write()
        cell.set()

    @d.script("B")
    def second() -> None:
        cell.clear()
        m.read()

    return d


@in_the_run("BBAABB")
def get_behind_a_set() -> fp.Design:
    """So does a get, also behind a test that said "not empty" before."""
    d = fp.Design("get behind a set")
    m, cell = d.pinned("m"), d.cell("cell", item=())

    @d.script("A")
    def first() -> None:
        m.write()
        cell.set()

    @d.script("B")
    def second() -> None:
        cell.set()
        if not cell.empty():
            cell.get()
            m.read()

    return d


@in_the_run("AABB")
def clear_behind_a_flag_set() -> fp.Design:
    """A clear comes after the stores before it."""
    d = fp.Design("clear behind a flag set")
    m, flag = d.pinned("m"), d.flag("flag")

    @d.script("A")
    def first() -> None:
        m.write()
        flag.set()

    @d.script("B")
    def second() -> None:
        flag.clear()
        m.read()

    return d


@in_the_run("AABB")
def record_behind_a_write() -> fp.Design:
    """A record is an item of its stream: it starts after its call, and what follows after it (S2)."""
    d = fp.Design("record behind a write")
    m, e, s, g = d.pinned("m"), d.event("e"), d.stream("s"), d.stream("other")

    @d.script("A")
    def first() -> None:
        m.write()
        e.record(s)

    @d.script("B")
    def second() -> None:
        d.launch("use", reads=[m], stream=s)
        g.wait_event(e)

    return d


@in_the_run("AABB")
def record_behind_a_write_where_one_asks() -> fp.Design:
    """The same where an event is queried."""
    d = fp.Design("record behind a write, where one asks")
    m, e, s = d.pinned("m"), d.event("e"), d.stream("s")

    @d.script("A")
    def first() -> None:
        m.write()
        e.record(s)

    @d.script("B")
    def second() -> None:
        d.launch("use", reads=[m], stream=s)
        if e.query():
            s.synchronize()

    return d


@in_the_run("CAABB")
def wait_behind_a_write_where_one_asks() -> fp.Design:
    """So is a wait for an event (S20)."""
    d = fp.Design("wait behind a write, where one asks")
    m, e, s, other = d.pinned("m"), d.event("e"), d.stream("s"), d.stream("other")

    @d.script("C")
    def third() -> None:
        e.record(other)

    @d.script("A")
    def first() -> None:
        m.write()
        s.wait_event(e)

    @d.script("B")
    def second() -> None:
        d.launch("use", reads=[m], stream=s)
        if e.query():
            s.synchronize()

    return d


@in_the_run("AABB")
def stream_wait_behind_a_write() -> fp.Design:
    """The record that a stream wait makes is an item of the other stream (S22)."""
    d = fp.Design("stream wait behind a write")
    m, s, other = d.pinned("m"), d.stream("s"), d.stream("other")

    @d.script("A")
    def first() -> None:
        m.write()
        other.wait_stream(s)

    @d.script("B")
    def second() -> None:
        d.launch("use", reads=[m], stream=s)
        s.synchronize()

    return d


@declared(fp.PROVED)
def cell_is_cleared() -> fp.Design:
    """Seeing a cell empty that setup filled comes after the clear."""
    d = fp.Design("cell is cleared")
    m, cell = d.pinned("m"), d.cell("cell", item=())

    @d.setup
    def setup() -> None:
        cell.set()

    @d.script("writer")
    def writer() -> None:
        m.write()
        cell.clear()

    @d.loop("reader")
    def reader() -> None:
        if cell.empty():
            m.read()

    return d


@declared(fp.PROVED)
def cell_is_taken() -> fp.Design:
    """... or after a take."""
    d = fp.Design("cell is taken")
    m, cell = d.pinned("m"), d.cell("cell", item=())

    @d.setup
    def setup() -> None:
        cell.set()

    @d.script("writer")
    def writer() -> None:
        m.write()
        cell.take()

    @d.loop("reader")
    def reader() -> None:
        if cell.empty():
            m.read()

    return d


@declared(fp.PROVED)
def cell_is_set_over() -> fp.Design:
    """A set, a get and a clear come after every earlier operation on the cell; the values tell which."""
    d = fp.Design("cell is set over")
    m, cell, pages = d.pinned("m"), d.cell("cell", item=()), d.flag("other")

    @d.script("writer")
    def writer() -> None:
        m.write()
        cell.set()

    @d.script("second")
    def second() -> None:
        if not cell.empty():
            cell.get()
            cell.clear()
            m.read()
            pages.set()

    return d


@declared("design error")
def cell_may_be_empty() -> fp.Design:
    """Getting from a cell that can be empty is a design error."""
    d = fp.Design("cell may be empty")
    m, cell = d.pinned("m"), d.cell("cell", item=())

    @d.loop("reader")
    def reader() -> None:
        m.write()
        if d.choose("fill", [True, False]):
            cell.set()
        cell.take()

    return d


@declared(fp.PROVED)
def locked() -> fp.Design:
    """A lock excludes and orders: unlock -> acquire."""
    d = fp.Design("locked")
    m, lock = d.pinned("m"), d.lock("lock")

    @d.loop("writer")
    def writer() -> None:
        with lock:
            m.write()

    @d.loop("reader")
    def reader() -> None:
        with lock:
            m.read()

    return d


@declared(fp.REFUTED, "RAW m", "WAR m")
def two_may_enter() -> fp.Design:
    """A semaphore of 2 lets both in."""
    d = fp.Design("two may enter")
    m, room, scratch = d.pinned("m"), d.semaphore("room", 2), d.pageable("scratch")

    @d.loop("writer")
    def writer() -> None:
        scratch.write()
        scratch.read()
        room.acquire()
        m.write()
        room.release()

    @d.loop("reader")
    def reader() -> None:
        room.acquire()
        m.read()
        room.release()

    return d


@declared(fp.PROVED)
def try_lock_takes() -> fp.Design:
    """A try-lock that says yes holds the lock, and comes after the unlocks."""
    d = fp.Design("try lock takes")
    m, lock = d.pinned("m"), d.lock("lock")

    @d.loop("writer")
    def writer() -> None:
        if lock.try_acquire():
            m.write()
            lock.release()

    @d.loop("reader")
    def reader() -> None:
        with lock:
            m.read()

    return d


@declared(fp.PROVED)
def flag_is_cleared() -> fp.Design:
    """Reading "unset" of a flag that setup had set comes after the clear."""
    d = fp.Design("flag is cleared")
    m, flag = d.pinned("m"), d.flag("flag")

    @d.setup
    def setup() -> None:
        flag.set()

    @d.script("writer")
    def writer() -> None:
        m.write()
        flag.clear()

    @d.loop("reader")
    def reader() -> None:
        if not flag.is_set():
            m.read()

    return d


@declared(fp.PROVED)
def flag_there_and_back() -> fp.Design:
    """Set, wait and clear hand a buffer back and forth: the clear comes after the set."""
    d = fp.Design("flag there and back")
    m, full, free = d.pinned("m"), d.flag("full"), d.flag("free")

    @d.setup
    def setup() -> None:
        free.set()

    @d.loop("writer")
    def writer() -> None:
        free.wait()
        free.clear()
        m.write()
        full.set()

    @d.loop("reader")
    def reader() -> None:
        full.wait()
        full.clear()
        m.read()
        free.set()

    return d


@declared(fp.PROVED)
def clear_comes_after_the_set() -> fp.Design:
    """A clear stores after every earlier store, so the thread that clears knows of them."""
    d = fp.Design("clear comes after the set")
    m, flag = d.pinned("m"), d.flag("flag")

    @d.script("writer")
    def writer() -> None:
        m.write()
        flag.set()

    @d.script("reader")
    def reader() -> None:
        if flag.is_set():
            m.read()
        flag.clear()

    return d


@declared(fp.PROVED)
def counter_per_turn() -> fp.Design:
    """The reader's turn n waits for n + 1 adds, and the writer for n reads."""
    d = fp.Design("counter per turn")
    m, written, read = d.pinned("m"), d.counter("written"), d.counter("read")

    @d.loop("writer")
    def writer(n: fp.Turn) -> None:
        read.wait(n)
        m.write()
        written.add()

    @d.loop("reader")
    def reader(n: fp.Turn) -> None:
        written.wait(n + 1)
        m.read()
        read.add()

    return d


@declared(fp.REFUTED, "RAW m", "WAR m")
def counter_one_short() -> fp.Design:
    """The writer waits for one read less."""
    d = fp.Design("counter one short")
    m, written, read, scratch = d.pinned("m"), d.counter("written"), d.counter("read"), d.pageable("scratch")

    @d.loop("writer")
    def writer(n: fp.Turn) -> None:
        scratch.write()
        scratch.read()
        read.wait(n - 1)
        m.write()
        written.add()

    @d.loop("reader")
    def reader(n: fp.Turn) -> None:
        written.wait(n + 1)
        m.read()
        read.add()

    return d


@declared(fp.PROVED)
def setup_comes_first() -> fp.Design:
    """What setup did comes before every thread."""
    d = fp.Design("setup comes first")
    m = d.pinned("m")

    @d.setup
    def setup() -> None:
        m.write()

    @d.loop("thread")
    def thread() -> None:
        m.read()

    return d


@declared(fp.PROVED)
def first_turn() -> fp.Design:
    """`n < c` follows the turn: only the first turn writes, before a queue hands over for ever after."""
    d = fp.Design("first turn")
    m, q = d.pinned("m"), d.queue("q", capacity=1, item=())

    @d.loop("writer")
    def writer(n: fp.Turn) -> None:
        if n == 0:
            m.write()
        q.put()

    @d.loop("reader")
    def reader() -> None:
        q.get()
        m.read()

    return d


@declared(fp.PROVED)
def agreed_choice() -> fp.Design:
    """Both threads get one answer per turn: when one writes, the other does not read."""
    d = fp.Design("agreed choice")
    m, there, back = d.pinned("m"), d.queue("there", capacity=1, item=()), d.queue("back", capacity=1, item=())

    @d.loop("writer")
    def writer() -> None:
        if d.choose("kind", ["write", "read"], agreed=True) == "write":
            m.write()
        there.put()
        back.get()

    @d.loop("reader")
    def reader() -> None:
        if d.choose("kind", ["write", "read"], agreed=True) == "read":
            m.read()
        back.put()
        there.get()

    return d


@declared(fp.REFUTED, "RAW m", "WAR m")
def open_choice() -> fp.Design:
    """Choices that are not agreed fall apart."""
    d = fp.Design("open choice")
    m, there, back = d.pinned("m"), d.queue("there", capacity=1, item=()), d.queue("back", capacity=1, item=())

    @d.loop("writer")
    def writer() -> None:
        if d.choose("my kind", ["write", "read"]) == "write":
            m.write()
        there.put()
        back.get()

    @d.loop("reader")
    def reader() -> None:
        with d.maybe("my block"):
            m.read()
        back.put()
        there.get()

    return d


# ---------------------------------------------------------------- rings, cursors, parts


@declared(fp.PROVED)
def ring_of_two() -> fp.Design:
    """Slot n is guarded by the event of slot n; other slots do not matter."""
    d = fp.Design("ring of two")
    m, g, copied = d.pinned("m", depth=2), d.device("g"), d.event("copied", depth=2)

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        copied[n].synchronize()
        m[n].write()
        g.copy_(m[n], non_blocking=True)
        copied[n].record()

    return d


@declared(fp.REFUTED, "WAR m")
def ring_of_three_events() -> fp.Design:
    """A ring of two slots behind one of three events: slot n was last used two steps ago, its event three."""
    d = fp.Design("ring of three events")
    m, g, copied, scratch = d.pinned("m", depth=2), d.device("g"), d.event("copied", depth=3), d.pageable("scratch")

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        scratch.write()
        scratch.read()
        copied[n].synchronize()
        m[n].write()
        g.copy_(m[n], non_blocking=True)
        copied[n].record()

    return d


@declared(fp.PROVED)
def ring_by_cursor() -> fp.Design:
    """Slots that a cursor gives, handed through a queue with their event."""
    d = fp.Design("ring by cursor")
    m, g, at = d.pinned("m", depth=3), d.device("g"), d.cursor("at", 3)
    q = d.queue("q", capacity=2, item=(fp.EVENT, fp.INDEX))

    @d.loop("thread")
    def thread() -> None:
        i = at.advance()
        m[i].write()
        g.copy_(m[i], non_blocking=True)
        copied = d.event("copied")
        copied.record()
        q.put(copied, i)
        if q.full():
            copied, j = q.get()
            copied.synchronize()
            m[j].read()
            m[at.last()].read()

    return d


@declared(fp.REFUTED, "WAR m")
def cursor_of_two_slots() -> fp.Design:
    """Two outstanding copies, two slots, and the wait behind the refill."""
    d = fp.Design("cursor of two slots")
    m, g, at, scratch = d.pinned("m", depth=2), d.device("g"), d.cursor("at", 2), d.pageable("scratch")
    q = d.queue("q", capacity=3, item=(fp.EVENT, fp.INDEX))

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        i = at.advance()
        m[i].write()
        g.copy_(m[i], non_blocking=True)
        copied = d.event("copied")
        copied.record()
        q.put(copied, i)
        if q.full():
            copied, _ = q.get()
            copied.synchronize()

    return d


@declared(fp.PROVED)
def fixed_slot() -> fp.Design:
    """A slot by number does not turn with the others."""
    d = fp.Design("fixed slot")
    m, g = d.pinned("m", depth=2), d.device("g")

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        m[0].write()
        g.copy_(m[0], non_blocking=True)
        m[1].write()
        d.current_stream().synchronize()
        m[n].read()

    return d


@declared(fp.UNKNOWN)
def cursor_of_two_threads() -> fp.Design:
    """Which slot it gives tells of the other thread's moves, and no edge says so: not decided, and said so."""
    d = fp.Design("cursor of two threads")
    s, m, c = d.stream("s", depth=3), d.device("m", depth=3), d.cursor("c", 3)

    @d.loop("copier")
    def copier(n: fp.Turn) -> None:
        m[c.last()].copy_(m[n], stream=s[n])
        c.advance()

    @d.script("kernel")
    def kernel() -> None:
        i = c.advance()
        d.launch("kernel", writes=[m[i]], stream=s[i])

    return d


@declared(fp.REFUTED, "WAR m")
def fixed_slot_and_turn() -> fp.Design:
    """Every second turn writes slot 0, whose copy may not have run."""
    d = fp.Design("fixed slot and turn")
    m, g, e = d.pinned("m", depth=2), d.device("g"), d.event("e")

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        e.synchronize()
        g.copy_(m[0], non_blocking=True)
        e.record()
        m[n].write()

    return d


@declared(fp.PROVED)
def streams_in_turn() -> fp.Design:
    """Two streams in rotation, each with its slot."""
    d = fp.Design("streams in turn")
    m, x, s = d.pinned("m", depth=2), d.device("x", depth=2), d.stream("s", depth=2)

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        s[n].synchronize()
        m[n].write()
        x[n].copy_(m[n], non_blocking=True, stream=s[n])
        d.launch("use", reads=[x[n]], stream=s[n])

    return d


@declared(fp.REFUTED, "RAW x", "WAR x", "WAW x")
def streams_in_turn_share() -> fp.Design:
    """One target for both streams."""
    d = fp.Design("streams in turn share")
    m, x, s = d.pinned("m", depth=2), d.device("x"), d.stream("s", depth=2)

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        s[n].synchronize()
        m[n].write()
        x.copy_(m[n], non_blocking=True, stream=s[n])

    @d.script("looks")
    def looks() -> None:
        s[0].synchronize()
        d.synchronize()
        x.item()

    return d


@declared(fp.PROVED)
def named_parts() -> fp.Design:
    """Parts of different names are disjoint."""
    d = fp.Design("named parts")
    m, g = d.pinned("m"), d.device("g")

    @d.loop("thread")
    def thread() -> None:
        m["head"].write()
        g.copy_(m["head"], non_blocking=True)
        m["tail"].write()
        m["tail"].read()
        d.current_stream().synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
def same_named_part() -> fp.Design:
    """The same part is not."""
    d = fp.Design("same named part")
    m, g, scratch = d.pinned("m"), d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        g.copy_(m["head"], non_blocking=True)
        m["head"].write()
        m["tail"].write()
        d.current_stream().synchronize()

    return d


@declared(fp.PROVED)
def spans() -> fp.Design:
    """Ranges without a common element are disjoint."""
    d = fp.Design("spans")
    m, g = d.pinned("m"), d.device("g")

    @d.loop("thread")
    def thread() -> None:
        m[0:4].write()
        g.copy_(m[0:4], non_blocking=True)
        m[4:8].write()
        m[4:8].read()
        d.current_stream().synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
def overlapping_spans() -> fp.Design:
    """Ranges with one are not."""
    d = fp.Design("overlapping spans")
    m, g, scratch = d.pinned("m"), d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        g.copy_(m[0:4], non_blocking=True)
        m[2:6].write()
        d.current_stream().synchronize()

    return d


@declared(fp.PROVED)
def rows_by_index() -> fp.Design:
    """Parts chosen by an index are disjoint iff the indices differ."""
    d = fp.Design("rows by index")
    m, g, at, copied = d.pinned("m"), d.device("g"), d.cursor("at", 2), d.event("copied", depth=2)

    @d.loop("thread")
    def thread() -> None:
        i = at.advance()
        copied[i].synchronize()
        m[i].write()
        g.copy_(m[i], non_blocking=True)
        copied[i].record()

    return d


@declared(fp.REFUTED, "WAR m")
def any_part() -> fp.Design:
    """An unknown part may be any."""
    d = fp.Design("any part")
    m, g, scratch = d.pinned("m"), d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        g.copy_(m["head"], non_blocking=True)
        m[fp.ANY].write()
        d.current_stream().synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
def all_rows() -> fp.Design:
    """A copy of the whole reads every row."""
    d = fp.Design("all rows")
    m, g, at, scratch = d.pinned("m"), d.device("g"), d.cursor("at", 2), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        m[at.advance()].write()
        g.copy_(m, non_blocking=True)

    return d


@declared(fp.PROVED)
def fixed_slot_in_one_turn() -> fp.Design:
    """Slot 0 is copied in turn 1, when the turn's own slot is 1."""
    d = fp.Design("fixed slot in one turn")
    m, g, copied = d.pinned("m", depth=2), d.device("g"), d.stream("copied")

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        if n < 2 and n >= 1:
            g.copy_(m[0], non_blocking=True, stream=copied)
        m[n].write()
        copied.synchronize()

    return d


# ---------------------------------------------------------------- same bytes, access level


@declared(fp.PROVED)
@declared(fp.REFUTED, "WAR m", strict=True)
def same_bytes_again() -> fp.Design:
    """A write of the same bytes in the same epoch changes nothing that a late copy reads."""
    d = fp.Design("same bytes again")
    m, g = d.pinned("m"), d.device("g")

    @d.script("thread")
    def thread() -> None:
        m.write()
        g.copy_(m, non_blocking=True)
        m.write(same_bytes=True)

    return d


@declared(fp.REFUTED, "WAR m")
def other_bytes_between() -> fp.Design:
    """Another content in between ends the epoch."""
    d = fp.Design("other bytes between")
    m, g = d.pinned("m"), d.device("g")

    @d.script("thread")
    def thread() -> None:
        m.write()
        g.copy_(m, non_blocking=True)
        with d.maybe("other bytes"):
            d.launch("rewrite", writes=[m])
        m.write(same_bytes=True)

    return d


@declared(fp.PROVED)
@declared(fp.REFUTED, "WAW x", strict=True)
def nobody_reads() -> fp.Design:
    """Two late writes that nobody reads: access-level only, a note, and refuted with --strict."""
    d = fp.Design("nobody reads")
    x, side = d.device("x"), d.stream("side")

    @d.script("thread")
    def thread() -> None:
        d.launch("one", writes=[x])
        d.launch("two", writes=[x], stream=side)

    return d


# ---------------------------------------------------------------- allocators


@declared(fp.PROVED)
def record_stream() -> fp.Design:
    """The block comes back only when the side stream is done with it (S64, S65)."""
    d = fp.Design("record stream")
    side = d.stream("side")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty("t")
        d.launch("produce", writes=[t])
        side.wait_stream(d.current_stream())
        d.launch("consume", reads=[t], stream=side)
        t.record_stream(side)

    return d


@declared(fp.REFUTED, "WAR t")
def no_record_stream() -> fp.Design:
    """Without it the next owner's kernel may run first (case of ATOM #2654)."""
    d = fp.Design("no record stream")
    side, scratch = d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty("t")
        d.launch("produce", writes=[t])
        side.wait_stream(d.current_stream())
        d.launch("consume", reads=[t], stream=side)

    return d


@declared(fp.REFUTED, "WAR t")
def record_stream_of_the_owner() -> fp.Design:
    """Ignored for the stream that owns the block (S64): another stream must wait itself."""
    d = fp.Design("record stream of the owner")
    side, scratch = d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty("t")
        d.launch("first", writes=[t], stream=side)
        d.current_stream().wait_stream(side)
        d.launch("then", reads=[t])
        t.record_stream(d.current_stream())

    return d


@declared(fp.PROVED)
def pinned_source_noted() -> fp.Design:
    """`copy_` tells the host allocator of the copy: the block comes back when it is done (S79, S80)."""
    d = fp.Design("pinned source noted")
    g = d.device("g")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty_pinned("t")
        t.write()
        g.copy_(t, non_blocking=True)

    return d


@declared(fp.PROVED)
def pinned_target_noted() -> fp.Design:
    """So does a copy into the block."""
    d = fp.Design("pinned target noted")
    g = d.device("g")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty_pinned("t")
        t.write()
        t.read()
        t.copy_(g, non_blocking=True)

    return d


@declared(fp.REFUTED, "WAR t")
def raw_copy_is_not_noted() -> fp.Design:
    """`memcpy_async` tells nobody (S83)."""
    d = fp.Design("raw copy is not noted")
    g, scratch = d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty_pinned("t")
        t.write()
        d.memcpy_async(g, t)

    return d


@declared(fp.REFUTED, "WAR t")
def view_is_not_attributed() -> fp.Design:
    """A copy through a view that the host allocator cannot attribute (S84)."""
    d = fp.Design("view is not attributed")
    g, scratch = d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty_pinned("t")
        t.write()
        g.copy_(t.view(attributed=False), non_blocking=True)

    return d


@declared(fp.REFUTED, "WAR t")
def device_note_on_a_pinned_block() -> fp.Design:
    """record_stream is of the device allocator: a pinned block does not hear it (S72)."""
    d = fp.Design("device note on a pinned block")
    g, scratch = d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty_pinned("t")
        t.write()
        d.memcpy_async(g, t)
        t.record_stream(d.current_stream())

    return d


@declared(fp.PROVED)
def blocks_stay_with_their_stream() -> fp.Design:
    """Free lists are per stream (S62, S63): each stream's blocks come back to it alone."""
    d = fp.Design("blocks stay with their stream")
    s = d.stream("s", depth=2)

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        with s[n]:
            t = d.empty("t")
            d.launch("produce", writes=[t])
            d.launch("consume", reads=[t])

    return d


@declared(fp.PROVED)
def two_allocators() -> fp.Design:
    """Blocks of two streams and of the host allocator never meet."""
    d = fp.Design("two allocators")
    one, two, g = d.stream("one"), d.stream("two"), d.device("g")

    @d.loop("first")
    def first() -> None:
        with one:
            t = d.empty("t")
            d.launch("produce", writes=[t])
            d.launch("consume", reads=[t])

    @d.loop("second", stream=two)
    def second() -> None:
        u = d.empty("u")
        d.launch("produce", writes=[u])
        d.launch("consume", reads=[u])

    @d.loop("third")
    def third() -> None:
        h = d.empty_pinned("h")
        h.write()
        g.copy_(h)

    return d


@declared(fp.PROVED)
def block_handed_over() -> fp.Design:
    """The consumer holds the block; its release frees it, and the next owner comes after that."""
    d = fp.Design("block handed over")
    q = d.queue("q", capacity=1, item=fp.MEMORY)

    @d.loop("producer")
    def producer() -> None:
        t = d.empty_pinned("t")
        t.write()
        q.put(t)

    @d.loop("consumer")
    def consumer() -> None:
        q.get().read()

    return d


@declared(fp.PROVED)
def block_in_a_cell() -> fp.Design:
    """A cell holds the block until it is set over or cleared; a get holds it once more."""
    d = fp.Design("block in a cell")
    cell, lock = d.cell("cell", item=fp.MEMORY), d.lock("lock")

    @d.loop("producer")
    def producer() -> None:
        t = d.empty_pinned("t")
        t.write()
        with lock:
            cell.set(t)
            with d.maybe("forget"):
                cell.clear()

    @d.loop("consumer")
    def consumer() -> None:
        with lock:
            if cell.empty():
                return
            t = cell.get()
        t.read()

    return d


@declared(fp.PROVED)
def block_taken_from_a_cell() -> fp.Design:
    """A take moves the reference."""
    d = fp.Design("block taken from a cell")
    cell = d.cell("cell", item=fp.MEMORY)

    @d.loop("producer")
    def producer() -> None:
        t = d.empty_pinned("t")
        t.write()
        if cell.empty():
            cell.set(t)

    @d.loop("consumer")
    def consumer() -> None:
        if not cell.empty():
            cell.take().read()

    return d


@declared(fp.REFUTED, "WAR t")
def cell_lets_go() -> fp.Design:
    """Setting over lets the old block go, though a kernel may still read it."""
    d = fp.Design("cell lets go")
    cell, scratch = d.cell("cell", item=fp.MEMORY), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty_pinned("t")
        t.write()
        d.launch("in place", reads=[t])
        cell.set(t)

    return d


@declared(fp.REFUTED, "WAR t")
def cell_lets_go_when_cleared() -> fp.Design:
    """So does clearing."""
    d = fp.Design("cell lets go when cleared")
    cell, scratch = d.cell("cell", item=fp.MEMORY), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty_pinned("t")
        t.write()
        d.launch("in place", reads=[t])
        cell.set(t)
        t.release()
        cell.clear()
        u = d.empty_pinned("u")
        u.write()
        d.current_stream().synchronize()

    return d


@declared(fp.REFUTED, "UNDEFINED t")
def raw_pointer() -> fp.Design:
    """A raw pointer holds nothing: the kernel reads through it after the free."""
    d = fp.Design("raw pointer")
    side, scratch = d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty_pinned("t")
        t.write()
        w = t.view("w", held=False)
        t.release()
        u = d.empty_pinned("u")
        d.launch("fill", writes=[u], stream=side)
        d.launch("use", reads=[w])
        side.synchronize()
        d.current_stream().synchronize()

    return d


@declared(fp.PROVED)
def view_holds() -> fp.Design:
    """A view holds the block when the tensor is gone."""
    d = fp.Design("view holds")
    q = d.queue("q", capacity=1, item=fp.MEMORY)

    @d.loop("producer")
    def producer() -> None:
        t = d.empty_pinned("t")
        t.write()
        v = t.view("v")
        t.release()
        q.put(v)

    @d.loop("consumer")
    def consumer() -> None:
        q.get().read()

    return d


@declared(fp.REFUTED, "WAR t")
def released_early() -> fp.Design:
    """A release in the middle of the turn frees the block at once."""
    d = fp.Design("released early")
    scratch = d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty_pinned("t")
        t.write()
        d.launch("in place", reads=[t])
        t.release()
        u = d.empty_pinned("u")
        u.write()
        d.current_stream().synchronize()

    return d


@declared(fp.PROVED)
def both_threads_hold() -> fp.Design:
    """Whoever lets go last frees the block, after *both* let go."""
    d = fp.Design("both threads hold")
    q = d.queue("q", capacity=2, item=(fp.EVENT, fp.MEMORY))
    side = d.stream("side")

    @d.loop("worker")
    def worker() -> None:
        t = d.empty("t")
        d.launch("produce", writes=[t])
        side.wait_stream(d.current_stream())
        d.launch("consume", reads=[t], stream=side)
        done = d.event("done")
        done.record(side)
        q.put(done, t)

    @d.loop("output thread")
    def output() -> None:
        done, _ = q.get()
        done.synchronize()

    return d


@declared(fp.REFUTED, "UNDEFINED t")
def read_before_it_is_written() -> fp.Design:
    """A fresh block holds nothing."""
    d = fp.Design("read before it is written")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty_pinned("t")
        t.read()
        t.write()

    return d


@declared(fp.REFUTED, "UNDEFINED t")
def written_elsewhere() -> fp.Design:
    """Writing one part defines that part."""
    d = fp.Design("written elsewhere")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty_pinned("t")
        t["head"].write()
        t["tail"].read()

    return d


@declared(fp.REFUTED, "UNDEFINED t")
def view_of_a_part() -> fp.Design:
    """Writing through a view of one part defines that part only."""
    d = fp.Design("view of a part")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty_pinned("t")
        v = t["head"].view("v")
        v.write()
        t["tail"].read()

    return d


@declared(fp.UNKNOWN)
def unknown_part_written() -> fp.Design:
    """Writing an unknown part defines none for sure: neither undefined nor not."""
    d = fp.Design("unknown part written")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty_pinned("t")
        t[fp.ANY].write()
        t.read()

    return d


@declared(fp.PROVED)
def kinds_of_memory_apart() -> fp.Design:
    """A pinned block never comes back as device memory."""
    d = fp.Design("kinds of memory apart")
    side, scratch = d.stream("side"), d.pageable("scratch")

    @d.script("once")
    def once() -> None:
        scratch.write()
        scratch.read()
        h = d.empty_pinned("h")
        h.write()
        d.launch("in place", reads=[h], stream=side)

    @d.loop("thread")
    def thread() -> None:
        t = d.empty("t")
        d.launch("produce", writes=[t])
        d.launch("consume", reads=[t])

    return d


def _scope_ends() -> p.Program:
    """A block that no release lets go: the end of the turn does (written as data, the language releases itself)."""
    x = Writer()
    x.objects = [p.Stream("main"), p.Stream("side")]
    thread = x.thread()
    t = p.Local(thread.local("t", p.MEMORY))
    thread.body = [
        p.Alloc(t.id, "device", p.Obj(0)), p.Launch("produce", p.Obj(0), (w(t),)), p.WaitStream(p.Obj(1), p.Obj(0)),
        p.Launch("consume", p.Obj(1), (r(t),)),
    ]  # fmt: skip
    return x.program("scope ends")


DESIGNS["scope_ends_with_the_turn"] = Declared(_scope_ends, fp.REFUTED, ("WAR t",))


def _tag_tells(second: bool) -> p.Program:
    """Between the tag's test and the get a buffer is read (written as data: the language gets at once)."""
    x = Writer()
    m = p.Obj(x.add(p.Memory("m", "pinned")))
    q = x.add(p.Queue("q", 2, (("a", ()), ("b", ()))))
    puts, first, look = x.thread("script"), x.thread("script"), x.thread("script")
    write, read = p.Host("write", (w(m),)), p.Host("read", (r(m),))
    tell: Tree = [(p.QueueTag(q), {"a": [p.Get(q, "a", ())], "b": [read, p.Get(q, "b", ())]})]
    if second:
        puts.body = [p.Put(q, "a", ()), p.Put(q, "b", ())]
        first.body = [write, p.Get(q, "a", ())]
    else:
        puts.body = [write, p.Put(q, "b", ())]
        first.body = [p.Put(q, "a", ())]
    look.body = tell
    return x.program("tag tells")


DESIGNS["tag_tells_of_the_put"] = Declared(lambda: _tag_tells(False), fp.PROVED)
DESIGNS["tag_tells_of_the_get_before"] = Declared(lambda: _tag_tells(True), fp.PROVED)


# ---------------------------------------------------------------- pools


@declared(fp.PROVED)
def pool_as_a_lock() -> fp.Design:
    """One row: who takes it comes after the last give."""
    d = fp.Design("pool as a lock")
    m, rows = d.pinned("m"), d.pool("rows", size=1, of="row")

    @d.loop("writer")
    def writer() -> None:
        row = rows.take()
        m.write()
        rows.give(row)

    @d.loop("reader")
    def reader() -> None:
        row = rows.take()
        m.read()
        rows.give(row)

    return d


@declared(fp.PROVED)
def one_row() -> fp.Design:
    """With one row there is no other that lets somebody else in."""
    d = fp.Design("one row")
    table, rows = d.pinned("table"), d.pool("rows", size=1, of="row")

    @d.loop("writer")
    def writer() -> None:
        row = rows.take()
        table.write()
        rows.give(row)

    @d.loop("reader")
    def reader() -> None:
        row = rows.take()
        table[row].read()
        rows.give(row)

    return d


@declared(fp.PROVED)
def rows_come_back() -> fp.Design:
    """A row is taken again only after its give: the host waited for the kernel."""
    d = fp.Design("rows come back")
    table, rows = d.pinned("table"), d.pool("rows", size=2, of="row")
    q = d.queue("q", capacity=2, item=(fp.EVENT, fp.HANDLE))

    @d.loop("thread")
    def thread() -> None:
        row = rows.take()
        table[row].write()
        d.launch("gather", reads=[table[row]])
        done = d.event("done")
        done.record()
        q.put(done, row)

    @d.loop("finisher")
    def finisher() -> None:
        done, row = q.get()
        done.synchronize()
        rows.give(row)

    return d


@declared(fp.PROVED)
def rows_come_back_behind_an_event() -> fp.Design:
    """`give(after=event)`: the take waits for the captured work."""
    d = fp.Design("rows come back behind an event")
    table, rows = d.pinned("table"), d.pool("rows", size=2, of="row")

    @d.loop("thread")
    def thread() -> None:
        row = rows.take()
        table[row].write()
        d.launch("gather", reads=[table[row]])
        done = d.event("done")
        done.record()
        rows.give(row, after=done)

    return d


@declared(fp.REFUTED, "WAR table")
def rows_come_back_too_early() -> fp.Design:
    """A give that waits for nothing."""
    d = fp.Design("rows come back too early")
    table, rows, scratch = d.pinned("table"), d.pool("rows", size=2, of="row"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        row = rows.take()
        table[row].write()
        d.launch("gather", reads=[table[row]])
        rows.give(row)

    return d


@declared(fp.PROVED)
def pages_are_exclusive() -> fp.Design:
    """A page has one holder at a time; with one page the second taker waits for the give."""
    d = fp.Design("pages are exclusive")
    pages = d.pool("pages", size=1, of="pinned")

    @d.loop("one")
    def one() -> None:
        page = pages.take()
        page.write()
        page.read()
        pages.give(page)

    @d.loop("two")
    def two() -> None:
        page = pages.take("other")
        page.write()
        page.read()
        pages.give(page)

    return d


# ---------------------------------------------------------------- normal forms, slicing, reduction


@declared(fp.PROVED)
def results_outstanding() -> fp.Design:
    """Four slots behind four results: the queue's normal form at work."""
    d = fp.Design("results outstanding")
    m, g = d.pinned("m", depth=4), d.device("g")
    q = d.queue("q", capacity=4, item=fp.EVENT)

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        m[n].write()
        g.copy_(m[n], non_blocking=True)
        copied = d.event("copied")
        copied.record()
        q.put(copied)
        if q.full():
            q.get().synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
def results_outstanding_without_a_wait() -> fp.Design:
    """One kind of step has nothing to wait for: its item hands nothing on."""
    d = fp.Design("results outstanding without a wait")
    m, g, scratch = d.pinned("m", depth=3), d.device("g"), d.pageable("scratch")
    q = d.queue("q", capacity=2, item={"copied": (fp.EVENT,), "nothing": ()})

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        scratch.write()
        scratch.read()
        m[n].write()
        g.copy_(m[n], non_blocking=True)
        if d.choose("kind", ["copied", "nothing"]) == "copied":
            copied = d.event("copied")
            copied.record()
            q.put("copied", copied)
        else:
            q.put("nothing")
        if q.full():
            item = q.get()
            if item.tag == "copied":
                (copied,) = item
                copied.synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
def not_full_does_something() -> fp.Design:
    """The first turns, in which the queue is not yet full, read what a kernel may still write."""
    d = fp.Design("not full does something")
    m, x, side = d.pinned("m"), d.device("x"), d.stream("side")
    q = d.queue("q", capacity=2, item=fp.EVENT)

    @d.loop("thread")
    def thread() -> None:
        x.copy_(m, non_blocking=True, stream=side)
        done = d.event("done")
        done.record(side)
        q.put(done)
        if q.full():
            q.get().synchronize()
        else:
            m.write()

    return d


@declared(fp.REFUTED, "WAR b")
def pops_and_waits_elsewhere() -> fp.Design:
    """Popping a full queue also waits for a response here, so the queue may not start with dummies."""
    d = fp.Design("pops and waits elsewhere")
    rpc, batches = d.queue("rpc", capacity=3, item=()), d.queue("batches", capacity=2, item=())
    outputs, responses = d.queue("outputs", capacity=3, item=fp.EVENT), d.queue("responses", capacity=3, item=())
    b, g = d.pinned("b"), d.device("g")

    @d.loop("engine")
    def engine() -> None:
        rpc.put()
        batches.put()
        if batches.full():
            batches.get()
            responses.get()

    @d.loop("worker")
    def worker() -> None:
        rpc.get()
        b.write()
        g.copy_(b, non_blocking=True)
        copied = d.event("copied")
        copied.record()
        outputs.put(copied)

    @d.loop("output thread")
    def output() -> None:
        outputs.get().synchronize()
        responses.put()

    return d


@declared(fp.REFUTED, "RAW x", "WAR x")
def recorded_after_hand_over() -> fp.Design:
    """The event goes into the queue before its record: a wait that comes first waits for nothing (S21)."""
    d = fp.Design("recorded after hand-over")
    handed = d.queue("handed", capacity=1, item=fp.EVENT)
    x, side = d.device("x"), d.stream("side")

    @d.loop("producer")
    def producer() -> None:
        ready = d.event("ready")
        handed.put(ready)
        d.launch("produce", writes=[x])
        ready.record()

    @d.loop("consumer", stream=side)
    def consumer() -> None:
        ready = handed.get()
        side.wait_event(ready)
        d.launch("consume", reads=[x])

    return d


@declared(fp.PROVED)
def waited_for_after_the_record() -> fp.Design:
    """The handle was handed over before the record, and is used after it: what counts is the event, not the handle."""
    d = fp.Design("waited for after the record")
    handed, recorded, back = d.queue("handed", capacity=1, item=fp.EVENT), d.flag("recorded"), d.flag("back")
    x, side = d.device("x"), d.stream("side")

    @d.loop("producer")
    def producer() -> None:
        ready = d.event("ready")
        handed.put(ready)
        d.launch("produce", writes=[x])
        ready.record()
        recorded.set()
        back.wait()
        back.clear()

    @d.loop("consumer", stream=side)
    def consumer() -> None:
        ready = handed.get()
        recorded.wait()
        recorded.clear()
        side.wait_event(ready)
        d.launch("consume", reads=[x])
        side.synchronize()
        back.set()

    return d


@declared(fp.REFUTED, "WAR m")
def waits_by_choice() -> fp.Design:
    """Two ways through the turn, the longer one does not wait."""
    d = fp.Design("waits by choice")
    m, g, count, never = d.pinned("m"), d.device("g"), d.counter("count"), d.flag("never")

    @d.loop("waits for ever")
    def waits() -> None:
        never.wait()
        m.read()

    @d.loop("thread")
    def thread() -> None:
        g.copy_(m, non_blocking=True)
        if d.choose("wait", [True, False]):
            d.current_stream().synchronize()
        else:
            count.add()
            count.add()
        count.add()
        m.write()
        d.current_stream().synchronize()

    return d


@declared(fp.PROVED)
def hop_by_stream_waits() -> fp.Design:
    """A stream without accesses carries the order, by stream waits."""
    d = fp.Design("hop by stream waits")
    x, one, hop, two = d.device("x"), d.stream("one"), d.stream("hop"), d.stream("two")

    @d.loop("thread")
    def thread() -> None:
        d.launch("produce", writes=[x], stream=one)
        hop.wait_stream(one)
        two.wait_stream(hop)
        d.launch("consume", reads=[x], stream=two)
        hop.wait_stream(two)
        one.wait_stream(hop)

    return d


@declared(fp.REFUTED, "WAR m")
@declared(fp.MASKED, environment="one-hardware-queue")
def recorded_elsewhere() -> fp.Design:
    """An event of a stream that shares the hardware queue of the copy (S115)."""
    d = fp.Design("recorded elsewhere")
    m, g, other, e, scratch = d.pinned("m"), d.device("g"), d.stream("other"), d.event("e"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        g.copy_(m, non_blocking=True)
        e.record(other)
        e.synchronize()
        m.write()
        e.record(other)
        e.synchronize()

    return d


@declared(fp.PROVED)
def event_of_another_thread() -> fp.Design:
    """Who waits for an event that another thread records: the streams behind it matter to both."""
    d = fp.Design("event of another thread")
    m, g, s = d.pinned("m"), d.device("g"), d.stream("s")
    there, back = d.queue("there", capacity=1, item=fp.EVENT), d.queue("back", capacity=1, item=())

    @d.loop("copier")
    def copier() -> None:
        m.write()
        g.copy_(m, non_blocking=True, stream=s)
        done = d.event("done")
        done.record(s)
        there.put(done)
        back.get()

    @d.loop("waiter")
    def waiter() -> None:
        there.get().synchronize()
        back.put()

    return d


@declared(fp.PROVED)
def hop_over_a_stream() -> fp.Design:
    """A stream on which nothing accesses the buffer carries the order between two that do."""
    d = fp.Design("hop over a stream")
    x, one, hop, two = d.device("x"), d.stream("one"), d.stream("hop"), d.stream("two")
    e, f, g = d.event("e"), d.event("f"), d.event("g")

    @d.loop("thread")
    def thread() -> None:
        d.launch("produce", writes=[x], stream=one)
        e.record(one)
        hop.wait_event(e)
        f.record(hop)
        two.wait_event(f)
        d.launch("consume", reads=[x], stream=two)
        g.record(two)
        hop.wait_event(g)
        one.wait_stream(hop)

    return d
