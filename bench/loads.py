"""The bench's rows on programs as they are: light, periodic, launch-bound, heavy-tailed, capped, and mixes of them, each beside the
same programs without GPU Slice in the same run. What each one got is the simulated GPU's own account of it."""
import statistics
import subprocess
import time

SETTLE_S = 1.5  # a moment to get to know the programs, before a window

# What tests/system/programs/load.c runs.
BACKLOG = "ahead=20"
SHORT_BACKLOG, MIDDLE_BACKLOG, LONG_BACKLOG = f"kernel=200 {BACKLOG}", f"kernel=400 {BACKLOG}", f"kernel=5000 {BACKLOG}"


def party(words, compute, priority="normal"):
    return words, compute, priority


# Key for --only, and its sessions. What is promised follows from their shares.
CASES = {
    "cap-unneeded": [party("kernel=50 gap=400", "0%..25%")],
    "cap-needed": [party("kernel=300 gap=300", "0%..25%")],
    "cap-dense": [party(MIDDLE_BACKLOG, "0%..25%")],
    "pair-100": [party("kernel=100 gap=100", "50%..100%")] * 2,
    "pair-20": [party("kernel=20 gap=20", "50%..100%")] * 2,
    "pair-300": [party("kernel=300 gap=300", "50%..100%")] * 2,
    "pair-80": [party("kernel=80 gap=120", "50%..100%")] * 2,
    "pair-25": [party("kernel=25 gap=60", "50%..100%")] * 2,
    "pair-mixed": [party("kernel=1500 gap=2000", "50%..100%"), party("kernel=40 gap=60", "50%..100%")],
    "pair-spin": [party("kernel=100 gap=100 spin", "50%..100%")] * 2,
    "three-periodic": [party("kernel=1500 burst=2 period=10000", "30%..100%")] * 3,
    "periodic-long": [party("kernel=1000 period=20000", "50%..100%"), party(LONG_BACKLOG, "50%..100%")],
    "periodic-long-first": [party("kernel=1000 period=20000", "0%..100%", "high"), party(LONG_BACKLOG, "0%..100%", "low")],
    "periodic-middle": [party("kernel=700 burst=2 period=17000", "40%..100%"), party(MIDDLE_BACKLOG, "20%..100%")],
    "periodic-short-first": [party("kernel=1000 period=20000", "0%..100%", "high"), party(SHORT_BACKLOG, "0%..100%", "low")],
    "light-backlog": [party("kernel=80 gap=120", "50%..100%"), party(MIDDLE_BACKLOG, "50%..100%")],
    "lighter-backlog": [party("kernel=25 gap=60", "20%..100%"), party(MIDDLE_BACKLOG, "80%..100%")],
    "dense-10-90": [party(MIDDLE_BACKLOG, "10%..100%"), party(MIDDLE_BACKLOG, "90%..100%")],
    "heavy-tailed": [party("kernel=20-8000 threads=3 copy=64 gap=500", "50%..100%"), party(MIDDLE_BACKLOG, "50%..100%")],
    "mix": [party("kernel=700 burst=2 period=17000", "20%..100%"), party("kernel=80 gap=120", "20%..100%"),
            party(MIDDLE_BACKLOG, "30%..100%"), party(LONG_BACKLOG, "30%..100%")],
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
        bursts, kernel_ns, p50_ns, p99_ns, most_ns = map(int, self.process.stdout.readline().split())
        return {"bursts": bursts, "kernel_ms": kernel_ns / 1e6, "p50": p50_ns / 1e6, "p99": p99_ns / 1e6, "most": most_ns / 1e6}


class Loads:
    def __init__(self, bench, cpu_clock, clock, window_s):
        self.bench, self.cpu_clock, self.clock, self.window_s = bench, cpu_clock, clock, window_s

    def run(self, keys):
        for key in keys:
            self._case(key, CASES[key])

    def _window(self, loads, account=lambda: []):
        """What each load did in a window, with its percent of the compute engine's time in `gpu` and, where `account` tells what
        it was charged, in `charged`."""
        for load in loads:
            load.begin(SETTLE_S)
        for load in loads:
            load.end()
        for load in loads:
            load.begin(self.window_s)
        with self.cpu_clock() as cpus:
            charged_before, (before_ns, before) = account(), self.clock.read()
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

    def _case(self, key, parties):
        alone = {}
        for words, _, _ in parties:
            if words not in alone:
                alone[words] = self._together([(words, "", "")], [self.bench.outside])[0][0]
        outside, _ = self._together(parties, [self.bench.outside] * len(parties))
        inside, cpus = self._inside(parties)
        for number, ((words, compute, priority), without, within) in enumerate(zip(parties, outside, inside)):
            def three(name, scale=1):
                return "/".join(f"{scale * one[name]:.2f}" for one in (alone[words], without, within))
            speed = 100 * within["gpu"] / alone[words]["gpu"]
            print(f"{key} {number}: {words:44} {compute} {priority:6} speed {speed:6.2f} %  charged {within['charged']:6.2f}  "
                  f"alone/without/inside: gpu {three('gpu')} p50 {three('p50')} p99 {three('p99')}  idle {cpus.idle:.2f}", flush=True)
        total = sum(one["gpu"] for one in inside) / sum(one["gpu"] for one in outside)
        print(f"{key}: together {100 * total:.2f} % of without", flush=True)
