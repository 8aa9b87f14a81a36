"""Host code, references and everything through which host threads meet."""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.model.effects import Effect, Touch
from fencepost.model.operations.registry import Context, question_rule, rule


@rule(p.Host, "host access", accesses="its reads and writes, during the call", rules=("S45", "S85"))
def host(operation: p.Host, context: Context) -> tuple[Effect, ...]:
    """Host loads and stores. Raises `ValueError` for handed-over memory that a host cannot reach."""
    for access in operation.accesses:
        context.reach(access.target, True)
    return (Touch(operation.accesses),)


def _itself(operation: Effect, context: Context) -> tuple[Effect, ...]:
    """A host-side operation that is its own effect."""
    return (operation,)


rule(p.Alloc, "empty / empty_pinned", accesses="none: the block's content becomes undefined",
     edges="the free of a block, the polled events of its users -> the allocation that receives its bytes",
     rules=("S62", "S63", "S65", "S67", "S70", "S80", "S81"))(_itself)  # fmt: skip
rule(p.View, "view", rules=("S84",))(_itself)
rule(p.Drop, "release", edges="last reference: the block may be handed out again; on each noted stream the work "
     "queued until now comes first", rules=("S63", "S65", "S80"))(_itself)  # fmt: skip
rule(p.Advance, "advance")(_itself)
rule(p.Put, "put", edges="put i -> get i; get i -> put i + capacity", enabled="fewer than capacity items")(_itself)
rule(p.Get, "get", edges="put i -> get i; get i -> get i + 1", enabled="at least one item")(_itself)
rule(p.CellSet, "cell.set", edges="every earlier operation on the cell -> this one")(_itself)
rule(p.CellGet, "cell.get / take", edges="every earlier operation on the cell -> this one",
     enabled="always; on an empty cell it is a design error")(_itself)  # fmt: skip
rule(p.CellClear, "cell.clear", edges="every earlier operation on the cell -> this one")(_itself)
rule(p.Take, "pool.take", edges="the give of that token, its `after` event -> the take",
     enabled="a token is free")(_itself)  # fmt: skip
rule(p.Give, "pool.give", edges="the give, and the work captured by `after`, -> the take that gets the token")(_itself)
rule(p.Acquire, "acquire", edges="earlier unlocks -> this one", enabled="the lock is free")(_itself)
rule(p.Unlock, "unlock", edges="unlock -> later acquires")(_itself)
rule(p.FlagSet, "flag.set", edges="store -> the load that saw it")(_itself)
rule(p.FlagClear, "flag.clear", edges="earlier operations on the flag -> this one")(_itself)
rule(p.FlagWait, "flag.wait", edges="earlier stores -> this one", enabled="the flag is set")(_itself)
rule(p.CounterAdd, "counter.add", edges="earlier adds -> this one")(_itself)
rule(p.CounterWait, "counter.wait", edges="earlier adds -> this one", enabled="the counter is high enough")(_itself)

_TEST = "every earlier operation on the object -> the test"
question_rule(p.Choose, "choose", edges="none", answers="every option; agreed: one per turn for all threads")
question_rule(p.Maybe, "maybe", edges="none", answers="both")
question_rule(p.QueueFull, "queue.full", edges=_TEST, answers="follows the state")
question_rule(p.QueueHolds, "queue.holds / empty", edges=_TEST, answers="follows the state")
question_rule(p.QueueTag, "item.tag", edges="put i -> the test", answers="waits for an item; follows the state")
question_rule(p.CellEmpty, "cell.empty", edges=_TEST, answers="follows the state")
question_rule(p.FlagIsSet, "flag.is_set", edges=_TEST, answers="follows the state")
question_rule(p.CounterAtLeast, "counter >=", edges=_TEST, answers="follows the state")
question_rule(p.TryLock, "try_acquire", edges=_TEST, answers="follows the state")
question_rule(p.TurnBelow, "n <", edges="none", answers="follows the turn")
