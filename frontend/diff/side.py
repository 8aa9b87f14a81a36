"""One side of a comparison, built in a process of its own and handed over as data.

Two states of one file cannot be imported into one process: they are the same modules. A process that has imported nothing
but libraries is forked; from any other a new one is started, `python -m fencepost.diff.side OUT < request`.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
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
        number = len(list(folder.iterdir())) // 2
        self._out, self._err = folder / f"{number}.json", folder / f"{number}.err"
        self._out.touch()
        self._err.touch()
        self._wait = (_fork if _only_libraries() else _spawn)(request, self._out, self._err)

    def result(self) -> tuple[Entry, ...]:
        """The side's variants. Raises `InputError` that names the side when it does not load."""
        code = self._wait()
        data = self._out.read_bytes()
        if code != 0 or not data:
            noise = self._err.read_text(errors="replace").strip()
            last = noise.splitlines()[-1] if noise else f"exit code {code}"
            raise InputError(f"{self.name}: the process that builds it ended: {last}")
        side = msgspec.json.decode(data, type=Side)
        if side.error is not None:
            named = side.error.startswith(f"{self.name}:")
            raise InputError(side.error if named else f"{self.name}: {side.error}")
        return side.entries


def _only_libraries() -> bool:
    """Whether this process can be forked, and has imported nothing that a tree may hold in another state: no design, no helper."""
    import multiprocessing
    import sysconfig
    import threading

    if "fork" not in multiprocessing.get_all_start_methods() or threading.active_count() > 1:
        return False
    import fencepost

    homes = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    # Ours are those that every process has; of the designs, which are ours as well, a tree may have its own.
    homes += fencepost.__path__
    known = tuple(os.path.join(os.path.realpath(home), "") for home in homes)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if module is sys.modules["__main__"] or not isinstance(file, str):
            continue
        if name.startswith("fencepost.designs") or not (name.startswith("fencepost.") or os.path.realpath(file).startswith(known)):
            return False
    return True


def _fork(request: Request, out: Path, err: Path) -> Callable[[], int | None]:
    """Build the side in a copy of this process; returns what waits for it and tells its exit code."""
    import multiprocessing

    import fencepost.model.language.build  # noqa: F401 (once for both sides)

    process = multiprocessing.get_context("fork").Process(target=_forked, args=(request, out, err))
    process.start()

    def wait() -> int | None:
        process.join()
        return process.exitcode

    return wait


def _forked(request: Request, out: Path, err: Path) -> None:
    """As if Python had been started in the tree, without input and output."""
    for descriptor, file, flags in ((1, os.devnull, os.O_WRONLY), (2, os.fspath(err), os.O_WRONLY | os.O_APPEND)):
        opened = os.open(file, flags)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.chdir(request.root)
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.getcwd()  # as `python -m` has it; a script has its own folder there
    _write(request, out)


def _spawn(request: Request, out: Path, err: Path) -> Callable[[], int | None]:
    """Build the side in a new process; returns what waits for it and tells its exit code."""
    with open(err, "wb") as noise:
        process = subprocess.Popen(
            [sys.executable, "-m", "fencepost.diff.side", str(out)],
            cwd=request.root, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=noise,
        )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(request))
    process.stdin.close()
    return process.wait


def _write(request: Request, out: Path) -> None:
    gc.disable()  # a trace drops little, and the process ends with it
    _own_designs(request.root)
    out.write_bytes(msgspec.json.encode(build_side(request)))
    gc.freeze()


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
    _write(msgspec.json.decode(sys.stdin.buffer.read(), type=Request), Path(sys.argv[1]))
