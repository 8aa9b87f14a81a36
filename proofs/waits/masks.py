"""Under which debug runs a hazard cannot show: environments, a device sync after each step, pageable instead of pinned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from fencepost.model import answer as a
from fencepost.model import program as p
from fencepost.model.effects import Enqueue
from fencepost.model.operations import Context, lower
from fencepost.model.platform import ENVIRONMENTS
from fencepost.model.platform import platform as platform_named
from fencepost.proofs import edits
from fencepost.proofs.check import check
from fencepost.proofs.explore.search import Budget
from fencepost.proofs.waits.classify import Mapper


class Mask(msgspec.Struct, frozen=True):
    """What is left of the hazards in one kind of debug run. `shown` and `hidden` are names of hazards."""

    name: str
    about: str
    verdict: str
    shown: tuple[str, ...]
    hidden: tuple[str, ...]
    reason: str | None = None


class Masks(msgspec.Struct, frozen=True):
    """`bare` is the answer without any constraint."""

    bare: a.Answer
    masks: tuple[Mask, ...]


def masks(
    program: p.Program, *, platform: str | None = None, never: tuple[str, ...] = (), seconds: float = 60.0,
    mapper: Mapper = map,
) -> Masks:  # fmt: skip
    """Decide the design bare and as it would run while somebody debugs it. `seconds` bounds each question."""
    platform_named(platform)
    asked: list[tuple[Any, ...]] = [(program, None, platform, never, seconds)]
    names: list[tuple[str, str]] = []
    for environment in ENVIRONMENTS.values():
        # A serial copy engine is no constraint that the explorer knows; nothing is claimed about it.
        if environment.blocking_kernels or environment.blocking_copies or environment.one_queue:
            asked.append((program, environment.name, platform, never, seconds))
            names.append((environment.name, environment.about))
    synced = with_step_syncs(program)
    if synced is not None:
        asked.append((synced, None, platform, never, seconds))
        names.append(("device sync after each step", "torch.cuda.synchronize() at the end of every turn that enqueues work"))
    paged = pageable(program)
    if paged is not None:
        changed, objects = paged
        asked.append((changed, None, platform, never, seconds))
        names.append(("pageable instead of pinned", f"{', '.join(objects)} left unpinned (S47, S48)"))
    bare, *answers = list(mapper(_ask, asked))
    base = list(dict.fromkeys(hazard.name for hazard in bare.hazards))
    found = []
    for (name, about), answer in zip(names, answers, strict=True):
        shown = tuple(dict.fromkeys(hazard.name for hazard in answer.hazards))
        hidden = tuple(x for x in base if x not in shown) if answer.verdict != a.UNKNOWN else ()
        found.append(Mask(name, about, answer.verdict, shown, hidden, answer.reason))
    return Masks(bare, tuple(found))


def _ask(task: tuple[Any, ...]) -> a.Answer:
    program, environment, platform, never, seconds = task
    return check(
        program, environment=environment, platform=platform, never=never, budget=Budget(seconds=seconds), explain=False
    )


def with_step_syncs(program: p.Program) -> p.Program | None:
    """The program with a device sync at the end of every turn of each loop that enqueues work; None where none does."""
    changed = program
    for t, thread in enumerate(program.threads):
        devices = sorted(set(_devices(program, thread)))
        if thread.kind == "loop" and devices:
            for gpu, process in devices:
                changed = edits.at_turn_end(changed, t, p.DeviceSync(gpu, process))
    return changed if changed is not program else None


def _devices(program: p.Program, thread: p.Thread) -> Iterator[tuple[int, str]]:
    context = Context(program, thread)
    for node in thread.nodes:
        for effect in lower(node.operation, context) if isinstance(node, p.Do) else ():
            if isinstance(effect, Enqueue) and not isinstance(effect.stream, p.Local):
                stream = program.objects[effect.stream.id]
                assert isinstance(stream, p.Stream)
                if not stream.is_agent:  # no device synchronisation reaches an agent
                    yield stream.gpu, stream.process


def pageable(program: p.Program) -> tuple[p.Program, tuple[str, ...]] | None:
    """The program with pinned memory left unpinned, and its names, where only copies and the host touch it; None without.

    A kernel cannot read pageable memory in place (S107), so that what kernels touch stays pinned.
    """
    touched = {
        access.target.id
        for thread in program.threads
        for node in thread.nodes
        if isinstance(node, p.Do) and isinstance(node.operation, p.Launch)
        for access in node.operation.accesses
        if not isinstance(access.target, p.Local)
    }
    chosen = [
        i
        for i, thing in enumerate(program.objects)
        if isinstance(thing, p.Memory) and thing.space == "pinned" and i not in touched
    ]
    if not chosen:
        return None
    objects = tuple(
        msgspec.structs.replace(thing, space="pageable") if i in chosen else thing
        for i, thing in enumerate(program.objects)
    )
    return msgspec.structs.replace(program, objects=objects), tuple(program.objects[i].name for i in chosen)
