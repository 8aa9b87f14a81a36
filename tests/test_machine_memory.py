"""Regions of the machine's memory against points: every byte of a small buffer, one by one."""

from __future__ import annotations

import itertools
import random

from fencepost.simulator.machine_memory import UNDEFINED, Buffer, difference, meet, region_of, without

NAMES = ("x", "y", "z")
ROWS = (0, 1, 2)
PIECES = [("n", n) for n in NAMES[:2]] + [("s", (a, b)) for a, b in ((0, 2), (1, 3), (2, 4), (0, 4))] + [("r", r) for r in ROWS[:2]]
INNER = [("n", "u"), ("s", (0, 1))]
POINTS = list(itertools.product(NAMES, range(5), ROWS, ("u", "v"), range(2)))
"""(named part, element, row, named part within a part, element within a part): axes are independent of each other."""


def covers(path, point):
    name, element, row, inner_name, inner_element = point
    for depth, (style, what) in enumerate(path):
        if style == "n" and what != (name if depth == 0 else inner_name):
            return False
        if style == "s" and not what[0] <= (element if depth == 0 else inner_element) < what[1]:
            return False
        if style == "r" and what != row:
            return False
    return True


def paths():
    return [(), *[(piece,) for piece in PIECES], *[(PIECES[0], inner) for inner in INNER]]


def test_meet_and_without_are_intersection_and_difference():
    for a, b in itertools.product(paths(), repeat=2):
        if len(a) == 2 or len(b) == 2:
            continue  # below a part lie axes of its own, which the points do not tell apart
        one, two = region_of(0, a), region_of(0, b)
        both = {p for p in POINTS if covers(a, p) and covers(b, p)}
        assert (meet(one, two) is None) == (not both)
        rest = without(one, two)
        for x, y in itertools.combinations(rest, 2):
            assert meet(x, y) is None
        assert not any(meet(x, two) is not None for x in rest)
        assert bool(rest) == bool({p for p in POINTS if covers(a, p)} - both)


def test_a_buffer_is_its_points():
    for seed in range(30):
        rng = random.Random(seed)
        buffer = Buffer("b", -7)
        points = dict.fromkeys(POINTS, -7)
        for value in range(1, 12):
            # Within one named part at most: there the points tell inner parts apart.
            path = rng.choice(paths())
            if len(path) == 2 and not all(piece[0] == "n" for piece in path[:1]):
                continue
            buffer.write(0, path, value)
            for p in POINTS:
                if covers(path, p):
                    points[p] = value
            looked = rng.choice(paths())
            found = buffer.read(0, looked)
            held = {found} if isinstance(found, int) else {v for _, v in found}
            wanted = {points[p] for p in POINTS if covers(looked, p)}
            assert held == wanted, (seed, value, looked)


def test_writing_values_by_region_copies_them():
    source, target = Buffer("s", -1), Buffer("t", -2)
    source.write(0, (("n", "x"),), 5)
    source.write(0, (("n", "y"),), 6)
    target.write(0, (), source.read(0, ()))
    assert {v for _, v in target.read(0, (("n", "x"),))} == {5}  # type: ignore[union-attr]
    assert {v for _, v in target.read(0, (("n", "other"),))} == {-1}  # type: ignore[union-attr]
    assert difference(target, 0, (), source.read(0, ())) is None


def test_the_whole_is_one_value_again_after_a_whole_write():
    buffer = Buffer("b", -1)
    buffer.write(0, (("r", 3),), 4)
    assert buffer.cells is not None
    buffer.write(0, (), 9)
    assert buffer.cells is None and buffer.value == 9
    buffer.reset()
    assert buffer.value == -1


def test_parts_of_different_tenants_may_overlap():
    buffer = Buffer("block")
    buffer.write(1, (("n", "x"),), 5)
    buffer.write(2, (("n", "y"),), 6)
    found = buffer.read(1, (("n", "x"),))
    assert not isinstance(found, int) and {v for _, v in found} == {5, 6}


def test_undefined_bytes_beside_defined_ones_say_nothing():
    shadow, real = Buffer("shadow"), Buffer("real", 77)
    assert difference(real, 0, (), shadow.read(0, ())) == (UNDEFINED, 77)
    shadow.write(0, (("n", "x"),), 5)
    real.write(0, (("n", "x"),), 5)
    assert difference(real, 0, (), shadow.read(0, ())) is None
    real.write(0, (("n", "x"),), 6)
    assert difference(real, 0, (), shadow.read(0, ())) == (5, 6)
