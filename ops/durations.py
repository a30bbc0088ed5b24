"""Seconds for people."""

from __future__ import annotations


def in_words(seconds: float) -> str:
    """``4 s``, ``2 min 5 s``, ``3 h 20 min``: the two largest units that say something."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
