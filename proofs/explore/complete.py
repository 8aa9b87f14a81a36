"""From a path of the explorer to a run of the whole design, played step by step on concrete state.

The explorer's path fixes which thread moves and how open choices fall. Test answers follow the concrete state, so a
path that starts from a normal form (a queue that begins with dummies) finds its own way back: steps that the concrete
run does not take are passed over until both are at the same node again.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.effects import Effect
from fencepost.model.events import DesignError, InvalidRun, Player
from fencepost.model.platform import Environment, Platform
from fencepost.proofs.explore.search import DEVICE_STEP

Element = tuple[int, int, "str | None", bool]
Path = tuple[Element, ...]
Lowered = dict[tuple[int, int], tuple[Effect, ...]]

KEPT = 1_000
"""Players that are kept at places where the paths of one search part."""


def complete(
    program: p.Program, path: Path, platform: Platform, environment: Environment, lowered: Lowered | None = None
) -> Playing | None:
    """What was played on the whole design along `path`, or None when it cannot be played.

    `lowered`: the effects of the program's nodes, where they are known.
    """
    playing = Playing(program, Player(program, platform, environment, lowered=lowered))
    return playing if all(map(playing.go, path)) else None


class _Place:
    """A place where paths part, or one ends: what was played up to here, and by the next element what leads on and where to."""

    __slots__ = ("after", "played")

    def __init__(self) -> None:
        self.after: dict[Element, tuple[Path, _Place]] = {}
        self.played: Playing | None = None

    def enter(self, path: Path) -> None:
        """Add a path from here on."""
        place = self
        while path:
            if path[0] not in place.after:
                place.after[path[0]] = (path, _Place())
                return
            way, to = place.after[path[0]]
            shared = len(way)
            if path[:shared] != way:
                shared = next((k for k, one in enumerate(path) if one != way[k]), len(path))
                parting = _Place()
                parting.after[way[shared]] = (way[shared:], to)
                place.after[path[0]] = (way[:shared], parting)
                to = parting
            place, path = to, path[shared:]


class Completions:
    """The runs along several paths of one program: what paths have in common is played once."""

    def __init__(
        self, program: p.Program, platform: Platform, environment: Environment, lowered: Lowered, paths: Iterable[Path]
    ) -> None:  # fmt: skip
        self.root = _Place()
        self.root.played = Playing(program, Player(program, platform, environment, lowered=lowered))
        self.kept = 0
        for path in paths:
            self.root.enter(path)

    def complete(self, path: Path) -> Playing | None:
        """As the function, for one of the paths."""
        place, played = self.root, self.root.played
        ways: list[tuple[Path, _Place]] = []
        while path:
            way, place = place.after[path[0]]
            path = path[len(way) :]
            ways.append((way, place))
            if place.played is not None:
                played, ways = place.played, []
        assert played is not None
        playing = played.copy()
        for way, place in ways:
            if not all(map(playing.go, way)):
                return None
            if place.after and self.kept < KEPT:
                place.played = playing.copy()
                self.kept += 1
        return playing


class Playing:
    """A path that is being played, as far as it was given."""

    __slots__ = ("begun", "player", "program", "skipping", "steps", "turn")

    def __init__(self, program: p.Program, player: Player) -> None:
        self.program = program
        self.player = player
        self.steps: list[Step] = []
        self.begun: set[tuple[int, int]] = set()
        """The turns that the run needs: (thread, number)."""
        self.skipping: set[int] = set()
        """Threads that got another answer than on the path, and whose steps there are passed over until both meet again."""
        self.turn = [0] * len(program.threads)

    def copy(self) -> Playing:
        """The same, to go on with apart."""
        other = Playing(self.program, self.player.copy())
        other.steps, other.begun = self.steps[:], self.begun.copy()
        other.skipping, other.turn = self.skipping.copy(), self.turn[:]
        return other

    @property
    def run(self) -> Run:
        """What was played."""
        return Run(tuple(self.steps))

    def _step(self, step: Step) -> None:
        self.begun.add((step.thread, self.player.next_turn(step.thread)))
        self.player.step(step)
        self.steps.append(step)

    def go(self, element: Element) -> bool:
        """Go on by one element of the path; returns whether it can be played. If not, this is unusable."""
        thread, node, answer, got = element
        player = self.player
        if node == DEVICE_STEP:
            found = self._device(thread)
            if found is None:
                return False
            self._step(found)
            return True
        if node < 0:
            self.skipping.discard(thread)
            if not self._finish(thread):
                return False
            self.turn[thread] += 1
            return True
        if thread in self.skipping:
            if player.pc(thread) != node:
                return True
            self.skipping.discard(thread)
        if player.pc(thread) != node and not self._reach(thread, node):
            return False
        step = Step(thread, node, answer, 0 if got else None)
        if answer is not None:
            possible = player.possible_answers(thread)
            if answer not in possible:
                if len(possible) != 1:
                    return False
                step = Step(thread, node, possible[0])
                self.skipping.add(thread)
        try:
            self._step(step)
        except InvalidRun:
            return False
        return True

    def _device(self, stream: int) -> Step | None:
        """The step of the device that is possible in the stream of that number (all slots of all streams counted)."""
        slots = [
            (i, slot) for i, o in enumerate(self.program.objects) if isinstance(o, p.Stream) for slot in range(o.depth or 1)
        ]  # fmt: skip
        fifos = self.player.fifos
        wanted = fifos[slots[stream]]
        return next((step for step in self.player.device_steps() if step.stream and fifos[step.stream] == wanted), None)

    def _reach(self, thread: int, node: int) -> bool:
        """Run the operations that the exploration passed over, up to `node`."""
        while self.player.pc(thread) != node:
            if not self._passed_over(thread):
                return False
        return True

    def _finish(self, thread: int) -> bool:
        """Run what is left of the thread's turn, which the exploration passed over."""
        while not self.player.finished(thread) and self.player.turn(thread) == self.turn[thread]:
            if not self._passed_over(thread):
                return False
        return True

    def _passed_over(self, thread: int) -> bool:
        """Run the thread's next operation, if it is one and can run. Raises `DesignError` where the design must not take it."""
        at = self.player.pc(thread)
        if at < 0 or not isinstance(self.program.threads[thread].nodes[at], p.Do):
            return False
        try:
            self._step(Step(thread, at))
        except DesignError:
            raise
        except InvalidRun:
            return False
        return True
