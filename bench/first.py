"""The bench's rows on the first seconds: what a service and a light program lose while GPU Slice gets to know the programs beside them.

Each case runs the same programs in turn without GPU Slice and in new sessions, several times in one call. How long a service's bursts
take is the service's own account of the first seconds after somebody came, and of some seconds after those. The budgets are parts of
the same figure without GPU Slice."""
import statistics
import threading
import time
import typing

from loads import Load, Party
from machine import Machine

DEVICES = ("default", "h100")
FIRST_S, LATER_S, SETTLE_S = 4.0, 3.0, 3.0
VISIT_S, VISITS = 3.0, 4  # there or away
SHORT_S, LOOPS = 0.25, 2  # how long a short session works, and how many of them run at a time
ROUNDS = 3

SERVICE = Party("kernel=700 burst=2 period=17000", "40%..100%")
TRAINER = Party("kernel=7000 ahead=28", "20%..100%")
LIGHT = Party("kernel=500 period=5000", "30%..100%")
SHORT = Party("kernel=400 ahead=20", "0%..100%")

KEYS = tuple(f"{device}-{case}" for device in DEVICES
             for case in ("together", "trainer-comes", "service-comes", "visits", "loops", "loops-high"))
FIRST_TIMES, LATER_TIMES, SPEED_PERCENT = 1.5, 1.1, 95


class Seen(typing.NamedTuple):
    """What the service did: its bursts' 99th percentile and the longest in ms, and how many there were a second."""
    first: float
    later: float
    longest: float
    bursts: float


class Outside:
    """Programs without GPU Slice."""

    def __init__(self, machine):
        self.machine = machine

    def begin(self, party):
        return self.machine.outside, None

    def end(self, made):
        pass


class Inside(Outside):
    """Programs in a session each."""

    def begin(self, party):
        session, environment = self.machine.session(1 << 30, compute=party.compute, priority=party.priority)
        return environment, session

    def end(self, made):
        self.machine.release(made)


class Side:
    """What runs side by side, without GPU Slice or in sessions."""

    def __init__(self, bench, where):
        self.bench, self.where, self.running = bench, where, []

    def start(self, party):
        environment, made = self.where.begin(party)
        load = Load(self.bench, environment, party.words)
        self.running.append((load, made))
        return load

    def stop(self, load):
        at, (_, made) = next((at, pair) for at, pair in enumerate(self.running) if pair[0] is load)
        del self.running[at]
        self.bench.end([load.process])
        self.where.end(made)

    def close(self):
        for load, _ in list(self.running):
            self.stop(load)

    @staticmethod
    def work(load, window_s):
        load.begin(window_s)
        return load.end()


class First:
    def __init__(self, bench, cpu_clock):
        self.bench, self.cpu_clock = bench, cpu_clock
        self.rounds = 1 if bench.quick else ROUNDS

    def run(self, keys=KEYS):
        for device in DEVICES:
            cases = [key.partition("-")[2] for key in keys if key.partition("-")[0] == device]
            if cases:
                self._device(device, cases)

    def _device(self, device, cases):
        machine = Machine(self.bench.prefix, {"FAKECUDA_TOTAL_MEM": str(8 << 30), "FAKECUDA_CONTEXT_BYTES": "0",
                                              "FAKECUDA_CONSTANTS": device, "FAKECUDA_PAGING": "0"})
        try:
            for case in cases:
                self._case(machine, device, case)
        finally:
            machine.close()

    def _case(self, machine, device, case):
        run = {"together": self._together, "trainer-comes": self._trainer_comes, "service-comes": self._service_comes,
               "visits": self._visits, "loops": self._loops,
               "loops-high": lambda side: self._loops(side, LIGHT._replace(priority="high"))}[case]
        seen = {"without": [], "inside": []}
        with self.cpu_clock() as cpus:
            for _ in range(self.rounds):
                for name, kind in (("without", Outside), ("inside", Inside)):
                    side = Side(self.bench, kind(machine))
                    try:
                        seen[name].append(run(side))
                    finally:
                        side.close()
        self._rows(f"first seconds, {device}, {case}", f"{device}-{case}", seen, cpus, case.startswith("loops"))

    def _rows(self, name, key, seen, cpus, has_loops):
        def row(text, figure, value_of, *more, **others):
            without, inside = (statistics.median(map(value_of, seen[side])) for side in ("without", "inside"))
            self.bench.row(f"{name}: {text}, of without GPU Slice", (100 if has_loops and figure == "bursts" else 1) * inside / without,
                           *more, cpus, case=key, figure=f"first_{figure}", inside=round(inside, 2), without=round(without, 2),
                           rounds="/".join(f"{value_of(one):.1f}" for one in seen["inside"]), **others)
        row("p99 of the first seconds", "p99", lambda one: one.first, "times", FIRST_TIMES,
            longest="/".join(f"{one.longest:.0f}" for one in seen["inside"]))
        if has_loops:
            row("bursts a second", "bursts", lambda one: one.bursts, "%", SPEED_PERCENT, at_least=True)
        else:
            row("p99 afterwards", "later", lambda one: one.later, "times", LATER_TIMES)

    @staticmethod
    def _seen(side, service):
        first = side.work(service, FIRST_S)
        later = side.work(service, LATER_S)
        return Seen(first["p99"], later["p99"], first["most"], first["bursts"] / FIRST_S)

    def _together(self, side):
        service, trainer = side.start(SERVICE), side.start(TRAINER)
        trainer.begin(FIRST_S + LATER_S)
        return self._seen(side, service)

    def _trainer_comes(self, side):
        """The service has been known for some seconds."""
        service = side.start(SERVICE)
        side.work(service, SETTLE_S)
        side.start(TRAINER).begin(FIRST_S + LATER_S)
        return self._seen(side, service)

    def _service_comes(self, side):
        trainer = side.start(TRAINER)
        trainer.begin(SETTLE_S + FIRST_S + LATER_S)
        time.sleep(SETTLE_S)
        return self._seen(side, side.start(SERVICE))

    def _visits(self, side):
        """Every three seconds a trainer comes or goes beside the service and its own trainer; each one is new. All of that counts as
        first seconds; those afterwards begin as the last visitor has been gone for as long as a visit lasts."""
        service, trainer = side.start(SERVICE), side.start(TRAINER)
        trainer.begin((VISITS + 1) * VISIT_S + LATER_S)
        service.begin(VISITS * VISIT_S)
        for visit in range(VISITS):
            end = time.monotonic() + VISIT_S
            if visit % 2 == 0:
                visitor = side.start(TRAINER)
                visitor.begin(VISIT_S)
                visitor.end()
                side.stop(visitor)
            time.sleep(max(0, end - time.monotonic()))
        first = service.end()
        later = side.work(service, LATER_S)
        return Seen(first["p99"], later["p99"], first["most"], first["bursts"] / (VISITS * VISIT_S))

    def _loops(self, side, light=LIGHT):
        """Two users' scripts start one short program after another, in sessions without a minimum."""
        service = side.start(light)
        side.work(service, SETTLE_S)
        is_over, failures = threading.Event(), []

        def loop():
            own = Side(self.bench, side.where)
            try:
                while not is_over.is_set():
                    short = own.start(SHORT)
                    own.work(short, SHORT_S)
                    own.stop(short)
            except Exception as failure:  # raised again by who started the loop
                failures.append(failure)
            finally:
                own.close()
        loops = [threading.Thread(target=loop) for _ in range(LOOPS)]
        for thread in loops:
            thread.start()
        first = side.work(service, FIRST_S)
        is_over.set()
        for thread in loops:
            thread.join()
        if failures:
            raise failures[0]
        return Seen(first["p99"], 0, first["most"], first["bursts"] / FIRST_S)
