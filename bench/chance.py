"""The bench's rows on mixes of programs that chance draws: each program alone, all of them side by side without GPU Slice, and the
same in sessions. A number draws the same mix again: `bench/run PREFIX BUILD --only chance --draws 7 8`."""
import math
import random

from loads import Load, Loads, Party

KINDS = {  # of so many in ten
    "dense": 3, "light": 4, "periodic": 3, "launches": 1, "graphs": 1, "tailed": 1, "copies": 1, "processes": 1,
}
USUAL = range(1, 7)  # where nobody asks for others


def _between(chance, least, most):
    """As likely between 10 and 20 as between 1000 and 2000."""
    return round(math.exp(chance.uniform(math.log(least), math.log(most))))


def _program(chance, kind):
    """Words of tests/system/programs/load.c, and how many processes run it."""
    if kind == "dense":
        return f"kernel={_between(chance, 20, 8000)} ahead={chance.choice((34, 40, 60))}", 1
    if kind == "light":
        return f"kernel={_between(chance, 20, 2000)} burst={chance.choice((1, 1, 1, 2, 4))} gap={_between(chance, 20, 2000)}", 1
    if kind == "periodic":
        kernel, burst = _between(chance, 100, 5000), chance.randint(1, 3)
        return f"kernel={kernel} burst={burst} period={round(kernel * burst / chance.uniform(0.05, 0.4))}", 1
    if kind == "launches":
        return f"kernel={chance.randint(5, 20)} burst={_between(chance, 20, 200)} gap={_between(chance, 100, 2000)}", 1
    if kind == "graphs":
        return f"kernel={_between(chance, 5, 100)} graph={_between(chance, 5, 40)} gap={_between(chance, 100, 5000)}", 1
    if kind == "tailed":
        return f"kernel=20-8000 threads={chance.randint(1, 3)} copy=64 gap={_between(chance, 100, 5000)}", 1
    if kind == "copies":
        return f"kernel={_between(chance, 20, 2000)} copy={_between(chance, 4, 64)} gap={_between(chance, 50, 2000)}", 1
    return f"kernel={_between(chance, 50, 2000)} gap={_between(chance, 200, 2000)}", chance.randint(2, 3)


def draw(number):
    """The sessions of this mix."""
    chance = random.Random(number)
    count = chance.choice((2, 2, 3, 4))
    kinds = chance.choices(list(KINDS), list(KINDS.values()), k=count)
    if number % 3 == 0:
        kinds = ["light"] * 2
    left, parties = 100, []
    ranked = chance.random() < 0.25
    for at, kind in enumerate(kinds):
        words, processes = _program(chance, kind)
        promised = chance.randrange(0, 1 + min(left, 160 // len(kinds)), 5)
        left -= promised
        most = chance.choice((promised, promised + 10, 50)) if chance.random() < 0.2 else 100
        most = min(100, max(promised, most, 10))
        priority = chance.choice(("high", "low")) if ranked and at == 0 else "normal"
        parties.append(Party(words, f"{promised}%..{most}%", priority, processes))
    return parties


def is_dense(party):
    return "ahead=" in party.words


class Chance(Loads):
    def run(self, numbers):
        for number in numbers or USUAL:
            self._mix(number, draw(number))

    def _alone(self, parties):
        """Of each program's GPU time what it takes where it is alone; each on a simulated machine of its own, at the same time."""
        apart = [self.bench.apart(number) for number in range(len(parties))]
        clocks = [self.bench.clock(environment) for environment in apart]
        loads = [[Load(self.bench, environment, party.words) for _ in range(party.processes)]
                 for party, environment in zip(parties, apart)]
        results, cpus = self._window(loads, lambda: [], lambda window_s: None, clocks)
        self.bench.end([load.process for members in loads for load in members] + [clock.process for clock in clocks])
        return results, cpus

    def _mix(self, number, parties):
        alone, _ = self._alone(parties)
        without, _ = self._together(parties, [self.bench.outside] * len(parties))
        sessions, environments = self._sessions(parties)
        inside, cpus = self._together(parties, environments, self._account(sessions))
        for session in sessions:
            self.bench.release(session)
        for name, value, budget, at_least, text in judge(parties, alone, without, inside, self.window_s):
            self.bench.row(f"chance {number}: {text}", value, "", budget, cpus, at_least=at_least, mix=number,
                           what=name)
        for party, one, before, after in zip(parties, alone, without, inside):
            print(f"      {party.words:44} {party.compute:10} {party.priority:6} x{party.processes}  alone {one['gpu']:6.2f} "
                  f"without {before['gpu']:6.2f} inside {after['gpu']:6.2f} charged {after['charged']:6.2f}  "
                  f"p99 {before['p99']:7.2f} {after['p99']:7.2f}", flush=True)


def judge(parties, alone, without, inside, window_s):
    """What was promised of a mix: figure, its value, the least or most that it may be, which of both, and whose."""
    minima = [float(party.compute.partition("%")[0]) for party in parties]
    maxima = [float(party.compute.partition("..")[2][:-1]) for party in parties]
    speeds = [100 * after["gpu"] / one["gpu"] for after, one in zip(inside, alone)]
    for party, least, most, speed, one, before, after in zip(parties, minima, maxima, speeds, alone, without, inside):
        if least:
            kept = min(least, 100 * most / one["gpu"])
            yield "speed", speed, kept - 1, True, f"{party.words}: speed, minimum {least:g} %"
        if most < 100:
            yield "capped", after["gpu"], most + 1 + 7 / window_s, False, f"{party.words}: of the GPU, maximum {most:g} %"
        yield ("charged", abs(after["charged"] - after["gpu"]), max(0.5, 0.02 * after["gpu"]), False,
               f"{party.words}: |charged - used|")
    # Where everybody has the minimum without GPU Slice, needs no more than the maximum, and has the same priority, all is as
    # without.
    needed = any(most < min(100, 1.2 * one["gpu"]) for most, one in zip(maxima, alone))
    has_all = all(100 * before["gpu"] / one["gpu"] >= least + 2 for least, one, before in zip(minima, alone, without))
    if not has_all or needed or len({party.priority for party in parties}) > 1:
        return
    together = 100 * sum(one["gpu"] for one in inside) / sum(one["gpu"] for one in without)
    yield "together", together, 95, True, "together, of without GPU Slice"
    for party, least, before, after in zip(parties, minima, without, inside):
        if "period=" in party.words and least:
            yield "p99", after["p99"] / before["p99"], 1.1, False, f"{party.words}: p99, of without GPU Slice"
