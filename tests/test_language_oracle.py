"""The traced program does what the bodies do when plain Python runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fencepost.model.language import program_of
from fencepost.model.program import Program, from_json, to_json

import oracle
from language_designs import CASES
from walker import Walker

SEEDS = 30


def follow(function: Callable[..., Any], parameters: dict[str, Any], program: Program, seeds: int, turns: int) -> set[Any]:
    visited: set[Any] = set()
    for seed in range(seeds):
        walker = Walker(program)
        for number, entry in enumerate(oracle.run(function, parameters, seed, turns)):
            try:
                walker.follow(entry)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, entry {number}: {error}") from None
        visited |= walker.visited
    return visited


@pytest.mark.parametrize(("function", "parameters"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_agrees_with_plain_python(function: Callable[..., Any], parameters: dict[str, Any]) -> None:
    program = program_of(function, parameters)
    visited = follow(function, parameters, program, SEEDS, turns=7)
    nodes = {(thread.name, number) for thread in program.threads for number in range(len(thread.nodes))}
    assert len(visited) > 0.9 * len(nodes), sorted(nodes - visited)


def test_agrees_with_plain_python_on_the_engines() -> None:
    import fencepost.designs
    from fencepost.loader import load

    for target in load([fencepost.designs.__path__[0]]):
        assert target.function is not None
        for variant in target.variants:
            parameters = dict(variant.parameters)
            follow(target.function, parameters, program_of(target.function, parameters), seeds=1, turns=5)


@pytest.mark.parametrize(("function", "parameters"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_json_and_equality(function: Callable[..., Any], parameters: dict[str, Any]) -> None:
    program = program_of(function, parameters)
    again = program_of(function, parameters)
    assert program == again
    assert hash(program) == hash(again)
    assert from_json(to_json(program)) == program
    assert from_json(to_json(program)).places == program.places


def test_the_oracle_sees_a_wrong_graph() -> None:
    """The comparison is no rubber stamp: a graph with one operation taken out does not pass."""
    import msgspec
    from fencepost.model import program as p

    function, parameters = CASES[0]
    program = program_of(function, parameters)
    (thread,) = program.threads
    nodes = list(thread.nodes)
    for number, node in enumerate(nodes):
        if isinstance(node, p.Do) and isinstance(node.operation, p.EventSync):
            nodes[number] = nodes[node.next]
    broken = msgspec.structs.replace(program, threads=(msgspec.structs.replace(thread, nodes=tuple(nodes)),))
    with pytest.raises(AssertionError):
        follow(function, parameters, broken, 5, 5)
