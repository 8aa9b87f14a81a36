"""Rules of the explorer: accesses, parts, blocks of the allocators, pools."""

from __future__ import annotations

from mutation.switching import EXPLORER, Table

MEMORY = "fencepost.proofs.explore.memory:LocationRules."
SEARCH = "fencepost.proofs.explore.search:Search."
LAYOUT = "fencepost.proofs.explore.layout:Layout."

RULES = Table()
_rule = RULES.enter

# fmt: off

_rule(EXPLORER, "two accesses of common bytes, one a write, conflict", "theory 1", "Touch Enqueue", "copy_unguarded launch-blocking-kernels; same_bytes_again strict",
      (MEMORY + "_judge", "if not bit and (write or w.write):",
       "if False:"))
_rule(EXPLORER, "two reads do not conflict", "theory 1", "Touch Enqueue", "reads_only; ring_by_cursor",
      (MEMORY + "_judge", "if not bit and (write or w.write):",
       "if not bit:"))
_rule(EXPLORER, "slots of a ring are disjoint", "theory 1", "Touch Enqueue", "streams_in_turn; fixed_slot",
      (MEMORY + "_judge", "if slot != s.slot and slot not in (ANY_SLOT, ELSEWHERE) and s.slot != ANY_SLOT:",
       "if False:"))
_rule(EXPLORER, "an access of the whole meets every slot", "theory 1", "Touch Enqueue", "all_rows",
      (MEMORY + "_judge", "if slot != s.slot and slot not in (ANY_SLOT, ELSEWHERE) and s.slot != ANY_SLOT:",
       "if slot != s.slot:"))
_rule(EXPLORER, "a fresh block is undefined until it is written", "theory 1", "Alloc", "read_before_it_is_written; written_elsewhere",
      (MEMORY + "_judge", 'if not write:\n                s.hazard = ("UNDEFINED", node, which)',
       "if not write:\n                pass"))
_rule(EXPLORER, "an access through a raw pointer to a freed block is a use after free", "S65", "View", "raw_pointer",
      (MEMORY + "_judge", "if pointer is not None and",
       "if False and"))
_rule(EXPLORER, "a write defines", "theory 1", "Alloc", "scope_ends_with_the_turn; blocks_stay_with_their_stream",
      (MEMORY + "_judge", "s.block = (*s.block[:3], s.block[3] | DEFINED, s.block[4])",
       "pass"))
_rule(EXPLORER, "the same bytes in the same epoch change nothing", "theory 1", "Touch", "same_bytes_again",
      (MEMORY + "_judge", "exempt = w.epoch and (same or (w.same_bytes and not write))",
       "exempt = False"))
_rule(EXPLORER, "other bytes end the epoch", "theory 1", "Touch", "other_bytes_between",
      (MEMORY + "_judge", "s.witness = w._replace(epoch=False)",
       "pass"))
_rule(EXPLORER, "a view of a part defines that part only", "theory 1", "Alloc View", "view_of_a_part",
      (MEMORY + "view", "value = put_outside(value)",
       "pass"))
_rule(EXPLORER, "a read of an unknown part asks for no part in particular", "theory 1", "Alloc", "unknown_part_read",
      (MEMORY + "_asks", "return not (isinstance",
       "return True or (isinstance"))
_rule(EXPLORER, "host accesses are in program order", "theory 2", "Touch", "copy_unguarded launch-blocking; same_bytes_again",
      (MEMORY + "host", "states[1].tb[t] = BIT",
       "pass"))
_rule(EXPLORER, "end -> start of the next item in the stream", "S2", "Enqueue", "two_streams one-hardware-queue; two_streams launch-blocking-kernels",
      (MEMORY + "item", "new.streams[stream(new)] = BIT",
       "pass"))
_rule(EXPLORER, "one item never conflicts with itself", "theory 1", "Enqueue", "one_kernel_reads_and_writes",
      (MEMORY + "item", "other(new, BIT)",
       "other(new, 0)"))
_rule(EXPLORER, "a held block is counted", "S65", "Put", "both_threads_hold; block_handed_over",
      (MEMORY + "hold", "s.block = (s.block[0] + n, *s.block[1:])",
       "pass"))
_rule(EXPLORER, "every holder's release -> the free", "theory 2", "Drop", "block_taken_from_a_cell; view_holds",
      (MEMORY + "_loosened", "free |= s.tb[self.t]  # every decrement comes before the free",
       "pass"))
_rule(EXPLORER, "work of a noted stream -> reuse", "S65", "Drop NoteUse", "record_stream; pinned_source_noted",
      (MEMORY + "_loosened", "free |= s.streams[stream]",
       "pass"))
_rule(EXPLORER, "the free of the bytes -> the allocation that gets them", "theory 2", "Alloc", "pinned_source_noted; pinned_target_noted",
      (MEMORY + "alloc", "got.tb[t] |= free",
       "pass"))
_rule(EXPLORER, "a block is not handed out while it is held", "S63", "Alloc", "block_taken_from_a_cell; view_holds",
      (MEMORY + "alloc", "if refs or (owner is not None and owner != mine) or",
       "if (owner is not None and owner != mine) or"))
_rule(EXPLORER, "a block comes back to its stream", "S62", "Alloc", "blocks_stay_with_their_stream",
      (MEMORY + "alloc", "if refs or (owner is not None and owner != mine) or",
       "if refs or"))
_rule(EXPLORER, "the host allocator is the process's", "S80", "Alloc", "pinned_blocks_of_two_processes",
      ("fencepost.proofs.explore.locations:allocator", "return None, thread.process",
       'return None, ""'))
_rule(EXPLORER, "a token may be used by who gave it back", "theory 2", "Give", "token_used_after_it_was_given_back",
      (MEMORY + "give", "if forgets:",
       "if True:"))
_rule(EXPLORER, "a token is given back once", "theory 2", "Give", "token_given_back_twice",
      (MEMORY + "give", "if guessed != 2 if mine else zeros + ones >= others:",
       "if False:"))
_rule(EXPLORER, "a block is reused", "S63", "Alloc", "no_record_stream; raw_copy_is_not_noted",
      (MEMORY + "alloc", "return [s, got]",
       "return None if s.block[4] is not None or s.witness is not None else [s, got]"))
_rule(EXPLORER, "a view holds the block", "S65", "View", "view_is_not_attributed; view_holds",
      (MEMORY + "view", "self.hold(s, (value,))",
       "pass"))
_rule(EXPLORER, "the allocator cannot attribute every view", "S72, S84", "View NoteUse", "view_is_not_attributed; device_view_is_not_attributed",
      (MEMORY + "view", "if not attributed:",
       "if False:"))
_rule(EXPLORER, "a release lets go", "S65", "Drop", "no_record_stream; raw_copy_is_not_noted",
      (MEMORY + "drops", "self._loosened(s, n)",
       "pass"))
_rule(EXPLORER, "record_stream is not for pinned blocks", "S72", "NoteUse", "device_note_on_a_pinned_block",
      (MEMORY + "note_use", "space != effect.space or",
       ""))
_rule(EXPLORER, "a note is kept", "S64", "NoteUse", "record_stream; pinned_source_noted",
      (MEMORY + "note_use", "s.block = (refs, free, tuple(sorted((*uses, used))), defined, owner)",
       "pass"))
_rule(EXPLORER, "a note of the owner stream is ignored", "S64", "NoteUse", "record_stream_of_the_owner",
      (MEMORY + "note_use", "if used != owner and used not in uses:",
       "if used not in uses:"))
_rule(EXPLORER, "the end of the turn lets go", "S65", "Drop Alloc", "scope_ends_with_the_turn",
      (SEARCH + "_end", "self.rules[t].loose(s, s.locals[t])  # the turn's scope ends",
       "pass"))
_rule(EXPLORER, "give -> the take of that token", "theory 2", "Give", "pages_are_exclusive; rows_come_back",
      (MEMORY + "give", "s.tb[t] | ((after(s) & BIT) if after is not None else 0)",
       "((after(s) & BIT) if after is not None else 0)"))
_rule(EXPLORER, "give(after): captured work -> the take", "theory 2", "Give", "rows_come_back_behind_an_event",
      (MEMORY + "give", "s.tb[t] | ((after(s) & BIT) if after is not None else 0)",
       "s.tb[t]"))
_rule(EXPLORER, "the take of a token comes after its give", "theory 2", "Take", "pages_are_exclusive; rows_come_back",
      (MEMORY + "take", "n.tb[t] |= guessed",
       "pass"))
_rule(EXPLORER, "another free token carries what its giver knew", "theory 2", "Take", "pool_as_a_lock",
      (MEMORY + "take", "n.tb[t] |= BIT",
       "pass"))
_rule(EXPLORER, "a token has one holder", "theory 2", "Take", "pages_are_exclusive; rows_come_back",
      (MEMORY + "take", "(zeros, ones, 2)",
       "(zeros, ones, guessed)"))
_rule(EXPLORER, "a pool has so many tokens", "theory 2", "Take", "one_row",
      (LAYOUT + "start", "(o.size - 1, 0, 0) if tracked",
       "(o.size, 0, 0) if tracked"))
_rule(EXPLORER, "parts of other names are disjoint", "theory 1", "Touch Enqueue", "named_parts; written_elsewhere",
      (MEMORY + "_part", "(lambda s: 0) if part.name == atom[1] else None",
       "(lambda s: 0)"))
_rule(EXPLORER, "spans without a common element are disjoint", "theory 1", "Touch Enqueue", "spans",
      (MEMORY + "_part", "(lambda s: 0) if part.start <= lo and hi <= part.stop and lo < hi else None",
       "(lambda s: 0)"))
_rule(EXPLORER, "rows of other tokens are disjoint", "theory 1", "Take Touch", "rows_come_back_too_early; rows_come_back",
      (MEMORY + "_part", "lambda s: 0 if s.locals[t][local] else None",
       "lambda s: 0"))
_rule(EXPLORER, "rows of other indices are disjoint", "theory 1", "Touch Enqueue", "rows_by_index",
      (MEMORY + "_part", 'if kind == "index" and info.kind == p.INDEX and info.depth == atom[1]:',
       "if False:"))
_rule(EXPLORER, "an unknown part meets every other", "theory 1", "Touch Enqueue", "any_part",
      (MEMORY + "_part", "return lambda s: whole",
       "return None if isinstance(part, p.Anything) else (lambda s: whole)"))
_rule(EXPLORER, "a raw pointer is no reference", "S65", "View", "raw_pointer",
      (MEMORY + "view", "if value.__class__ is Tenant and held:",
       "if value.__class__ is Tenant:"))

# ---- two owners of one block

_rule(EXPLORER, "parts of two owners of a block tell nothing of each other", "S70", "Touch Enqueue", "names_of_two_owners; second_half_of_a_block",
      ("fencepost.proofs.explore.memory:_of_block", "return ELSEWHERE if found is None else found",
       "return found"))
_rule(EXPLORER, "parts of one owner of a block do", "theory 1", "Touch Enqueue", "names_of_one_owner",
      (MEMORY + "_judge", "or not s.block[3] & OTHERS):",
       "):"))
_rule(EXPLORER, "a smaller owner may get any part of a block", "S70", "Alloc", "second_half_of_a_block",
      (MEMORY + "alloc", "(behind and s.witness is None)",
       "behind"))
