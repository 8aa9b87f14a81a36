"""Declared variants of a design, and the hazards that it accepts: data attached to the design function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, TypeVar

from fencepost.model import answer
from fencepost.model.language.errors import fail, shown
from fencepost.model.platform import ENVIRONMENTS, PLATFORMS
from fencepost.model.program import Accept, Data

PROVED, REFUTED, UNKNOWN, MASKED, BOUNDED = (
    answer.PROVED, answer.REFUTED, answer.UNKNOWN, answer.MASKED, answer.BOUNDED,
)  # fmt: skip

RESERVED = ("label", "verdict", "hazard", "hang", "fix", "never", "environment", "platform")
"""Names that `variant` uses itself; a design may have no parameter of these names."""

F = TypeVar("F", bound=Callable[..., Any])


class Variant(Data, frozen=True):
    """One declared variant: parameters, and the verdict, hazard and hang that `check` must find.

    `fix` is the label of the variant that mends this one; `never` names operations that do not run;
    `environment` and `platform` are names (None: bare, "cuda").
    """

    label: str
    verdict: str
    parameters: MappingProxyType[str, Any]
    hazard: str | None = None
    hang: str | None = None
    fix: str | None = None
    never: tuple[str, ...] = ()
    environment: str | None = None
    platform: str | None = None


def variant(
    label: str,
    verdict: str,
    *,
    hazard: str | None = None,
    hang: str | None = None,
    fix: str | None = None,
    never: tuple[str, ...] = (),
    environment: str | None = None,
    platform: str | None = None,
    **params: Any,
) -> Callable[[F], F]:
    """Declare a variant of the decorated design function; the top decorator is the first variant.

    `verdict` is what it must get (`fp.PROVED`, `fp.REFUTED`, ...). `hazard`: the one that it must be refuted by ("WAR seq_lens"). `hang`: the
    kind that must be reported ("deadlock GIL"). `fix`: the label of the variant that mends it, for runs on a GPU. `never`: operations that
    do not run in this variant; a proof in which one does is not as declared. `environment`, `platform`: as of `fencepost check`. `params`: the
    design's parameters.

    Raises `DesignError` for a verdict that does not exist, a hazard without a refutation, a label that is used twice, and
    a design with a parameter of a reserved name.
    """
    if not isinstance(label, str) or not label.strip():
        fail(f"the label of a variant is text that says what it is, not {label!r}")
    if verdict not in answer.VERDICTS:
        fail(f"variant {label!r}: no verdict {verdict!r}; use fp.PROVED, REFUTED, BOUNDED, UNKNOWN or MASKED")
    if hazard is not None and verdict != REFUTED:
        fail(f"variant {label!r} names a hazard and is not fp.REFUTED; only a refutation has a hazard")
    if hazard is not None and not _is_hazard(hazard):
        fail(f'variant {label!r}: hazard={hazard!r}; write kind and object, as in "WAR sampling params"')
    for name, known in ((environment, ENVIRONMENTS), (platform, PLATFORMS)):
        if name is not None and name not in known and not (known is PLATFORMS and name.endswith(".json")):
            what = "platform" if known is PLATFORMS else "environment"
            fail(f"variant {label!r}: no {what} named {name!r}; there are: {', '.join(known)}")
    if verdict == MASKED and environment is None:
        fail(f"variant {label!r} is fp.MASKED on the bare platform; name the environment= that masks it")
    if not isinstance(never, (str, tuple, list)):
        fail(f"variant {label!r}: never={never!r}; it is a tuple of names of operations")
    if isinstance(never, str):
        fail(f"variant {label!r}: never={never!r} is text; write never=({never!r},)")
    made = Variant(
        label, verdict, MappingProxyType(dict(params)), hazard, hang, fix, tuple(never), environment, platform
    )

    def attach(function: F) -> F:
        place = _place(function)
        for name in inspect.signature(function).parameters:
            if name in RESERVED:
                fail(f"the design has a parameter {name!r}, which fp.variant uses itself; rename it", place)
        others: tuple[Variant, ...] = getattr(function, "__fencepost_variants__", ())
        if any(other.label == label for other in others):
            fail(f"two variants are called {label!r}; labels are unique in a design", place)
        function.__fencepost_variants__ = (made, *others)  # type: ignore[attr-defined]
        return function

    return attach


def accept(hazard: str, *, because: str) -> Callable[[F], F]:
    """Keep a known harmless hazard ("WAR sampling params") of the decorated design from failing a gate.

    Inside a design function write `d.accept(...)` instead. Raises `DesignError` without a reason.
    """
    made = accepted(hazard, because)

    def attach(function: F) -> F:
        others: tuple[Accept, ...] = getattr(function, "__fencepost_accepts__", ())
        function.__fencepost_accepts__ = (made, *others)  # type: ignore[attr-defined]
        return function

    return attach


def accepted(hazard: str, because: str) -> Accept:
    """A checked acceptance. Raises `DesignError` when the hazard is no "KIND object" or the reason is empty."""
    if not _is_hazard(hazard):
        fail(f'accept({hazard!r}): write kind and object, as in "WAR sampling params"')
    if not because.strip():
        fail(f"accept({hazard!r}) gives no reason; say in because= why it does no harm")
    return Accept(hazard, because)


def _is_hazard(text: str) -> bool:
    """Whether the text has a kind and an object."""
    kind, _, name = text.partition(" ")
    return kind in ("WAR", "RAW", "WAW", "UNDEFINED") and bool(name)


def _place(function: Callable[..., Any]) -> str:
    code = inspect.unwrap(function).__code__
    return shown(code.co_filename, code.co_firstlineno)
