"""The command line: `fencepost check`, `show`, `list`. It parses, calls and prints; what is printed is made elsewhere.

Bad input is one line on standard error and exit code 2. Heavy imports stay inside the commands.
"""

from __future__ import annotations

import sys
import time
from typing import Any, NoReturn

import click
from fencepost.errors import InputError

NOT_BUILT = ("diff", "waits", "plan", "replay", "verify")
"""Commands that are planned; they are refused by name instead of being mistaken for a slip of the finger."""

ENGINES_NOT_BUILT = ("smt", "simulate", "all")


class _Commands(click.Group):
    """A group that says which commands exist."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        known = ", ".join(sorted(self.commands))
        if name in NOT_BUILT:
            raise InputError(f"fencepost {name} is not built yet; there are: {known}")
        if name not in self.commands and not name.startswith("-"):
            raise InputError(f"no command {name!r}; there are: {known}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fencepost", message="fencepost %(version)s")
@click.pass_context
def cli(context: click.Context) -> int | None:
    """Proves or refutes that an asynchronous GPU engine computes what it would compute with no overlap.

    TARGET is file.py, file.py::function, module:function, a folder, or the JSON file of a program.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        return 2
    return None


def _engine(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if value in ENGINES_NOT_BUILT:
        raise InputError(f"engine {value!r} is not built yet; there is: explore")
    if value != "explore":
        raise InputError(f"no engine {value!r}; there is: explore")
    return value


def _format(_context: click.Context, _option: click.Parameter, value: str) -> str:
    from fencepost.report import FORMATS

    if value not in FORMATS:
        raise InputError(f"no format {value!r}; there are: {', '.join(FORMATS)}")
    return value


def _named(kind: str) -> Any:
    def known(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
        from fencepost.model import platform

        try:
            getattr(platform, kind)(value)
        except ValueError as error:
            raise InputError(str(error)) from None
        return value

    return known


@cli.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A parameter of the one design; repeatable.")
@click.option("--over", "overs", metavar="NAME=1..8", multiple=True, help="A parameter over a range or a,b,c.")
@click.option("-k", "keyword", metavar="TEXT", help="Only variants whose target or label contains TEXT.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes (default: chosen by the number of questions).")
@click.option("--format", "format_", default="text", callback=_format, help="text, json, markdown or github.")
@click.option("--engine", default="explore", callback=_engine, help="explore (the default, exact for all steps).")
@click.option("--strict", is_flag=True, help="Refute also on hazards that change no value.")
@click.option("--environment", callback=_named("environment"), help="A constraint of a debug run; see docs/answers.md.")
@click.option("--platform", callback=_named("platform"), help="What vendors disagree on: cuda (the default), rocm, ...")
@click.option("--budget", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Give up as unknown after.")
@click.option("-v", "--verbose", is_flag=True, help="Every answer in full, also when it is as declared.")
def check(
    targets: tuple[str, ...],
    sets: tuple[str, ...],
    overs: tuple[str, ...],
    keyword: str | None,
    jobs: int | None,
    format_: str,
    engine: str,
    strict: bool,
    environment: str | None,
    platform: str | None,
    budget: float | None,
    verbose: bool,
) -> int:
    """Decide designs: every declared variant, or one design with --set and --over.

    Exit code 0: as declared, or proved. 1: refuted, hanging, or not as declared. 2: usage or input error. 3: unknown,
    bounded or masked. 130: Ctrl-C, with the table so far.
    """
    import msgspec
    from fencepost.check import INTERRUPTED, Outcome, cases, decide_all, exit_code, unused_acceptances
    from fencepost.loader import load

    begin = time.perf_counter()
    asked = cases(
        load(targets), sets=sets, overs=overs, keyword=keyword, environment=environment, platform=platform,
        strict=strict, budget=budget,
    )  # fmt: skip
    if len(asked) > 1 and not verbose:
        # A table shows none of it, and each explanation is a search of its own.
        asked = [msgspec.structs.replace(case, explain=False) for case in asked]
    outcomes: list[Outcome] = []
    interrupted = False
    progress = _Progress()
    try:
        for outcome in decide_all(asked, jobs, progress):
            outcomes.append(outcome)
            if outcome.error is not None:
                click.echo(f"fencepost: {'internal error: ' if outcome.crashed else ''}{outcome.error}", err=True)
    except KeyboardInterrupt:
        interrupted = True
    progress.clear()
    from fencepost.report import write

    errors = [] if interrupted or keyword is not None else unused_acceptances(outcomes)
    write(outcomes, format_, sys.stdout, verbose=verbose, seconds=time.perf_counter() - begin)
    for error in errors:
        click.echo(f"fencepost: {error}", err=True)
    if interrupted:
        click.echo(f"fencepost: interrupted; {len(outcomes)} of {len(asked)} answered", err=True)
        return INTERRUPTED
    return exit_code(outcomes, errors)


class _Progress:
    """Progress of a long exploration on standard error: once a second on a terminal, else every ten seconds."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if self._last == 0.0 or now - self._last >= (1 if terminal else 10):
            self._last = now
            click.echo(f"\r{text[:78]:<78}\r" if terminal else text, err=True, nl=not terminal)

    def clear(self) -> None:
        """Wipe the line on a terminal, before the report."""
        if self._last and sys.stderr.isatty():
            click.echo("\r" + " " * 78 + "\r", err=True, nl=False)


@cli.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A parameter of the one design; repeatable.")
@click.option("-k", "keyword", metavar="TEXT", help="With the parameters of the variants that contain TEXT.")
@click.option("--json", "as_json", is_flag=True, help="Write the one program as JSON, which every command reads.")
def show(targets: tuple[str, ...], sets: tuple[str, ...], keyword: str | None, as_json: bool) -> int:
    """Print what was understood, with no verdict: threads, streams, who holds what, what each wait orders."""
    from fencepost.check import Case, build, cases
    from fencepost.errors import one_line
    from fencepost.loader import load
    from fencepost.model.program import to_json
    from fencepost.parameters import combinations
    from fencepost.show import Shown

    found = load(targets)
    by_name = {target.spelling: target for target in found}
    if keyword is not None:
        asked = cases(found, sets=sets, keyword=keyword)
    elif sets:
        asked = cases(found, sets=sets)
    else:
        asked = [
            Case(target.spelling, target.design, next(combinations(target, (), ())) if target.function else {})
            for target in found
        ]
    if as_json and len(asked) != 1:
        raise InputError(f"--json writes one program; the targets hold {len(asked)}")
    for number, case in enumerate(asked):
        try:
            program = build(by_name[case.target], case.parameters)
        except InputError:
            raise
        except (Exception, SystemExit) as error:  # the body of a design is the user's code: it may raise anything
            raise InputError(one_line(error)) from None
        if as_json:
            click.echo(to_json(program).decode())
            continue
        if len(asked) > 1:
            click.echo(("\n" if number else "") + f"# {case.target}" + (f" [{case.title}]" if case.title else ""))
        for line in Shown(program).lines():
            click.echo(line)
    return 0


@cli.command("list")
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
def list_(targets: tuple[str, ...]) -> int:
    """Name the designs, their parameters and their declared variants."""
    import inspect

    from fencepost.loader import load
    from fencepost.parameters import signature, spelled, type_name

    for target in load(targets):
        click.echo(target.spelling)
        if target.function is None:
            continue
        for name, (declared, default) in signature(target).items():
            tail = "" if default is inspect.Parameter.empty else f" = {default!r}"
            click.echo(f"    {name}: {type_name(declared)}{tail}")
        for variant in target.variants:
            expected = ", ".join(part for part in (variant.verdict, variant.hazard, variant.hang) if part)
            given = spelled(dict(variant.parameters))
            click.echo(f"  {variant.label}: {expected}" + (f"  ({given})" if given else ""))
    return 0


def run(arguments: list[str] | None = None) -> int:
    """Run the command line with `arguments` (default: the process's) and return the exit code."""
    try:
        result = cli.main(args=arguments, prog_name="fencepost", standalone_mode=False)
    except InputError as error:
        click.echo(f"fencepost: {error}", err=True)
        return 2
    except click.ClickException as error:
        click.echo(f"fencepost: {' '.join(error.format_message().split())}", err=True)
        return 2
    except click.Abort:
        return 130
    return result if isinstance(result, int) else 0


def main() -> NoReturn:
    """Entry point of the `fencepost` command."""
    sys.exit(run())
