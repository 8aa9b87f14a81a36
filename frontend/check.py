"""Decide designs: targets and options become cases, cases become answers, answers become an exit code.

Nothing is printed here, and no engine is named beyond the one call in `decide`: reports are in fencepost.report.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import time
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any

import msgspec
from fencepost.engines import Question, ask, prepare
from fencepost.errors import InputError, one_line
from fencepost.loader import Target, load
from fencepost.model.answer import BOUNDED, MASKED, PROVED, REFUTED, RUNS, UNKNOWN, Answer
from fencepost.model.program import Program
from fencepost.parameters import combinations, signature, spelled

OK, FAILED, USAGE, OPEN, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes: as declared or proved; refuted or not as declared; usage or input error; unknown, bounded or masked."""

PARALLEL_FROM = 12
"""Cases from which worker processes pay for themselves when `--jobs` is not given."""


class Case(msgspec.Struct, frozen=True):
    """One question: a design, its parameters and what is declared about it. Plain data, so that it can travel."""

    target: str
    design: str
    parameters: dict[str, Any]
    label: str | None = None
    expected: str | None = None
    hazard: str | None = None
    hang: str | None = None
    fix: str | None = None
    never: tuple[str, ...] = ()
    environment: str | None = None
    platform: str | None = None
    strict: bool = False
    budget: float | None = None
    explain: bool = True
    """Also answer what a full report asks: what protects, what closes, what masks."""
    engine: str = "explore"
    steps: int | None = None
    examples: int | None = None
    seed: int | None = None
    replay: str | None = None
    masks: bool = True
    whole: bool = True
    """Whether an answer that is as declared comes back with its program, which is most of what processes hand over."""

    @property
    def title(self) -> str:
        """The declared label, or the parameters that were asked for."""
        return self.label if self.label is not None else spelled(self.parameters)

    @property
    def question(self) -> Question:
        """What the engine is asked."""
        return Question(
            self.engine, self.environment, self.platform, self.strict, self.never, self.budget, self.explain,
            self.steps, self.examples, self.seed, self.replay, self.masks,
        )  # fmt: skip


class Outcome(msgspec.Struct, frozen=True):
    """What became of a case: an answer with the program that it is about, or one line that says why there is none."""

    case: Case
    answer: Answer | None = None
    program: Program | None = None
    error: str | None = None
    crashed: bool = False
    """The error is ours, not the user's."""


def cases(
    targets: Sequence[Target],
    *,
    sets: Sequence[str] = (),
    overs: Sequence[str] = (),
    keyword: str | None = None,
    environment: str | None = None,
    platform: str | None = None,
    strict: bool = False,
    budget: float | None = None,
) -> list[Case]:
    """The questions that a command line asks.

    Without `sets` and `overs`: each declared variant, or the design with its defaults where none is declared; with them
    the target must be one design and nothing is expected. A variant asked under another environment or platform than
    its own, or strictly, is another question, so nothing is expected of it either.
    Raises `InputError` for what cannot be asked, and when `keyword` selects nothing.
    """
    if (sets or overs) and len(targets) != 1:
        names = ", ".join(target.spelling for target in targets[:5])
        raise InputError(f"--set and --over need one design; the targets hold {len(targets)}: {names}")
    asked: list[Case] = []
    for target in targets:
        if sets or overs or (not target.variants and target.function is not None):
            for parameters in combinations(target, sets, overs):
                case = Case(target.spelling, target.design, parameters, None)
                asked.append(_under(case, environment, platform, strict, budget))
        elif target.function is None:
            asked.append(_under(Case(target.spelling, target.design, {}), environment, platform, strict, budget))
        else:
            asked += [
                _under(_declared(target, variant), environment, platform, strict, budget) for variant in target.variants
            ]
    if keyword is not None:
        chosen = [case for case in asked if keyword.lower() in f"{case.target} {case.title}".lower()]
        if not chosen:
            raise InputError(f"-k {keyword!r} selects none of {len(asked)} variants; `fencepost list` names them")
        asked = chosen
    return asked


def _declared(target: Target, variant: Any) -> Case:
    parameters = dict(variant.parameters)
    known = signature(target)
    unknown = [name for name in parameters if name not in known]
    if unknown:
        raise InputError(
            f"{target.place}: variant {variant.label!r} sets the unknown parameter {unknown[0]!r}; "
            f"{target.design} has: {', '.join(known) or 'none'}"
        )
    labels = [other.label for other in target.variants]
    if variant.fix is not None and variant.fix not in labels:
        raise InputError(
            f"{target.place}: variant {variant.label!r} names the fix {variant.fix!r}, which is no variant of {target.design}; "
            f"there are: {', '.join(labels)}"
        )
    return Case(
        target.spelling, target.design, parameters, variant.label, variant.verdict, variant.hazard, variant.hang,
        variant.fix, tuple(variant.never), variant.environment, variant.platform,
    )  # fmt: skip


def _under(case: Case, environment: str | None, platform: str | None, strict: bool, budget: float | None) -> Case:
    other = (
        (environment is not None and environment != (case.environment or "bare"))
        or (platform is not None and platform != (case.platform or "cuda"))
        or strict
    )
    nothing: dict[str, Any] = {"expected": None, "hazard": None, "hang": None} if other else {}
    return msgspec.structs.replace(
        case,
        environment=environment or case.environment,
        platform=platform or case.platform,
        strict=strict,
        budget=budget,
        **nothing,
    )


# ---------------------------------------------------------------- deciding


def build(target: Target, parameters: dict[str, Any]) -> Program:
    """The program of a design under these parameters. Raises what the design's body raises, and `InputError` where that is
    no `Exception` (a test library's skip)."""
    if target.program is not None:
        return target.program
    from fencepost.model.language.build import program_of

    assert target.function is not None
    try:
        return program_of(target.function, parameters)
    except (Exception, SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise InputError(one_line(error, os.path.realpath(inspect.unwrap(target.function).__code__.co_filename))) from None


def _known_operations(target: Target, program: Program, case: Case) -> None:
    """Raises `InputError` for a name in `never=` that no operation has: it would let nothing pass, or a slip of the pen go by."""
    if case.never:
        from fencepost.proofs.explain import unreached

        names = [name for name, _ in unreached(program, set())]
        for name in case.never:
            if name not in names:
                raise InputError(
                    f"{target.place}: variant {case.title!r}: never={name!r} names no operation; there are: {', '.join(names)}"
                )


_loaded: dict[str, Target] = {}
"""The designs of the cases that are being decided; a forked worker has them from its parent."""


def decide(case: Case, progress: Callable[[str], None] | None = None) -> Outcome:
    """Answer one case. Whatever goes wrong becomes the outcome's error; only Ctrl-C gets through."""
    file: str | None = None
    program: Program | None = None
    try:
        target = _loaded.get(case.target) or load([case.target])[0]
        if target.function is not None:
            file = os.path.realpath(inspect.unwrap(target.function).__code__.co_filename)
        begin = time.perf_counter()
        program = build(target, case.parameters)
        _known_operations(target, program, case)
    except InputError as error:
        return Outcome(case, error=str(error))
    except (Exception, SystemExit) as error:  # the body of a design is the user's code: it may raise anything
        return Outcome(case, error=f"{one_line(error, file)} [{_of(case)}]")
    full = {name: default for name, (_, default) in signature(target).items()} if target.function is not None else {}
    return answer_program(case, program, full, begin, progress)


def answer_program(
    case: Case, program: Program, defaults: dict[str, Any] | None = None, begin: float | None = None,
    progress: Callable[[str], None] | None = None, asking: Callable[..., Answer] | None = None,
) -> Outcome:
    """Answer one case about a program that is built already. `defaults`: parameters that the case does not set; `begin`: when
    the work on the case began (`time.perf_counter`); `asking` is asked in place of `engines.ask`. Whatever goes wrong becomes
    the outcome's error."""
    begin = time.perf_counter() if begin is None else begin
    try:
        answer = (asking or ask)(program, case.question, progress)
    except InputError as error:
        return Outcome(case, program=program, error=str(error))
    except Exception as error:
        from fencepost.model.events import DesignError

        if isinstance(error, (ValueError, DesignError)):
            return Outcome(case, program=program, error=f"{' '.join(str(error).split())} [{_of(case)}]")
        # Our own fault; said as such, and never mistaken for a verdict.
        import traceback

        return Outcome(case, program=program, error=f"{_of(case)}: {traceback.format_exc().rstrip()}", crashed=True)
    case = _comparable(case, answer)
    answer = msgspec.structs.replace(
        answer,
        design=case.design,
        variant=case.label,
        parameters={**(defaults or {}), **case.parameters},
        environment=case.environment,
        platform=case.platform,
        expected=case.expected,
        expected_hazard=case.hazard,
        seconds=time.perf_counter() - begin,
    )
    return Outcome(case, msgspec.structs.replace(answer, matches=matches(answer, case)), program)


def _comparable(case: Case, answer: Answer) -> Case:
    """The case without the declarations that a weaker engine says nothing about: hangs, and proofs that it can at best fail
    to contradict (no hazard within a bound, no wrong value in so many runs)."""
    if case.engine in ("explore", "all"):
        return case
    nothing = answer.verdict == BOUNDED or (answer.verdict == UNKNOWN and case.engine == "simulate")
    if nothing and case.expected in (PROVED, MASKED, BOUNDED):
        return msgspec.structs.replace(case, expected=None, hazard=None, hang=None)
    return msgspec.structs.replace(case, hang=None)


def doubted(outcome: Outcome, reason: str) -> Outcome:
    """The outcome, unknown for `reason`."""
    assert outcome.answer is not None
    answer = msgspec.structs.replace(outcome.answer, verdict=UNKNOWN, reason=reason, protections=())
    return msgspec.structs.replace(outcome, answer=msgspec.structs.replace(answer, matches=matches(answer, outcome.case)))


def _of(case: Case) -> str:
    return f"{case.design}, {case.title}" if case.title else case.design


def matches(answer: Answer, case: Case) -> bool | None:
    """Whether verdict, hazard and hang are the declared ones; None when nothing was declared.

    Of several hazards one must be the declared one. A hang or livelock that was not declared does not match, nor does a proof in which
    an operation runs that is declared never to run.
    """
    if case.expected is None:
        return None
    if answer.verdict != case.expected or alive(answer, case):
        return False
    if case.hazard is not None and case.hazard not in [hazard.name for hazard in answer.hazards]:
        return False
    if case.hang is None:
        return not answer.stops
    told = (*answer.hangs, *answer.progress)
    return any(one == case.hang or one.startswith(case.hang + " ") for one in told)


def alive(answer: Answer, case: Case) -> list[str]:
    """The operations that are declared never to run, and do."""
    return [name for name in case.never if f"{name} {RUNS}" in answer.notes]


def open_hazards(answer: Answer) -> list[str]:
    """Names of the answer's hazards that the design does not accept."""
    return [hazard.name for hazard in answer.hazards if hazard.name not in answer.accepted]


def code_of(outcome: Outcome) -> int:
    """Exit code of one outcome (design of the answers: OK, FAILED, USAGE or OPEN)."""
    answer = outcome.answer
    if answer is None:
        return USAGE
    if answer.expected is not None:
        return OK if answer.matches else FAILED
    if answer.stops or (answer.verdict == REFUTED and (open_hazards(answer) or not answer.hazards)):
        return FAILED
    return OK if answer.verdict in (PROVED, REFUTED) else OPEN


def exit_code(outcomes: Sequence[Outcome], errors: Sequence[str] = ()) -> int:
    """Over several outcomes: the first of 2, 1, 3, 0 that occurs."""
    codes = {code_of(outcome) for outcome in outcomes} | ({USAGE} if errors else set())
    return next((code for code in (USAGE, FAILED, OPEN) if code in codes), OK)


def unused_acceptances(outcomes: Sequence[Outcome]) -> list[str]:
    """One line for each accepted hazard that no answer about its design has, unless one of them is open."""
    used: dict[tuple[str, str], bool] = {}
    undecided: set[str] = set()
    for outcome in outcomes:
        design = outcome.case.target
        if outcome.answer is None or outcome.answer.verdict == UNKNOWN:
            undecided.add(design)
        if outcome.answer is None:
            continue
        names = {hazard.name for hazard in outcome.answer.hazards}
        program = outcome.program
        for accepted in outcome.answer.accepted if program is None else [one.hazard for one in program.accepted]:
            key = (design, accepted)
            # A hazard that changes no value is only a note of a proof; accepting it is not idle.
            noted = any(accepted in note for note in outcome.answer.notes)
            used[key] = used.get(key, False) or noted or accepted in names
    return [
        f"{design}: accepts {hazard!r}, which no answer has; remove the acceptance or correct its name"
        for (design, hazard), seen in used.items()
        if not seen and design not in undecided
    ]


# ---------------------------------------------------------------- many


def decide_all(
    asked: Sequence[Case], jobs: int | None = None, progress: Callable[[str], None] | None = None
) -> Iterator[Outcome]:
    """Outcomes in the order of the cases, each as soon as it and those before it are there.

    `jobs`: worker processes; None chooses. On Ctrl-C the workers are ended, what is decided already is still given out,
    and then `KeyboardInterrupt` goes on.
    """
    workers = jobs if jobs is not None else (os.cpu_count() or 1) if len(asked) >= PARALLEL_FROM else 1
    workers = min(workers, len(asked))
    _loaded.update(_targets(asked))
    # What an exploration stores has no cycles; what stands around one has, and is collected between the cases.
    collecting = gc.isenabled()
    gc.disable()
    try:
        if workers <= 1:
            for case in asked:
                yield _decide_and_collect(case, _named(progress, case))
        else:
            yield from _decide_in_processes(asked, workers, progress)
    finally:
        _loaded.clear()
        if collecting:
            gc.enable()


def _targets(asked: Sequence[Case]) -> dict[str, Target]:
    """The designs that the cases are about, by what names them; those that do not load are left to the cases to tell."""
    found: dict[str, Target] = {}
    for spelling in dict.fromkeys(case.target for case in asked):
        with contextlib.suppress(InputError):
            found[spelling] = load([spelling])[0]
    return found


COLLECT_FROM = 1_000_000
"""Containers that a process made and has not let go since its last collection, from which it collects: some 50 MB."""


def _decide_and_collect(case: Case, progress: Callable[[str], None] | None = None) -> Outcome:
    if gc.get_count()[0] >= COLLECT_FROM:  # counted also while the collector is off
        gc.collect()
    outcome = decide(case, progress)
    if not case.whole and outcome.answer is not None and outcome.answer.matches:
        return msgspec.structs.replace(outcome, program=None)
    return outcome


def _named(progress: Callable[[str], None] | None, case: Case) -> Callable[[str], None] | None:
    """Progress that says which case it is about."""
    if progress is None:
        return None
    return lambda text: progress(f"{_of(case)}: {text}")


def _decide_in_processes(
    asked: Sequence[Case], workers: int, progress: Callable[[str], None] | None
) -> Iterator[Outcome]:
    import multiprocessing
    import signal
    from concurrent.futures import Future, ProcessPoolExecutor
    from concurrent.futures import TimeoutError as NotYet
    from concurrent.futures.process import BrokenProcessPool

    # A forked worker has the designs already; elsewhere it loads them by their target.
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context(method), initializer=_ignore_interrupts)
    futures: list[Future[Outcome]] = []
    places: dict[int, Future[Outcome]] = {}
    given = 0
    for engine in {case.engine for case in asked}:
        prepare(engine)  # once, and not in every worker
    gc.freeze()
    # Workers in the middle of an exploration would outlive a parent that is terminated.
    restore = signal.signal(signal.SIGTERM, _terminated) if _in_main_thread() else None
    try:
        for number in _costly_first(asked):
            places[number] = pool.submit(_decide_and_collect, asked[number])
        futures += [places[number] for number in range(len(asked))]
        for case, future in zip(asked, futures, strict=True):
            while True:
                try:
                    outcome = future.result(timeout=2)
                    break
                except NotYet:
                    if progress is not None:
                        done = sum(other.done() for other in futures)
                        progress(f"{done} of {len(futures)} decided, waiting for {_of(case)}")
                except BrokenProcessPool:
                    why = "the worker process died (out of memory?)"
                    outcome = Outcome(case, error=f"{_of(case)}: {why}", crashed=True)
                    break
            given += 1
            yield outcome
    except KeyboardInterrupt:
        _end_workers()
        for future in futures[given:]:
            if future.done() and not future.cancelled() and future.exception() is None:
                yield future.result()
        raise
    finally:
        if given < len(asked):
            _end_workers()
        pool.shutdown(wait=False, cancel_futures=True)
        if restore is not None:
            signal.signal(signal.SIGTERM, restore)


def _costly_first(asked: Sequence[Case]) -> list[int]:
    """Numbers of the cases, those of the longest designs first: a long one at the end would keep one process alone busy."""
    sizes: dict[str, int] = {}
    for case in asked:
        if case.target not in sizes:
            target = _loaded.get(case.target)
            function = target.function if target is not None else None
            code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
            sizes[case.target] = _size(code) if code is not None else 0
    return sorted(range(len(asked)), key=lambda number: (-sizes[asked[number].target], number))


def _size(code: CodeType) -> int:
    """Bytes of a function's code, with that of the functions inside it."""
    return len(code.co_code) + sum(_size(inner) for inner in code.co_consts if isinstance(inner, CodeType))


def _end_workers() -> None:
    import multiprocessing

    for child in multiprocessing.active_children():
        child.terminate()


def _in_main_thread() -> bool:
    """Whether signal handlers can be set: only the main thread may."""
    import threading

    return threading.current_thread() is threading.main_thread()


def _terminated(_number: int, _frame: object) -> None:
    raise SystemExit(143)


def _ignore_interrupts() -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A forked worker has the parent's handler, whose SystemExit `decide` would take for the design's.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
