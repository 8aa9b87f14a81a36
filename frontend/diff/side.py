"""One side of a comparison, built in a process of its own: `python -m fencepost.diff.side OUT < request`.

Two states of one file cannot be imported into one process: they are the same modules. Each side is handed over as data.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import msgspec
from fencepost.check import Case
from fencepost.errors import InputError
from fencepost.model.program import Program


class Request(msgspec.Struct, frozen=True):
    """What to build: the targets as written from `root`, the parameters that were set, or only the defaults."""

    root: str
    targets: tuple[str, ...]
    sets: tuple[str, ...] = ()
    keyword: str | None = None
    environment: str | None = None
    platform: str | None = None
    defaults: bool = False


class Entry(msgspec.Struct, frozen=True):
    """One variant. `program` is its JSON, with places as they are written from the root of its tree."""

    case: Case
    program: str | None = None
    models: dict[str, str | None] = {}
    """File of the engine that the design stands for -> hash of its content, None when the tree lacks it."""
    error: str | None = None


class Side(msgspec.Struct, frozen=True):
    """All variants of one side, or the line that says why there are none."""

    entries: tuple[Entry, ...] = ()
    error: str | None = None


class Build:
    """A side that is being built; both sides are started before either is awaited."""

    def __init__(self, name: str, request: Request, folder: Path) -> None:
        self.name = name
        self._out = folder / f"{len(list(folder.iterdir()))}.json"
        self._out.touch()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fencepost.diff.side", str(self._out)],
            cwd=request.root, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(request))
        self._process.stdin.close()

    def result(self) -> tuple[Entry, ...]:
        """The side's variants. Raises `InputError` that names the side when it does not load."""
        assert self._process.stderr is not None
        noise = self._process.stderr.read().decode(errors="replace").strip()
        code = self._process.wait()
        data = self._out.read_bytes()
        if code != 0 or not data:
            last = noise.splitlines()[-1] if noise else f"exit code {code}"
            raise InputError(f"{self.name}: the process that builds it ended: {last}")
        side = msgspec.json.decode(data, type=Side)
        if side.error is not None:
            named = side.error.startswith(f"{self.name}:")
            raise InputError(side.error if named else f"{self.name}: {side.error}")
        return side.entries


def build_side(request: Request) -> Side:
    """Load the targets below the current directory and trace every variant."""
    from fencepost.check import cases
    from fencepost.loader import load

    if not request.targets:
        return Side()  # its files are new, or gone
    try:
        targets = load(request.targets)
        # Without an expectation nothing can be judged against a declaration that the other side lacks.
        if request.defaults:
            asked = [Case(target.spelling, target.design, {}) for target in targets]
        else:
            asked = cases(
                targets, sets=request.sets, keyword=request.keyword, environment=request.environment,
                platform=request.platform,
            )  # fmt: skip
    except InputError as error:
        return Side(error=str(error))
    by_name = {target.spelling: target for target in targets}
    return Side(tuple(_entry(by_name[case.target], case, request.root) for case in asked))


def _entry(target: object, case: Case, root: str) -> Entry:
    from fencepost.check import build
    from fencepost.errors import one_line
    from fencepost.loader import Target
    from fencepost.model.program import to_json

    assert isinstance(target, Target)
    try:
        program = build(target, case.parameters)
    except (Exception, SystemExit) as error:  # the body of a design is the user's code: it may raise anything
        return Entry(case, error=one_line(error))
    folder = os.path.dirname(os.path.realpath(target.place.rpartition(":")[0] if target.function else target.spelling))
    models = {stands.path: _hash(Path(root) / stands.path) for stands in program.stands_for}
    return Entry(case, to_json(from_root(program, folder, root)).decode(), models)


def _hash(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def from_root(program: Program, folder: str, root: str) -> Program:
    """The program with places as they are written from the root; `folder` is the one that they are relative to. What does not
    lie below the root is written from the root of the machine."""
    files: dict[str, str] = {}
    for place in {place for frames in program.places for place in frames}:
        files[place.file] = place.file if place.file.startswith("<") else _written(os.path.join(folder, place.file), root)
    places = tuple(
        tuple(msgspec.structs.replace(place, file=files[place.file]) for place in frames) for frames in program.places
    )
    return msgspec.structs.replace(program, places=places)


@functools.cache
def _written(path: str, root: str) -> str:
    path, root = os.path.realpath(path), os.path.realpath(root)
    inside = path.startswith(os.path.join(root, ""))
    return (os.path.relpath(path, root) if inside else path).replace(os.sep, "/")


def _own_designs(root: str) -> None:
    """In a tree of fencepost itself, `fencepost.designs` is that tree's folder and not the installed one."""
    folder = Path(root) / "designs"
    if (folder / "__init__.py").is_file() and "fencepost.designs" in (folder / "__init__.py").read_text():
        import fencepost.designs

        fencepost.designs.__path__ = [str(folder)]


if __name__ == "__main__":
    gc.disable()  # a trace drops little, and the process ends with it
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    _own_designs(asked.root)
    Path(sys.argv[1]).write_bytes(msgspec.json.encode(build_side(asked)))
    gc.freeze()
