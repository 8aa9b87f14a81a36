"""What a GPU is to be shown: from targets to counterexamples with their fixed designs, and to proved designs."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec
from fencepost.errors import InputError, relative
from fencepost.gpu_validate.files import Subject, parse
from fencepost.model.answer import REFUTED


def from_file(spellings: Sequence[str]) -> list[Subject] | None:
    """The subjects of replay files; None when the targets are not all such files."""
    found: list[Subject] = []
    for spelling in spellings:
        if not (spelling.endswith(".json") and os.path.isfile(spelling)):
            return None
        try:
            with open(spelling, "rb") as stream:
                subjects = parse(stream.read(), relative(spelling))
        except ValueError as error:
            raise InputError(str(error)) from None
        if subjects is None:
            return None
        found += subjects
    return found


def gather(
    spellings: Sequence[str],
    verdict: str,
    *,
    sets: Sequence[str] = (),
    fixed: Sequence[str] = (),
    keyword: str | None = None,
    platform: str | None = None,
    jobs: int | None = None,
) -> list[Subject]:
    """Decide the targets' variants and keep those with this verdict on the bare platform.

    `fixed`: parameters of the fixed design, on top of the variant's; without them it is the variant named by `fix=`.
    Raises `InputError` when nothing is left, or when one design was asked for and its answer is another one.
    """
    from fencepost.check import Case, build, cases, decide_all
    from fencepost.loader import load
    from fencepost.parameters import combinations

    saved = from_file(spellings)
    if saved is not None:
        return _chosen(saved, verdict, keyword)
    targets = load(spellings)
    by_name = {target.spelling: target for target in targets}
    asked = [c for c in cases(targets, sets=sets, keyword=keyword, platform=platform) if c.environment in (None, "bare")]
    declared = {(c.target, c.label): c for c in cases(targets)} if not sets else {}
    subjects: list[Subject] = []
    verdicts: list[str] = []
    for outcome in decide_all([msgspec.structs.replace(case, explain=False) for case in asked], jobs):
        if outcome.error is not None:
            raise InputError(outcome.error)
        answer, program, case = outcome.answer, outcome.program, outcome.case
        assert answer is not None and program is not None
        verdicts.append(answer.verdict)
        if answer.verdict != verdict:
            continue
        other: Case | None = declared.get((case.target, case.fix)) if case.fix else None
        target = by_name[case.target]
        mended, label = None, None
        if fixed and target.function is not None:
            # Types and names are checked as those of --set are.
            parameters = {**case.parameters, **next(combinations(target, fixed, ()))}
            given = {text.partition("=")[0] for text in fixed}
            keep = {name: value for name, value in parameters.items() if name in given or name in case.parameters}
            mended, label = build(target, keep), ", ".join(fixed)
        elif other is not None:
            mended, label = build(target, other.parameters), other.title
        subjects.append(
            Subject(
                case.design, case.title, program, answer.verdict, case.platform, answer.run,
                answer.hazards[0] if answer.hazards else None, label, mended,
            )
        )  # fmt: skip
    if not subjects:
        what = "a counterexample to replay" if verdict == REFUTED else "a proof to attack"
        had = ", ".join(sorted(set(verdicts))) or "none"
        raise InputError(f"{' '.join(spellings)}: nothing here is {what} (verdicts: {had})")
    return subjects


def _chosen(subjects: Sequence[Subject], verdict: str, keyword: str | None) -> list[Subject]:
    found = [
        s for s in subjects if s.verdict == verdict and (keyword is None or keyword.lower() in s.title.lower())
    ]  # fmt: skip
    if not found:
        raise InputError(f"none of the file's {len(subjects)} designs is {verdict}" + (f" and has {keyword!r}" if keyword else ""))
    return found
