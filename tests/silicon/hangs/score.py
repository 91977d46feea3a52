"""What an autopsy states, compared with the right answer.

*Waiting set*: each warp of the answer is said to wait, and no other. *Barrier*: it is said to wait
for the right thing: its kind, of a named barrier the number, of an mbarrier its state. *Lines*: the
right line is named, if the machine code has lines. *Culprit*: one of its lines is named. *Wrong*:
statements that are made as certain and are not so; what is not known is not wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.silicon.hangs.answer import Answer, Place
from tilesim.records import dataclass

Stated = Mapping[str, Any]
_ALL = (1 << 32) - 1
#: a place says where a warp stands, and no more
_OPEN = frozenset({"runs", "sleep"})


@dataclass(frozen=True)
class Score:
    """How right an autopsy is. ``culprit`` is None if none was to be named, ``lines`` if the
    machine code has none; ``missed`` says in words what is not as in the answer, ``wrong`` which
    certain statements are not so."""

    waiting: bool
    barrier: bool
    lines: bool | None
    culprit: bool | None
    missed: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """As a part of a row of results."""
        return {
            "waiting": self.waiting, "barrier": self.barrier, "lines": self.lines,
            "culprit": self.culprit, "missed": list(self.missed), "wrong": list(self.wrong),
        }  # fmt: skip


def score(answer: Answer, stated: Stated, *, with_ptx: bool) -> Score:
    """The score of what `tests.silicon.hangs.facts` has printed."""
    by_warp: dict[tuple[str, int, int], list[Stated]] = defaultdict(list)
    for stand in stated["stands"]:
        for warp in stand["warps"]:
            by_warp[stand["kernel"], stand["cta"], warp].append(stand)
    missed: list[str] = []
    waiting = barrier = True
    named: list[bool] = []
    for place in answer.places:
        for cta in place.ctas:
            every = [
                _judged(place, cta, warp, by_warp.get((place.kernel, cta, warp), []))
                for warp in place.warps
            ]
            if place.one:
                every = [max(every, key=lambda j: (j.waits, j.fits))]
            waiting &= all(j.waits for j in every)
            barrier &= all(j.fits for j in every)
            missed += [j.missed for j in every if j.missed]
            named += [j.line for j in every if j.line is not None]
    extra = sorted(_extra(answer, by_warp))
    if extra:
        waiting = False
        missed += [f"CTA {cta} warp {warp} is said to wait" for _, cta, warp in extra]
    culprit = None
    if with_ptx and answer.culprits:
        culprit = bool(answer.culprits & set(stated["culprits"]))
        if not culprit:
            there = ", ".join(stated["culprits"]) or "none"
            missed.append(f"culprit {there} instead of {', '.join(sorted(answer.culprits))}")
    wrong = tuple(dict.fromkeys(_wrong(answer, by_warp, stated)))
    return Score(
        waiting, barrier, all(named) if named else None, culprit, _few(missed), _few(wrong)
    )


@dataclass(frozen=True)
class _Judged:
    """A warp of the answer: whether it is said to wait, for the right thing, at the right line."""

    waits: bool
    fits: bool
    line: bool | None
    missed: str = ""


def _judged(place: Place, cta: int, warp: int, stands: Iterable[Stated]) -> _Judged:
    where = f"CTA {cta} warp {warp}"
    waits = [s for s in stands if s["on"] not in _OPEN and not s["passing"]]
    if not waits:
        return _Judged(False, False, None, f"{where} is not said to wait ({place.on})")
    fitting = [s for s in waits if not any(_differences(place, s))]
    if not fitting:
        return _Judged(True, False, None, f"{where}: {_difference(place, waits)}")
    if not any(s["lines"] for s in fitting):
        return _Judged(True, True, None)
    return _Judged(True, True, any(place.lines & set(s["lines"]) for s in fitting))


def _few(texts: Iterable[str], most: int = 6) -> tuple[str, ...]:
    every = tuple(dict.fromkeys(texts))
    return every if len(every) <= most else (*every[:most], f"{len(every) - most} more")


def _extra(answer: Answer, by_warp: Mapping[tuple[str, int, int], list[Stated]]) -> Iterator[Any]:
    """Warps that are said to wait, and do not."""
    if not answer.whole:
        return
    right = {(p.kernel, cta, warp) for p in answer.places for cta in p.ctas for warp in p.warps}
    for key, stands in by_warp.items():
        if key not in right and any(s["on"] not in _OPEN and not s["passing"] for s in stands):
            yield key


def _differences(place: Place, stand: Stated) -> Iterator[str]:
    """What of a statement is not as in the answer; what is left open is not different."""
    if stand["on"] != place.on:
        yield f"{stand['on']} instead of {place.on}"
        return
    for name, right in (("id", place.id), ("threads", place.threads)):
        there = stand.get(name)
        # a barrier of the whole CTA has no count
        if right is not None and there is not None and there != right:
            yield f"{name} {there} instead of {right}"
    if place.barrier is not None and stand.get("barrier") is not None:
        right_state = [place.barrier.pending, place.barrier.expected, place.barrier.tx]
        if list(stand["barrier"]) != right_state:
            yield f"pending, expected, bytes {stand['barrier']} instead of {right_state}"


def _difference(place: Place, waits: Iterable[Stated]) -> str:
    return "; ".join(dict.fromkeys(text for s in waits for text in _differences(place, s)))


def _wrong(
    answer: Answer, by_warp: Mapping[tuple[str, int, int], list[Stated]], stated: Stated
) -> Iterator[str]:
    """Statements that are certain, and not so: a line always is."""
    right: dict[tuple[str, int, int], list[Place]] = defaultdict(list)
    for place in answer.places:
        for cta in place.ctas:
            for warp in place.warps:
                right[place.kernel, cta, warp].append(place)
    for key, stands in by_warp.items():
        places = right.get(key)
        if (places is None and not answer.whole) or any(p.one for p in places or ()):
            continue
        where = f"{key[0]} CTA {key[1]} warp {key[2]}"
        for stand in stands:
            if stand["on"] in _OPEN or (_is_part(stand) and stand["on"] == "lanes"):
                continue  # lanes that wait for those of the answer
            fitting = [p for p in places or () if not any(_differences(p, stand))]
            if fitting and not stand["passing"]:
                lines = frozenset(line for place in fitting for line in place.lines)
                if stand["lines"] and not lines & set(stand["lines"]):
                    there = ", ".join(stand["lines"])
                    yield f"{where} at {there} instead of {', '.join(sorted(lines))}"
            elif not stand["certain"]:
                continue
            elif places is None:
                yield f"{where} waits ({stand['on']}), and has ended"
            elif stand["passing"]:
                yield f"{where}: its wait is over"
            else:
                yield f"{where}: {next(_differences(places[0], stand))}"
    if not answer.hangs and any(one["state"] == "hangs" for one in stated["launches"]):
        yield "the kernel is said to hang"
    # of several launches, one may be right by itself
    if answer.places and set(stated["verdict"].split(", ")) == {"proved"}:
        yield "the kernel is said to be right"


def _is_part(stand: Stated) -> bool:
    return bool(stand["lanes"] != _ALL)
