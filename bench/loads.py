"""The bench's rows on programs as they are: light, periodic, launch-bound, heavy-tailed, capped, and mixes of them, each beside the
same programs without GPU Slice in the same run. What each one got is the simulated GPU's own account of it."""
import itertools
import pathlib
import statistics
import subprocess
import sys
import time
import typing

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "system"))
import workers  # noqa: E402 - behind the path

SETTLE_S = 1.5  # a moment to get to know the programs, before a window

# What tests/system/programs/load.c runs.
SHORT_BACKLOG, MIDDLE_BACKLOG, LONG_BACKLOG = "kernel=200 ahead=20", "kernel=400 ahead=20", "kernel=5000 ahead=20"

PAIR, LATENCY, SPEED = "pair", "latency", "speed"


class Party(typing.NamedTuple):
    """A session: what each of its processes runs, its share and priority."""
    words: str
    compute: str
    priority: str = "normal"
    processes: int = 1
    gpus: int = 1


class Case(typing.NamedTuple):
    what: str | None  # whether latencies, or what is done together, are as without GPU Slice
    parties: list
    visitor: str = ""  # words of a program that comes and goes all the time, in a session without a minimum


# Key for --only.
CASES = {
    "cap-unneeded": Case(SPEED, [Party("kernel=50 gap=400", "0%..25%")]),
    "cap-needed": Case(None, [Party("kernel=300 gap=300", "0%..25%")]),
    "launch-bound": Case(SPEED, [Party("kernel=5 burst=100 gap=200", "50%..100%")]),
    "pair-100": Case(PAIR, [Party("kernel=100 gap=100", "50%..100%")] * 2),
    "pair-20": Case(PAIR, [Party("kernel=20 gap=20", "50%..100%")] * 2),
    "pair-300": Case(PAIR, [Party("kernel=300 gap=300", "50%..100%")] * 2),
    "pair-80": Case(PAIR, [Party("kernel=80 gap=120", "50%..100%")] * 2),
    "pair-25": Case(PAIR, [Party("kernel=25 gap=60", "50%..100%")] * 2),
    "pair-mixed": Case(PAIR, [Party("kernel=1500 gap=2000", "50%..100%"), Party("kernel=40 gap=60", "50%..100%")]),
    "pair-spin": Case(PAIR, [Party("kernel=100 gap=100 spin", "50%..100%")] * 2),
    "pair-graphs": Case(PAIR, [Party("kernel=10 graph=20 gap=300", "50%..100%")] * 2),
    "pair-launches": Case(PAIR, [Party("kernel=5 burst=100 gap=200", "50%..100%")] * 2),
    "ahead": Case(SPEED, [Party("kernel=100 ahead=40 gap=5000", "50%..100%")]),
    "pair-ahead": Case(PAIR, [Party("kernel=100 ahead=40 gap=5000", "50%..100%")] * 2),
    "three-periodic": Case(LATENCY, [Party("kernel=1500 burst=2 period=10000", "30%..100%")] * 3),
    "periodic-long": Case(LATENCY, [Party("kernel=1000 period=20000", "50%..100%"), Party(LONG_BACKLOG, "50%..100%")]),
    "periodic-long-first": Case(LATENCY, [Party("kernel=1000 period=20000", "0%..100%", "high"),
                                          Party(LONG_BACKLOG, "0%..100%", "low")]),
    "periodic-middle": Case(LATENCY, [Party("kernel=700 burst=2 period=17000", "40%..100%"), Party(MIDDLE_BACKLOG, "20%..100%")]),
    "periodic-short-first": Case(LATENCY, [Party("kernel=1000 period=20000", "0%..100%", "high"),
                                           Party(SHORT_BACKLOG, "0%..100%", "low")]),
    "periodic-graphs": Case(LATENCY, [Party("kernel=50 graph=20 period=20000", "40%..100%"), Party(MIDDLE_BACKLOG, "20%..100%")]),
    "requests": Case(LATENCY, [Party("kernel=10-200 burst=12 copy=64 period=30000", "20%..100%"), Party(LONG_BACKLOG, "40%..100%")]),
    "bursts": Case(SPEED, [Party("kernel=40 burst=7 last=600 gap=500 copy=64", "10%..100%")]),
    "copies": Case(SPEED, [Party("kernel=100 gap=300 copy=1000", "10%..100%")]),
    "words": Case(SPEED, [Party("kernel=20 burst=50 seldom=100 gap=300", "10%..100%")]),
    "words-capped": Case(None, [Party("kernel=20 burst=50 seldom=100 gap=300", "0%..25%")]),
    "beside-capped": Case(None, [Party("kernel=60 burst=2 gap=500 copy=1000", "50%..100%"), Party(MIDDLE_BACKLOG, "30%..40%")]),
    "bursts-back": Case(None, [Party("kernel=40 burst=7 last=600 gap=500 back", "20%..100%"), Party(LONG_BACKLOG, "40%..100%")]),
    "light-backlog": Case(None, [Party("kernel=80 gap=120", "50%..100%"), Party(MIDDLE_BACKLOG, "50%..100%")]),
    "lighter-backlog": Case(None, [Party("kernel=25 gap=60", "20%..100%"), Party(MIDDLE_BACKLOG, "80%..100%")]),
    "dense": Case(None, [Party(MIDDLE_BACKLOG, "10%..100%"), Party(MIDDLE_BACKLOG, "90%..100%")]),
    "heavy-tailed": Case(None, [Party("kernel=20-8000 threads=3 copy=64 gap=500", "50%..100%"),
                                Party(MIDDLE_BACKLOG, "50%..100%")]),
    "threads": Case(None, [Party("kernel=200 burst=3 threads=2 gap=900", "20%..100%"), Party(MIDDLE_BACKLOG, "20%..100%")]),
    "threads-short": Case(None, [Party("kernel=60 threads=3 gap=150", "20%..100%"), Party(MIDDLE_BACKLOG, "20%..100%")]),
    "joined": Case(None, [Party("kernel=20 burst=10 joined gap=500", "10%..100%"), Party(MIDDLE_BACKLOG, "10%..100%")]),
    "processes": Case(None, [Party("kernel=200 gap=300", "40%..100%", processes=3), Party(MIDDLE_BACKLOG, "40%..100%")]),
    "gang": Case(None, [Party("kernel=400 ahead=20 threads=2 gpus=2", "50%..100%", gpus=2), Party(MIDDLE_BACKLOG, "30%..100%")]),
    "visitors": Case(None, [Party("kernel=100 gap=100", "30%..100%"), Party(MIDDLE_BACKLOG, "50%..100%")],
                     visitor="kernel=300 ahead=10"),
    "mix": Case(None, [Party("kernel=700 burst=2 period=17000", "20%..100%"), Party("kernel=80 gap=120", "20%..100%"),
                       Party(MIDDLE_BACKLOG, "30%..100%"), Party(LONG_BACKLOG, "30%..100%")]),
}
REPEATS, REPEATED = "repeats", "pair-100"  # the same case again and again in one daemon
TURNS = "turns-greedy"  # a program that is light, greedy for a moment, and light again
KEYS = (*CASES, REPEATS, TURNS)
REPEAT_TIMES, VISIT_S, TURN_S = 10, 0.4, 1.0


class Load(workers.Load):
    """A process of tests/system/programs/load.c that the bench starts; times in ms."""

    def __init__(self, bench, environment, words):
        super().__init__(subprocess.Popen([bench.build / "tests/system/programs/load", *words.split()], env=environment,
                                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def begin(self, window_s, words=""):
        super().begin(window_s * 1000, *words.split())

    def end(self):
        told = super().end()
        return {"bursts": told["bursts"], **{name: told[f"{name}_ms"] for name in ("p50", "p99", "most")}}


def agents_of(pids):
    """How often the agents of these processes slept, and how many seconds of a CPU they took; nothing where there are none."""
    sleeps, cpu_s = 0, 0.0
    for task in itertools.chain(*(pathlib.Path(f"/proc/{pid}/task").iterdir() for pid in pids)):
        if (task / "comm").read_text() != "gpuslice-agent\n":
            continue
        status = dict(line.split(":\t") for line in (task / "status").read_text().splitlines() if ":\t" in line)
        sleeps += int(status["voluntary_ctxt_switches"])
        cpu_s += int((task / "schedstat").read_text().split()[0]) / 1e9
    return sleeps, cpu_s


class Loads:
    def __init__(self, bench, cpu_clock, clock, window_s):
        self.bench, self.cpu_clock, self.clock, self.window_s = bench, cpu_clock, clock, window_s

    def run(self, keys):
        for key in keys:
            if key == REPEATS:
                self._repeats()
            elif key == TURNS:
                self._turns_greedy()
            else:
                self._case(key, CASES[key])

    def _visits(self, environment, words, end):
        """A program that comes, works, and goes, until `end`."""
        while time.monotonic() < end:
            visitor = Load(self.bench, environment, words)
            visitor.begin(VISIT_S)
            visitor.end()
            self.bench.end([visitor.process])

    def _window(self, loads, account, visit, clocks=None):
        """What the loads of each session did in a window, with their percent of the compute engine's time in `gpu` and, where
        `account` tells what they were charged, in `charged`. `clocks`: of each session's machine, where each has its own."""
        clocks = clocks or [self.clock]
        for window_s in (SETTLE_S, self.window_s):
            charged_before, before = account(), [clock.read() for clock in clocks]
            agents_before, begin_s = [agents_of(load.process.pid for load in members) for members in loads], time.monotonic()
            with self.cpu_clock() as cpus:
                for load in itertools.chain(*loads):
                    load.begin(window_s)
                visit(window_s)
                ended = [[load.end() for load in members] for members in loads]
            passed_s = time.monotonic() - begin_s
            agents = [agents_of(load.process.pid for load in members) for members in loads]
            charged, after = account(), [clock.read() for clock in clocks]
        results = []
        for number, members in enumerate(loads):
            (before_ns, used_before), (after_ns, used_after) = before[number % len(clocks)], after[number % len(clocks)]
            pids = [load.process.pid for load in members]
            ns = sum(used_after.get(pid, 0) - used_before.get(pid, 0) for pid in pids)
            result = {"gpu": 100 * ns / (after_ns - before_ns), "p50": statistics.median(one["p50"] for one in ended[number]),
                      "p99": max(one["p99"] for one in ended[number])}
            if charged:
                sleeps, cpu_s = (now - then for now, then in zip(agents[number], agents_before[number]))
                result["agent_wakes"] = sleeps / passed_s / len(members)
                result["agent_cpu"] = 100 * cpu_s / passed_s / len(members)
                result["charged"] = 1e11 * (charged[number] - charged_before[number]) / (after_ns - before_ns)
            results.append(result)
        return results, cpus

    def _together(self, parties, environments, account=lambda: [], visit=lambda window_s: None):
        loads = [[Load(self.bench, environment, party.words) for _ in range(party.processes)]
                 for party, environment in zip(parties, environments)]
        results, cpus = self._window(loads, account, visit)
        self.bench.end([load.process for load in itertools.chain(*loads)])
        return results, cpus

    def _without(self, case):
        def visit(window_s):
            if case.visitor:
                self._visits(self.bench.outside, case.visitor, time.monotonic() + window_s - VISIT_S)
        return self._together(case.parties, [self.bench.outside] * len(case.parties), visit=visit)[0]

    def _sessions(self, parties):
        made = [self.bench.session(1 << 30, gpus=party.gpus, compute=party.compute, priority=party.priority) for party in parties]
        return [session for session, _ in made], [environment for _, environment in made]

    def _account(self, sessions):
        """A function that tells what each session was charged until now."""
        def account():
            documents = [self.bench.request("GET", f"/v1/sessions/{session}")[1] for session in sessions]
            return [document["gpus"][0]["gpu_seconds"] for document in documents]
        return account

    def _inside(self, case):
        sessions, environments = self._sessions(case.parties)

        def visit(window_s):
            end = time.monotonic() + window_s - VISIT_S
            while case.visitor and time.monotonic() < end:
                session, environment = self.bench.session(1 << 30)
                self._visits(environment, case.visitor, 0.01 + time.monotonic())
                self.bench.release(session)
        results, cpus = self._together(case.parties, environments, self._account(sessions), visit)
        for session in sessions:
            self.bench.release(session)
        return results, cpus

    def _row(self, key, figure, text, *more, **details):
        self.bench.row(f"loads, {key}: {text}", *more, case=key, figure=figure, **details)

    def _case(self, key, case):
        alone = {}
        for party in case.parties:
            if party not in alone:
                alone[party] = self._together([party], [self.bench.outside])[0][0]
        without = self._without(case)
        inside, cpus = self._inside(case)
        together = 100 * sum(one["gpu"] for one in inside) / sum(one["gpu"] for one in without)
        if case.what in (PAIR, SPEED):
            self._row(key, "together", "together, of without GPU Slice", together, "%", 99 if case.what == SPEED else 95, cpus, at_least=True)
        for name in ("p50", "p99") if case.what == LATENCY else ():
            within_ms, without_ms = (self._of_the_first(case, results, name) for results in (inside, without))
            self._row(key, name, f"{name}, of without GPU Slice", within_ms / without_ms, "times", 1.1, cpus,
                      inside=round(within_ms, 2), without=round(without_ms, 2),
                      alone=round(alone[case.parties[0]][name], 2), words=case.parties[0].words)
        for party, before, after in zip(case.parties, without, inside):
            promised = float(party.compute.partition("%")[0])
            most = float(party.compute.partition("..")[2][:-1])
            solo = alone[party]["gpu"]
            latencies = {f"{when}_{name}": round(of[name], 2) for name in ("p50", "p99")
                         for when, of in (("inside", after), ("without", before))}
            if promised:
                self._row(key, "speed", f"{party.words}: speed, minimum {promised:g} %", 100 * after["gpu"] / solo, "%",
                          promised - 1, cpus, at_least=True, gpu=round(after["gpu"], 2), alone=round(solo, 2),
                          without=round(before["gpu"], 2), minimum=promised, **latencies)
            if most < 100:
                self._row(key, "capped", f"{party.words}: of the GPU, maximum {most:g} %", after["gpu"], "%", most + 1, cpus,
                          alone=round(solo, 2))
            self._row(key, "charged", f"{party.words}: |charged - used|", abs(after["charged"] - after["gpu"]), "pp",
                      max(0.5, 0.02 * after["gpu"]), cpus, charged=round(after["charged"], 2), used=round(after["gpu"], 2))

        wakes = max(after["agent_wakes"] for after in inside)
        self._row(key, "agent", "an agent's part of a CPU", max(after["agent_cpu"] for after in inside), "%", 1, cpus,
                  wakes=round(wakes))

    @staticmethod
    def _of_the_first(case, results, name):
        """This percentile of the first party; on average of all that are like it, as chance decides whose phase is first."""
        return statistics.mean(result[name] for party, result in zip(case.parties, results) if party == case.parties[0])

    def _repeats(self):
        """State that the daemon keeps from earlier sessions makes later ones no slower."""
        seen, worst = [], None
        for _ in range(REPEAT_TIMES):
            results, cpus = self._inside(CASES[REPEATED])
            worst = cpus if worst is None or cpus.idle < worst.idle else worst
            seen.append(sum(one["gpu"] for one in results))
        self._row(REPEATS, "repeats", f"{REPEATED}, {REPEAT_TIMES} times in one daemon: least of most", 100 * min(seen) / max(seen),
                  "%", 97, worst, at_least=True, seen=[round(one, 2) for one in seen])

    def _turns_greedy(self):
        """What a session with a minimum of 80 % misses of it in the first second after its neighbour turned from light to greedy;
        and what the neighbour does, light again, of what it did before."""
        light, greedy = "kernel=100 gap=900 ahead=0", "gap=0 kernel=400 ahead=20"
        parties = [Party(MIDDLE_BACKLOG, "80%..100%"), Party("kernel=100 gap=900", "20%..100%")]
        sessions, environments = self._sessions(parties)
        first, second = loads = [Load(self.bench, environment, party.words) for party, environment in zip(parties, environments)]
        got = []
        with self.cpu_clock() as cpus:
            for words in (light, light, greedy, light, light):
                _, before = self.clock.read()
                first.begin(TURN_S)
                second.begin(TURN_S, words)
                for load in loads:
                    load.end()
                _, after = self.clock.read()
                got.append([(after.get(load.process.pid, 0) - before.get(load.process.pid, 0)) / 1e6 for load in loads])
        self.bench.end([load.process for load in loads])
        for session in sessions:
            self.bench.release(session)
        missed = max(0.0, 0.79 * TURN_S * 1000 - got[2][0])
        self._row(TURNS, "missed", "GPU time that 80 % misses in the second in which the other turns greedy", missed, "ms", 100, cpus,
                  seconds=[[round(ms) for ms in pair] for pair in got])
        self._row(TURNS, "back", "light again, of what it did before", 100 * got[4][1] / got[1][1], "%", 95, cpus, at_least=True)
