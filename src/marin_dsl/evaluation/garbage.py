"""Fewer garbage collections while a large graph is in memory, none of which is garbage.

Python looks through whatever was made lately each time that a few hundred more objects are there, and through all that
there is each time that those have grown by a quarter. A graph grows and holds on to everything: each look is in vain.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

_YOUNG = 10_000
"""Objects made and not freed after which the young ones are looked through; what is garbage waits so long at most."""

_LOCK = threading.Lock()
_inside = 0
_before = (0, 0, 0)


@contextlib.contextmanager
def fewer_collections() -> Iterator[None]:
    """Collect garbage less often while the block runs, in this process; blocks may be nested, and in several threads.

    Whoever has made collections rarer already, or switched them off, keeps that.
    """
    _begin()
    try:
        yield
    finally:
        _end()


def _after_fork() -> None:
    global _LOCK
    _LOCK = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)


def _begin() -> None:
    global _inside, _before
    with _LOCK:
        _inside += 1
        if _inside == 1:
            _before = gc.get_threshold()
            if 0 < _before[0] < _YOUNG:
                gc.set_threshold(_YOUNG, *_before[1:])


def _end() -> None:
    global _inside
    with _LOCK:
        _inside -= 1
        if _inside == 0 and gc.get_threshold() == (_YOUNG, *_before[1:]):  # nobody set another one meanwhile
            gc.set_threshold(*_before)
