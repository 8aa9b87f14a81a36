"""`fencepost simulate`: run designs on the simulated machine and look for a wrong value."""

from __future__ import annotations

import shlex
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import click
from fencepost.commands.options import Progress, known
from fencepost.errors import InputError
from fencepost.width import columns

if TYPE_CHECKING:
    from fencepost.check import Case, Outcome
    from fencepost.simulate import Simulated


def _format(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if value not in ("text", "json"):
        raise InputError(f"no format {value!r} for simulate; there are: text, json")
    return value


@click.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A parameter of the one design; repeatable.")
@click.option("--over", "overs", metavar="NAME=1..8", multiple=True, help="A parameter that Hypothesis chooses.")
@click.option("-k", "keyword", metavar="TEXT", help="Only variants whose target or label contains TEXT.")
@click.option("--examples", type=int, metavar="N", help="Runs that are tried (default 500).")
@click.option("--steps", type=int, metavar="K", help="Turns of each loop in a run (default 8).")
@click.option("--seed", type=int, default=0, metavar="S", help="Of every random choice (default 0).")
@click.option("--replay", metavar="STRING", help="Replay this run, as an earlier search printed it.")
@click.option("--timing", metavar="NAME", help="Durations: declared (time= alone) or typical; default: any.")
@click.option("--unguided", is_flag=True, help="Do not let the explorer's run guide the search.")
@click.option("--environment", callback=known("environment"), help="A constraint of a debug run; see docs/answers.md.")
@click.option("--platform", callback=known("platform"), help="What vendors disagree on: cuda (the default), rocm, ...")
@click.option("--format", "format_", default="text", callback=_format, help="text or json.")
def simulate(
    targets: tuple[str, ...],
    sets: tuple[str, ...],
    overs: tuple[str, ...],
    keyword: str | None,
    examples: int | None,
    steps: int | None,
    seed: int,
    replay: str | None,
    timing: str | None,
    unguided: bool,
    environment: str | None,
    platform: str | None,
    format_: str,
) -> int:
    """Run designs on a machine with values and time, and show a wrong value beside the right one.

    A wrong value refutes a design; none in any number of runs proves nothing. Exit code 0: a wrong value where one is
    declared and none elsewhere; 1: otherwise; 2: usage or input error; 3: no wrong value, and nothing was declared.
    """
    import msgspec
    from fencepost.check import INTERRUPTED, cases
    from fencepost.loader import load
    from fencepost.simulate import check_numbers, check_timing

    begin = time.perf_counter()
    check_numbers(examples, steps)
    check_timing(timing)
    loaded = load(targets)
    asked = cases(loaded, sets=sets, overs=overs, keyword=keyword, environment=environment, platform=platform)
    if replay is not None:
        asked = _replayed(asked, loaded, replay, sets)
    asked = [
        msgspec.structs.replace(c, engine="simulate", examples=examples, steps=steps, seed=seed, replay=replay, explain=False)
        for c in asked
    ]
    progress = Progress()
    outcomes: list[Outcome] = []
    results: list[Simulated | None] = []
    interrupted = False
    try:
        for case, simulated, outcome in _each(asked, bool(overs) and replay is None, unguided, timing, progress):
            progress.clear()
            if outcome.error is not None and outcome.error not in {one.error for one in outcomes}:  # a missing extra: once
                click.echo(f"fencepost: {'internal error: ' if outcome.crashed else ''}{outcome.error}", err=True)
            elif format_ == "text" and simulated is not None:
                _write(case, simulated, sets, len(asked) > 3)
            outcomes.append(outcome)
            results.append(simulated)
    except KeyboardInterrupt:
        interrupted = True
    progress.clear()
    if format_ == "json":
        from fencepost.report import write

        write(outcomes, "json", sys.stdout, verbose=False, seconds=time.perf_counter() - begin)
    else:
        _close(asked, results, time.perf_counter() - begin)
    if interrupted:
        click.echo(f"fencepost: interrupted; {len(outcomes)} of {len(asked)} answered", err=True)
        return INTERRUPTED
    codes = {_code(case, result) for case, result in zip(asked, results, strict=False)}
    return next((code for code in (2, 1, 3) if code in codes), 0)


def _replayed(asked: list[Case], loaded: list[Any], text: str, sets: tuple[str, ...]) -> list[Case]:
    """The one case that a replay string is about: its parameters and its world are in the string."""
    import msgspec
    from fencepost.check import Case
    from fencepost.parameters import signature
    from fencepost.simulator.machine_script import ReplayError, read_replay

    try:
        _, said = read_replay(text)
    except ReplayError as error:
        raise InputError(f"--replay: {error}") from None
    if len(loaded) != 1:
        names = ", ".join(target.spelling for target in loaded[:5])
        raise InputError(f"--replay needs one design; the targets hold {len(loaded)}: {names}")
    if sets:
        raise InputError("--replay takes no --set: the parameters are in the string")
    target = loaded[0]
    unknown = [name for name in said.parameters if target.function is None or name not in signature(target)]
    if unknown:
        raise InputError(
            f"--replay: replay string of another design: {target.design} has no parameter {unknown[0]!r}; search again "
            "without --replay"
        )
    same = [c for c in asked if c.parameters == said.parameters and c.environment == said.environment]
    case = same[0] if same else Case(target.spelling, target.design, dict(said.parameters))
    return [msgspec.structs.replace(case, environment=said.environment, platform=said.platform)]


def _each(asked: list[Case], together: bool, unguided: bool, timing: str | None, progress: Progress) -> Any:
    """(case, what was found, outcome) for each case; `together`: one search over all of them."""
    from fencepost.simulate import over_parameters, simulate_case

    if together:
        yield over_parameters(asked, timing)
        return
    for number, case in enumerate(asked):
        if sys.stderr.isatty() and len(asked) > 1:
            progress(f"{number} of {len(asked)} done, now {case.design} [{case.title}]")
        yield (case, *simulate_case(case, not unguided, timing))


# ---------------------------------------------------------------- words


def _declares_wrong(case: Case) -> bool | None:
    from fencepost.model.answer import REFUTED

    return None if case.expected is None else case.expected == REFUTED


def _code(case: Case, result: Simulated | None) -> int:
    if result is None:
        return 2
    wrong = result.searched.found is not None and result.searched.found.outcome.wrong is not None
    declared = _declares_wrong(case)
    if case.replay is not None:
        return 1 if wrong else 0
    if declared is not None:
        return 0 if wrong == declared else 1
    return 1 if wrong else 3


def _write(case: Case, result: Simulated, sets: tuple[str, ...], brief: bool) -> None:
    from fencepost.simulate import sentences

    searched, answer = result.searched, result.answer
    found = searched.found
    wrong = found is not None and found.outcome.wrong is not None
    title = f" [{case.title}]" if case.title else ""
    runs = f"{searched.examples} run{'' if searched.examples == 1 else 's'}"
    if case.replay is not None:
        runs = "the replayed run"
    text = f"{case.design}{title}: " + (f"wrong value ({answer.hazards[0].name})" if wrong else f"no wrong value in {runs}")
    declared = _declares_wrong(case)
    if declared is not None and case.replay is None:
        text += ", as declared" if declared == wrong else f", BUT DECLARED {case.expected} {case.hazard or ''}".rstrip()
    click.echo(_wrapped("", text))
    if wrong:
        assert found is not None
        for sentence in sentences(found):
            click.echo(_wrapped("    ", sentence))
        if case.replay is None:
            how = {"guided": "guided by the explorer's run", "random": "at random", "hypothesis": "Hypothesis"}[found.how]
            runs = f"{found.examples} run{'' if found.examples == 1 else 's'}"
            click.echo(_wrapped("    ", f"found in {runs} ({how}); {found.outcome.operations} operations when made small"))
            click.echo("    again: " + shlex.join(["fencepost", "simulate", case.target, "--replay", found.text]))
    for note in answer.notes if not brief or not wrong else ():
        if note.startswith("in some run"):
            click.echo(_wrapped("    ", note))
    if answer.reason is not None and not brief and not wrong:
        click.echo(_wrapped("    ", answer.reason))


def _wrapped(indent: str, text: str) -> str:
    width = min(columns(), 100)
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False)


def _close(asked: list[Case], results: list[Simulated | None], seconds: float) -> None:
    answered = [r for r in results if r is not None]
    if len(answered) < 2:
        return
    wrong = sum(r.searched.found is not None and r.searched.found.outcome.wrong is not None for r in answered)
    runs = sum(r.searched.examples for r in answered)
    operations = sum(r.searched.operations for r in answered)
    pairs = zip(asked, results, strict=False)
    unlike = sum(_declares_wrong(case) is not None and _code(case, r) != 0 for case, r in pairs)
    click.echo(
        f"{len(answered)} designs: {wrong} with a wrong value, {len(answered) - wrong} without; {unlike} not as declared; "
        f"{runs} runs, {operations} operations; {seconds:.1f} s"
    )
