"""`fencepost list`: the designs, their parameters and their declared variants."""

from __future__ import annotations

import click


@click.command("list")
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
