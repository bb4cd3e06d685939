"""The bench's rows on other people's programs (tests/programs): what each does a second in sessions, beside the same without
GPU Slice in the same call. The card is so slow that the GPU, and not the CPU, decides how fast they are."""
import pathlib
import statistics
import sys
import time
import typing

from machine import Machine

SOURCE = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(SOURCE / "tests" / "system"))
sys.path.append(str(SOURCE / "tests" / "programs"))
from programs import FFmpeg, Llama  # noqa: E402 - behind the path
from running import Running  # noqa: E402



class Case(typing.NamedTuple):
    program: object
    steps: str
    link_s: float | None  # for which a step has the link, where that is what it uses of the GPU; else its kernels count


def frame_s(program):
    width, height = map(int, program.size.split("x"))
    return width * height * 1.5 / (float(program.slow["FAKECUDA_LINK_GBPS"]) * 1e9)  # yuv420p


PROGRAMS = {"ffmpeg": Case(FFmpeg(), "frames", frame_s(FFmpeg)), "llama": Case(Llama(12, {}), "tokens", None)}
KEYS = tuple(PROGRAMS)
ROUNDS, SETTLE_S, WINDOW_S = 3, 3.0, 5.0
MINIMA = 75, 20
MOST = 25
POINTS = 1.5  # that a minimum may be missed by
POINTS_MOST = 0.5


class Seen(typing.NamedTuple):
    rate: float
    gpu: float


class Others:
    def __init__(self, bench, cpu_clock):
        self.bench, self.cpu_clock = bench, cpu_clock
        self.rounds = 1 if bench.quick else ROUNDS

    def run(self, keys=KEYS):
        for key in keys:
            case = PROGRAMS[key]
            reason = case.program.missing()
            if reason:
                self.bench.leave_out(f"programs, {key}: {reason}")
                continue
            machine = Machine(self.bench.prefix, {"FAKECUDA_TOTAL_MEM": str(8 << 30), "FAKECUDA_CONTEXT_BYTES": "0",
                                                  **case.program.card, **case.program.slow})
            clock = self.bench.clock(machine.outside)
            try:
                self._program(machine, clock, key, case)
            finally:
                self.bench.end([clock.process])
                machine.close()

    def _run(self, machine, clock, case, shares):
        """Steps a second of so many of them side by side, and percent of the GPU's time; a share of None is without GPU Slice."""
        program = case.program
        sessions, running = [], []
        try:
            for share in shares:
                environment = machine.outside
                if share:
                    session, environment = machine.session(program.session << 20, compute=share)
                    sessions.append(session)
                running.append(Running(program.words(program.endless), {**environment, **program.environment(environment)},
                                       program.is_step, machine.folder))
            for one in running:
                one.wait_steps(program.settled)
            time.sleep(SETTLE_S)  # until it is known what they are like
            since, (begin_ns, begun) = time.monotonic(), clock.read()
            time.sleep(WINDOW_S)
            until, (end_ns, ended) = time.monotonic(), clock.read()
            for one in running:
                one.wait_steps(0)  # it has not ended
            rates = [one.rate(since, until) for one in running]
            pids = [one.process.pid for one in running]
            return [Seen(rate, 100 * (rate * case.link_s if case.link_s else
                                      (ended.get(pid, 0) - begun.get(pid, 0)) / (end_ns - begin_ns)))
                    for rate, pid in zip(rates, pids)]
        finally:
            for one in running:
                one.stop()
            for session in sessions:
                machine.release(session)

    def _program(self, machine, clock, key, case):
        kinds = {"alone": [None], "without": [None, None], "inside": [f"{least}%..100%" for least in MINIMA],
                 "capped": [f"0%..{MOST}%"], "unneeded": ["10%..100%"]}
        seen = {kind: [] for kind in kinds}
        with self.cpu_clock() as cpus:
            for _ in range(self.rounds):
                for kind, shares in kinds.items():
                    seen[kind].append(self._run(machine, clock, case, shares))

        def median(kind, of):
            return [statistics.median(map(of, one)) for one in zip(*seen[kind])]

        rates = {kind: median(kind, lambda one: one.rate) for kind in kinds}
        (alone,), (capped,), (unneeded,) = rates["alone"], rates["capped"], rates["unneeded"]
        (used,), (used_alone,) = (median(kind, lambda one: one.gpu) for kind in ("capped", "alone"))

        def row(figure, text, *more, **others):
            self.bench.row(f"programs, {key}: {text}", *more, cpus, case=key, figure=f"program_{figure}", alone=round(alone, 1),
                           **others)
        for least, rate, before in zip(MINIMA, rates["inside"], rates["without"]):
            row("speed", f"{case.steps} a second, of alone, minimum {least} %", 100 * rate / alone, "%", least - POINTS, at_least=True,
                minimum=least, without=round(before, 1), inside=round(rate, 1))
        row("together", f"{case.steps} a second, together, of without GPU Slice", 100 * sum(rates["inside"]) / sum(rates["without"]),
            "%", 95, at_least=True)
        row("capped", f"|used - {MOST} %| of the GPU, maximum {MOST} %", abs(used - MOST), "pp", POINTS_MOST, used=round(used, 2),
            used_alone=round(used_alone, 1), inside=round(capped, 1))
        row("unneeded", f"{case.steps} a second in a session alone, of without GPU Slice", 100 * unneeded / alone, "%", 99,
            at_least=True)
