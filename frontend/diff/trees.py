"""Trees of a git repository, exported: each side of a comparison is built from files that nothing else touches."""

from __future__ import annotations

import io
import subprocess
import tarfile
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
    done = subprocess.run(["git", "archive", "--format=tar", revision], cwd=top, capture_output=True, check=False)
    if done.returncode != 0:
        raise InputError(f"--git: git archive {revision} failed: {done.stderr.decode().strip()}")
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)  # a Python before the filters; the archive is git's own
    return folder


def export_index(top: Path, folder: Path) -> Path:
    """Write what is staged below `folder`, which is made, and return it."""
    folder.mkdir(parents=True)
    _git(top, "checkout-index", "--all", f"--prefix={folder}/", wrong="--staged: git checkout-index failed")
    return folder


def _git(folder: Path, *arguments: str, wrong: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise InputError("git is not installed, and --git needs it") from None
    if done.returncode != 0:
        raise InputError(wrong)
    return done.stdout
