"""The bench's rows on programs as they are: light, periodic, launch-bound, heavy-tailed, capped, and mixes of them, each beside the
same programs without GPU Slice in the same run. What each one got is the simulated GPU's own account of it."""
import subprocess

SETTLE_S = 1.5  # a moment to get to know the programs, before a window

# What tests/system/programs/load.c runs.
SHORT_BACKLOG, MIDDLE_BACKLOG, LONG_BACKLOG = "kernel=200 ahead=20", "kernel=400 ahead=20", "kernel=5000 ahead=20"

# Key for --only; its sessions: what runs, compute, priority; and whether latencies, or what is done together, are as without us.
PAIR, LATENCY, SPEED = "pair", "latency", "speed"
CASES = {
    "cap-unneeded": (SPEED, [("kernel=50 gap=400", "0%..25%", "normal")]),
    "cap-needed": (None, [("kernel=300 gap=300", "0%..25%", "normal")]),
    "pair-100": (PAIR, [("kernel=100 gap=100", "50%..100%", "normal")] * 2),
    "pair-20": (PAIR, [("kernel=20 gap=20", "50%..100%", "normal")] * 2),
    "pair-300": (PAIR, [("kernel=300 gap=300", "50%..100%", "normal")] * 2),
    "pair-80": (PAIR, [("kernel=80 gap=120", "50%..100%", "normal")] * 2),
    "pair-25": (PAIR, [("kernel=25 gap=60", "50%..100%", "normal")] * 2),
    "pair-mixed": (PAIR, [("kernel=1500 gap=2000", "50%..100%", "normal"), ("kernel=40 gap=60", "50%..100%", "normal")]),
    "pair-spin": (PAIR, [("kernel=100 gap=100 spin", "50%..100%", "normal")] * 2),
    "three-periodic": (LATENCY, [("kernel=1500 burst=2 period=10000", "30%..100%", "normal")] * 3),
    "periodic-long": (LATENCY, [("kernel=1000 period=20000", "50%..100%", "normal"), (LONG_BACKLOG, "50%..100%", "normal")]),
    "periodic-long-first": (LATENCY, [("kernel=1000 period=20000", "0%..100%", "high"), (LONG_BACKLOG, "0%..100%", "low")]),
    "periodic-middle": (LATENCY, [("kernel=700 burst=2 period=17000", "40%..100%", "normal"),
                                  (MIDDLE_BACKLOG, "20%..100%", "normal")]),
    "periodic-short-first": (LATENCY, [("kernel=1000 period=20000", "0%..100%", "high"), (SHORT_BACKLOG, "0%..100%", "low")]),
    "light-backlog": (None, [("kernel=80 gap=120", "50%..100%", "normal"), (MIDDLE_BACKLOG, "50%..100%", "normal")]),
    "lighter-backlog": (None, [("kernel=25 gap=60", "20%..100%", "normal"), (MIDDLE_BACKLOG, "80%..100%", "normal")]),
    "dense": (None, [(MIDDLE_BACKLOG, "10%..100%", "normal"), (MIDDLE_BACKLOG, "90%..100%", "normal")]),
    "heavy-tailed": (None, [("kernel=20-8000 threads=3 copy=64 gap=500", "50%..100%", "normal"),
                            (MIDDLE_BACKLOG, "50%..100%", "normal")]),
    "mix": (None, [("kernel=700 burst=2 period=17000", "20%..100%", "normal"), ("kernel=80 gap=120", "20%..100%", "normal"),
                   (MIDDLE_BACKLOG, "30%..100%", "normal"), (LONG_BACKLOG, "30%..100%", "normal")]),
}


class Load:
    def __init__(self, bench, environment, words):
        self.process = subprocess.Popen([bench.build / "tests/system/programs/load", *words.split()], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise SystemExit("a load did not start")

    def begin(self, window_s):
        self.process.stdin.write(f"{round(window_s * 1000)}\n")
        self.process.stdin.flush()

    def end(self):
        _, _, p50_ns, p99_ns, _ = map(int, self.process.stdout.readline().split())
        return {"p50": p50_ns / 1e6, "p99": p99_ns / 1e6}


class Loads:
    def __init__(self, bench, cpu_clock, clock, window_s):
        self.bench, self.cpu_clock, self.clock, self.window_s = bench, cpu_clock, clock, window_s

    def run(self, keys):
        for key in keys:
            self._case(key, *CASES[key])

    def _window(self, loads, account):
        """What each load did in a window, with its percent of the compute engine's time in `gpu` and, where `account` tells what
        it was charged, in `charged`."""
        for window_s in (SETTLE_S, self.window_s):
            charged_before, (before_ns, before) = account(), self.clock.read()
            with self.cpu_clock() as cpus:
                for load in loads:
                    load.begin(window_s)
                results = [load.end() for load in loads]
            charged, (after_ns, after) = account(), self.clock.read()
        for number, (load, result) in enumerate(zip(loads, results)):
            pid = load.process.pid
            result["gpu"] = 100 * (after.get(pid, 0) - before.get(pid, 0)) / (after_ns - before_ns)
            if charged:
                result["charged"] = 1e11 * (charged[number] - charged_before[number]) / (after_ns - before_ns)
        return results, cpus

    def _together(self, parties, environments, account=lambda: []):
        loads = [Load(self.bench, environment, words) for (words, _, _), environment in zip(parties, environments)]
        results, cpus = self._window(loads, account)
        self.bench.end([load.process for load in loads])
        return results, cpus

    def _inside(self, parties):
        sessions, environments = [], []
        for _, compute, priority in parties:
            session, inside = self.bench.session(1 << 30, compute=compute, priority=priority)
            sessions.append(session)
            environments.append(inside)

        def account():
            documents = [self.bench.request("GET", f"/v1/sessions/{session}")[1] for session in sessions]
            return [document["gpus"][0]["gpu_seconds"] for document in documents]
        results, cpus = self._together(parties, environments, account)
        for session in sessions:
            self.bench.release(session)
        return results, cpus

    def _case(self, key, what, parties):
        alone = {}
        for words, _, _ in parties:
            if words not in alone:
                alone[words] = self._together([(words, "", "")], [self.bench.outside])[0][0]
        without, _ = self._together(parties, [self.bench.outside] * len(parties))
        inside, cpus = self._inside(parties)
        together = 100 * sum(one["gpu"] for one in inside) / sum(one["gpu"] for one in without)
        if what in (PAIR, SPEED):
            self.bench.row(f"loads, {key}: together, of without us", together, "%", 99 if what == SPEED else 95, cpus, at_least=True)
        if what == LATENCY:
            for name in ("p50", "p99"):
                self.bench.row(f"loads, {key}: {name}, of without us", inside[0][name] / without[0][name], "times", 1.1, cpus,
                               inside=round(inside[0][name], 2), without=round(without[0][name], 2),
                               alone=round(alone[parties[0][0]][name], 2))
        for (words, compute, priority), before, after in zip(parties, without, inside):
            promised = float(compute.partition("%")[0])
            most = float(compute.partition("..")[2][:-1])
            solo = alone[words]["gpu"]
            if promised:
                self.bench.row(f"loads, {key}: {words}: speed, minimum {promised:g} %", 100 * after["gpu"] / solo, "%",
                               promised - 1, cpus, at_least=True, gpu=round(after["gpu"], 2), alone=round(solo, 2),
                               without=round(before["gpu"], 2))
            if most < 100:
                self.bench.row(f"loads, {key}: {words}: of the GPU, maximum {most:g} %", after["gpu"], "%", most + 1, cpus)
            self.bench.row(f"loads, {key}: {words}: |charged - used|", abs(after["charged"] - after["gpu"]), "pp",
                           max(0.5, 0.02 * after["gpu"]), cpus, charged=round(after["charged"], 2))
