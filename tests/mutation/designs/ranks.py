"""Two ranks with a stream and a buffer each: what the small designs of meetings start from."""

from __future__ import annotations

import fencepost as fp
import msgspec
from fencepost.model import program as p


class Ranks:
    """A design with two ranks "a" and "b", a stream and a buffer for each, and one for both."""

    def __init__(self, name: str, capacity: int | None = 2) -> None:
        self.d = d = fp.Design(name)
        self.comm = d.communicator("comm", ["a", "b"], capacity=capacity)
        self.s, self.u, self.v = d.stream("s"), d.stream("u"), d.stream("v")
        self.x, self.scratch = d.device("x"), d.pageable("scratch")
        self.go, self.told = d.flag("go"), d.flag("told")

    def tell(self, match: str | None = None) -> None:
        """Rank a signals."""
        self.comm.send((), "b", rank="a", match=match)

    def hear(self, match: str | None = None) -> None:
        """Rank b awaits."""
        self.comm.recv((), "a", rank="b", match=match)

    def produce(self, stream: fp.Stream | None = None) -> None:
        self.d.launch("produce", writes=[self.x], stream=stream)

    def consume(self, stream: fp.Stream | None = None) -> None:
        self.d.launch("consume", reads=[self.x], stream=stream)

    def late(self) -> p.Program:
        """The design, in which "go" and "told" hold threads back and order nothing."""
        return without_edges(self.d.build())

    def scratched(self) -> None:
        """A conflict that nothing here touches."""
        self.scratch.write()
        self.scratch.read()


def without_edges(made: p.Program) -> p.Program:
    """The program, in which flags hold threads back and order nothing."""
    threads = [
        msgspec.structs.replace(t, nodes=tuple(
            msgspec.structs.replace(n, operation=msgspec.structs.replace(n.operation, edge=False))
            if isinstance(n, p.Do) and isinstance(n.operation, p.FlagWait) else n for n in t.nodes
        ))
        for t in made.threads
    ]  # fmt: skip
    return msgspec.structs.replace(made, threads=tuple(threads))
