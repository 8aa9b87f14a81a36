"""What the tests cost: `pytest --shares` prints processor seconds by area and by file, children included, whoever ran them.

Processor time, as the wall clock says little on a machine that does other things. The areas are the folders that a file is
about; a new file without one is shown under its own name.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Iterator
from typing import Any

import pytest

AREAS = {
    "explorer": "agents_under_launch_blocking certificates designs events events_feasible events_values explorer_random "
    "explorer_rules found found_meetings masks meetings_events meetings_explorer reductions shared_queue vacuity",
    "language": "cases composites found_language found_gpus language_errors language_meetings language_oracle language_platform "
    "language_sharing bad_platform_input platform_found registry",
    "liveness": "liveness liveness_meetings liveness_progress liveness_random liveness_reference liveness_report liveness_small liveness_starved",
    "machine": "machine_designs machine_found machine_meetings machine_memory machine_replay machine_rules machine_structure "
    "machine_timing random_designs random_designs_soak random_meetings random_platform simulate_cli",
    "mutation": "mutation",
    "proofs": "certificate_engine certificate_files certificate_meetings condition promela proofs_page smt smt_random "
    "soak_certificates soak_smt",
    "waits": "cost plan protections_meetings repair repair_written waits waits_costs waits_many waits_meetings waits_random",
    "frontend": "ci_examples cli diff meeting_words packaging plugin report",
    "gpu": "gpu_calls gpu_commands gpu_device gpu_gates gpu_graphs gpu_meetings gpu_plans gpu_undefined sanitizers",
}
"""Area -> names of its files without "test_" and ".py"."""
REST = (
    "agents_under_launch_blocking bad_platform_input cases certificate_meetings composites found_gpus found_meetings language_meetings "
    "language_platform language_sharing liveness liveness_meetings liveness_progress liveness_random liveness_reference liveness_report "
    "liveness_small liveness_starved machine_meetings meeting_words meetings_events meetings_explorer platform_found protections_meetings random_meetings "
    "random_platform shared_queue"
)
"""Files that are there for the rest of the platform, hangs and public bugs: what these add to `make test`."""
AREA_OF = {f"tests/test_{name}.py": area for area, names in AREAS.items() for name in names.split()}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --shares."""
    parser.addoption("--shares", action="store_true", help="print processor seconds by area and file of tests")


def spent() -> float:
    """Processor seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test begins: what was spent before is not its own."""
    item.config._spent_before = spent()  # type: ignore[attr-defined]
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Each phase's report carries what was spent since the last one."""
    outcome: Any = yield
    now = spent()
    outcome.get_result().user_properties = [("cpu", now - item.config._spent_before)]  # type: ignore[attr-defined]
    item.config._spent_before = now  # type: ignore[attr-defined]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The table: areas by cost, and in each its files."""
    if not config.getoption("--shares"):
        return
    files: collections.Counter[str] = collections.Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "cpu":
                    files[report.nodeid.partition("::")[0]] += value
    areas: collections.Counter[str] = collections.Counter()
    for file, seconds in files.items():
        areas[AREA_OF.get(file, file)] += seconds
    terminalreporter.section("processor seconds")
    for area, seconds in areas.most_common():
        terminalreporter.write_line(f"{seconds:8.1f}  {area}")
        for file, part in files.most_common():
            if AREA_OF.get(file, file) == area != file:
                terminalreporter.write_line(f"{part:16.1f}  {file}")
    rest = sum(files[f"tests/test_{name}.py"] for name in REST.split())
    terminalreporter.write_line(f"{rest:8.1f}  of this for the rest of the platform, hangs and public bugs")
    terminalreporter.write_line(f"{sum(files.values()):8.1f}  in all, without collection")
