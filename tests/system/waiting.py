"""Waiting for what becomes true."""
import time

import pytest

DEADLINE_S = 20.0


def wait_for(condition, what, deadline_s=DEADLINE_S, interval_s=0.005):
    """Poll `condition` until it is true, and return its value; fail naming `what` when the deadline passes. `what` may be a function,
    which is called then."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            pytest.fail(f"waited {deadline_s} s in vain for {what() if callable(what) else what}")
        time.sleep(interval_s)


def state_of(pid):
    """One letter, as in proc(5): "S" if the process sleeps, "T" if it is stopped, and so on."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0]
