"""Random programs whose turns store to global memory, and read it."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tilesim import Builder, s32
from tilesim.ir.declarations import GlobalTensor, SharedTensor, TensorMap, ds
from tilesim.ir.expr import Expr, as_expr
from tilesim.ir.program import Program

#: elements that one access touches
_WIDE = 32


def stores(draw: random.Random) -> Program:
    """A grid of CTAs, whose warps store along a tensor, turn by turn, in one or two loops."""
    ctas = draw.choice([1, 1, 1, 2, 70])
    loops = draw.choice([(1, 90), (1, 70), (12, 9), (6, 20), (30, 3)])
    trips = loops[0] * loops[1]
    room = trips * draw.choice([2, 2, 2, 1]) + draw.choice([0, 0, 0, 0, 1, -1])
    k = Builder("stores", warps=2)
    k.launch(grid=ctas)
    out = k.tensor("out", s32, (ctas * room * 2 + trips * 3, _WIDE))
    boxes = k.tensor_map(out, (1, _WIDE))
    buffer = k.shared("buffer", s32, (2, _WIDE))
    k.mem.store(buffer[k.warp_id, k.lane_id], 1)
    k.fence.proxy_async("shared::cta")
    k.sync_warp()
    for warp in range(draw.choice([1, 2, 2])):
        first = draw.choice([0, ctas * room, ctas * room]) if warp else 0
        body = _Body.drawn(draw, trips, first, room, warp)
        with k.role(f"warp{warp}", warp):
            with k.loop(loops[0], name="tile") as o, k.loop(loops[1], name="part") as i:
                body.act(k, out, boxes, buffer, o * loops[1] + i)
            with k.elected():
                k.bulk.wait_group(0)
    if draw.randrange(3):
        k.sync_threads()
    if not draw.randrange(3):
        with k.role("reader", 1):
            value = k.var("found", 0)
            k.mem.load(value, out[k.cta_x * room + draw.randrange(trips), k.lane_id])
    elif not draw.randrange(3):
        with k.role("writer", 1):
            k.mem.store(out[k.cta_x * room + draw.randrange(trips), k.lane_id], 1)
    return k.finish()


@dataclass(frozen=True)
class _Body:
    """What one turn of ``trips`` does: how, and where."""

    how: str
    place: str
    few: int
    only: int | None
    value: str
    synced: bool
    trips: int
    first: int
    room: int
    warp: int

    @classmethod
    def drawn(cls, draw: random.Random, trips: int, first: int, room: int, warp: int) -> _Body:
        """A random one."""
        return cls(
            draw.choice(["store", "store", "bulk", "tensor", "read"]),
            draw.choice(["i", "i", "i", "reversed", "wrapped", "halved", "mixed", "mixed", "far"]),
            draw.choice([3, 8, 16, 64]), draw.choice([None] * 5 + [draw.randrange(trips)]),
            draw.choice(["1", "1", "i", "i*lane"]), bool(draw.randrange(4)), trips, first,
            room, warp,
        )  # fmt: skip

    def act(
        self, k: Builder, out: GlobalTensor, boxes: TensorMap, buffer: SharedTensor, i: Expr
    ) -> None:
        """Turn ``i``."""
        at = k.cta_x * self.room + self.first + self._index(i)
        if self.only is not None:
            with k.if_(i.eq(self.only)):
                k.mem.store(out[at + 1, k.lane_id], 2)
        if self.how == "store":
            values = {"1": as_expr(1), "i": i, "i*lane": i * k.lane_id}
            k.mem.store(out[at, k.lane_id], values[self.value])
        elif self.how == "read":
            value = k.var(f"value{self.warp}", 0)
            k.mem.load(value, out[at, k.lane_id])
        else:
            with k.elected():
                if self.how == "bulk":
                    k.bulk.store(out[at], buffer[k.warp_id])
                else:
                    k.tma.store(boxes, buffer[ds(k.warp_id, 1)], (at, 0))
                k.bulk.commit_group()
                k.bulk.wait_group(1, read=True)
        if self.synced:
            k.bar.sync(1 + k.warp_id, 32)

    def _index(self, i: Expr) -> Expr:
        match self.place:
            case "reversed":
                return self.trips - 1 - i
            case "wrapped":
                return i % self.few
            case "halved":
                return i // 2
            case "mixed":
                return i % self.few * (self.trips // self.few) + i // self.few
            case "far":
                return i * 2
            case _:
                return i
