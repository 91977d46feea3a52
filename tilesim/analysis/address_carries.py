"""Where what is added to an address may carry over into bits that it shares with nothing
(SEMANTICS J5).

Sums, differences and multiples are the same in every launch but for the bases in them, even where
they wrap. Anything else (a comparison, a shift to the right, high bits) is so only if the value has
not wrapped, and not left what it counts from so far that another base would make it carry.
"""

from __future__ import annotations

from fractions import Fraction

from tilesim.analysis.base_forms import GENERIC, SHARED, Form, Unknown, power_of_two
from tilesim.ir.addresses import GLOBAL_WINDOW, WINDOW
from tilesim.ir.expr import Base, Expr, as_expr, binary

#: bits of an integer that a launch computes with
_MOST_BITS = 63


def stays(value: Expr, form: Form, used: int) -> Expr | None:
    """What has to hold, with the bases that the simulator takes, for a value to be that much more
    in another launch as its bases are; None if nothing shows it. ``used``: bytes of shared
    memory."""
    times = dict(form)
    window, shared = times.get(GENERIC), times.get(SHARED)
    if form and set(times) <= {GENERIC, SHARED} and shared is not None and window in (None, shared):
        return _in_shared(value, shared, used)
    if set(times) == {GENERIC}:
        return _beyond(value, GENERIC, times[GENERIC], 1 << 32)
    if len(times) == 1:
        ((unknown, n),) = form
        return _beyond(value, unknown, n, GLOBAL_WINDOW) if unknown.is_declared else None
    return None


def in_window(value: Expr) -> Expr:
    """What has to hold for a generic address to lie in the window of shared memory."""
    return value - Base(WINDOW, "global") < 1 << 32


def in_one_window(value: Expr, other: Expr) -> Expr:
    """What has to hold for two global addresses to be nearest to the same base, with those that the
    simulator takes."""
    a, b = (binary("//", e + (GLOBAL_WINDOW >> 1), GLOBAL_WINDOW) for e in (value, other))
    return binary("==", a, b)


def _in_shared(value: Expr, times: Fraction, used: int) -> Expr | None:
    """The bits that where shared memory begins may set hold a place in it, or its end: so what lies
    above them stays as it is wherever that is."""
    power = power_of_two(abs(times))
    if power is None or not 0 < SHARED.high + power <= _MOST_BITS:
        return None
    counted = value if times > 0 else binary("-", 0, value)
    last = used << power if power > 0 else used >> -power
    return counted & (1 << SHARED.high + power) - 1 <= last


def _beyond(value: Expr, unknown: Unknown, times: Fraction, most: int) -> Expr | None:
    """It lies at or behind its base, by ``most`` at most."""
    power = power_of_two(times)
    if power is None or not -unknown.low <= power <= 0:
        return None
    name = WINDOW if unknown == GENERIC else unknown.name
    whole = value << -power if power else value
    return whole - Base(name, "global") <= as_expr(most)
