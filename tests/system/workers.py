"""Programs that want the GPU all the time, and the simulated GPU's own clock of what each of them got. Tests and the bench
start them each in their own way."""
import contextlib
import time


class Worker:
    """A process that is, or becomes, tests/system/programs/worker.c; its pipes are text."""

    def __init__(self, process):
        self.process = process
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"a worker did not start: {self._errors()}")

    def begin(self, window_ms):
        self.process.stdin.write(f"{round(window_ms)}\n")
        self.process.stdin.flush()

    def end(self):
        if not self.process.stdout.readline():
            raise RuntimeError(f"a worker ended early: {self._errors()}")

    def stop(self):
        self.process.stdin.close()
        self.process.wait()

    def _errors(self):
        return self.process.stderr.read() if self.process.stderr else "see above"


class Load:
    """A process that is, or becomes, tests/system/programs/load.c; its pipes are text."""

    def __init__(self, process):
        self.process = process
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"a load did not start: {process.stderr.read() if process.stderr else 'see above'}")

    def begin(self, window_ms, *words):
        """From then on it is of the character that `words` say."""
        self.process.stdin.write(f"{round(window_ms)} {' '.join(words)}\n")
        self.process.stdin.flush()

    def end(self):
        bursts, kernel_ns, p50_ns, p99_ns, most_ns = map(int, self.process.stdout.readline().split())
        return {"bursts": bursts, "kernel_ns": kernel_ns, "p50_ms": p50_ns / 1e6, "p99_ms": p99_ns / 1e6, "most_ms": most_ns / 1e6}

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


class Clock:
    """How long the compute engine worked for each process, told by tests/system/programs/gpu_clock.c."""

    def __init__(self, process):
        self.process = process

    def read(self):
        """Now, and nanoseconds by pid."""
        self.process.stdin.write("0\n")
        self.process.stdin.flush()
        now, *places = self.process.stdout.readline().split()
        return int(now), {int(pid): int(ns) for _, pid, ns in (place.split(":") for place in places)}


def together(clock, workers, window_ms, settle_ms=1000, during=contextlib.nullcontext()):
    """Let `workers` work side by side, first for a moment to get into step; then what each got of a window, in percent of the
    compute engine's time. `during` is a context for the window alone."""
    for worker in workers:
        worker.begin(settle_ms + window_ms + 300)
    time.sleep(settle_ms / 1000)
    with during:
        before_ns, before = clock.read()
        time.sleep(window_ms / 1000)
        after_ns, after = clock.read()
    for worker in workers:
        worker.end()
    pids = [worker.process.pid for worker in workers]
    return [100 * (after.get(pid, 0) - before.get(pid, 0)) / (after_ns - before_ns) for pid in pids]
