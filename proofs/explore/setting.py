"""What all explorations of one program share: platform, environment, numbering, lowered operations."""

from __future__ import annotations

import copy

from fencepost.model import program as p
from fencepost.model.effects import Effect
from fencepost.model.operations import Context, lower
from fencepost.model.platform import BARE, PLATFORMS, Environment, Platform
from fencepost.proofs import edits
from fencepost.proofs.explore.layout import Layout
from fencepost.proofs.explore.slicing import Slicer


class Setting:
    """A program on a platform under an environment, prepared once for every location."""

    def __init__(self, program: p.Program, platform: Platform = PLATFORMS["cuda"], environment: Environment = BARE) -> None:
        self.program = program
        self.platform = platform
        self.environment = environment
        self.layout = Layout(program, environment)
        self.lowered: dict[tuple[int, int], tuple[Effect, ...]] = {}
        for t, thread in enumerate(program.threads):
            context = Context(program, thread, platform, environment)
            for i, node in enumerate(thread.nodes):
                if isinstance(node, p.Do):
                    self.lowered[t, i] = lower(node.operation, context)
        asked = {type(n.question) for t in program.threads for n in t.nodes if isinstance(n, p.Ask)}
        self.queries = bool(asked & {p.EventQuery, p.StreamQuery})
        self.slicer = Slicer(program, self.lowered)

    def without(self, t: int, node: int) -> Setting:
        """The setting of the program without the synchronisation at `node` of thread `t`.

        Numbering and slices are shared: without an edge fewer operations may matter, never more.
        """
        other = copy.copy(self)
        other.program = edits.without(self.program, t, node)
        other.lowered = {**self.lowered, (t, node): ()}
        return other
