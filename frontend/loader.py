"""From what the user names to design functions and programs.

A target is `file.py`, `file.py::function`, `module:function`, a folder, or the JSON file of a program. A design
function is a public function of the file whose return annotation is `Design` or that carries a variant.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
from fencepost.damaged import fault
from fencepost.errors import InputError, one_line, relative
from fencepost.model.program import Program, from_json


class Target(msgspec.Struct, frozen=True):
    """One design: a function that makes it, or a program that was read from JSON. Exactly one of the two is set.

    `spelling` names the target for `load` (another process loads the same); `design` is the name in answers.
    """

    spelling: str
    design: str
    function: Callable[..., Any] | None = None
    program: Program | None = None

    @property
    def variants(self) -> tuple[Any, ...]:
        """The declared variants, in the order of the text."""
        return tuple(getattr(self.function, "__fencepost_variants__", ()))

    @property
    def place(self) -> str:
        """`path:line` of the function's first line, decorators included, or the path of the JSON file."""
        if self.function is None:
            return self.spelling
        function = inspect.unwrap(self.function)
        return f"{relative(function.__code__.co_filename)}:{function.__code__.co_firstlineno}"


def load(spellings: Sequence[str]) -> list[Target]:
    """All designs that the targets name, each once, in the order given; folders and files in order of name and line.

    Raises `InputError` (one line) when a target does not exist, does not import, or names no design.
    """
    targets: dict[str, Target] = {}
    for spelling in spellings:
        for target in _load_one(spelling):
            targets.setdefault(target.spelling, target)
    return list(targets.values())


def _load_one(spelling: str) -> list[Target]:
    if "::" in spelling:
        path, _, name = spelling.partition("::")
        return [_named(_module_of(_existing(path)), name, relative(path))]
    if os.path.isdir(spelling):
        return _load_folder(spelling)
    if spelling.endswith(".py"):
        path = _existing(spelling)
        found = _designs_of(_module_of(path), relative(path))
        if not found:
            raise InputError(
                f"{relative(path)}: no design in this file (a design is a public function whose return annotation is "
                "Design, or that carries a variant)"
            )
        return found
    if spelling.endswith(".json"):
        return [_load_json(_existing(spelling))]
    module, colon, name = spelling.partition(":")
    if colon and name and not os.path.exists(spelling):
        return [_named(_import_module(module), name, None)]
    if os.path.exists(spelling):
        raise InputError(f"{spelling}: a target is a .py file, a folder or a .json file")
    raise InputError(
        f"{spelling}: no such target (file.py, file.py::function, module:function, a folder, or a program's .json)"
    )


def _existing(path: str) -> str:
    if not os.path.isfile(path):
        raise InputError(f"{path}: no such file")
    return os.path.realpath(path)


def _load_folder(folder: str) -> list[Target]:
    """The designs of all files below the folder. Files that hold none (shared helpers) are passed over."""
    found: list[Target] = []
    for path in sorted(Path(folder).rglob("*.py")):
        hidden = any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(folder).parts)
        if hidden or path.name == "__init__.py":
            continue
        found += _designs_of(_module_of(os.path.realpath(path)), relative(path))
    if not found:
        raise InputError(f"{folder}: no design in this folder")
    return found


def _load_json(path: str) -> Target:
    with open(path, "rb") as file:
        data = file.read()
    try:
        program = from_json(data, relative(path))
    except ValueError as error:
        raise InputError(" ".join(str(error).split())) from None
    wrong = fault(program)
    if wrong is not None:
        raise InputError(f"{relative(path)}: damaged program ({wrong}); write it again with `fencepost show --json`")
    return Target(relative(path), program.name, program=program)


# ---------------------------------------------------------------- modules


def _module_of(path: str) -> ModuleType:
    """The module whose origin is `path`: the one that is imported already, else a new one.

    A file of a package is imported under its package's name, so that it exists once. A lone file is imported under its
    stem when that name leads to it and to nothing else (a design file named queue.py must not become `queue`).
    """
    base = os.path.basename(path)
    for module in list(sys.modules.values()):
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        # The names first: resolving links of every module for every target would cost more than the answers.
        if isinstance(origin, str) and os.path.basename(origin) == base and os.path.realpath(origin) == path:
            return module
    name = _package_name(path)
    if name is not None:
        return _import_module(name, path)
    # The file's neighbours can be imported, as when Python runs the file; at the end, so that nothing is shadowed.
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.append(folder)
    stem = os.path.splitext(os.path.basename(path))[0]
    if stem.isidentifier() and stem not in sys.modules and _origin(stem) == path:
        return _import_module(stem, path)
    import hashlib

    name = f"{stem}_{hashlib.sha256(path.encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit, and what pytest.importorskip raises
        del sys.modules[name]
        raise InputError(one_line(error, path)) from None
    return module


def _package_name(path: str) -> str | None:
    """The dotted name under which the package that holds `path` is imported, None for a lone file."""
    folder, parts = os.path.dirname(path), [os.path.splitext(os.path.basename(path))[0]]
    # Our own designs: their folder is called `designs` and their package `fencepost.designs`.
    own = importlib.util.find_spec("fencepost.designs")
    homes = {os.path.realpath(p): "fencepost.designs" for p in (own.submodule_search_locations if own else None) or ()}
    for name, module in list(sys.modules.items()):
        folders = getattr(module, "__path__", None)  # some modules answer any name (torch.classes)
        for home in folders if isinstance(folders, Iterable) else ():
            homes.setdefault(os.path.realpath(home), name)
    while True:
        if folder in homes:
            return ".".join([homes[folder], *reversed(parts)])
        if not os.path.isfile(os.path.join(folder, "__init__.py")):
            break
        parts.append(os.path.basename(folder))
        folder = os.path.dirname(folder)
    if len(parts) == 1 or not all(part.isidentifier() for part in parts):
        return None
    if folder not in sys.path:
        sys.path.append(folder)
    name = ".".join(reversed(parts))
    return name if _origin(name) == path else None


def _origin(name: str) -> str | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    return os.path.realpath(spec.origin) if spec is not None and spec.origin is not None else None


def _import_module(name: str, path: str | None = None) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit, and what pytest.importorskip raises
        if path is None and isinstance(error, ModuleNotFoundError) and error.name in (name, name.partition(".")[0]):
            hint = f" (a design in a file is written {name}::function)" if name.endswith(".py") and os.path.isfile(name) else ""
            raise InputError(f"{name}: no module of this name can be imported from here{hint}") from None
        raise InputError(one_line(error, path)) from None


# ---------------------------------------------------------------- functions


def is_design_function(value: object, module: ModuleType) -> bool:
    """Whether `value` is a design function that `module` defines."""
    if not inspect.isfunction(value) or value.__module__ != module.__name__ or value.__name__.startswith("_"):
        return False
    if getattr(value, "__fencepost_variants__", ()):
        return True
    returns = inspect.unwrap(value).__annotations__.get("return")
    # Text under `from __future__ import annotations`: "Design", "fp.Design", "fencepost.Design".
    spelled = returns if isinstance(returns, str) else getattr(returns, "__name__", "")
    return spelled.strip("'\"").rpartition(".")[2] == "Design"


def _designs_of(module: ModuleType, path: str) -> list[Target]:
    functions = [value for value in vars(module).values() if is_design_function(value, module)]
    unique = sorted(set(functions), key=lambda function: inspect.unwrap(function).__code__.co_firstlineno)
    return [_target(function, f"{path}::{function.__name__}") for function in unique]


def _named(module: ModuleType, name: str, path: str | None) -> Target:
    function = getattr(module, name, None)
    where = path or module.__name__
    if not callable(function):
        known = [f.__name__ for f in vars(module).values() if is_design_function(f, module)]
        raise InputError(f"{where}: no design function named {name!r}; there are: {', '.join(known) or 'none'}")
    if not inspect.isfunction(function):
        raise InputError(f"{where}: {name!r} is not a function")
    return _target(function, f"{path}::{name}" if path else f"{module.__name__}:{name}")


def _target(function: Callable[..., Any], spelling: str) -> Target:
    stem = os.path.splitext(os.path.basename(inspect.unwrap(function).__code__.co_filename))[0]
    return Target(spelling, f"{stem}::{function.__name__}", function=function)
