"""Ctrl-C with work in hand: the first one asks the run to finish the samples in hand, the second one stops at once."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class Stop:
    requested: bool = False


_watching: list[Stop] = []  # of this process: a sweep looks out for signals, and so does each run inside it


@contextmanager
def stop_signal() -> Iterator[Stop]:
    """While inside, SIGINT and SIGTERM set `requested`; a second one acts as usual. Inside another one, it is that."""
    if _watching:
        yield _watching[0]
        return
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: FrameType | None) -> None:
        stop.requested = True
        restore(usual)
        print("\nfinishing the samples in hand; once more stops at once", file=sys.stderr)

    for number in usual:
        signal.signal(number, ask)
    _watching.append(stop)
    try:
        yield stop
    finally:
        _watching.clear()
        restore(usual)


def restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
