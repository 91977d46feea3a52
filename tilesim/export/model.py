"""What the processes of a model share: where barriers are, what is in flight, and the prelude.

Barriers behave as in SEMANTICS A.3 (mbarriers), D.1 (cluster barrier), E.1 (named barriers) and
E.3 (the register pool). A broken rule is a violated assertion, a deadlock an invalid end state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import gcd

from tilesim.export.values import Runtime
from tilesim.ir.addresses import bases
from tilesim.ir.declarations import Mbarriers
from tilesim.ir.ops.mbarrier import MAX_COUNT
from tilesim.ir.program import Program
from tilesim.records import dataclass, field
from tilesim.sim.machine.cta import cluster_ctas
from tilesim.sim.machine.register_pool import PARTITIONS

#: ids of named barriers (E1)
NAMED = 16


@dataclass(frozen=True)
class Flight:
    """Asynchronous operations on one mbarrier array that are alike: ``bytes`` or ``arrivals``.

    Which of several copies of one size completes first cannot be told apart, so they are counted.
    """

    array: Mbarriers
    bytes: str = ""
    arrivals: int = 0


@dataclass
class Model:
    """One cluster of a program; processes note here what they use."""

    program: Program
    cluster: int
    tokens: bool = False
    counts: set[int] = field(default_factory=lambda: {1})
    #: arrival counts may be something else than ``counts``
    open_counts: bool = False
    sizes: set[int] = field(default_factory=set)
    #: byte counts may be something else than ``sizes``
    open_sizes: bool = False
    named: set[int] = field(default_factory=set)
    uses_cluster: bool = False
    uses_pool: bool = False
    flights: dict[Flight, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ctas = cluster_ctas(self.program, self.cluster)
        self.arrays = [s for s in self.program.shared if isinstance(s, Mbarriers)]
        placement = self.program.placement
        addresses = sorted({placement[a.name] + 8 * i for a in self.arrays for i in range(a.count)})
        #: mbarriers of one CTA; arrays that overlap share some
        self.mbarriers = len(addresses)
        self.first = {a.name: addresses.index(placement[a.name]) for a in self.arrays if a.count}
        self._at: dict[int, Mbarriers] = {}
        self._near = frozenset(s.name for s in self.program.shared)

    def mbarrier_at(self, place: int) -> Mbarriers:
        """The mbarrier of a CTA at an address, as an array of its own."""
        found = self._at.get(place)
        if found is None:
            below = [(at, name) for name, at in bases(self.program).items()
                     if at <= place and name in self._near]  # fmt: skip
            at, name = max(below, default=(0, "shared"))
            plain = re.sub(r"\W", "_", name)
            found = self._at[place] = Mbarriers(f"{plain}_{place - at}")
            self.arrays.append(found)
            self.first[found.name] = self.mbarriers
            self.mbarriers += 1
        return found

    @property
    def all_warps(self) -> str:
        """The mask of all warps of a CTA."""
        return "(-1)" if self.program.warps == 32 else str((1 << self.program.warps) - 1)

    def mbarrier(self, array: Mbarriers, index: str, rank: str) -> str:
        """The number of a barrier in the model's arrays."""
        return _sum(_times(rank, "MBARRIERS"), f"M_{array.name}", index)

    def named_barrier(self, number: str, rank: int) -> str:
        """The number of a named barrier in the model's arrays."""
        return _sum(_times(str(rank), "NAMED"), number)

    def entry(self, flight: Flight, index: str, rank: str) -> str:
        """What counts the operations in flight on one mbarrier."""
        first = _times(rank, str(flight.array.count))
        return f"{self.flight(flight)}[{_sum(first, index)}]"

    def note_count(self, count: Runtime) -> None:
        """An mbarrier is initialised with this arrival count."""
        if count.range[0] == count.range[1]:
            self.counts.add(count.range[0])
        else:
            self.open_counts = True

    def flight(self, flight: Flight) -> str:
        """The array that counts such operations: per CTA, one entry per mbarrier of the array."""
        name = f"flying_{len(self.flights)}_{flight.array.name}"
        return self.flights.setdefault(flight, name)

    # ------------------------------------------------------------------ text

    def prelude(self) -> Iterator[str]:
        """Declarations and transitions, for what the processes use."""
        yield from self._constants()
        yield f"{self._mask} exited[CTAS];  /* warps, as a mask per CTA */"
        yield "hidden int at;  /* the barrier of the current step */"
        yield from _RUNNING
        if self.mbarriers:
            yield from self._mbarriers()
        if self.named:
            yield from self._named()
        if self.uses_cluster:
            yield from _CLUSTER
        if self.uses_pool:
            pools = f"int pool[{PARTITIONS} * CTAS]"
            yield f"{pools};  /* registers given back and not yet taken (E14) */"
        yield from self._leave()

    @property
    def _mask(self) -> str:
        warps = self.program.warps
        return "byte" if warps <= 8 else "short" if warps <= 15 else "int"

    def _constants(self) -> Iterator[str]:
        yield f"#define CTAS {len(self.ctas)}"
        yield f"#define WARPS {self.program.warps}"
        yield f"#define EVERYONE {self.all_warps}"
        if self.mbarriers:
            yield f"#define MBARRIERS {self.mbarriers}  /* of one CTA */"
        for array in self.arrays:
            yield f"#define M_{array.name} {self.first[array.name]}"
        unit = self._unit
        yield f"#define UNIT {unit}  /* bytes are counted in this unit */"
        yield f"#define MOST {MAX_COUNT // unit}  /* largest tx-count (A3) */"
        if self.named:
            yield f"#define NAMED {max(self.named) + 1}  /* named barriers of one CTA */"

    @property
    def _unit(self) -> int:
        return 1 if self.open_sizes else gcd(*self.sizes) or 1

    def _mbarriers(self) -> Iterator[str]:
        most = max(self.counts)
        count = "int" if self.open_counts or most > 32767 else "short" if most > 255 else "byte"
        tx = "int" if MAX_COUNT // self._unit > 32767 else "short"
        yield "bit live[CTAS * MBARRIERS];"
        if self.tokens:
            yield "int phase[CTAS * MBARRIERS];"
            yield "#define NEXT(p) (p + 1)"
        else:
            yield "bit phase[CTAS * MBARRIERS];  /* its parity */"
            yield "#define NEXT(p) (1 - p)"
        yield f"{count} expected[CTAS * MBARRIERS];"
        yield f"{count} pending[CTAS * MBARRIERS];"
        yield f"{tx} tx[CTAS * MBARRIERS];"
        yield from _MBARRIER
        for flight, name in self.flights.items():
            what = f"copies of {flight.bytes} bytes" if flight.bytes else "arrivals"
            yield f"short {name}[CTAS * {flight.array.count}];  /* {what} in flight */"

    def _named(self) -> Iterator[str]:
        yield f"{self._mask} joined[CTAS * NAMED];  /* warps in the open round, as a mask */"
        yield f"{self._mask} parked[CTAS * NAMED];  /* those that wait for its end */"
        yield "byte arrived[CTAS * NAMED];"
        yield "byte wanted[CTAS * NAMED];  /* warps of the round */"
        yield "bit whole[CTAS * NAMED];  /* the round is of all warps that have not exited */"
        yield "bit reduces[CTAS * NAMED];"
        yield from _NAMED

    def _leave(self) -> Iterator[str]:
        yield ""
        yield "/* a warp exits: rounds of all live warps may complete (E9, D5) */"
        yield "inline leave(cta, me) {"
        yield "  exited[cta] = exited[cta] | me;"
        for number in sorted(self.named):
            yield f"  settle({_sum('cta * NAMED', str(number))}, cta);"
        if self.uses_cluster:
            yield "  settle_cluster();"
        yield "  skip"
        yield "}"

    def engine(self) -> Iterator[str]:
        """The process that completes asynchronous operations, at any later time in any order."""
        if not self.flights:
            return
        yield "active proctype engine() {"
        yield "end:"
        yield "  do"
        for flight, name in self.flights.items():
            for rank in range(len(self.ctas)):
                for i in range(flight.array.count):
                    entry = f"{name}[{rank * flight.array.count + i}]"
                    b = rank * self.mbarriers + self.first[flight.array.name] + i
                    credit = f"credit({b}, {flight.arrivals}, 0)"
                    if flight.bytes:
                        credit = f"running({rank}); credit({b}, 0, -({flight.bytes}))"
                    yield f"  :: d_step {{ {entry} > 0 -> {entry} = {entry} - 1;"
                    yield f"       {credit} }}"
        yield "  od"
        yield "}"


def _times(rank: str, size: str) -> str:
    return "0" if rank == "0" else f"{rank} * {size}"


def _sum(*parts: str) -> str:
    return " + ".join(part for part in parts if part != "0") or "0"


_RUNNING = """
/* shared memory ends with its CTA (A8, D9) */
inline running(cta) { assert(exited[cta] != EVERYONE) }
""".splitlines()

_MBARRIER = """
/* A.3: ends the phase if nothing is pending */
inline complete(m) {
  if
  :: pending[m] == 0 && tx[m] == 0 -> phase[m] = NEXT(phase[m]); pending[m] = expected[m]
  :: else
  fi
}

/* A.3: arrivals and bytes in one step; A13: no more arrivals than the phase has pending; U6: none
   of anything once all threads have dropped */
inline credit(b, arrivals, bytes) {
  assert(live[b]);
  assert(arrivals <= pending[b] && (pending[b] > 0 || tx[b] != 0));
  assert(tx[b] + bytes <= MOST && tx[b] + bytes >= -MOST);
  pending[b] = pending[b] - arrivals;
  tx[b] = tx[b] + bytes;
  complete(b)
}

/* A16: later phases expect fewer arrivals */
inline drop(d, arrivals) {
  assert(live[d] && arrivals <= pending[d] && arrivals <= expected[d]);
  expected[d] = expected[d] - arrivals
}

/* A5, A6 */
inline initialise(b, count) {
  assert(!live[b] && count >= 1);
  live[b] = 1; phase[b] = 0; expected[b] = count; pending[b] = count; tx[b] = 0
}

inline invalidate(b) {
  assert(live[b]);
  live[b] = 0; phase[b] = 0; expected[b] = 0; pending[b] = 0; tx[b] = 0
}
""".splitlines()

_NAMED = """
/* E2, E9: ends the round if all have joined */
inline settle(m, cta) {
  if
  :: arrived[m] > 0 && (whole[m] -> (joined[m] | exited[cta]) == EVERYONE
                                  : arrived[m] >= wanted[m]) ->
       joined[m] = 0; parked[m] = 0; arrived[m] = 0; wanted[m] = 0; whole[m] = 0; reduces[m] = 0
  :: else
  fi
}

/* E5 to E7: a warp joins once per round; all with the same count; red is not mixed with others */
inline join(b, c, me, count, all, reduction, waits) {
  assert(!(joined[b] & me));
  assert(joined[b] == 0 || (wanted[b] == count && reduces[b] == reduction));
  joined[b] = joined[b] | me; arrived[b] = arrived[b] + 1;
  wanted[b] = count; whole[b] = all; reduces[b] = reduction;
  if
  :: waits -> parked[b] = parked[b] | me
  :: else
  fi;
  settle(b, c)
}
""".splitlines()

_CLUSTER = """
/* D2: per warp 0, 1 (it has arrived) or 2 (the round is complete, it has not waited yet) */
byte round[CTAS * WARPS];
hidden int i;
hidden byte missing;

inline settle_cluster() {
  missing = 0;
  i = 0;
  do
  :: i < CTAS * WARPS ->
       if
       :: round[i] != 1 && !((exited[i / WARPS] >> (i % WARPS)) & 1) -> missing = 1
       :: else
       fi;
       i = i + 1
  :: else -> break
  od;
  i = 0;
  do
  :: i < CTAS * WARPS ->
       if
       :: !missing && round[i] == 1 -> round[i] = 2
       :: else
       fi;
       i = i + 1
  :: else -> break
  od
}
""".splitlines()
