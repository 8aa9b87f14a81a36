"""What an editable install hides: a folder that is not packaged, a forgotten line in ARCHITECTURE.md, a heavy import."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOT_PACKAGED = ("tests", "benchmarks", "build", "docs")


def packaged() -> dict[str, str]:
    """Package name -> folder, as pyproject.toml says it. Read without tomllib, which Python 3.10 has not."""
    text = (ROOT / "pyproject.toml").read_text()
    match = re.search(r"^packages = \[(.*?)\]", text, re.S | re.M)
    assert match is not None
    names = re.findall(r'"([\w.]+)"', match[1])
    assert len(names) == len(set(names))
    section = text.split("[tool.setuptools.package-dir]")[1].split("\n[")[0]
    folders = dict(re.findall(r'^"([\w.]+)" = "([\w/]+)"', section, re.M))
    assert set(folders) <= set(names)
    found = {}
    for name in names:
        base, rest = name, []
        while base not in folders:
            base, _, last = base.rpartition(".")
            rest.insert(0, last)
        found[name] = "/".join([folders[base], *rest])
    return found


def folders() -> dict[str, str]:
    """Package name -> folder with a module in it, as the tree says it."""
    found = {}
    for file in ROOT.glob("*/**/*.py"):
        parts = file.parent.relative_to(ROOT).parts
        if parts[0] in NOT_PACKAGED or parts[0].startswith(".") or "__pycache__" in parts:
            continue
        name = ["fencepost", *(parts[1:] if parts[0] == "frontend" else parts)]
        found[".".join(name)] = "/".join(parts)
    return found


def test_packages_are_the_folders() -> None:
    assert packaged() == folders()
    # Without it an editable install finds the modules and a wheel lacks them.
    assert [folder for folder in folders().values() if not (ROOT / folder / "__init__.py").is_file()] == []


def architecture() -> ModuleType:
    """tests/architecture.py, which is a script and no package's module."""
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "tests" / "architecture.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tracked() -> list[str]:
    """Source files that git tracks or would track."""
    try:
        return list(architecture().source_files())
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")


def test_architecture_names_every_source_file() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"^- `([\w/.]+\.py)`: ", text, re.M))
    assert named == set(tracked()), "run `make architecture`"


def test_architecture_says_what_the_docstrings_say() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert text == architecture().page(text, tracked()), "run `make architecture`"


HEAVY = ("z3", "torch", "hypothesis", "networkx", "jinja2")


def loaded_by(code: str) -> set[str]:
    """Which of the heavy packages (and rich) are imported after `code` ran in a fresh interpreter."""
    probe = f"import sys\n{code}\nprint(*[n for n in {(*HEAVY, 'rich', 'click')} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, cwd=ROOT, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert loaded_by("import fencepost") == set()
    assert loaded_by("import fencepost, fencepost.model.program, fencepost.proofs.check") == set()


def test_check_imports_no_optional_package() -> None:
    code = "from fencepost.cli import run\nassert run(['check', 'designs/ring.py']) in (0, 1, 3)"
    assert loaded_by(code) <= {"rich", "click"}
    code = "from fencepost.cli import run\nassert run(['check', 'designs/ring.py', '--format', 'json']) in (0, 1, 3)"
    assert loaded_by(code) <= {"click"}


@pytest.mark.parametrize("folder", ["model", "proofs", "designs"])
def test_a_folder_refuses_to_be_imported_under_another_name(folder: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import {folder}"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode != 0
    assert f"fencepost.{folder}" in done.stderr


def test_every_rule_is_in_the_semantics_page() -> None:
    text = (ROOT / "docs" / "semantics.md").read_text()
    rules = [int(number) for number in re.findall(r"^- \*\*S(\d+)\.\*\*", text, re.M)]
    assert rules == list(range(1, 144))


def test_rules_that_the_code_cites_exist() -> None:
    text = (ROOT / "docs" / "semantics.md").read_text()
    known = {f"S{number}" for number in re.findall(r"^- \*\*S(\d+)\.\*\*", text, re.M)}
    for name in tracked():
        if name.startswith(("model/", "proofs/", "frontend/", "designs/")):
            cited = set(re.findall(r"\bS\d{1,3}\b", (ROOT / name).read_text()))
            assert cited <= known, (name, sorted(cited - known))
