"""Small designs of cells: set, get, take, clear, and what a test of one tells."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import DESIGNS, Declared, declared, in_the_run


def _empty_cell() -> fp.Design:
    d = fp.Design("get from an empty cell")
    m, cell = d.pinned("m"), d.cell("cell", item=())

    @d.script("A")
    def first() -> None:
        m.write()
        cell.get()

    return d


DESIGNS["get_from_an_empty_cell"] = Declared(_empty_cell, "design error", order=("A", "A"))


@in_the_run("AABB")
def set_behind_a_set() -> fp.Design:
    """An operation on a cell comes after every earlier one."""
    d = fp.Design("set behind a set")
    m, cell = d.pinned("m"), d.cell("cell", item=())

    @d.script("A")
    def first() -> None:
        m.write()
        cell.set()

    @d.script("B")
    def second() -> None:
        cell.set()
        m.read()

    return d


@in_the_run("AABB")
def clear_behind_a_set() -> fp.Design:
    """So does a clear."""
    d = fp.Design("clear behind a set")
    m, cell = d.pinned("m"), d.cell("cell", item=())

    @d.script("A")
    def first() -> None:
        m.write()
        cell.set()

    @d.script("B")
    def second() -> None:
        cell.clear()
        m.read()

    return d


@in_the_run("BBAABB")
def get_behind_a_set() -> fp.Design:
    """So does a get, also behind a test that said "not empty" before."""
    d = fp.Design("get behind a set")
    m, cell = d.pinned("m"), d.cell("cell", item=())

    @d.script("A")
    def first() -> None:
        m.write()
        cell.set()

    @d.script("B")
    def second() -> None:
        cell.set()
        if not cell.empty():
            cell.get()
            m.read()

    return d


@declared(fp.PROVED)
def cell_is_cleared() -> fp.Design:
    """Seeing a cell empty that setup filled comes after the clear."""
    d = fp.Design("cell is cleared")
    m, cell = d.pinned("m"), d.cell("cell", item=())

    @d.setup
    def setup() -> None:
        cell.set()

    @d.script("writer")
    def writer() -> None:
        m.write()
        cell.clear()

    @d.loop("reader")
    def reader() -> None:
        if cell.empty():
            m.read()

    return d


@declared(fp.PROVED)
def cell_is_taken() -> fp.Design:
    """... or after a take."""
    d = fp.Design("cell is taken")
    m, cell = d.pinned("m"), d.cell("cell", item=())

    @d.setup
    def setup() -> None:
        cell.set()

    @d.script("writer")
    def writer() -> None:
        m.write()
        cell.take()

    @d.loop("reader")
    def reader() -> None:
        if cell.empty():
            m.read()

    return d


@declared(fp.PROVED)
def cell_is_set_over() -> fp.Design:
    """A set, a get and a clear come after every earlier operation on the cell; the values tell which."""
    d = fp.Design("cell is set over")
    m, cell, pages = d.pinned("m"), d.cell("cell", item=()), d.flag("other")

    @d.script("writer")
    def writer() -> None:
        m.write()
        cell.set()

    @d.script("second")
    def second() -> None:
        if not cell.empty():
            cell.get()
            cell.clear()
            m.read()
            pages.set()

    return d


@declared("design error")
def cell_may_be_empty() -> fp.Design:
    """Getting from a cell that can be empty is a design error."""
    d = fp.Design("cell may be empty")
    m, cell = d.pinned("m"), d.cell("cell", item=())

    @d.loop("reader")
    def reader() -> None:
        m.write()
        if d.choose("fill", [True, False]):
            cell.set()
        cell.take()

    return d
