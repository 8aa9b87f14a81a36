"""`fencepost diff`: two states of a design, and whether a proof was lost between them."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from fencepost.commands.options import SECONDS, known, known_format
from fencepost.errors import InputError

if TYPE_CHECKING:
    from fencepost.diff.side import Entry

Tree = tuple[str, Path, tuple[str, ...]]
"""What a side is called, the root of its tree, and the targets as written from that root."""


@click.command()
@click.argument("targets", metavar="BEFORE [AFTER]", nargs=-1, required=True)
@click.option("--git", "revisions", metavar="BASE..HEAD", help="Compare the TARGETs in two commits; BASE alone: with the files.")
@click.option("--staged", is_flag=True, help="Compare the TARGETs in HEAD with what is staged.")
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A parameter of the one design, on both sides.")
@click.option("--before", "befores", metavar="NAME=VALUE", multiple=True, help="A parameter on the first side only.")
@click.option("--after", "afters", metavar="NAME=VALUE", multiple=True, help="A parameter on the second side only.")
@click.option("-k", "keyword", metavar="TEXT", help="Only variants whose target or label contains TEXT.")
@click.option("--fail-on", metavar="HARM,...", help="Harms that count: address, value, shape, quality (default: all).")
@click.option("--environment", callback=known("environment"), help="A constraint of a debug run, on both sides.")
@click.option("--platform", callback=known("platform"), help="What vendors disagree on, on both sides.")
@click.option("--budget", type=SECONDS, metavar="SECONDS", help="Give up on a variant after.")
@click.option("--format", "format_", default="text", callback=known_format, help="text, json, markdown or github.")
def diff(
    targets: tuple[str, ...],
    revisions: str | None,
    staged: bool,
    sets: tuple[str, ...],
    befores: tuple[str, ...],
    afters: tuple[str, ...],
    keyword: str | None,
    fail_on: str | None,
    environment: str | None,
    platform: str | None,
    budget: float | None,
    format_: str,
) -> int:
    """Compare two designs, or one design in two commits: what went, what came, which proof was lost.

    Exit code 0: nothing got worse. 1: a proof was lost. 2: usage or input error. 3: it cannot be told.
    """
    from fencepost.diff.compare import HARMS, compare, exit_code
    from fencepost.diff.side import Build, Request
    from fencepost.engines import prepare
    from fencepost.report.diff import write

    begin = time.perf_counter()
    harms = tuple(part.strip() for part in fail_on.split(",")) if fail_on is not None else HARMS
    for harm in harms:
        if harm not in HARMS:
            raise InputError(f"--fail-on: no harm {harm!r}; there are: {', '.join(HARMS)}")
    if revisions is not None and staged:
        raise InputError("--git and --staged exclude each other")
    if (befores or afters) and (revisions is not None or staged or len(targets) > 1):
        raise InputError("--before and --after compare one TARGET with itself under other parameters")
    with tempfile.TemporaryDirectory(prefix="fencepost-diff-") as name:
        folder = Path(name)
        (folder / "out").mkdir()
        sides = _sides(targets, revisions, staged, bool(befores or afters), folder)
        names = (sides[0][0], sides[1][0])

        def entries(defaults: bool = False) -> list[tuple[Entry, ...]]:
            requests = [
                Request(str(root), spelled, (*sets, *own), keyword, environment, platform, defaults)
                for (_, root, spelled), own in zip(sides, (befores, afters), strict=True)
            ]
            builds = [Build(side, request, folder / "out") for (side, _, _), request in zip(sides, dict.fromkeys(requests), strict=False)]
            prepare("explore")  # meanwhile, and once for all processes
            if format_ == "text":
                import fencepost.report.text  # noqa: F401 (the report loads it, when all wait for that)
            built = [build.result() for build in builds]
            return built if len(built) == 2 else built * 2  # the same twice is built once

        before, after = entries()
        if befores or afters:
            # The same design under other parameters: one pair, whatever was set.
            before, after = _untitled(before), _untitled(after)
        elif len({e.case.target for e in before}) == 1 == len({e.case.target for e in after}):
            titles = {e.case.title for e in before} & {e.case.title for e in after}
            same = before[0].case.design.rpartition("::")[2] == after[0].case.design.rpartition("::")[2]
            if not titles and not same and not sets:
                before, after = entries(defaults=True)
        found = compare(before, after, names=names, fail_on=harms, budget=budget)
    write(found, names, format_, sys.stdout, time.perf_counter() - begin)
    return exit_code(found)


def _untitled(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The one entry, without a label, so that it is paired whatever its parameters are."""
    import msgspec

    if len(entries) != 1:
        raise InputError(f"--before and --after need one design; the target holds {len(entries)}")
    case = msgspec.structs.replace(entries[0].case, label="")
    return (msgspec.structs.replace(entries[0], case=case),)


def _sides(
    targets: tuple[str, ...], revisions: str | None, staged: bool, itself: bool, folder: Path
) -> list[Tree]:
    """(what the side is called, root of its tree, targets as written from that root) for both sides."""
    from fencepost.diff.trees import export, export_index, top_level
    from fencepost.diff.trees import revisions as commits

    here = Path.cwd()
    if revisions is None and not staged:
        if itself:
            return [("before", here, targets), ("after", here, targets)]
        if len(targets) != 2:
            raise InputError(f"diff takes BEFORE and AFTER, not {len(targets)} targets; or --git BASE..HEAD and one target")
        return [(targets[0], here, targets[:1]), (targets[1], here, targets[1:])]
    top = top_level(here)
    inside = tuple(_from_top(target, here, top) for target in targets)
    if staged:
        head, _ = commits("HEAD", top)
        return _where_they_are(("HEAD", export(head, top, folder / "before"), inside), ("staged", export_index(top, folder / "after"), inside))
    assert revisions is not None
    base, head_or_none = commits(revisions, top)
    if base == head_or_none:
        raise InputError(f"--git {revisions}: both sides are {base[:12]}, so nothing is compared; name another BASE")
    old = (base[:12], export(base, top, folder / "before"), inside)
    new = ("the files", top, inside) if head_or_none is None else (head_or_none[:12], export(head_or_none, top, folder / "after"), inside)
    return _where_they_are(old, new)


def _where_they_are(*sides: Tree) -> list[Tree]:
    """The sides with the targets that each has: a file may be new or gone. One that is on neither side stays, for its error."""

    def has(root: Path, target: str) -> bool:
        return ":" in target.partition("::")[0] or (root / target.partition("::")[0]).exists()

    somewhere = {target for _, root, targets in sides for target in targets if has(root, target)}
    return [(name, root, tuple(t for t in targets if t not in somewhere or has(root, t))) for name, root, targets in sides]


def _from_top(target: str, here: Path, top: Path) -> str:
    """A target as it is written from the top of the repository."""
    path, colons, name = target.partition("::")
    if not colons and ":" in target:
        return target
    absolute = (here / path).resolve()
    if top.resolve() not in (absolute, *absolute.parents):
        raise InputError(f"{target}: not in the repository {top}")
    return absolute.relative_to(top.resolve()).as_posix() + colons + name
