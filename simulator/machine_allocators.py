"""The caching allocators of the machine: blocks with one tenant after another (S62-S67, S70, S79-S82).

Device blocks belong to the stream that was current at their first allocation; a freed one is offered to allocations on
that stream only. Pinned blocks are offered to everybody in the process. A block whose streams were noted (`record_stream`, copy_ with
non_blocking) is marked on each of them when it is freed, and offered once the marks are set, which is looked at in
later allocations: oldest first, for pinned memory not beyond the first block that is still in use (S81).

Which free block an allocation gets is the chooser's. `allocator` says among which: "any" (a block that was freed may
always come back: sizes and neighbours depend on what else the process does), "sized" (device: the smallest that is large
enough comes first; pinned: powers of two), "split" (any, and a device block may be split and is merged again, S70).
"""

from __future__ import annotations

from typing import Any

from fencepost.model import program as p
from fencepost.simulator.machine_memory import Buffer
from fencepost.simulator.machine_state import Block, HostThread, Mark, Ref, Stream, Tenant, Value


class Allocators:
    """Allocator half of `Machine`, with the references that keep blocks alive."""

    chooser: Any
    recorder: Any
    step: int
    hardware: Any
    program: p.Program
    block: int | None
    """Label of the block or token that the current step got."""

    def _reset_allocators(self) -> None:
        self.labels = 0
        self.serials = 0
        self.free_blocks: dict[Any, list[Block]] = {}
        self.used_blocks: dict[str, list[tuple[Block, list[Mark]]]] = {"device": [], "pinned": []}

    def mark(self, stream: Stream) -> Mark:
        """A mark at the tail of a stream (provided by the device)."""
        raise NotImplementedError

    def allocate(self, th: HostThread, space: str, owner: Stream | None, size: int, name: str) -> Ref:
        """A block for one tensor; its content is whatever was there (undefined in the reference)."""
        process = self.program.threads[th.index].process
        home = process if owner is None else owner
        self._poll(space, home)
        free = self.free_blocks.get((space, home), [])
        block: Block | None = None
        if free:
            options: list[Block | None] = [*reversed(free), None]  # S82: the one freed last comes first
            if self.hardware.allocator == "sized":
                options = [*_fitting(free, space, size), None]
            elif self.hardware.allocator == "split" and space == "device":
                options[-1:] = [b.piece(b.start, (b.start + b.stop) // 2) for b in free if b.stop - b.start > 1]
                options.append(None)
            which = self.chooser.block(th, th.node.index, options) if len(options) > 1 else 0
            if len(options) > 1:
                self.recorder.blocks.append(which)
            block = options[which]
        if block is None:
            block = Block(self.labels, space, home, _rounded(space, size))
            self.labels += 1
        elif block in free:
            free.remove(block)
        else:
            whole = next(b for b in free if b.buffer is block.buffer and b.start == block.start)
            free[free.index(whole)] = whole.piece(block.stop, whole.stop)
        self.serials += 1
        self.block = block.label
        tenant = Tenant(self.serials, name, block, process)
        return Ref(block.buffer, Buffer(name), name, space, tenant.serial, block.path, tenant)

    def _free(self, block: Block) -> None:
        """A block may be handed out again, merged with free neighbours (S70)."""
        free = self.free_blocks.setdefault((block.space, block.owner), [])
        if self.hardware.allocator == "split":
            for other in [b for b in free if b.buffer is block.buffer]:
                if other.stop == block.start or block.stop == other.start:
                    free.remove(other)
                    size = block.size + other.size
                    block = block.piece(min(block.start, other.start), max(block.stop, other.stop))
                    block.size = size
        free.append(block)

    def _poll(self, space: str, home: Stream | str) -> None:
        """Blocks that wait for their streams and whose marks are set become free (S67, S81)."""
        used = self.used_blocks[space]
        if not used:
            return
        left: list[tuple[Block, list[Mark]]] = []
        stop = False
        for block, marks in used:
            if space == "pinned" and block.owner != home:
                left.append((block, marks))  # of another process's allocator
            elif stop or not all(mark.done for mark in marks):
                left.append((block, marks))
                stop = stop or space == "pinned"
            else:
                self._free(block)
        self.used_blocks[space] = left

    def note(self, ref: Ref, stream: Stream) -> None:
        """The allocator learns that a stream uses the block; not for its own stream (S64) or foreign memory (S72)."""
        tenant = ref.tenant
        if tenant is not None and ref.counted and tenant.block.owner is not stream and stream not in tenant.noted:
            tenant.noted.append(stream)

    # ------------------------------------------------------------ references

    def hold(self, value: Value) -> None:
        """One more reference."""
        if isinstance(value, Ref) and value.tenant is not None and value.counted:
            value.tenant.refs += 1

    def let_die(self, value: Value | None) -> None:
        """A reference ends; the last one frees the block (S63, S65, S80)."""
        if not isinstance(value, Ref):
            return
        tenant = value.tenant
        if tenant is None or not value.counted:
            return
        tenant.refs -= 1
        if tenant.refs:
            return
        block = tenant.block
        if tenant.noted:
            self.used_blocks[block.space].append((block, [self.mark(stream) for stream in tenant.noted]))
        else:
            self._free(block)

    def bind(self, th: HostThread, local: int, value: Value) -> None:
        """A local names a value whose reference it takes over; what it named before loses one."""
        old = th.locals[local]
        th.locals[local] = value
        if old is not None:
            self.let_die(old)


def _rounded(space: str, size: int) -> int:
    """What an allocator makes of a size: multiples of 512 bytes on the device, powers of two on the host (S82)."""
    return -(-size // 512) * 512 if space == "device" else 1 << max(0, size - 1).bit_length()


def _fitting(free: list[Block], space: str, size: int) -> list[Block]:
    """The free blocks that an allocation of that size may get, the allocator's own choice first."""
    wanted = _rounded(space, size)
    if space == "pinned":
        return [block for block in reversed(free) if block.size == wanted]
    return sorted((block for block in free if block.size >= wanted), key=lambda block: block.size)
