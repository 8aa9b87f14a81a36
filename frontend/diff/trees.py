"""Trees of a git repository, exported: each side of a comparison is built from files that nothing else touches."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from fencepost.errors import InputError


def top_level(folder: Path) -> Path:
    """The root of the repository that holds `folder`. Raises `InputError` when there is none."""
    return Path(_git(folder, "rev-parse", "--show-toplevel", wrong=f"{folder}: not in a git repository").strip())


def revisions(text: str, top: Path) -> tuple[str, str | None]:
    """`BASE..HEAD`, `BASE...HEAD` (from where they parted) or `BASE` (against the working tree, None).

    Raises `InputError` for a revision that does not exist, and for an empty BASE: what a variable that is not set leaves.
    """
    if not text.strip() or text.startswith(".."):
        raise InputError(f"--git {text!r}: there is no BASE; write BASE..HEAD")
    if "..." in text:
        one, two = text.split("...", 1)
        two = two or "HEAD"
        _commit(one, top), _commit(two, top)
        base = _git(top, "merge-base", one, two, wrong=f"--git {text}: {one} and {two} have no commit in common")
        return base.strip(), _commit(two, top)
    one, dots, two = text.partition("..")
    return _commit(one, top), _commit(two or "HEAD", top) if dots else None


def _commit(revision: str, top: Path) -> str:
    wrong = f"--git: no revision {revision!r} in {top}; fetch it, or correct its name"
    if revision.startswith("-"):
        raise InputError(wrong)
    return _git(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", wrong=wrong).strip()


def export(revision: str, top: Path, folder: Path) -> Path:
    """Write the tree of a commit below `folder`, which is made, and return it."""
    folder.mkdir(parents=True)
    # By way of an index of its own, git writes the files itself: unpacking an archive here takes several times as long.
    index = str(folder.with_name(f"{folder.name}.index"))
    _git(top, "read-tree", revision, wrong=f"--git: git read-tree {revision} failed", index=index)
    _git(top, "checkout-index", "--all", f"--prefix={folder}/", wrong=f"--git: git checkout-index of {revision} failed", index=index)
    return folder


def export_index(top: Path, folder: Path) -> Path:
    """Write what is staged below `folder`, which is made, and return it."""
    folder.mkdir(parents=True)
    _git(top, "checkout-index", "--all", f"--prefix={folder}/", wrong="--staged: git checkout-index failed")
    return folder


def _git(folder: Path, *arguments: str, wrong: str, index: str | None = None) -> str:
    environment = None if index is None else {**os.environ, "GIT_INDEX_FILE": index}
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False, env=environment)
    except FileNotFoundError:
        raise InputError("git is not installed, and --git needs it") from None
    if done.returncode != 0:
        raise InputError(wrong)
    return done.stdout
