"""Input checks that answer with one line: the field, its value, and what is allowed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any


class InvalidInput(ValueError):
    """A field has a value that the model can't take. The message is one line for a user."""


def fail(field: str, value: object, allowed: str) -> InvalidInput:
    """The exception for ``field = value``; the caller raises it."""
    shown = repr(value)
    if len(shown) > 60:
        shown = shown[:57] + "..."
    return InvalidInput(f"{field} = {shown}: {allowed}")


def number(
    field: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """``value`` as a finite float within the bounds, or one clear line."""
    left = ">" if open_low else ">="
    right = "<" if open_high else "<="
    allowed = "must be a finite number"
    if low > -math.inf:
        allowed += f" {left} {low:g}"
    if high < math.inf:
        allowed += (" and" if low > -math.inf else "") + f" {right} {high:g}"
    if isinstance(value, bool) or (not isinstance(value, (int, float)) and not hasattr(value, "__float__")):
        raise fail(field, value, allowed)
    try:
        x = float(value)
    except (TypeError, ValueError, OverflowError):
        raise fail(field, value, allowed) from None
    inside = (x > low if open_low else x >= low) and (x < high if open_high else x <= high)
    if not math.isfinite(x) or not inside:
        raise fail(field, value, allowed)
    return x


def integer(field: str, value: Any, low: int, high: int = 2**53) -> int:
    """``value`` as an int within the bounds; 10.0 is taken for 10, 10.5 is not."""
    allowed = f"must be a whole number >= {low}"
    try:
        if value > high:
            allowed += f" and <= {high}"
    except TypeError:
        pass  # not a number at all: the plain message will do
    if isinstance(value, bool):
        raise fail(field, value, allowed)
    try:
        n = int(value)
        same = n == value
    except (TypeError, ValueError, OverflowError):
        raise fail(field, value, allowed) from None
    if not same or n < low or n > high:
        raise fail(field, value, allowed)
    return n


def flag(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise fail(field, value, "must be true or false")
    return value


def choice(field: str, value: Any, allowed: Iterable[str]) -> str:
    names = list(allowed)
    if value not in names:
        raise fail(field, value, "must be one of " + ", ".join(names))
    return str(value)


def available_memory() -> int:
    """Bytes that can be allocated now; on systems that don't tell, a large number."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


def human_size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} EB"


def memory(size: float, what: str, advice: str) -> None:
    """Refuse, before allocating, what does not fit into the memory at hand."""
    free = available_memory()
    if size > 0.9 * free:
        raise InvalidInput(f"{what} needs {human_size(size)}, {human_size(free)} are free: {advice}")
