"""The command line: finds the module of a command, calls it, and turns bad input into one line and exit code 2.

Heavy imports stay inside the commands, and a command's module is loaded only when it is asked for.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import io
import os
import sys
from typing import NoReturn

import click
from fencepost.errors import InputError
from fencepost.interrupts import keep_interrupts

COMMANDS = {
    "attack": ("fencepost.commands.attack:attack", "Attack proofs on a GPU: hold accesses back, drive on."),
    "check": ("fencepost.commands.check:check", "Decide designs: every variant, or one with --set or --over."),
    "condition": ("fencepost.commands.condition:condition", "The exact safe values of integer parameters, proved."),
    "cost": ("fencepost.commands.cost:cost", "What a step and each wait cost; break-even of each."),
    "diff": ("fencepost.commands.diff:diff", "Compare two designs or commits: which proof was lost."),
    "export": ("fencepost.commands.export:export", "Write a bounded instance: Promela, or SMT-LIB."),
    "list": ("fencepost.commands.list_:list_", "Name designs, parameters and declared variants."),
    "probe": ("fencepost.commands.probe:probe", "Measure the platform's rules on the GPU at hand."),
    "replay": ("fencepost.commands.replay:replay", "Force counterexamples on a GPU."),
    "show": ("fencepost.commands.show:show", "Print what was understood, with no verdict."),
    "why": ("fencepost.commands.why:why", "What a line orders, what not, what would break."),
    "waits": ("fencepost.commands.waits:waits", "Classify each wait: needed, redundant, too wide, useless."),
    "repair": ("fencepost.commands.repair:repair", "The cheapest additions that mend a refuted design."),
    "plan": ("fencepost.commands.plan:plan", "Decide every combination of open points of a design."),
    "masks": ("fencepost.commands.masks:masks", "Environments under which a hazard cannot show."),
    "simulate": ("fencepost.commands.simulate:simulate", "Show a wrong value on a machine with values and time."),
    "verify": ("fencepost.commands.verify:verify", "Check certificates by other code, with SMT solvers."),
}
"""Name -> module:function, and its line in `fencepost --help`. A command that is not here does not exist."""

PIPE_CLOSED = 141
"""Exit code when the reader of a pipe has gone, as a shell shows it (128 + SIGPIPE)."""

GARBAGE_FROM = 50_000
"""Containers that are made between two looks for garbage among the newest."""

NOT_BUILT: tuple[str, ...] = ()
"""Commands that are planned; they are refused by name instead of being mistaken for a slip of the finger."""


class _Commands(click.Group):
    """A group that knows its commands by name and loads one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), function)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, each in one line of 80 columns, without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        known = ", ".join(sorted(COMMANDS))
        if name in NOT_BUILT:
            raise InputError(f"fencepost {name} is not built yet; there are: {known}")
        if name not in COMMANDS and not name.startswith("-"):
            raise InputError(f"no command {name!r}; there are: {known}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fencepost", message="fencepost %(version)s")
@click.pass_context
def cli(context: click.Context) -> int | None:
    """Proves or refutes that an asynchronous GPU engine computes what it would compute with no overlap.

    TARGET is file.py, file.py::function, module:function, a folder, or the JSON file of a program. Each command says more with --help.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        return 2
    return None


def run(arguments: list[str] | None = None) -> int:
    """Run the command line with `arguments` (default: the process's) and return the exit code."""
    out = sys.stdout
    try:
        result = cli.main(args=arguments, prog_name="fencepost", standalone_mode=False)
    except InputError as error:
        click.echo(f"fencepost: {error}", err=True)
        return 2
    except click.ClickException as error:
        click.echo(f"fencepost: {' '.join(error.format_message().split())}", err=True)
        return 2
    except click.Abort:
        click.echo("fencepost: interrupted", err=True)
        return 130
    except OSError as error:
        where = "standard output" if error.filename is None else error.filename
        click.echo(f"fencepost: {where}: {error.strerror or error}", err=True)
        if error.filename is None:
            _forget_output()
        return 2
    except SystemExit:
        if sys.stdout is not out:  # click puts another in its place when nobody reads any more (`| head`)
            return PIPE_CLOSED
        raise
    return result if isinstance(result, int) else 0


def _forget_output() -> None:
    """Let what could not be written go, instead of failing again at the interpreter's end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> NoReturn:
    """Entry point of the `fencepost` command."""
    # Imports make much and drop nothing: Python's default threshold looks through all of it a hundred times.
    gc.set_threshold(GARBAGE_FROM)
    keep_interrupts()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an ASCII terminal gets the lines of tables as \u2500
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout is None:
        click.echo("fencepost: standard output is closed", err=True)
        sys.exit(2)
    code = run()
    try:
        sys.stdout.flush()
    except OSError as error:
        code = PIPE_CLOSED if error.errno == errno.EPIPE else 2
        if code == 2:
            click.echo(f"fencepost: standard output: {error.strerror}", err=True)
        _forget_output()
    gc.freeze()  # the interpreter looks for garbage at its end, too, and all of it goes anyway
    sys.exit(code)
