"""Small pieces of Promela text."""

from __future__ import annotations

from fencepost.model import program as p


def inline(head: str, statements: list[str]) -> str:
    return f"inline {head} {{ {'; '.join(statements)} }}"


def word_of(access: p.Access) -> str:
    return "read" if access.mode == "r" else "repeat" if access.same_bytes else "write"


def counter_of(access: p.Access) -> str:
    return {"read": "readers", "write": "writers", "repeat": "repeaters"}[word_of(access)]


def label(node: int) -> str:
    return "TURN_ENDS" if node == p.END else f"N{node}"


def comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ")
