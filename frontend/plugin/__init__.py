"""The pytest plugin: options, marker and fixture; folders of designs as tests; answers in reports.

pytest loads it on every start, so nothing heavy is imported here: engines and reports are loaded when a design is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from fencepost import assertions
from fencepost.plugin import options

if TYPE_CHECKING:
    from pathlib import Path

    from fencepost.model.answer import Answer
    from fencepost.plugin.collect import DesignFile

OUTCOMES: pytest.StashKey[list[Any]] = pytest.StashKey()
"""On an item: the outcomes decided while it ran."""


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "fencepost(engine=, budget=, steps=, examples=, seed=, inconclusive=): how this test decides designs "
        "(before ini file and command line)",
    )
    config.addinivalue_line("markers", "fencepost_gpu(gpus=1): needs GPUs and gates; skipped with the reason without them")
    options.validate(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fencepost_engine" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("fencepost")
        metafunc.parametrize("fencepost_engine", options.engines(metafunc.config, marker), scope="function")


@pytest.fixture
def check(fencepost_engine: str) -> Callable[..., Answer]:
    """`check(design, **parameters) -> Answer`, once per engine that `--fencepost-engine` or the marker names."""

    def decide(design: Any, **asked: Any) -> Answer:
        __tracebackhide__ = True
        outcome = assertions.answer_of(design, **{"engine": fencepost_engine, **asked})
        answer: Answer = outcome.answer  # type: ignore[assignment]
        return answer

    return decide


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> DesignFile | None:
    if file_path.suffix != ".py" or not options.is_design_file(parent.config, file_path):
        return None
    from fencepost.plugin.collect import DesignFile

    return DesignFile.from_parent(parent, path=file_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # A marker that cannot be used stops the run before its first test, not in the middle of it.
    for item in items:
        options.settings(config, item.get_closest_marker("fencepost"))
        gpu = item.get_closest_marker("fencepost_gpu")
        if gpu is not None:
            from fencepost.gpu_validate.skip import gpu_missing

            reason = gpu_missing(*gpu.args, **gpu.kwargs)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=f"fencepost_gpu: {reason}"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    settings = options.settings(item.config, item.get_closest_marker("fencepost"))
    item.stash[OUTCOMES] = settings.outcomes
    with assertions.using(settings):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    outcome = yield
    if call.when != "call":
        return
    test_report = outcome.get_result()
    decided = item.stash.get(OUTCOMES, [])
    if decided:
        from fencepost.plugin.record import record

        record(item, call, test_report, decided, options.report_folder(item.config))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    from fencepost.plugin.summary import summary

    lines = summary(terminalreporter.stats)
    if lines and terminalreporter.verbosity >= 0:
        terminalreporter.section("fencepost", sep="-")
        for line in lines:
            terminalreporter.line(line)
