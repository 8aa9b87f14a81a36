"""The reference page of operations and questions, generated from the registry: `python -m fencepost.model.operations.reference`."""

from __future__ import annotations

from fencepost.model.operations.limitations import LIMITATIONS, WITHOUT_WORDS
from fencepost.model.operations.registry import QUESTIONS, RULES
from fencepost.model.operations.switches import IN_DESIGNS, PROFILE, Switch
from fencepost.model.platform import PLATFORMS


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
    lines += _calls()
    lines += _switches()
    lines += ["## What is not modelled, and on which side that errs", "", "| what | errs on the side of | rules |", "| --- | --- | --- |"]
    lines += [f"| {one.what} | {one.errs} | {', '.join(one.rules)} |" for one in LIMITATIONS]
    lines += ["", "## Rules that need no words of their own", "", "| rule | how a design has it |", "| --- | --- |"]
    lines += [f"| {rule} | {how} |" for rule, how in WITHOUT_WORDS]
    return "\n".join([*lines, ""])


def _switches() -> list[str]:
    """Every switch with its default, and which profile turns it."""

    def table(first: str, switches: tuple[Switch, ...]) -> list[str]:
        rows = [f"| `{s.where}` | **{s.values[0]}**, {', '.join(s.values[1:])} | {s.decides} | {', '.join(s.rules)} |" for s in switches]
        return [f"| {first} | default, others | what it decides | rules |", "| --- | --- | --- | --- |", *rows, ""]

    lines = ["## Switches and their defaults", "", "What platforms, versions and vendors disagree on. Of a platform profile (`--platform`, "
             "`platform=` of a variant):", "", *table("switch", PROFILE)]  # fmt: skip
    for platform in PLATFORMS.values():
        turned = [f"{s.where} = {getattr(platform, s.where)}" for s in PROFILE if getattr(platform, s.where) != s.values[0]]
        lines.append(f"- `{platform.name}`: {', '.join(turned) or 'the defaults'}")
    return [*lines, "", "In the text of a design:", "", *table("argument", IN_DESIGNS)]


_MEETINGS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "scatter", "reduce", "gather", "send", "recv",
    "exchange", "barrier", "rendezvous", "host_barrier", "host_broadcast", "host_gather",
)  # fmt: skip


def _calls() -> list[str]:
    """Calls of the language that are written down as several operations, from their docstrings."""
    from fencepost.model.language import communicators, composites, graphs, hosts, meetings, ordered, sharing, works
    from fencepost.model.language.design import Design
    from fencepost.model.language.objects import Event, Tensor

    entries = [
        ("d.stream(blocking=True)", Design.stream),
        ("d.torch_streams().stream()", composites.StreamPool),
        ("d.memcpy", composites.memcpy),
        ("y.copy_(x, strided=True)", composites.strided_copy),
        ("d.peer_copy", composites.peer_copy),
        ("x.to_cpu", Tensor.to_cpu),
        ("d.host_function", Design.host_function),
        ("d.agent().post", composites.Agent),
        ("d.managed(concurrent=False)", Design.managed),
        ("d.free", Design.free),
        ("pool.free", hosts.Pool.free),
        ("d.communicator", communicators.Communicator),
        *((f"comm.{name}", getattr(communicators.Communicator, name)) for name in _MEETINGS),
        ("comm.all_reduce(async_op=True).wait", works.Work),
        ("d.callback", meetings.Callback),
        ("e.record(may_fail=True)", Event.record),
        ("d.condition", sharing.Condition),
        ("lock.released", sharing.Released),
        ("d.collector", sharing.Collector),
        ("d.malloc_async and x.free_async", ordered.free_async),
        ("d.ipc_queue", sharing.IpcQueue),
        ("d.graph: capture and replay", graphs.Graph),
    ]
    lines = ["## Calls that are several operations", "", "Every engine learns these through the operations that they are made of.", ""]
    for name, thing in entries:
        lines += [f"### {name}", "", _text(thing.__doc__), ""]
    return lines


if __name__ == "__main__":
    print(render(), end="")
