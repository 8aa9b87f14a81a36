"""Seeded random designs with integer parameters, for conditions over all values: periodic loops of one or two threads.

`design(seed)` gives a design function of `depth` and `lag`. The loops use rings by turns and by cursors, event rings,
single events, queues of results, cells, streams in rotation, waits of streams and of the host, and now and then a choice.

A campaign against the explorer: `python tests/periodic_designs.py --count N --seed S` prints every disagreement.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from typing import Any

import fencepost as fp

Emit = Callable[[Any], None]


def design(seed: int, kinds: bool = False) -> Callable[..., fp.Design]:
    """A random design function of `depth` and `lag`. With `kinds` every turn is of one of two kinds from its start on, so
    that both have operations of their own, most of them equal; one statement is left out, or comes last, in one kind."""
    rng = random.Random(seed)
    last_instead = random.Random(f"{seed} kinds").random() < 0.5
    by_cursor = rng.random() < 0.3
    takes = rng.choice((1, 1, 1, 2)) if by_cursor else 1
    loop_takes = by_cursor and rng.random() < 0.3
    rotating = rng.random() < 0.2
    lanes_depth = rng.choice((2, 3))
    results = rng.choice(("none", "full", "full", "full first", "holds", "stream"))
    extra = rng.choice((0, 0, 1))
    event_ring = rng.random() < 0.4
    ring_more = rng.choice((0, 0, 1))
    single = rng.random() < 0.25
    cell = rng.random() < 0.2
    choice = rng.random() < 0.2
    second = rng.choice(("none", "none", "consumer", "output thread"))
    shuffled = rng.random()
    reader_offsets = [rng.choice((0, 0, 0, -1)) for _ in range(2)]
    device = rng.random() < 0.3
    statements = ["fill", "read"] + ["read late"] * (rng.random() < 0.4) + ["record"]
    if event_ring:
        statements.insert(rng.randrange(len(statements) + 1), "ring wait")
        statements.insert(rng.randrange(len(statements) + 1), "ring record")
    if single:
        statements.insert(rng.randrange(len(statements) + 1), "single wait")
        statements.insert(rng.randrange(len(statements) + 1), "single record")
    if cell:
        statements.insert(rng.randrange(len(statements) + 1), "cell wait")
    if rng.random() < 0.2:
        statements.insert(rng.randrange(len(statements) + 1), "side")
    if rng.random() < 0.08:
        statements.insert(rng.randrange(len(statements) + 1), "stream sync")
    if rng.random() < 0.3:
        statements.insert(rng.randrange(len(statements) + 1), "join side")
    if shuffled < 0.25:
        i = rng.randrange(len(statements) - 1)
        statements[i], statements[i + 1] = statements[i + 1], statements[i]
    if "record" in statements and results != "none":
        statements.insert(statements.index("record") + 1, "results")
    reads_on_side = rng.random() < 0.3
    maybe_at = rng.randrange(len(statements))

    def made(depth: int = 2, lag: int = 1) -> fp.Design:
        d = fp.Design(f"random {seed}")
        buf = (d.device if device else d.pinned)("buf", depth=depth)
        out = d.device("out")
        main = d.stream("main", depth=lanes_depth) if rotating else d.stream("main")
        side = d.stream("side")
        queue = d.queue("results", capacity=lag + extra, item=(fp.EVENT,)) if results != "none" else None
        fence = d.event("fence", depth=lag + ring_more) if event_ring else None
        one = d.event("one") if single else None
        last = d.cell("last", item=(fp.EVENT,)) if cell else None
        cursor = d.cursor("cursor", depth) if by_cursor else None
        items = d.queue("items", capacity=lag, item=(fp.INDEX,) if by_cursor else ()) if second == "consumer" else None
        outputs = d.queue("outputs", capacity=lag, item=(fp.EVENT,)) if second == "output thread" else None
        replies = d.queue("replies", capacity=lag + 1, item=()) if second == "output thread" else None

        @d.loop("host", stream=None if rotating else main)
        def step(n: fp.Turn) -> None:
            stream = main[n] if rotating else main
            at: Any = n
            state: dict[str, Any] = {}
            if kinds:
                d.choose("kind", ["usual", "other"])
            order = list(enumerate(statements))
            for turn, (number, what) in enumerate(order):
                optional = (choice or kinds) and number == maybe_at and what not in ("fill", "record", "results")
                if optional and turn < len(statements) and d.choose("kind", ["usual", "other"]) == "other":
                    order += [(number, what)] * (kinds and last_instead)
                    continue
                if what == "fill":
                    for _ in range(lag if loop_takes else takes):
                        if cursor is not None:
                            at = cursor.advance()
                        if device:
                            d.launch("fill", writes=[buf[at]], stream=stream)
                        else:
                            buf[at].write()
                        if cursor is not None:
                            d.launch("gather", reads=[buf[at]], stream=stream)
                elif what in ("read", "read late"):
                    late = what == "read late"
                    index = at if cursor is not None else n + reader_offsets[late]
                    if cursor is not None and at is n:
                        continue
                    on = side if late and reads_on_side else stream
                    d.launch(what, reads=[buf[index]], writes=[out] if late and not reads_on_side else [], stream=on)
                elif what == "record":
                    state["done"] = d.event("done")
                    state["done"].record(stream)
                    if last is not None:
                        last.set(state["done"])
                elif what == "results" and queue is not None:
                    if results == "full first" and queue.full():
                        queue.get().synchronize()
                    queue.put(state["done"])
                    if results in ("full", "stream") and queue.full():
                        got = queue.get()
                        if results == "stream":
                            stream.wait_event(got)
                        else:
                            got.synchronize()
                    elif results == "holds" and queue.holds(1):
                        queue.get().synchronize()
                elif what == "ring wait" and fence is not None:
                    fence[n].synchronize()
                elif what == "ring record" and fence is not None:
                    fence[n].record(stream)
                elif what == "single wait" and one is not None:
                    one.synchronize()
                elif what == "single record" and one is not None:
                    one.record(stream)
                elif what == "cell wait" and last is not None:
                    if not last.empty():
                        last.get().synchronize()
                elif what == "side":
                    side.wait_stream(stream)
                    d.launch("side work", reads=[out], stream=side)
                elif what == "join side":
                    stream.wait_stream(side)
                elif what == "stream sync":
                    stream.synchronize()
            if items is not None:
                items.put(at) if cursor is not None and at is not n else items.put(*([cursor.last()] if cursor is not None else []))
            if outputs is not None and replies is not None:
                copied = d.event("copied")
                copied.record(stream)
                outputs.put(copied)
                replies.get()

        if items is not None:

            @d.loop("consumer", stream=d.stream("consumer stream"))
            def consume(n: fp.Turn) -> None:
                at = items.get() if cursor is not None else n
                if cursor is None:
                    items.get()
                d.launch("consume", reads=[buf[at]])
                d.current_stream().synchronize()

        if outputs is not None and replies is not None:

            @d.loop("output thread")
            def reply() -> None:
                outputs.get().synchronize()
                replies.put()

        return d

    made.__name__ = f"random_{seed}"
    return made


def engine(seed: int) -> Callable[..., fp.Design]:
    """A random design function of `depth` and `lag` with an engine, a worker and an output thread, whose items differ by the
    kind of step: what is filled, read, waited for and handed over by each kind is drawn by itself."""
    rng = random.Random(f"engine {seed}")
    names = ("usual", "other")
    eager = rng.random() < 0.3  # the engine takes a result in each step of the other kind
    slots = rng.choice(("turn", "turn", "cursor"))
    does: dict[str, list[str]] = {}
    for kind in names:
        reads = kind == "usual" or rng.random() < 0.5
        done = ["fill"] * (kind == "usual" or rng.random() < 0.8) + ["read"] * reads
        done += ["hand over"] if rng.random() < (0.8 if kind == "usual" else 0.5) else ["host"]
        done += ["read late"] * (reads and rng.random() < 0.25)
        if rng.random() < 0.2:
            done.insert(rng.randrange(len(done) + 1), "sync")
        if rng.random() < 0.2:
            done.insert(rng.randrange(len(done) + 1), "fence")
        does[kind] = done
    if slots == "cursor" and rng.random() < 0.7:
        does["other"] = ["fill"] + [one for one in does["other"] if one != "fill"]
    order = rng.random() < 0.2

    def made(depth: int = 2, lag: int = 1) -> fp.Design:
        d = fp.Design(f"engine {seed}")
        buf, main, side = d.pinned("buf", depth=depth), d.stream("main"), d.stream("side")
        rpc = d.queue("rpc", capacity=lag + 1, item={name: () for name in names})
        outputs = d.queue("outputs", capacity=lag + 1, item={"output": (fp.EVENT,), "host": ()})
        response = d.queue("response", capacity=lag + 1, item=())
        batches = d.queue("batches", capacity=lag, item=())
        position = d.cursor("position", depth)
        fence = d.event("fence")

        @d.loop("engine")
        def core() -> None:
            kind = d.choose("kind", list(names))
            if order:
                batches.put()
                rpc.put(tag=kind)
            else:
                rpc.put(tag=kind)
                batches.put()
            if (eager and kind == "other") or batches.full():
                batches.get()
                response.get()

        @d.loop("worker", stream=main)
        def step(n: fp.Turn) -> None:
            kind = rpc.get().tag
            at: Any = None if slots == "cursor" else n
            for what in does[kind]:
                if what == "fill":
                    at = position.advance() if slots == "cursor" else n
                    buf[at].write()
                elif what in ("read", "read late") and at is not None:
                    d.launch(what, reads=[buf[at]])
                elif what == "sync":
                    main.synchronize()
                elif what == "fence":
                    fence.synchronize()
                    fence.record()
                elif what == "hand over":
                    side.wait_stream(main)
                    copied = d.event("copied")
                    copied.record(side)
                    outputs.put(copied, tag="output")
                elif what == "host":
                    outputs.put(tag="host")

        @d.loop("output thread")
        def reply() -> None:
            item = outputs.get()
            if item.tag == "output":
                (copied,) = item
                copied.synchronize()
            response.put()

        return d

    made.__name__ = f"engine_{seed}"
    return made


def compare(seed: int, top: int = 3, kinds: bool = False, of_engines: bool = False) -> tuple[str, list[str]]:
    """The kind of condition that the design has ("exact", "unknown", "invalid"), and disagreements with the explorer."""
    from fencepost.model.events import DesignError as EmptyGet
    from fencepost.model.language.build import program_of
    from fencepost.model.language.errors import DesignError
    from fencepost.proofs.check import check
    from fencepost.proofs.explore.search import Budget
    from fencepost.proofs.periodic.conditions import condition

    function = engine(seed) if of_engines else design(seed, kinds)
    found = condition(function, ["depth", "lag"])
    wrong: list[str] = []
    for depth in range(1, top + 2):
        for lag in range(1, top + 1):
            values = {"depth": depth, "lag": lag}
            said = found.is_safe(values)
            if said is None:
                continue
            try:
                answer = check(program_of(function, values), explain=False, budget=Budget(seconds=5))
            except (DesignError, EmptyGet) as error:
                wrong.append(f"seed {seed} {values}: {error}")
                continue
            if answer.verdict in ("proved", "refuted") and (answer.verdict == "proved") != said:
                names = [hazard.name for hazard in answer.hazards]
                wrong.append(f"seed {seed} {values}: the condition says {said}, the explorer {answer.verdict} {names}")
    return found.verdict, wrong


def main(arguments: list[str] | None = None) -> int:
    """The campaign."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", action="store_true", help="two kinds of turn in each")
    parser.add_argument("--engines", action="store_true", help="an engine, a worker and an output thread")
    asked = parser.parse_args(arguments)
    verdicts: dict[str, int] = {}
    bad = 0
    for seed in range(asked.seed, asked.seed + asked.count):
        try:
            kind, wrong = compare(seed, kinds=asked.kinds, of_engines=asked.engines)
        except fp.DesignError as error:
            kind, wrong = f"no design: {error}", []
        verdicts[kind] = verdicts.get(kind, 0) + 1
        for line in wrong:
            bad += 1
            print(line, flush=True)
    print(verdicts, "disagreements:", bad)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
