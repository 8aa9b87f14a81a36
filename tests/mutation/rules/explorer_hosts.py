"""Rules of the explorer: queues, cells, locks, flags, counters and the questions about them."""

from __future__ import annotations

from mutation.switching import EXPLORER, Table

COMPILE = "fencepost.proofs.explore.compile:ThreadCompiler."
LAYOUT = "fencepost.proofs.explore.layout:Layout."

RULES = Table()
_rule = RULES.enter

# fmt: off

_rule(EXPLORER, "a cursor of several threads is not decided", "theory 2", "Advance", "cursor_of_two_threads",
      ("fencepost.proofs.explore.compile:Compiler.__init__", "if setting.shared_cursor is not None:",
       "if False:"))
_rule(EXPLORER, "get i -> put i + capacity", "theory 2", "Put", "slots_behind_a_queue",
      (COMPILE + "_put", "s.tb[t] | (free[0] & bound)",
       "s.tb[t]"))
_rule(EXPLORER, "put i -> get i (the put's side)", "theory 2", "Put", "get, written before; first_turn",
      (COMPILE + "_put", "(tag, bit, vs)",
       "(tag, 0, vs)"))
_rule(EXPLORER, "put -> every later test of the queue", "theory 2 [T]", "Put QueueFull QueueHolds", "holds, written before; full, written before",
      (COMPILE + "_put", "every | bit",
       "every"))
_rule(EXPLORER, "put i -> get i (the get's side)", "theory 2", "Get", "get, written before; first_turn",
      (COMPILE + "_get", "s.tb[t] | bit | last_get",
       "s.tb[t] | last_get"))
_rule(EXPLORER, "get i -> get i + 1", "theory 2", "Get", "second_item",
      (COMPILE + "_get", "s.tb[t] | bit | last_get",
       "s.tb[t] | bit"))
_rule(EXPLORER, "get i -> put i + capacity (the get's side)", "theory 2", "Get", "slots_behind_a_queue",
      (COMPILE + "_get", "(*free, bit)",
       "(*free, 0)"))
_rule(EXPLORER, "get -> every later test of the queue", "theory 2 [T]", "Get QueueFull QueueHolds", "queue_is_emptied",
      (COMPILE + "_get", "every | bit",
       "every"))
_rule(EXPLORER, "a queue holds at most its capacity", "theory 2", "Put", "full, written after; full, written before",
      (LAYOUT + "start", "(0,) * program.objects[i].capacity",
       "(0,) * (program.objects[i].capacity + 1)"))
_rule(EXPLORER, "earlier operations on the cell -> cell.set", "theory 2", "CellSet", "set_behind_a_set",
      (COMPILE + "_cellset", "s.tb[t] | bit",
       "s.tb[t]"))
_rule(EXPLORER, "cell.set -> later operations on the cell", "theory 2", "CellSet", "cell take, written before; cell_is_set_over",
      (COMPILE + "_cellset", "(vs, bit)",
       "(vs, 0)"))
_rule(EXPLORER, "cell.set lets the old item go", "S65", "CellSet", "cell_lets_go",
      (COMPILE + "_cellset", "loose(s, old)",
       "pass"))
_rule(EXPLORER, "a cell holds its item", "S65", "CellSet", "cell_lets_go_when_cleared; block_taken_from_a_cell",
      (COMPILE + "_cellset", "hold(s, vs)",
       "pass"))
_rule(EXPLORER, "earlier operations on the cell -> cell.get", "theory 2", "CellGet", "get_behind_a_set",
      (COMPILE + "_cellget", "s.tb[t] | bit",
       "s.tb[t]"))
_rule(EXPLORER, "cell.get -> later operations on the cell", "theory 2", "CellGet", "cell_is_taken",
      (COMPILE + "_cellget", "(None if take else vs, bit)",
       "(None if take else vs, 0)"))
_rule(EXPLORER, "cell.take empties", "language", "CellGet", "cell_is_taken; block_taken_from_a_cell",
      (COMPILE + "_cellget", "None if take else vs",
       "vs"))
_rule(EXPLORER, "cell.get holds once more", "S65", "CellGet", "block_in_a_cell",
      (COMPILE + "_cellget", "hold(s, vs)",
       "pass"))
_rule(EXPLORER, "cell.get on an empty cell is a design error", "language", "CellGet", "cell_may_be_empty",
      (COMPILE + "_cellget", 's.hazard = ("EMPTY", node)',
       "pass"))
_rule(EXPLORER, "earlier operations on the cell -> cell.clear", "theory 2", "CellClear", "clear_behind_a_set",
      (COMPILE + "_cellclear", "s.tb[t] | bit",
       "s.tb[t]"))
_rule(EXPLORER, "cell.clear -> later operations on the cell", "theory 2", "CellClear", "cell_is_cleared",
      (COMPILE + "_cellclear", "(None, bit)",
       "(None, 0)"))
_rule(EXPLORER, "cell.clear empties", "language", "CellClear", "block_in_a_cell; cell_is_cleared",
      (COMPILE + "_cellclear", "(None, bit)",
       "(vs, bit)"))
_rule(EXPLORER, "cell.clear lets the item go", "S65", "CellClear", "cell_lets_go_when_cleared",
      (COMPILE + "_cellclear", "loose(s, vs)",
       "pass"))
_rule(EXPLORER, "unlock -> acquire", "theory 2", "Acquire", "locked; try_lock_takes",
      (COMPILE + "_acquire", "s.tb[t] |= bit & edge",
       "pass"))
_rule(EXPLORER, "acquire -> a later try-lock", "theory 2 [T]", "Acquire TryLock", "try lock, written before",
      (COMPILE + "_acquire", "(free - 1, bit | s.tb[t] & taken)",
       "(free - 1, bit)"))
_rule(EXPLORER, "a lock is held by one", "theory 2", "Acquire", "locked; try_lock_takes",
      (COMPILE + "_ready", "s.locks[k][0] > 0",
       "True"))
_rule(EXPLORER, "unlock -> acquire (the unlock's side)", "theory 2", "Unlock", "locked; try_lock_takes",
      (COMPILE + "_unlock", "bit | s.tb[t]",
       "bit"))
_rule(EXPLORER, "earlier stores -> flag.clear", "theory 2", "FlagClear", "clear_behind_a_flag_set",
      (COMPILE + "_flag_store", "s.tb[t] |= bit",
       "pass"))
_rule(EXPLORER, "flag store -> the load that saw it", "theory 2", "FlagSet FlagClear", "flag_is_cleared; clear_comes_after_the_set",
      (COMPILE + "_flag_store", "(value, bit | s.tb[t])",
       "(value, bit)"))
_rule(EXPLORER, "flag.set sets", "language", "FlagSet", "flag wait, written after; flag is set, written before",
      (COMPILE + "_flagset", "self._flag_store(effect.flag, 1)",
       "self._flag_store(effect.flag, 0)"))
_rule(EXPLORER, "flag.clear unsets", "language", "FlagClear", "flag_is_cleared; flag_there_and_back",
      (COMPILE + "_flagclear", "self._flag_store(effect.flag, 0)",
       "self._flag_store(effect.flag, 1)"))
_rule(EXPLORER, "store -> flag.wait", "theory 2", "FlagWait", "flag wait, written before",
      (COMPILE + "_flagwait", "s.tb[t] |= s.flags[k][1] & edge",
       "pass"))
_rule(EXPLORER, "flag.wait waits", "language", "FlagWait", "flag wait, written after; flag wait, written before",
      (COMPILE + "_ready", "s.flags[k][0] == 1",
       "True"))
_rule(EXPLORER, "add -> counter.wait", "theory 2", "CounterAdd", "counter at least, written before; counter wait, written before",
      (COMPILE + "_counteradd", "bit | s.tb[t]",
       "bit"))
_rule(EXPLORER, "counter.wait comes after the adds", "theory 2", "CounterWait", "counter_one_short; counter wait, written before",
      (COMPILE + "_counterwait", "s.tb[t] |= s.counters[k][1] & edge",
       "pass"))
_rule(EXPLORER, "counter.wait waits", "language", "CounterWait", "counter wait, written after; counter wait, written before",
      (COMPILE + "_ready", "return lambda s: test(s.counters[k][0])",
       "return None"))
_rule(EXPLORER, "a counter per turn counts turns", "language", "CounterWait", "counter_one_short; counter_per_turn",
      (LAYOUT + "end_turn", "else v - 1 for",
       "else v for"))
_rule(EXPLORER, "put i -> the tag's test", "theory 2 [T]", "QueueTag", "tag_tells_of_the_put",
      (COMPILE + "_question", "s.tb[t] |= items[0][1] | last_get",
       "s.tb[t] |= last_get"))
_rule(EXPLORER, "get i - 1 -> the tag's test", "theory 2 [T]", "QueueTag", "tag_tells_of_the_get_before",
      (COMPILE + "_question", "s.tb[t] |= items[0][1] | last_get",
       "s.tb[t] |= items[0][1]"))
_rule(EXPLORER, "a question about the turn follows the turn", "language", "TurnBelow", "first_turn",
      (COMPILE + "_question", '"yes" if s.turns[t] < value else "no"',
       '"yes"'))
_rule(EXPLORER, "an open choice may fall any way", "language", "Choose Maybe", "tag_is_seen; cell_may_be_empty",
      (COMPILE + "_question", "[*[(o, s.copy()) for o in others], (last, s)]",
       "[(options[0], s)]"))
_rule(EXPLORER, "an agreed choice is agreed", "language", "Choose", "agreed_choice",
      (COMPILE + "_question", "if isinstance(q, p.Choose) and q.agreed:",
       "if False:"))
_rule(EXPLORER, "earlier operations on the queue -> full, holds", "theory 2 [T]", "QueueFull QueueHolds", "holds, written before; full, written before",
      (COMPILE + "_state_test", "s.tb[t] |= every\n",
       "pass\n"))
_rule(EXPLORER, "full follows the state", "language", "QueueFull", "full, written after; not_full_does_something",
      (COMPILE + "_state_test", "not free if count is None",
       "True if count is None"))
_rule(EXPLORER, "holds follows the state", "language", "QueueHolds", "holds, written after; holds, written before",
      (COMPILE + "_state_test", "len(items) >= count",
       "True"))
_rule(EXPLORER, "earlier operations on the cell -> empty", "theory 2 [T]", "CellEmpty", "cell empty, written before; cell_is_taken",
      (COMPILE + "_state_test", "s.tb[t] |= bit\n            s.cells[c]",
       "s.cells[c]"))
_rule(EXPLORER, "earlier operations on the flag -> is_set", "theory 2 [T]", "FlagIsSet", "flag is set, written before; flag_is_cleared",
      (COMPILE + "_state_test", "s.tb[t] |= bit\n            s.flags[k]",
       "s.flags[k]"))
_rule(EXPLORER, "earlier adds -> counter >= c", "theory 2 [T]", "CounterAtLeast", "counter at least, written before",
      (COMPILE + "_state_test", "s.tb[t] |= bit\n            s.counters[k]",
       "s.counters[k]"))
_rule(EXPLORER, "earlier operations on the lock -> try-lock", "theory 2 [T]", "TryLock", "try lock, written before; try_lock_takes",
      (COMPILE + "_state_test", "s.tb[t] |= bit\n        s.locks[k]",
       "s.locks[k]"))
_rule(EXPLORER, "a try-lock that says yes takes the lock", "language", "TryLock", "try_lock_takes",
      (COMPILE + "_state_test", "free - 1 if free else free",
       "free"))
