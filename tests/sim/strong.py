"""Scopes, flags, reductions and remote stores in the reference model (SEMANTICS D11 to D13, H)."""

from __future__ import annotations

from functools import reduce
from operator import or_

from tests.sim import steps as s
from tests.sim.code import Line
from tests.sim.model import Core, mutual
from tests.sim.states import Flag, Flight, Next, Strong

_SCOPES: tuple[s.Scope, ...] = ("cta", "cluster", "gpu", "sys")


class Memory(Core):
    """Loads, stores and reductions; flags with what is released through them."""

    def begin_strong(self) -> Strong | None:
        """All flags are 0 and no fence was executed; None where there are no flags."""
        if not self.program.flags:
            return None
        n = len(self.program.warps)
        flags = (Flag(),) * (self.program.flags * self.program.ctas)
        return Strong(flags, ((0, 0),) * n, ((0, 0),) * n, ((),) * n)

    def read(self, n: Next, warp: int, line: Line, known: int) -> None:
        """Conflicts with writes."""
        step = line.step
        assert isinstance(step, s.Read)
        cta = self.reach(n, warp, step.cta)
        self._touch(n, warp, line, self.code.writes[cta][step.word], known)

    def write(self, n: Next, warp: int, line: Line, known: int) -> None:
        """Conflicts with everything."""
        step = line.step
        assert isinstance(step, (s.Write, s.Red))
        cta = self.reach(n, warp, step.cta)
        writes, reads = self.code.writes[cta][step.word], self.code.reads[cta][step.word]
        conflicts = self.overwrites(writes, reads, known)
        self._touch(n, warp, line, conflicts, known)

    def _touch(self, n: Next, warp: int, line: Line, conflicts: int, known: int) -> None:
        self.clash(conflicts, n.done, known, line.events[0])
        n.done |= line.events[0]
        n.knows[warp] |= line.events[0]

    # ------------------------------------------------------------------ flags

    def _flag(self, n: Next, warp: int, line: Line, *, writes: bool) -> int:
        """The place of a flag, after the check for races."""
        step = line.step
        assert isinstance(step, (s.Set, s.Add, s.Spin))
        cta = self.reach(n, warp, step.cta)
        conflicts = self.code.flag_writes[cta][step.flag]
        if writes:
            conflicts |= self.code.flag_reads[cta][step.flag]
        self._touch(n, warp, line, conflicts, n.knows[warp])
        return cta * self.program.flags + step.flag

    def raise_flag(self, n: Next, warp: int, line: Line, known: int) -> None:
        """A store ends what was released before; an RMW continues it (H4)."""
        step = line.step
        assert isinstance(step, (s.Set, s.Add))
        place = self._flag(n, warp, line, writes=True)
        assert n.strong is not None
        old, cta = n.strong.flags[place], self.code.cta[warp]
        sent: dict[tuple[str, int], int] = {}
        value = step.value if isinstance(step, s.Set) else old.value + 1
        if isinstance(step, s.Add):
            sent = {(scope, origin): bits for scope, origin, bits in old.sent}
        wide = step.scope if step.scope != "cta" else "gpu"
        fenced = n.strong.fenced[warp]
        released = (
            {(step.scope, cta): n.knows[warp]} if step.release
            # a relaxed operation after a fence: the narrower of the two scopes counts (H3)
            else {("cta", cta): fenced[0] | fenced[1], (wide, cta): fenced[1]}
            if step.scope != "cta" else {("cta", cta): fenced[0] | fenced[1]}
        )  # fmt: skip
        told = n.strong.told[warp]
        if step.release:
            told = tuple(sorted({*told, (place, step.scope, n.knows[warp])}))
        # and what the warp has released at the same place before
        again = [((min(scope, step.scope, key=_SCOPES.index), cta), bits)
                 for flag, scope, bits in told if flag == place]  # fmt: skip
        for key, bits in (*released.items(), *again):
            if bits:
                sent[key] = sent.get(key, 0) | bits
        read = line.events[0]
        if isinstance(step, s.Add) and old.last and mutual(step.scope, cta, *old.last):
            read |= old.read
        sent_now = tuple(sorted((*key, bits) for key, bits in sent.items()))
        entry = Flag(value, sent_now, read, (step.scope, cta))
        flags = (*n.strong.flags[:place], entry, *n.strong.flags[place + 1 :])
        all_told = (*n.strong.told[:warp], told, *n.strong.told[warp + 1 :])
        n.strong = n.strong._replace(flags=flags, told=all_told)

    def spin(self, n: Next, warp: int, line: Line, known: int) -> None:
        """The load that ends the loop: what it acquires, or a later fence does.

        The writes that it observes come before what its warp does next (H5).
        """
        step = line.step
        assert isinstance(step, s.Spin)
        if step.least <= 0:
            return  # the loop ends before it begins
        place = self._flag(n, warp, line, writes=False)
        assert n.strong is not None
        cta = self.code.cta[warp]
        saw = list(n.strong.saw[warp])
        flag = n.strong.flags[place]
        if flag.last and mutual(step.scope, cta, *flag.last):
            n.knows[warp] |= flag.read
        for scope, origin, bits in flag.sent:
            sent: s.Scope = "cta" if scope == "cta" else "gpu"
            if not mutual(step.scope, cta, sent, origin):
                continue
            if step.acquire:
                n.knows[warp] |= bits
            else:
                saw[origin] |= bits
        all_saw = (*n.strong.saw[:warp], (saw[0], saw[1]), *n.strong.saw[warp + 1 :])
        n.strong = n.strong._replace(saw=all_saw)

    def memory_fence(self, n: Next, warp: int, line: Line, known: int) -> None:
        """H3: acquires what relaxed loads saw of CTAs in its scope, then covers what is known."""
        step = line.step
        assert isinstance(step, s.MemoryFence)
        if n.strong is None:
            return
        cta = self.code.cta[warp]
        for origin, bits in enumerate(n.strong.saw[warp]):
            if origin == cta or step.scope != "cta":
                n.knows[warp] |= bits
        narrow, wide = n.strong.fenced[warp]
        now = n.knows[warp]
        pair = (now, wide) if step.scope == "cta" else (narrow, now)
        fenced = (*n.strong.fenced[:warp], pair, *n.strong.fenced[warp + 1 :])
        n.strong = n.strong._replace(fenced=fenced)

    def proxy_fence(self, n: Next, warp: int, line: Line, known: int) -> None:
        """H9, H10: of the memory that it names; ``.shared::cta``, and the first half of a fence, of
        the CTA that executes it."""
        step = line.step
        assert isinstance(step, s.Fence)
        covered = known & self.generic
        if step.space in ("shared::cta", "release"):
            covered &= self.code.words_of(self.code.cta[warp])
        elif step.space == "acquire":
            covered = known >> 4 * self.shift
        elif step.space == "global":
            covered &= reduce(or_, self.code.places.values(), 0)
        n.knows[warp] |= covered << (4 if step.space == "release" else 1) * self.shift

    # ------------------------------------------------------------------ remote stores

    def remote(self, n: Next, warp: int, line: Line, known: int) -> None:
        """The access starts now and ends when the bytes are counted."""
        step = line.step
        assert isinstance(step, s.Remote)
        goal = self.reach(n, warp, step.cta)
        self.use(n, goal * self.count + step.barrier, known)
        self._check_remote(n, warp, goal, line, known)
        over = self.covered(n, goal, (step.word,), known)
        if step.form in ("copy", "reduce"):
            over |= over << self.shift
            over |= self.spent(self.code.writes[self.code.cta[warp]][step.source] & n.done)
        flight = Flight(warp, line.place, goal, known, over)
        n.done |= sum(line.events)
        n.flights.append(flight)

    def _check_remote(self, n: Next, warp: int, goal: int, line: Line, known: int) -> None:
        """What conflicts was over, and known to the issuer, when this was issued."""
        step = line.step
        assert isinstance(step, s.Remote)
        cta = self.code.cta[warp]
        writes, reads = self.code.writes[goal][step.word], self.code.reads[goal][step.word]
        writes = self.overwrites(writes, 0, known)
        if step.form in ("st", "red"):
            self.clash(writes | reads, n.done, known, line.events[0])
            return
        self.async_access(writes, reads, n.done, known, line.events[0])
        self.async_access(self.code.writes[cta][step.source], 0, n.done, known)
