"""The bench's rows on two processes of a session that wait for each other's work, as the ranks of a collective do, while
somebody else wants the GPU all the time: how long it takes until the session has given the GPU back, from the moment that the
daemon asks for it. Read off the daemon's own list of turns."""
import pathlib
import statistics
import subprocess
import sys

from machine import Machine

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "system"))
from workers import Worker  # noqa: E402

QUANTA_MS = (1, 2, 5, 10, 20, 50)
DEVICES = ("default", "h100")
KEYS = tuple(f"{device}-{quantum}ms" for device in DEVICES for quantum in QUANTA_MS)
# A slice of the device and a millisecond (src/simgpu/device/constants.def).
BUDGET_MS = {"default": 3.0, "h100": 2.024}
ROUNDS = 200  # for each line that a rank is told
SETTLE_S = 1.0


class Ranks:
    def __init__(self, bench, cpu_clock):
        self.bench, self.cpu_clock = bench, cpu_clock
        self.closings = 40 if bench.quick else 200  # of a row

    def run(self, keys=KEYS):
        for device in DEVICES:
            quanta = [quantum for quantum in QUANTA_MS if f"{device}-{quantum}ms" in keys]
            if quanta:
                self._device(device, quanta)

    def _device(self, device, quanta):
        machine = Machine(self.bench.prefix, {"FAKECUDA_TOTAL_MEM": str(8 << 30), "FAKECUDA_CONTEXT_BYTES": "0",
                                              "FAKECUDA_CONSTANTS": device, "FAKECUDA_PAGING": "0"})
        try:
            _, rival = machine.session(1 << 30, compute="50%..100%")
            session, inside = machine.session(1 << 30, compute="25%..100%")
            processes = [self._spawn(rival, "worker", "200")]
            Worker(processes[0]).begin(3_600_000)
            ranks = [self._spawn(inside, "waiting_work", "rank", str(rank), str(ROUNDS), "1") for rank in range(2)]
            self._say(ranks[1], ranks[0].stdout.readline())
            for rank in ranks:
                if rank.stdout.readline() != "ready\n":
                    sys.exit("a rank did not start")
            for quantum in quanta:
                self._quantum(machine, session, ranks, device, quantum)
            self.bench.end(processes + ranks)
        finally:
            machine.close()

    def _spawn(self, environment, program, *words):
        return subprocess.Popen([self.bench.build / "tests/system/programs" / program, *words], env=environment,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @staticmethod
    def _say(process, line):
        process.stdin.write(line)
        process.stdin.flush()

    def _round(self, ranks):
        for rank in ranks:
            self._say(rank, "go\n")
        for rank in ranks:
            if rank.stdout.readline() != "again\n":
                sys.exit("a rank ended early")

    def _quantum(self, machine, session, ranks, device, quantum):
        machine.request("PATCH", "/v1/scheduler", {"quantum": f"{quantum}ms"})
        since = self._settle(machine, ranks)
        closings, begin = [], since
        with self.cpu_clock() as cpus:
            while len(closings) < self.closings:
                self._round(ranks)
                answer = machine.request("GET", f"/v1/scheduler/turns?since_seconds={since}")[1]
                since = answer["now_seconds"]
                closings += [(1e3 * (turn["end_seconds"] - turn["asked_seconds"]), turn["steps"]) for turn in answer["turns"]
                             if turn["session_id"] == session and turn["asked_seconds"] and turn["end_seconds"]]
        times = [ms for ms, _ in closings]
        stepped = [ms for ms, steps in closings if steps]
        quarter = len(times) // 4
        more = {"p99": sorted(times)[len(times) * 99 // 100], "first_quarter": statistics.median(times[:quarter]),
                "last_quarter": statistics.median(times[-quarter:]), "with_steps": statistics.median(stepped) if stepped else 0,
                "steps": statistics.mean(steps for _, steps in closings if steps) if stepped else 0}
        self.bench.row(f"ranks beside a rival, {device}, quantum {quantum} ms: closing, median", statistics.median(times), "ms",
                       BUDGET_MS[device], cpus, seen=len(times), stepped=len(stepped),
                       **{name: round(value, 2) for name, value in more.items()})

    def _settle(self, machine, ranks):
        """Until turns are as long as they are to be; the daemon's clock then."""
        begin = now = machine.request("GET", "/v1/scheduler/turns?since_seconds=999999999")[1]["now_seconds"]
        while now < begin + SETTLE_S:
            self._round(ranks)
            now = machine.request("GET", "/v1/scheduler/turns?since_seconds=999999999")[1]["now_seconds"]
        return now
