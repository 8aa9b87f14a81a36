"""Idioms of real engines, each as it should be or with a line left out, doubled or moved: near both sides of safe."""

from __future__ import annotations

from fencepost.simulator.random_designs_choices import Choices
from fencepost.simulator.random_designs_text import Block, Body, Line, Text, Tree, free_lines


def refill(c: Choices) -> Text:
    """A host buffer refilled every step while earlier steps may still copy from it, behind one of many guards."""
    x = Text()
    depth, capacity = c.one((1, 2, 3, 4)), c.one((1, 2, 3))
    space = c.one(("pinned", "pinned", "pageable", "managed"))
    by_cursor = c.chance(35)
    guard = c.one(("ring", "ring", "query", "stream", "wait", "queue", "queue", "queue", "stream query", "device"))
    x.object("buf", f'd.{space}("buf", depth={depth})')
    x.object("dev", f'd.device("dev"{", depth=" + str(depth) if c.chance(30) else ""})')
    target = "dev[i]" if "depth" in x.objects[-1] else "dev"
    x.object("s1", f'd.stream("s1"{", depth=2" if c.chance(8) else ""})')
    s = "s1[n]" if "depth" in x.objects[-1] else "s1"
    body: Tree = []
    index = "n"
    if by_cursor:
        x.object("c", f'd.cursor("c", {depth})')
        body.append(Line("i = c.advance()"))
        index = "i"
    target = target.replace("[i]", f"[{index}]")
    slot = f"buf[{index}]"
    if c.chance(8):
        body.append(Line("slot = buf.take()"))
        slot = "slot"
    part = c.one(("", "", "", '["rows"]', "[0:8]"))
    write, fill = Line(f"{slot}{part}.write()", True), f"{target}.copy_({slot}{part}, non_blocking=True, stream={s})"
    if c.chance(15):
        fill = f"d.memcpy_async({target}, {slot}{part}, stream={s})"
    copy = Line(fill, True)
    kernel = Line(f'd.launch("forward", reads=[{target}], stream={s})', True)
    if guard == "ring":
        x.object("e1", f'd.event("e1", depth={depth})')
        event = f"e1[{index}]"
        body += [Line(f"{event}.synchronize()", True), write, copy, Line(f"{event}.record({s})", True), kernel]
    elif guard == "query":
        x.object("e1", f'd.event("e1", depth={depth})')
        event = f"e1[{index}]"
        record = Line(f"{event}.record({s})", True)
        other: Tree | None = [Line("d.synchronize()", True)] if c.chance(30) else None
        body.append(Block(f"if {event}.query():", [write, copy, record, kernel], other))
    elif guard == "stream query":
        body.append(Block(f"if {s}.query():", [write, copy, kernel]))
    elif guard == "stream":
        body += [write, copy, kernel, Line(f"{s}.synchronize()", True)]
    elif guard == "device":
        body += [write, copy, kernel, Line("d.synchronize()", True)]
    elif guard == "wait":
        x.object("side", 'd.stream("side")')
        x.object("e1", 'd.event("e1")')
        body += [write, copy, Line(f"side.wait_stream({s})", True), kernel, Line("e1.record(side)", True)]
        body += [Line("e1.synchronize()", True)]
    else:
        kinds = "(fp.EVENT, fp.INDEX)" if by_cursor else "fp.EVENT"
        tagged = c.chance(25)
        item = f'{{"copied": {kinds}, "nothing": ()}}' if tagged else kinds
        if tagged and not by_cursor:
            item = '{"copied": (fp.EVENT,), "nothing": ()}'
        x.object("q", f'd.queue("q", capacity={capacity}, item={item})')
        body += [write, copy]
        made: Tree = [Line('e2 = d.event("e2")'), Line(f"e2.record({s})", True)]
        values = "e2, i" if by_cursor else "e2"
        look: Tree = [Line("buf[j].read()", True)] if by_cursor and space != "device" and c.chance(50) else []
        if tagged:
            body.append(Block('if d.choose("kind", ["copied", "nothing"]) == "copied":',
                              [*made, Line(f'q.put("copied", {values})')], [Line('q.put("nothing")')]))  # fmt: skip
            names = "got1, j" if by_cursor else "got1,"
            use: Tree = [Line(f"{names} = item"), Line("got1.synchronize()", True), *look]
            take: Tree = [Line("item = q.get()"), Block('if item.tag == "copied":', use)]
        else:
            body += [*made, *([kernel] if c.chance(50) else []), Line(f"q.put({values})")]
            names = "got1, j" if by_cursor else "got1"
            take = [Line(f"{names} = q.get()"), Line("got1.synchronize()", True), *look]
        ask = c.one(("q.full()", "q.full()", f"q.holds({capacity})"))
        if c.chance(30) and not tagged:
            body = [Block('with d.maybe("work"):', body)]
        body.append(Block(f"if {ask}:", take, [Line("s1.synchronize()", True)] if s == "s1" and c.chance(8) else None))
    x.bodies.append(Body("loop", "worker", body))
    if c.chance(20):
        x.bodies.append(Body("setup", "prepare", [Line(f"d.host(\"load\", writes=[buf[{c.one(range(depth))}]])", True)]))
    return x


def handover(c: Choices) -> Text:
    """A producer and a consumer thread with a queue between them, and one of many ways back."""
    x = Text()
    depth, capacity = c.one((1, 2, 3, 4)), c.one((1, 2, 3))
    space = c.one(("pinned", "device", "device", "managed"))
    other = c.chance(20)
    x.object("buf", f'd.{space}("buf", depth={depth})')
    x.object("s1", 'd.stream("s1")')
    if other:
        x.object("far", 'd.process("far", gpu=1)')
    x.object("s2", 'd.stream("s2", gpu=1)' if other else 'd.stream("s2")')
    by_reference = c.chance(35)
    x.object("q", f'd.queue("q", capacity={capacity}, item=({"fp.EVENT, fp.MEMORY" if by_reference else "fp.EVENT,"}))')
    fill = "buf[n].write()" if space != "device" and c.chance(50) else 'd.launch("fill", writes=[buf[n]], stream=s1)'
    a: Tree = [Line(fill, True), Line('e1 = d.event("e1")'), Line("e1.record(s1)", True)]
    a.append(Line("q.put(e1, buf[n])" if by_reference else "q.put(e1)"))
    source = "ref" if by_reference else "buf[n]"
    got = "got1, ref" if by_reference else "got1"
    wait = c.one(("got1.synchronize()", "s2.wait_event(got1)", "got1.wait(s2)"))
    use = f'd.launch("use", reads=[{source}], stream=s2)'
    if space != "device" and c.chance(50):
        use = f"{source}.read()"
    b: Tree = [Line(f"{got} = q.get()"), Line(wait, True), Line(use, True)]
    back = c.one(("none", "queue", "queue", "counter", "stream", "flag", "lock", "event", "cell", "semaphore"))
    if back == "queue":
        x.object("ack", f'd.queue("ack", capacity={capacity + 1}, item=(fp.EVENT,))')
        b += [Line('e2 = d.event("e2")'), Line("e2.record(s2)", True), Line("ack.put(e2)")]
        first = c.one((0, 1, 2))
        waits: Tree = [Line("got2 = ack.get()"), Line(c.one(("got2.synchronize()", "s1.wait_event(got2)")), True)]
        a = [Block(f"if n >= {first}:", waits), *a] if first else [*a, *waits]
    elif back == "counter":
        x.object("counter", 'd.counter("counter")')
        b += [Line("s2.synchronize()", True), Line("counter.add()", True)]
        offset = c.one((-1, 0, 1)) + 1 - depth
        a = [Line(f"counter.wait(n{f' - {-offset}' if offset < 0 else f' + {offset}' if offset else ''})", True), *a]
    elif back == "stream":
        b.append(Line("s2.synchronize()", True))
    elif back == "flag":
        x.object("flag", 'd.flag("flag")')
        b += [Line("s2.synchronize()", True), Line("flag.set()", True)]
        a += [Line("flag.wait()", True), Line("flag.clear()", True)]
    elif back == "lock":
        x.object("lock", 'd.lock("lock")')
        a = [Block("with lock:", [*a[:3], Line("s1.synchronize()", True)]), *a[3:]]
        b = [b[0], Block("with lock:", [*b[1:], Line("s2.synchronize()", True)])]
    elif back == "event":
        x.object("e3", f'd.event("e3", depth={depth})')
        b.append(Line("e3[n].record(s2)", True))
        a = [Line(c.one(("e3[n].synchronize()", "s1.wait_event(e3[n])")), True), *a]
    elif back == "cell":
        x.object("cell", f'd.cell("cell"{f", depth={depth}" if c.chance(50) else ""}, item=(fp.EVENT,))')
        cell = "cell[n]" if "depth" in x.objects[-1] else "cell"
        b += [Line('e2 = d.event("e2")'), Line("e2.record(s2)", True), Line(f"{cell}.set(e2)", True)]
        how = c.one(("get", "take"))
        a = [Block(f"if not {cell}.empty():", [Line(f"got2 = {cell}.{how}()"), Line("got2.synchronize()", True)]), *a]
    elif back == "semaphore":
        x.object("free", f'd.semaphore("free", {c.one((depth, depth, depth + 1))})')
        a = [Line("free.acquire()", True), *a]
        b += [Line("s2.synchronize()", True), Line("free.release()", True)]
    x.bodies.append(Body("loop", "producer", a, "stream=s1"))
    x.bodies.append(Body("loop", "consumer", b, "stream=s2"))
    if c.chance(15):
        x.object("out", 'd.pinned("out")')
        x.bodies.append(Body("script", "main", [Line("out.write()", True), Line("out.read()", True)]))
    return x


def blocks(c: Choices) -> Text:
    """A block of a caching allocator that another stream, or another thread, uses."""
    x = Text()
    x.object("s1", 'd.stream("s1")')
    x.object("s2", 'd.stream("s2")')
    x.object("host", f'd.{c.one(("pinned", "pageable"))}("host")')
    x.object("dev", 'd.device("dev")')
    pinned = c.chance(40)
    same = c.chance(25)
    a: Tree = [Line('block = d.empty_pinned("block")' if pinned else 'block = d.empty("block", stream=s1)')]
    a.append(Line("block.write()" if pinned else 'd.launch("fill", writes=[block], stream=s1)', True))
    a.append(Line("s2.wait_stream(s1)", True))
    users = c.one(("copy", "copy", "kernel", "raw", "to host", "view"))
    used = 'd.launch("use", reads=[NAME], stream=s2)'
    if users == "copy" or pinned:
        used = "dev.copy_(NAME, non_blocking=True, stream=s2)"
    if users == "raw":
        used = "d.memcpy_async(dev, NAME, stream=s2)"
    if users == "to host" and not pinned:
        used = f"host.copy_(NAME, {c.one(('non_blocking=True, ', ''))}stream=s2)"
    if users == "view":
        used = f'dev.copy_(NAME.view("v"{c.one(("", ", attributed=False"))}), non_blocking=True, stream=s2)'
    protect: Tree = c.one(
        (
            [Line("NAME.record_stream(s2)", True)], [Line("s1.wait_stream(s2)", True)], [Line("s2.synchronize()", True)],
            [], [Line("NAME.record_stream(s2)", True)],
        )
    )  # fmt: skip
    release: Tree = [Line("NAME.release()  # reference", True)] if c.chance(60) else []

    def named(tree: Tree, name: str) -> Tree:
        return [line._replace(text=line.text.replace("NAME", name)) for line in tree if isinstance(line, Line)]

    tail: Tree = [Line(used, True), *protect, *release]
    if c.chance(50):
        x.object("q", f'd.queue("q", capacity={c.one((1, 2, 3))}, item=(fp.EVENT, fp.MEMORY))')
        a += [Line('e1 = d.event("e1")'), Line("e1.record(s1)", True), Line("q.put(e1, block)")]
        a += [Line("block.release()  # reference", True)] if c.chance(50) else []
        take: Tree = [Line("got1, ref = q.get()")]
        take.append(Line(c.one(("s2.wait_event(got1)", "got1.synchronize()")), True))
        take += named(tail, "ref")
        if same:
            a.append(Block("if q.full():", take))
        else:
            x.bodies.append(Body("loop", "worker", a))
            x.bodies.append(Body("loop", "output", take))
            return x
    elif c.chance(30):
        x.object("cell", 'd.cell("cell", item=(fp.EVENT, fp.MEMORY))')
        a += named(tail[:-1] if release else tail, "block")
        a += [Line('e1 = d.event("e1")'), Line("e1.record(s2)", True)]
        how = c.one(("get", "take"))
        a.append(Block("if not cell.empty():", [Line(f"got1, old = cell.{how}()"), Line("got1.synchronize()", True),
                                                *([Line("old.read()", True)] if pinned else [])]))  # fmt: skip
        a.append(Line("cell.set(e1, block)", True))
    else:
        inner = [*a[1:], *named(tail, "block")]
        a = [Block('with d.scope("call"):', [a[0], *inner])] if c.chance(30) else [a[0], *inner]
        if c.chance(30):
            a.append(Line("again = d.empty_pinned(\"again\")" if pinned else 'again = d.empty("again", stream=s1)'))
            a.append(Line("again.write()" if pinned else 'd.launch("fill", writes=[again], stream=s1)', True))
    x.bodies.append(Body("loop", "worker", a))
    return x


def rows(c: Choices) -> Text:
    """Rows of one buffer, or pages, handed out by a finite pool."""
    x = Text()
    x.object("s1", 'd.stream("s1")')
    x.object("s2", 'd.stream("s2")')
    of = c.one(("row", "row", "pinned", "device"))
    size = c.one((1, 2, 3))
    x.object("table", 'd.pinned("table")')
    x.object("rows", f'd.pool("rows", size={size}, of="{of}")')
    kind = "HANDLE" if of == "row" else "MEMORY"
    x.object("q", f'd.queue("q", capacity={c.one((1, 2))}, item=(fp.EVENT, fp.{kind}))')
    there = "table[row]" if of == "row" else "row"
    fill = f"{there}.write()" if of != "device" else f'd.launch("fill", writes=[{there}], stream=s1)'
    a: Tree = [Line("row = rows.take()"), Line(fill, True), Line(f'd.launch("use", reads=[{there}], stream=s1)', True)]
    a += [Line('e1 = d.event("e1")'), Line("e1.record(s1)", True)]
    if c.chance(30):
        a.append(Line(f"rows.give(row{c.one(('', ', after=e1', ', after=e1'))})"))
        x.bodies.append(Body("loop", "worker", a))
        return x
    a.append(Line("q.put(e1, row)"))
    back = "table[back]" if of == "row" else "back"
    use: Tree = [Line(f'd.launch("late", reads=[{back}], stream=s2)', True)] if c.chance(20) else []
    give: Tree = [Line("got1.synchronize()", True), Line("rows.give(back)")]
    if c.chance(50):
        give = [Line("rows.give(back, after=got1)")]
    take: Tree = [Line("got1, back = q.get()"), *use, *give]
    if c.chance(50):
        a.append(Block(f"if {c.one(('q.full()', 'not q.empty()'))}:", take))
    else:
        x.bodies.append(Body("loop", "finisher", take))
    x.bodies.append(Body("loop", "worker", a))
    return x


def exchange(c: Choices) -> Text:
    """Kernels of several streams that read and write each other's buffers behind events, step after step."""
    x = Text()
    count = c.one((2, 2, 3))
    depth = c.one((None, None, 2))
    for i in range(count):
        x.object(f"s{i + 1}", f'd.stream("s{i + 1}")')
        x.object(f"x{i}", f'd.device("x{i}"{f", depth={depth}" if depth else ""})')
    at = "[n]" if depth else ""
    x.object("e1", f'd.event("e1"{f", depth={depth}" if depth else ""})')
    body: Tree = []
    for i in range(count):
        j = (i + 1) % count
        here, after = f"s{i + 1}", f"s{j + 1}"
        body.append(Line(f'd.launch("step", reads=[x{i}{at}], writes=[x{j}{at}], stream={here})', True))
        if c.chance(50):
            body += [Line(f"e1{at}.record({here})", True), Line(f"{after}.wait_event(e1{at})", True)]
        else:
            body.append(Line(f"{after}.wait_stream({here})", True))
    if c.chance(30):
        body.append(Line(c.one(("d.synchronize()", "s1.synchronize()", f"x0{at}.item(stream=s1)")), True))
    if c.chance(25):
        body = [Block(f'if d.choose("kind", ["full", "part"{", agreed=True" if False else ""}]) == "full":', body,
                      [Line(f'd.launch("part", writes=[x0{at}], stream=s1)', True)])]  # fmt: skip
    x.bodies.append(Body("loop", "worker", body))
    return x


IDIOMS = ((4, refill), (4, handover), (3, blocks), (2, rows), (1, exchange))


def idiom(c: Choices) -> Text:
    """An idiom, in half of the cases with one or two lines left out, one doubled or two changing places."""
    text = c.weighted(IDIOMS)(c)
    if c.chance(35):
        return text
    for _ in range(c.one((1, 1, 2))):
        places = [place for body in text.bodies for place in free_lines(body.tree)]
        if not places:
            return text
        tree, at = c.one(places)
        kind = c.weighted(((6, "drop"), (2, "move"), (1, "double")))
        if kind == "drop":
            del tree[at]
        elif kind == "double":
            tree.insert(at, tree[at])
        elif at + 1 < len(tree) and isinstance(tree[at + 1], Line) and tree[at + 1].free:  # type: ignore[union-attr]
            tree[at], tree[at + 1] = tree[at + 1], tree[at]
    return text
