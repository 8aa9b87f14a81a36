"""Options, ini keys and the marker: where a test's settings come from (marker, command line, ini file, default)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fencepost.assertions import Settings

_KEYS: dict[str, tuple[str, Any, str]] = {
    "engine": ("NAME[,NAME]", str, "engines that decide: explore (the default) and those of `fencepost check --engine`"),
    "budget": ("SECONDS", float, "give up on a design as unknown after so many seconds"),
    "steps": ("K", int, "turns of each loop that a bounded engine looks at"),
    "examples": ("N", int, "runs that the simulated machine tries"),
    "seed": ("S", int, "seed of the simulated machine's search"),
    "replay": ("STRING", str, "replay this run of the simulated machine instead of searching"),
    "inconclusive": ("fail|skip", str, "what an answer that is unknown, bounded or masked does to a test (default: fail)"),
    "report": ("DIR", str, "write the answers of each test as JSON into this folder"),
}
"""Key -> (metavar, type, help). The option is `--fencepost-KEY`, the ini key `fencepost_KEY`."""

_SETTINGS = ("engine", "budget", "steps", "examples", "seed", "replay")


def add(parser: pytest.Parser) -> None:
    """Register options and ini keys."""
    group = parser.getgroup("fencepost", "fencepost: proofs about asynchronous GPU engines")
    for key, (metavar, kind, text) in _KEYS.items():
        group.addoption(f"--fencepost-{key}", dest=f"fencepost_{key}", metavar=metavar, type=kind, default=None, help=text)
        parser.addini(f"fencepost_{key}", text, default=None)
    parser.addini(
        "fencepost_designs",
        "folders and files of designs, relative to the root directory: each declared variant becomes a test",
        type="args",
        default=[],
    )


def value(config: pytest.Config, marker: pytest.Mark | None, key: str) -> Any:
    """The value of a key: marker before command line before ini file; None when nobody says anything."""
    if marker is not None and key in marker.kwargs:
        return _usable(f"marker fencepost, {key}", key, marker.kwargs[key])
    given = config.getoption(f"fencepost_{key}", None)
    if given is not None:
        return _usable(f"--fencepost-{key}", key, given)
    text = config.getini(f"fencepost_{key}")
    if text in (None, "", []):
        return None
    try:
        given = _KEYS[key][1](text)
    except ValueError:
        raise pytest.UsageError(f"ini key fencepost_{key}: {text!r} is no {_KEYS[key][1].__name__}") from None
    return _usable(f"ini key fencepost_{key}", key, given)


def _usable(where: str, key: str, given: Any) -> Any:
    """`given`, unless no search could use it. Raises `pytest.UsageError` (one line)."""
    if key in ("budget", "steps", "examples") and given is not None:
        least = "more than 0 seconds" if key == "budget" else "a whole number, at least 1"
        kinds = (int, float) if key == "budget" else int
        if isinstance(given, bool) or not isinstance(given, kinds) or not given > 0:
            raise pytest.UsageError(f"{where}: {given!r}; give {least}")
    if key == "replay" and given is not None and not str(given).startswith("fencepost-run:"):
        raise pytest.UsageError(f"{where}: {given!r} is no replay string; `fencepost simulate` prints one")
    return given


def validate(config: pytest.Config) -> None:
    """Refuse values that no test could use, before anything runs. Raises `pytest.UsageError` (one line)."""
    for key in _KEYS:
        value(config, None, key)
    inconclusive(config, None)
    for name in _names(value(config, None, "engine")):
        _known(name)
    for name in config.getini("fencepost_designs"):
        if not (config.rootpath / name).exists():
            raise pytest.UsageError(f"ini key fencepost_designs: {name} does not exist below {config.rootpath}")


def settings(config: pytest.Config, marker: pytest.Mark | None) -> Settings:
    """The settings under which one test decides."""
    if marker is not None:
        unknown = sorted(set(marker.kwargs) - {*_SETTINGS, "inconclusive"})
        if unknown or marker.args:
            what = unknown[0] if unknown else repr(marker.args[0])
            raise pytest.UsageError(
                f"marker fencepost does not take {what}; it takes {', '.join(_SETTINGS)}, inconclusive, as keywords"
            )
    given = {key: value(config, marker, key) for key in _SETTINGS}
    given["engine"] = engines(config, marker)[0]
    return Settings(**given)


def engines(config: pytest.Config, marker: pytest.Mark | None) -> Sequence[str]:
    """The engines that a test which uses the `check` fixture is run with."""
    return [_known(name) for name in _names(value(config, marker, "engine"))] or ["explore"]


def inconclusive(config: pytest.Config, marker: pytest.Mark | None) -> str:
    """"fail" or "skip"."""
    chosen = value(config, marker, "inconclusive") or "fail"
    if chosen not in ("fail", "skip"):
        raise pytest.UsageError(f"fencepost inconclusive: {chosen!r} is neither fail nor skip")
    return str(chosen)


def report_folder(config: pytest.Config) -> Path | None:
    """Where the answers of each test are written, None: nowhere."""
    given = value(config, None, "report")
    return None if given is None else config.invocation_params.dir / given


def is_design_file(config: pytest.Config, path: Path) -> bool:
    """Whether the ini key fencepost_designs names the file or a folder above it."""
    named = config.getini("fencepost_designs")
    if not named or path.name in ("__init__.py", "conftest.py"):
        return False
    homes = [config.rootpath / name for name in named]
    return any(path == home or home in path.parents for home in homes)


def _names(given: Any) -> list[str]:
    parts = given if isinstance(given, (list, tuple)) else (given or "").split(",")
    return [part.strip() for part in parts if part.strip()]


def _known(name: str) -> str:
    from fencepost.engines import known_engine
    from fencepost.errors import InputError

    try:
        return known_engine(name)
    except InputError as error:
        raise pytest.UsageError(f"fencepost: {error}") from None
