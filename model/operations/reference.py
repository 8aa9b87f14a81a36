"""The reference page of operations and questions, generated from the registry: `python -m fencepost.model.operations.reference`."""

from __future__ import annotations

from fencepost.model.operations.registry import QUESTIONS, RULES


def _text(doc: str | None) -> str:
    return " ".join((doc or "").split())


def render() -> str:
    """Markdown for docs/reference.md."""
    lines = [
        "# Reference: operations and questions",
        "",
        "Generated from the registry in model/operations/ (`python -m fencepost.model.operations.reference`).",
        "S-numbers are the rules of [semantics.md](semantics.md).",
        "",
        "## Operations",
        "",
    ]
    for operation, rule in sorted(RULES.items(), key=lambda item: item[1].name):
        lines += [
            f"### {rule.name}",
            "",
            f"`{operation.__name__}`: {_text(operation.__doc__)}",
            "",
            f"- accesses: {rule.accesses}",
            f"- edges: {rule.edges}",
            f"- enabled: {rule.enabled}",
        ]
        lines += [f"- rules: {', '.join(rule.rules)}"] if rule.rules else []
        lines.append("")
    lines += ["## Questions", ""]
    for question, rule in sorted(QUESTIONS.items(), key=lambda item: item[1].name):
        lines += [
            f"### {rule.name}",
            "",
            f"`{question.__name__}`: {_text(question.__doc__)}",
            "",
            f"- edges: {rule.edges}",
            f"- answers: {rule.enabled}",
        ]
        lines += [f"- rules: {', '.join(rule.rules)}"] if rule.rules else []
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(render(), end="")
