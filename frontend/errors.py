"""What a user did wrong, said in one line: the command line prints it and exits with 2, with no traceback."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

# The folders that our own frames lie in; a user's line is the innermost frame outside of them. `designs` is not among
# them: designs are user code, also those that come with fencepost.
_HERE = Path(__file__).resolve().parent
_OWN = (
    str(_HERE) + os.sep,
    *(str(_HERE.parent / folder) + os.sep for folder in ("model", "proofs", "simulator", "gpu_validate")),
)


class InputError(Exception):
    """A target, option or design that cannot be used. The text is one line, with file and line where it has them."""


def relative(path: str | os.PathLike[str]) -> str:
    """The path as a reader at the current directory would write it: relative when it lies below, else absolute."""
    resolved = os.path.realpath(path)
    short = os.path.relpath(resolved) if os.path.splitdrive(resolved)[0] == os.path.splitdrive(os.getcwd())[0] else ""
    return short if short and not short.startswith(os.pardir) else resolved


def user_frame(trace: TracebackType | None, file: str | None = None) -> tuple[str, int] | None:
    """File and line of the innermost frame of the user's code; frames in `file` are preferred when it is given, and those of
    installed libraries count only where nothing else is known."""
    found = inside = preferred = None
    import sysconfig
    import traceback

    libraries = tuple(os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "purelib", "platlib"))
    for frame in traceback.extract_tb(trace):
        name = os.path.realpath(frame.filename)
        if frame.filename.startswith("<") or any(name.startswith(own) for own in _OWN):
            continue
        if name != file and name.startswith(libraries):
            inside = (name, frame.lineno or 0)
            continue
        found = (name, frame.lineno or 0)
        if file is not None and name == file:
            preferred = found
    return preferred or found or (inside if file is None else None)


NOT_TEXT = "source code string cannot contain null bytes"
"""What Python before 3.11.4 says in a ValueError, and later versions in a SyntaxError."""


def one_line(error: BaseException, file: str | None = None) -> str:
    """`path:line: what went wrong`, for an exception that the user's code raised. `file`: the design's own file."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{relative(error.filename)}:{error.lineno or 0}: syntax error: {error.msg}"
    text = " ".join(str(error).split()) or type(error).__name__
    if file is not None and (isinstance(error, SyntaxError) or text == NOT_TEXT):  # the compiler names no place
        return f"{relative(file)}: syntax error: {text}"
    if not _ours(error) and not text.startswith(type(error).__name__):
        text = f"{type(error).__name__}: {text}"
    place = user_frame(error.__traceback__, file)
    if _has_place(text) or (place is None and file is None):
        return text
    if place is None:
        return f"{relative(file or '')}: {text}"
    return f"{relative(place[0])}:{place[1]}: {text}"


def _ours(error: BaseException) -> bool:
    """Whether the text is our own sentence about a design; what somebody else raised says too little without its name."""
    if not isinstance(error, (InputError, ValueError)):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or os.path.realpath(trace.tb_frame.f_code.co_filename).startswith(_OWN)


def _has_place(text: str) -> bool:
    """Whether the text already starts with `path:line:`."""
    head, _, rest = text.partition(": ")
    path, colon, line = head.rpartition(":")
    return bool(rest and colon and path and line.isdigit())
