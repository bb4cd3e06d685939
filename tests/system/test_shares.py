"""Compute shares from end to end: real processes, the real daemon, a simulated GPU. A worker says how many ns of kernels of
known length ended in a window; the GPU runs one kernel at a time, so that is its share."""
import os
import signal

import pytest

WINDOW_MS = 10_000


class Worker:
    """tests/system/programs/worker.c in a session of its own."""

    def __init__(self, daemon, reap, compute, *words):
        share = ("--compute", compute) if compute else ()
        self.process = reap(daemon.spawn("run", *share, "--", daemon.product.program("worker"), *words))
        assert self.process.stdout.readline() == "ready\n", self.process.stderr.read()

    def begin(self, window_ms):
        self.process.stdin.write(f"{window_ms}\n")
        self.process.stdin.flush()

    def share(self):
        """Of the last window, in percent."""
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        done_ns, wall_ns = map(int, line.split())
        return 100 * done_ns / wall_ns


def together(workers, window_ms=WINDOW_MS):
    """Work side by side, first for a moment to get into step; their shares in percent."""
    for span in (1000, window_ms):
        for worker in workers:
            worker.begin(span)
        shares = [worker.share() for worker in workers]
    return shares


@pytest.mark.parametrize("words", [("50",), ("20000",), ("500", "streams=4"), ("50", "graph=20")],
                         ids=["small_kernels", "long_kernels", "streams", "graphs"])
@pytest.mark.parametrize("targets", [(50, 50), (90, 10)], ids=["even", "uneven"])
def test_two_sessions_get_their_shares(daemon, reap, targets, words):
    workers = [Worker(daemon, reap, f"{target}%..100%", *words) for target in targets]
    shares = together(workers)
    assert shares == pytest.approx(targets, abs=1), shares
    assert 98 <= sum(shares) <= 101
