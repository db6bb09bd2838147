"""The caching allocator of PyTorch's CUDA back end, one event at a time.

Follows the rules of c10/cuda/CUDACachingAllocator.cpp (v2.4 to v2.13): rounding, pools by stream and kind, best fit,
splitting, merging, record_stream, release and retry, garbage collection, oversize blocks, expandable segments.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from trainledger.allocator.blocks import BITS, Block, Pool, SizePlan
from trainledger.allocator.conf import DEFAULT, Conf
from trainledger.allocator.device import Device
from trainledger.allocator.expandable import best_expandable, map_pages
from trainledger.allocator.release import collect, release_cached, release_oversize
from trainledger.allocator.stream import Kind, Stream, StreamError
from trainledger.facts.allocator import CUDA


class Simulator:
    """The allocator's state (bytes; `at`: events seen). `capacity`: what segments may take of the device (None: all
    they want). `total`: the whole device, of which per_process_memory_fraction is a part (None: `capacity`).

    After each event `allocated` <= `active` <= `reserved` hold what PyTorch's counters of these names say. An
    accumulator: its methods change it in place.
    """

    __slots__ = (
        "active", "allocated", "at", "blocks", "conf", "device", "events", "large", "peak_active", "peak_allocated",
        "peak_allocated_at", "peak_reserved", "peak_reserved_allocated", "peak_reserved_at", "plain", "plans", "ready",
        "rules", "small", "ticks",
    )  # fmt: skip

    def __init__(self, conf: Conf = DEFAULT, capacity: int | None = None, total: int | None = None) -> None:
        self.conf = conf
        self.rules = CUDA
        self.device = Device(conf, capacity, total)
        self.plain = not (conf.expandable or conf.max_split is not None or conf.collect)
        self.plans: dict[int, SizePlan] = {}
        self.small: dict[int, Pool] = {}
        self.large: dict[int, Pool] = {}
        self.blocks: dict[int, Block] = {}
        self.events: dict[int, list[Block]] = {}
        self.ready: list[Block] = []
        self.ticks = 0  # searches of the large pool
        self.at = self.allocated = self.active = 0
        self.peak_allocated = self.peak_active = self.peak_reserved = 0
        self.peak_allocated_at = self.peak_reserved_at = self.peak_reserved_allocated = 0

    @property
    def reserved(self) -> int:
        """Bytes taken from the device."""
        return self.device.reserved

    def run(self, stream: Stream, start: int = 0, stop: int | None = None) -> bool:
        """Events `start` to `stop` of a stream; False when the device is full: `at` is then the event that failed.

        Raises StreamError at an event that no program could have made.
        """
        part = slice(start, stop)
        self.at = start
        alloc, free, kind_alloc, kind_free = self.alloc, self.free, int(Kind.ALLOC), int(Kind.FREE)
        try:
            for kind, ident, size, where in zip(
                stream.kinds[part], stream.idents[part], stream.sizes[part], stream.streams[part], strict=True
            ):
                if kind == kind_alloc:
                    if not alloc(ident, size, where):
                        return False
                elif kind == kind_free:
                    free(ident)
                else:
                    self._other(kind, ident, where)
                self.at += 1
        except KeyError as error:
            raise StreamError(f"event {self.at}: tensor {error} is not live") from None
        return True

    def step(self, kind: int, ident: int, size: int, stream: int) -> bool:
        """One event of a stream; False when the device is full. Raises StreamError, and KeyError as `free` does."""
        if kind == Kind.ALLOC:
            if not self.alloc(ident, size, stream):
                return False
        elif kind == Kind.FREE:
            self.free(ident)
        else:
            self._other(kind, ident, stream)
        self.at += 1
        return True

    def pool(self, stream: int, small: bool) -> Pool:
        """The pool of a stream and kind, made when it is first asked for."""
        pools = self.small if small else self.large
        if stream not in pools:
            pools[stream] = Pool(stream, small, self.rules.small_segment if small else self.conf.shared)
        return pools[stream]

    def alloc(self, ident: int, size: int, stream: int = 0) -> bool:
        """A request of `size` > 0 bytes on a stream; False when the device is full. Raises StreamError."""
        plan = self.plans.get(size) or self.plan(size)
        pool = (self.small if plan.small else self.large).get(stream) or self.pool(stream, plan.small)
        if self.ready:
            self._settle()
        at = bisect_left(pool.keys, plan.key) if self.plain else len(pool.keys)
        block: Block | None
        if at < len(pool.keys):
            block = pool.by_key.pop(pool.keys.pop(at))
            block.free = False
        else:
            block = self.opened(plan, pool)
        if block is None:
            return False
        if block.size - plan.block > plan.keep:
            self.split(block, plan.block)
        if self.blocks.setdefault(ident, block) is not block:
            raise StreamError(f"event {self.at}: tensor {ident} is live already")
        self.active += block.size
        self.allocated += block.size
        if self.active > self.peak_active:
            self.peak_active = self.active
        if self.allocated > self.peak_allocated:
            self.peak_allocated, self.peak_allocated_at = self.allocated, self.at
        if self.device.reserved > self.peak_reserved:
            self.peak_reserved, self.peak_reserved_at = self.device.reserved, self.at
            self.peak_reserved_allocated = self.allocated
        return True

    def free(self, ident: int) -> None:
        """The tensor's block is free, or waits for the streams that it was recorded on. Raises KeyError."""
        block = self.blocks.pop(ident)
        self.allocated -= block.size
        if block.uses:
            block.pending = len(block.uses)
            for stream in block.uses:
                self.events.setdefault(stream, []).append(block)
            block.uses = None
        else:
            self.give_back(block)

    def give_back(self, block: Block) -> None:
        """A block goes back into its pool, merged with free neighbours."""
        size, pool = block.size, block.pool
        keys, by_key = pool.keys, pool.by_key
        self.active -= size
        before, after = block.prev, block.next
        if before is not None and before.free:
            key = before.size << BITS | before.address
            del keys[bisect_left(keys, key)], by_key[key]
            block.address = before.address
            size += before.size
            block.prev = before.prev
            if before.prev is not None:
                before.prev.next = block
        if after is not None and after.free:
            key = after.size << BITS | after.address
            del keys[bisect_left(keys, key)], by_key[key]
            size += after.size
            block.next = after.next
            if after.next is not None:
                after.next.prev = block
        block.size, block.base, block.free = size, self.ticks, True
        key = size << BITS | block.address
        insort(keys, key)
        by_key[key] = block

    def record(self, ident: int, stream: int) -> None:
        """record_stream. Raises KeyError."""
        block = self.blocks[ident]
        if stream != block.pool.stream:
            block.uses = (block.uses or set()) | {stream}

    def done(self, stream: int) -> None:
        """All events recorded on a stream have completed; the next request notices."""
        for block in self.events.pop(stream, ()):
            block.pending -= 1
            if not block.pending:
                self.ready.append(block)

    def synchronize(self) -> None:
        """Wait for all streams and take back what waited for them."""
        for stream in list(self.events):
            self.done(stream)
        self._settle()

    def empty(self) -> None:
        """empty_cache: what is free as a whole segment (or page) goes back to the device."""
        release_cached(self)

    def _other(self, kind: int, ident: int, stream: int) -> None:
        if kind == Kind.RECORD:
            self.record(ident, stream)
        elif kind == Kind.DONE:
            self.done(stream)
        elif kind == Kind.EMPTY:
            self.empty()
        else:
            raise StreamError(f"event {self.at}: {kind} is no kind of event")

    def _settle(self) -> None:
        for block in self.ready:
            self.give_back(block)
        self.ready.clear()

    def plan(self, size: int) -> SizePlan:
        """What a request of `size` > 0 bytes leads to. Raises StreamError."""
        if size <= 0:
            raise StreamError(f"event {self.at}: a request of {size} bytes")
        rules, conf = self.rules, self.conf
        block = conf.rounded(size, rules)
        small = block <= rules.small
        shared = conf.shared if block < rules.own else rules.opened(block)
        opened = rules.small_segment if small else shared
        limit, keep = None, rules.granule - 1 if small or conf.expandable else rules.remainder
        if conf.max_split is not None:
            whole = block >= conf.max_split
            limit = block + conf.rounding if whole else conf.max_split
            keep = block + opened + conf.rounding if whole and not (small or conf.expandable) else keep
        plan = self.plans[size] = SizePlan(block, block << BITS, keep, opened, small, limit)
        return plan

    def opened(self, plan: SizePlan, pool: Pool) -> Block | None:
        """A free block that is found by more than its size, else one of memory that is new from the device; None: full.
        Where size alone decides (`plain`), none of the pool's is large enough."""
        return (None if self.plain else self._search(plan, pool)) or self._new(plan, pool)

    def _search(self, plan: SizePlan, pool: Pool) -> Block | None:
        """A free block, by the rules for oversize blocks and expandable segments."""
        self.ticks += not plan.small
        at = bisect_left(pool.keys, plan.key)
        if at == len(pool.keys):
            return None
        block = best_expandable(pool, at) if self.conf.expandable else pool.by_key[pool.keys[at]]
        if plan.limit is not None and block.size >= plan.limit:
            return None
        pool.take(block)
        return block

    def _new(self, plan: SizePlan, pool: Pool) -> Block | None:
        """A block of memory that is new from the device, after giving some back if need be; None when it is full."""
        if self.conf.collect:
            collect(self)
        block = self._take(plan, pool)
        if block is None and self.conf.max_split is not None and release_oversize(self, plan, pool):
            block = self._take(plan, pool)
        if block is None:
            self.device.retries += 1
            release_cached(self)
            block = self._take(plan, pool)
        return block

    def _take(self, plan: SizePlan, pool: Pool) -> Block | None:
        if self.conf.expandable:
            return map_pages(self.device, pool, plan) if self.device.allows(plan.opened) else None
        if not self.device.allows(plan.opened) or not self.device.take(plan.opened):
            return None
        self.device.segments += 1
        return Block(self.device.place(plan.opened), plan.opened, pool)

    def split(self, block: Block, size: int) -> None:
        """The front of a block is used, the rest stays free."""
        address, left, pool = block.address + size, block.size - size, block.pool
        rest = Block(address, left, pool)
        after = block.next
        rest.prev, rest.next = block, after
        if after is not None:
            after.prev = rest
        block.next, block.size = rest, size
        rest.base, rest.free = self.ticks, True
        key = left << BITS | address
        insort(pool.keys, key)
        pool.by_key[key] = rest
