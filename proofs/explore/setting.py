"""What all explorations of one program share: platform, environment, numbering, lowered operations."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from fencepost.model import program as p
from fencepost.model.effects import Effect
from fencepost.model.operations import Context, lower_node
from fencepost.model.platform import BARE, PLATFORMS, Environment, Platform
from fencepost.proofs import edits
from fencepost.proofs.explore.fifo import QueueForm, queue_forms
from fencepost.proofs.explore.flags import Flags
from fencepost.proofs.explore.flow import Flow
from fencepost.proofs.explore.layout import Layout, walk
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.explore.positions import Positions, Source
from fencepost.proofs.explore.reduction import circles, driven
from fencepost.proofs.explore.serial import Direct
from fencepost.proofs.explore.slicing import Slicer

if TYPE_CHECKING:
    from fencepost.proofs.explore.compile import Code
    from fencepost.proofs.explore.meetings import Meetings
    from fencepost.proofs.explore.pending import Device


class Setting:
    """A program on a platform under an environment, prepared once for every location."""

    def __init__(
        self, program: p.Program, platform: Platform = PLATFORMS["cuda"], environment: Environment = BARE,
        like: Setting | None = None,
    ) -> None:  # fmt: skip
        """`like`: a setting of the same program under another environment, to share what depends on the program alone."""
        self.program = program
        self.platform = platform
        self.environment = environment
        same = like is not None and like.environment.one_queue == environment.one_queue
        self.layout: Layout = like.layout if like is not None and same else Layout(program, environment)
        self.lowered: dict[tuple[int, int], tuple[Effect, ...]] = {}
        for t, thread in enumerate(program.threads):
            context = Context(program, thread, platform, environment)
            for i, node in enumerate(thread.nodes):
                if type(node) is p.Do:
                    self.lowered[t, i] = lower_node(node, context)
        self.queries = self.layout.queries
        self.flags = Flags(program, self.lowered, environment.one_queue) if self.queries and not self.layout.meets else None
        """What is kept for queries; None where nothing is or, in designs in which streams meet, all is."""
        self._slicer: Slicer | None = None
        self.circles: list[set[int]] = [circles(thread) for thread in program.threads] if like is None else like.circles
        self.driven: list[bool] = driven(program, any(self.circles)) if like is None else like.driven
        self.flow: Flow = Flow(program) if like is None else like.flow
        self._positions: Positions | None = None
        self.compiled: dict[tuple[int, int], Code] = {}
        """What nodes are compiled to for every location to which they do not matter (compile.py)."""
        self._layouts: dict[frozenset[Source], Layout] = {}
        """The layouts of searches that keep only some positions."""
        self._forms: list[QueueForm] | None = None if like is None else like.forms
        self.direct: Direct | None = None
        """Who accesses which object by name (serial.py), once somebody asked."""
        self.meetings: Meetings | None = None
        if self.layout.meets:
            from fencepost.proofs.explore.meetings import Meetings

            self.meetings = Meetings(program, self.layout, self.lowered, environment)
        self.cursors: dict[tuple[int, int], frozenset[Source]] = like.cursors if like is not None else {
            (t, i): frozenset(("cursor", n.cursor) for n in walk(node) if type(n) is p.Last)
            for t, thread in enumerate(program.threads)
            for i, node in enumerate(thread.nodes)
        } if self.layout.has_last else {}
        """The cursors that each node looks at (none that is left out looks at any)."""
        self.shared_cursor: str | None = _shared_cursor(program, self.layout) if like is None else like.shared_cursor
        """A cursor whose order between threads no edge gives, with the names of the threads; or None."""

    @property
    def slicer(self) -> Slicer:
        """What each operation depends on."""
        if self._slicer is None:
            self._slicer = Slicer(self.program, self.lowered, self.flags)
        return self._slicer

    def device(self) -> Device | None:
        """What pending device work does, for one location; None where streams do not meet."""
        if self.meetings is None:
            return None
        from fencepost.proofs.explore.pending import Device

        return Device(self.meetings, self.queries)

    def layout_for(self, location: Location | None, passed: list[set[int]]) -> tuple[Layout, frozenset[Source] | None]:
        """The layout of a search of the location, and the positions that it keeps; None stands for all.

        `passed`: for each thread the nodes that are passed over.
        """
        if not self.layout.var_depth or self.layout.meets:
            return self.layout, None
        if self._positions is None:
            self._positions = Positions(self.program, self.layout, self.lowered)
        kept = self._positions.kept(location, passed)
        found = self._layouts.get(kept)
        if found is None:
            found = self._layouts[kept] = self.layout.keeping(kept)
        return found, kept

    @property
    def forms(self) -> list[QueueForm]:
        """The normal forms of the program's queues."""
        if self._forms is None:
            self._forms = queue_forms(self.program, self.layout)
        return self._forms

    def without(self, t: int, node: int) -> Setting:
        """The setting of the program without the synchronisation at `node` of thread `t`."""
        removed = self.program.threads[t].nodes[node]
        assert isinstance(removed, p.Do)
        other = self.edited(edits.without(self.program, t, node), {(t, node): ()})
        if not (type(removed.operation) is p.EventSync and type(removed.operation.event) is p.Local):
            other._forms = self.forms  # what a consumer surely waits on makes a form (fifo.py); any other wait may go
        return other

    def edited(self, program: p.Program, lowered: dict[tuple[int, int], tuple[Effect, ...]]) -> Setting:
        """The setting of the program with fewer edges, the effects of some nodes being `lowered`.

        Numbering and slices are shared: without an edge fewer operations may matter, never more. What follows from the effects is not.
        """
        self._slicer = self.slicer  # made once for all
        other = copy.copy(self)
        other.program, other.lowered = program, {**self.lowered, **lowered}
        other._forms, other.direct, other.compiled = None, None, {}
        return other


def _shared_cursor(program: p.Program, layout: Layout) -> str | None:
    """A cursor that several threads move or look at: which slot they get tells of the others' moves, and no edge says so."""
    users: dict[int, list[str]] = {}
    for cursor, t in sorted({(n.cursor, t) for t, n in layout.data(p.Advance, p.Last)}):
        if program.threads[t].kind != "setup":  # setup -> start orders those
            users.setdefault(cursor, []).append(program.threads[t].name)
    return next(
        (f"cursor {program.objects[i].name!r} is used by threads {' and '.join(map(repr, names))}"
         for i, names in sorted(users.items()) if len(names) > 1), None,
    )  # fmt: skip
