"""Write the file lists of ARCHITECTURE.md: each file with the first sentence of its docstring (`make architecture`)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "ARCHITECTURE.md"


def source_files() -> list[str]:
    """Python files that git tracks or would track. Raises `CalledProcessError` outside of a checkout."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in listed.splitlines() if (ROOT / name).is_file())


def sentence(name: str) -> str:
    """The first sentence of a file's docstring, without a full stop; lines are joined."""
    text = ast.get_docstring(ast.parse((ROOT / name).read_text())) or "(no docstring)"
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.?!]) (?=[A-Z`])", paragraph)[0].rstrip(".")


def listed(folder: str, names: list[str]) -> str:
    """The list of one top-level folder."""
    return "\n".join(f"- `{name}`: {sentence(name)}" for name in names if name.split("/")[0] == folder)


def page(text: str, names: list[str]) -> str:
    """`text` with the list under every `## folder/` heading written anew; what else stands there stays."""

    def section(match: re.Match[str]) -> str:
        prose = "\n".join(line for line in match[2].splitlines() if not line.startswith("- `")).strip()
        return f"## {match[1]}/\n\n{prose}\n\n{listed(match[1], names)}\n\n".replace("\n\n\n\n", "\n\n")

    return re.sub(r"^## ([\w]+)/\n(.*?)(?=^## |\Z)", section, text, flags=re.S | re.M).rstrip() + "\n"


if __name__ == "__main__":
    before = PAGE.read_text()
    after = page(before, source_files())
    PAGE.write_text(after)
    print("ARCHITECTURE.md " + ("is as it was" if after == before else "written"))
    sys.exit(0)
