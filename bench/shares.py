"""The bench's rows on compute shares: real processes, and the simulated GPU's own clock of what each one got."""
import pathlib
import statistics
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "system"))
from workers import Clock, Worker, together  # noqa: E402

ALONE_S = 4.0
HANDOVER_S = 5
HANDOVER_QUANTUM = "2ms"

# What tests/system/programs/worker.c runs: kernels, how long in us, and how they are submitted.
SHORT, MIDDLE, LONG = ("50",), ("500",), ("20000",)
GRAPHS, STREAMS = ("50", "graph=20"), ("500", "streams=4")

# Key for --only, name, and its sessions: target in percent, words, processes.
SPLITS = (
    ("four", "10/20/30/40", [(target, MIDDLE, 1) for target in (10, 20, 30, 40)]),
    ("even", "50/50", [(50, SHORT, 1)] * 2),
    ("uneven", "90/10", [(90, SHORT, 1), (10, SHORT, 1)]),
    ("eight", "eight of 12.5 %", [(12.5, MIDDLE, 1)] * 8),
    ("long", "50/50, kernels of 20 ms", [(50, LONG, 1)] * 2),
    ("graphs", "50/50, graphs", [(50, GRAPHS, 1)] * 2),
    ("streams", "50/50, four streams", [(50, STREAMS, 1)] * 2),
    ("processes", "50/50, three processes and one", [(50, MIDDLE, 3), (50, MIDDLE, 1)]),
    ("mix", "10/20/30/40, a mix", [(10, SHORT, 1), (20, LONG, 1), (30, STREAMS, 1), (40, GRAPHS, 1)]),
)
HALF_BUSY = ("500", "busy=20", "idle=20")
KEYS = tuple(key for key, _, _ in SPLITS) + ("max", "halves", "handover")


class Shares:
    def __init__(self, bench, cpu_clock, window_s):
        self.bench, self.cpu_clock, self.window_s = bench, cpu_clock, window_s
        self.clock = Clock(self._spawn(bench.outside, "gpu_clock"))
        self.alone_percent = {}

    def run(self, keys):
        for key, name, parties in SPLITS:
            if key in keys:
                self._split(name, parties)
        for key in ("max", "halves", "handover"):
            if key in keys:
                getattr(self, "_" + key)()
        self.bench.end([self.clock.process])

    def _spawn(self, environment, program, *words):
        return subprocess.Popen([self.bench.build / "tests/system/programs" / program, *words], env=environment,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _window(self, workers, window_s):
        """Percent of the compute engine's time that each worker got in a window, and how idle the CPUs were."""
        cpus = self.cpu_clock()
        return together(self.clock, workers, window_s * 1000, during=cpus), cpus

    def _outside(self, window_s, words, count=1):
        """What so many of them get together without GPU Slice."""
        workers = [Worker(self._spawn(self.bench.outside, "worker", *words)) for _ in range(count)]
        percents, cpus = self._window(workers, window_s)
        self.bench.end([worker.process for worker in workers])
        return sum(percents), cpus

    def _alone(self, parties):
        """What one such program alone gets, by what each of these is to get together."""
        for _, words, _ in parties:
            if words not in self.alone_percent:
                self.alone_percent[words] = self._outside(min(ALONE_S, self.window_s), words)[0]
        return sum(target * self.alone_percent[words] for target, words, _ in parties) / sum(p[0] for p in parties)

    def _inside(self, parties, shares):
        """What each session gets: `parties` as in SPLITS, with these shares."""
        sessions, workers, of = [], [], []
        for number, ((_, words, processes), share) in enumerate(zip(parties, shares)):
            session, inside = self.bench.session(1 << 30, compute=share)
            sessions.append(session)
            for _ in range(processes):
                workers.append(Worker(self._spawn(inside, "worker", *words)))
                of.append(number)
        percents, cpus = self._window(workers, self.window_s)
        self.bench.end([worker.process for worker in workers])
        for session in sessions:
            self.bench.release(session)
        return [sum(percent for percent, party in zip(percents, of) if party == number)
                for number in range(len(parties))], cpus

    def _split(self, name, parties):
        alone = self._alone(parties)
        achieved, cpus = self._inside(parties, [f"{target}%..100%" for target, _, _ in parties])
        targets = [target for target, _, _ in parties]
        worst = max(abs(got - target) for got, target in zip(achieved, targets))
        self.bench.row(f"shares, {name}: largest |achieved - target|", worst, "pp", 1, cpus,
                       target="/".join(f"{t:g}" for t in targets), achieved="/".join(f"{a:.2f}" for a in achieved))
        self.bench.row(f"shares, {name}: together, of one program alone", 100 * sum(achieved) / alone, "%", 98, cpus,
                       at_least=True, alone=round(alone, 2))

    def _max(self):
        (achieved,), cpus = self._inside([(25, MIDDLE, 1)], ["0%..25%"])
        self.bench.row("shares, at most 25 % alone: |achieved - target|", abs(achieved - 25), "pp", 1, cpus, target=25,
                       achieved=round(achieved, 2))

    def _halves(self):
        plain, _ = self._outside(self.window_s, HALF_BUSY, 2)
        achieved, cpus = self._inside([(50, HALF_BUSY, 1)] * 2, ["50%..100%"] * 2)
        self.bench.row("two programs busy half the time, of what they get without GPU Slice", 100 * sum(achieved) / plain, "%", 95,
                       cpus, at_least=True, outside=round(plain, 2), achieved="/".join(f"{a:.2f}" for a in achieved))

    def _handover(self):
        """From the last submission of one session to the first of the other. Who hands over paused later than who takes
        over, and still pauses when that goes on; all other pauses are a CPU's."""
        self.bench.request("PATCH", "/v1/scheduler", {"quantum": HANDOVER_QUANTUM})
        sessions, processes, pauses = [], [], []
        for _ in range(2):
            session, inside = self.bench.session(1 << 30, compute="50%..100%")
            sessions.append(session)
            processes.append(subprocess.Popen([self.bench.build / "bench/handover", str(HANDOVER_S)], env=inside,
                                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for process in processes:
            process.stdout.readline()
        with self.cpu_clock() as cpus:
            for process in processes:
                process.stdin.write("go\n")
                process.stdin.flush()
            for process in processes:
                pauses.append([tuple(map(int, line.split())) for line in process.stdout])
        self.bench.end(processes)
        for session in sessions:
            self.bench.release(session)
        self.bench.request("PATCH", "/v1/scheduler", {"quantum": "auto"})
        gaps = handovers(*pauses) + handovers(*reversed(pauses))
        if len(gaps) < 100:
            raise SystemExit(f"only {len(gaps)} hand-overs were seen")
        gaps.sort()
        for what, value, budget in (("median", statistics.median(gaps), 200), ("p99", gaps[len(gaps) * 99 // 100], 1000)):
            self.bench.row(f"lease hand-over on an idle device, {what}", value / 1e3, "us", budget, cpus, seen=len(gaps))


def handovers(giver, taker):
    """How long nobody submitted, at each change from `giver` to `taker`; both are pauses in the order of time."""
    gaps, at = [], 0
    for taker_last, taker_first in taker:
        while at < len(giver) and giver[at][1] <= taker_first:
            at += 1
        if at < len(giver) and taker_last < giver[at][0] < taker_first:
            gaps.append(taker_first - giver[at][0])
    return gaps
