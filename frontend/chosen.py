"""Which program a question about one design is about: a variant by its label, parameters, or the variant that fits."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.check import Case, build, cases
from fencepost.errors import InputError, one_line
from fencepost.loader import Target, load
from fencepost.model.program import Program


def chosen(
    spellings: Sequence[str],
    sets: Sequence[str],
    keyword: str | None,
    verdict: str,
    platform: str | None = None,
    everything: bool = False,
) -> list[Case]:
    """One case for each design: the one that `sets` or `keyword` names, else its first variant declared `verdict`.

    A design none of whose variants is declared so is asked with its first variant, or with its defaults. `everything`
    gives every variant instead. Raises `InputError` as `check` does.
    """
    targets = load(spellings)
    if sets:
        return cases(targets, sets=sets, platform=platform)
    found = cases(targets, keyword=keyword, platform=platform)
    if everything or keyword is not None:
        # A keyword may name several variants of one design: each is a question of its own.
        return found
    best: dict[str, Case] = {}
    for case in found:
        before = best.get(case.target)
        fits = case.expected == verdict and case.environment is None
        if before is None or (fits and not (before.expected == verdict and before.environment is None)):
            best[case.target] = case
    return list(best.values())


def program_of_case(case: Case) -> Program:
    """The case's program. Raises `InputError` (one line) for whatever the design's body raises."""
    (target,) = load([case.target])
    return program_of_target(target, case)


def program_of_target(target: Target, case: Case) -> Program:
    """As `program_of_case`, for a target that is loaded."""
    try:
        return build(target, case.parameters)
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # the body of a design is the user's code: it may raise anything
        raise InputError(one_line(error)) from None
