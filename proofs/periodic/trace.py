"""From a design function to programs whose depths, capacities and repetitions are polynomials in its parameters.

The function is called with `Symbolic` integers. Each way through it holds in a region of parameter values; regions are
found one after the other, each from a value outside of the regions so far, until they cover all integers. So what is
derived from a region's program is true of *every* value in it: the same calls with the same polynomials are made.

`for _ in range(takes)` in a body is run three times for any number of repetitions. The recorded operations of the
repetitions and what the body's variables hold after the second and the third must be the same; as a body depends on
nothing else, each further repetition repeats them.
"""

from __future__ import annotations

import builtins
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fencepost.model import program as p
from fencepost.model.language.build import program_of
from fencepost.model.language.errors import DesignError, is_own
from fencepost.model.language.fingerprints import fingerprint
from fencepost.model.language.graph import Did
from fencepost.model.language.tracer import running, user_frames
from fencepost.proofs.periodic.symbols import Poly, Refused, Region, Symbolic, poly_of

MARK = "\0repeat "
"""Start of the names of the operations that mark the repetitions of a loop in a body."""

MOST_REGIONS = 48


class Traced:
    """The program of one region. `error` instead of a program where the design function refuses these values."""

    def __init__(self, region: Region, program: p.Program | None, error: str | None) -> None:
        self.region, self.program, self.error = region, program, error


class _Repetition:
    """The loop variable of a symbolic loop: its value is nobody's business."""

    if not TYPE_CHECKING:

        @property
        def __class__(self) -> type:
            return int

    def _refuse(self, *_: Any) -> Any:
        raise Refused("the number of a repetition is used in the body of a loop over a parameter")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __index__ = __int__ = __bool__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __format__ = __hash__ = _refuse
    __eq__ = __ne__ = _refuse


def _held(value: Any) -> Any:
    """What a variable holds, as far as a later repetition could depend on it."""
    if type(value) is _Repetition:
        return "repetition"
    if type(value) is Symbolic:
        return value.poly
    if type(value).__module__.startswith("fencepost.model.language"):
        life, index = getattr(value, "_life", None), getattr(value, "_index", None)
        if life is not None:
            return (type(value).__name__, life.name, life.kind, _held(getattr(value, "_offset", 0)))
        if index is not None:
            return (type(value).__name__, value._id, _held(index))
        return id(value)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [_held(one) for one in value])
    if isinstance(value, dict):
        return [(key, _held(one)) for key, one in value.items()]
    return fingerprint(value)


def _variables() -> list[tuple[str, Any]]:
    return [
        (f"{depth} {name}", _held(value))
        for depth, frame in enumerate(user_frames())
        if frame.f_code.co_filename != __file__
        for name, value in frame.f_locals.items()
    ]


def _symbolic_range(*given: Any) -> Any:
    """`range` as a design function sees it."""
    symbolic = next((one for one in given if type(one) is Symbolic), None)
    if symbolic is None:
        return builtins.range(*given)
    start, stop = (0, given[0]) if len(given) == 1 else given[:2]
    if len(given) == 3 or not running or running[-1]._recording is None:
        symbolic._pin("range")
        return builtins.range(*given)
    count = poly_of(stop) - poly_of(start)
    if not symbolic.region.decide(count - 1):
        return iter(())
    key: list[Any] = []
    frame = sys._getframe(1)
    while frame is not None and not is_own(frame.f_code.co_filename):
        key += [frame.f_code, frame.f_lasti]
        frame = frame.f_back  # type: ignore[assignment]
    return _repeat(count, symbolic.region, tuple(key))


def _repeat(count: Poly, region: Region, key: tuple[Any, ...]) -> Iterator[_Repetition]:
    recording = running[-1]._recording
    assert recording is not None
    begun = {
        entry.operation.name
        for entry in (recording.tracer.table[number] for number in recording.entries)
        if isinstance(entry, Did) and isinstance(entry.operation, p.Host)
    }
    number = region.loop(key, count, lambda known: f"{MARK}begin {known}" in begun)
    recording.do(p.Host(f"{MARK}begin {number}", ()))
    seen: list[Any] = []
    for _ in builtins.range(3):
        yield _Repetition()
        recording.do(p.Host(f"{MARK}next {number}", ()))
        seen.append(_variables())
    if seen[1] != seen[2]:
        raise Refused("a repetition of a loop over a parameter depends on the repetitions before it")
    recording.do(p.Host(f"{MARK}end {number}", ()))


def _with_range(function: Callable[..., Any]) -> Callable[..., Any]:
    """The design function with `range` replaced, for itself and the bodies inside it."""
    raw = inspect.unwrap(function)
    if not isinstance(raw, types.FunctionType) or "range" in raw.__globals__:
        return function
    clone = types.FunctionType(
        raw.__code__, {**raw.__globals__, "range": _symbolic_range}, raw.__name__, raw.__defaults__, raw.__closure__
    )
    clone.__kwdefaults__, clone.__annotations__ = raw.__kwdefaults__, raw.__annotations__
    clone.__module__, clone.__qualname__, clone.__doc__ = raw.__module__, raw.__qualname__, raw.__doc__
    clone.__dict__.update({key: value for key, value in function.__dict__.items() if key != "__wrapped__"})
    return clone


def trace(function: Callable[..., Any], parameters: Mapping[str, Any], region: Region, names: Sequence[str]) -> Traced:
    """The program under `parameters` and symbolic `names`, in the region of the region's witness."""
    given = {**parameters, **{name: Symbolic(Poly.var(name), region) for name in names}}
    try:
        return Traced(region, program_of(_with_range(function), given), None)
    except DesignError as error:
        _refuses(function, {**parameters, **{name: region.witness[name] for name in names}}, error)
        return Traced(region, None, str(error))
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        _refuses(function, {**parameters, **{name: region.witness[name] for name in names}}, error)
        raise


def _refuses(function: Callable[..., Any], values: dict[str, Any], error: Exception) -> None:
    """Whether the function refuses the witness as well. Raises `Refused` when only a stand-in was too much for it."""
    try:
        program_of(function, values)
    except DesignError:
        return
    except Exception:  # the design's own error, which the caller goes on with
        return
    raise Refused(f"a parameter is used in a way that cannot be followed ({' '.join(str(error).split())})")


def regions(
    function: Callable[..., Any], parameters: Mapping[str, Any], names: Sequence[str],
    inspect_region: Callable[[Traced], None] | None = None, gave_up: list[str] | None = None,
) -> list[Traced]:
    """Programs for all values of `names`: one per region, which together cover every integer.

    `inspect_region` may decide more about the parameters with the region of what it gets, which narrows the region. When
    the solver gives up on the question whether the regions cover everything, that question is put into `gave_up`.
    Raises `Refused` when a parameter's value is needed, or when there are too many regions.
    """
    from fencepost.proofs.periodic.decide import OutOfTime, outside

    found: list[Traced] = []
    witness: dict[str, int] | None = {name: 5 + 2 * i for i, name in enumerate(names)}
    while witness is not None:
        if len(found) == MOST_REGIONS:
            raise Refused(f"the parameters decide about the structure in more than {MOST_REGIONS} ways")
        one = trace(function, parameters, Region(witness), names)
        if one.program is not None:
            if one.region.pinned is not None:
                raise Refused(one.region.pinned)
            if inspect_region is not None:
                inspect_region(one)
        elif one.region.pinned is not None:
            raise Refused(f"{one.region.pinned}; {one.error}")
        found.append(one)
        try:
            witness = outside([list(other.region.facts) for other in found], names)
        except OutOfTime as question:
            if gave_up is None:
                raise
            gave_up.append(str(question))
            return found
    return found
