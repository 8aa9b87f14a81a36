"""`fencepost probe`: measure the platform rules on the GPU at hand, and write them as a platform profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from fencepost.commands.options import Real
from fencepost.errors import InputError

if TYPE_CHECKING:
    from fencepost.gpu_validate.probing import Measured


@click.command()
@click.option("-k", "keyword", metavar="TEXT", help="Only rules whose number or text contains TEXT.")
@click.option("--list", "listing", is_flag=True, help="Name the probes and what the rules say; needs no GPU.")
@click.option("--watchdog", type=Real(1, 1000), default=20.0, metavar="MS", help="Opens all gates after (20).")
@click.option("--profile", metavar="FILE", help="Write the platform profile that check --platform reads.")
@click.option("--name", default="measured", help="The profile's name (measured).")
@click.option("--json", "as_json", is_flag=True, help="Write the profile to standard output.")
def probe(
    keyword: str | None, listing: bool, watchdog: float, profile: str | None, name: str, as_json: bool
) -> int:
    """Measure the rules of docs/semantics.md on the GPU at hand, one small experiment each.

    Exit code 0: every rule that was measured is as expected. 1: one is not. 2: usage error, no GPU, no gates, no memory left.
    """
    import os

    from fencepost import gpu
    from fencepost.gpu_validate.probes import all_probes

    chosen = [
        one for one in all_probes() if keyword is None or keyword.lower() in f"{one.rules} {one.what}".lower()
    ]  # fmt: skip
    if not chosen:
        raise InputError(f"-k {keyword!r} selects none of {len(all_probes())} probes; --list names them")
    if listing:
        for one in chosen:
            click.echo(f"{one.rules:<10} {one.what}: {one.expected}" + (f"  [{one.tag}]" if one.tag != "seen" else ""))
        return 0
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    from fencepost.gpu_validate import probes
    from fencepost.gpu_validate.device import torch_or_error
    from fencepost.gpu_validate.gates import make

    def show(result: Measured) -> None:
        if not as_json:
            for line in _lines(result):
                click.echo(line)

    with gpu.usable():
        torch_or_error()
        gates = make("memory")
        results = probes.run(gates, chosen, watchdog / 1e3, show)
    content = probes.profile(results, gates.name, watchdog / 1e3, name)
    differ = [result for result in results if result.agrees is False]
    if as_json:
        click.echo(content.decode())
    else:
        rules = {rule for result in results if result.measured is not None for rule in result.rules.split(", ")}
        click.echo(f"{len(rules)} rules measured by {len(results)} probes; {len(differ)} not as expected")
    gpu.finish([], profile, lambda: content)
    return 1 if differ else 0


def _lines(result: Measured) -> list[str]:
    if result.measured is None:
        return [f"{result.rules:<10} {result.what}: not measured ({result.why})"]
    mark = "as expected" if result.agrees else f"DIFFERS, expected {result.expected}"
    lines = [f"{result.rules:<10} {result.what}: {result.measured}  ({mark})"]
    return lines + ([f"           {result.detail}"] if result.detail else [])
