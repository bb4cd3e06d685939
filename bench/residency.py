"""The bench's rows on more memory than the card has: programs that take turns with their memory, in simulated time.

Each case has a small card of its own with a link as much slower, so that moving 90 % of it takes a quarter of a second, and what
the simulation really does for that (copies, pages of a new memory, digests) takes a small part of it. Turns are of 5 s. Times are the
programs' own, from when they are told to begin.
"""
import concurrent.futures
import random
import statistics
import subprocess
import threading
import time

from machine import Machine

MIB = 1 << 20
CARD = 48 * MIB
LINK_GBPS = 0.1875
BLOCK = 2 * MIB  # of each buffer: a whole block, so that nothing is lost to rounding
KERNEL_MS = 10
QUANTUM_S = 5
# Where the driver moves pages, a card is larger, as a fault costs what it costs, and so is what each kernel touches.
PAGED = {"scale": 4, "block": 10 * MIB}

KEYS = ("half", "most", "thrash", "fits", "exchange", "notebooks", "servers")


def percentile(values, fraction):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]


class Job:
    """A process of bench/resident.c: `part` of a card of `card_bytes`, and a cycle of so many ms on the GPU and beside it."""

    def __init__(self, bench, environment, card_bytes, part, gpu_ms, cpu_ms, kernel_ms=KERNEL_MS, clean=False,
                 block=BLOCK):
        self.gpu_s, self.cpu_s = gpu_ms / 1e3, cpu_ms / 1e3
        buffers = int(part * card_bytes) // block
        self.bytes = buffers * block
        words = [self.bytes, buffers, gpu_ms // kernel_ms, cpu_ms * 1000, *(["clean"] if clean else [])]
        environment = {**environment, "FAKECUDA_KERNEL_NS": str(kernel_ms * 10**6)}
        self.process = subprocess.Popen([bench.build / "bench/resident", *map(str, words)], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise SystemExit("a job did not start")

    def begin(self, cycles=1):
        self.process.stdin.write(f"{cycles}\n")
        self.process.stdin.flush()

    def end(self):
        """When it began and ended, in seconds."""
        return [int(ns) / 1e9 for ns in self.process.stdout.readline().split()]

    def run(self, cycles=1):
        self.begin(cycles)
        began, ended = self.end()
        return ended - began


def together(jobs, cycles):
    """From the first's begin to the last's end."""
    for job in jobs:
        job.begin(cycles)
    times = [job.end() for job in jobs]
    return max(ended for _, ended in times) - min(began for began, _ in times)


class Card(Machine):
    """A card of `cards` times CARD, and sessions of one kind there. `scale`: it is so much larger, and its link as much faster."""

    def __init__(self, bench, engine="swap", cards=1, link_gbps=LINK_GBPS, scale=1, **more):
        self.bench, self.engine, self.bytes = bench, engine, CARD * scale
        self.sessions = 0
        super().__init__(bench.prefix, {
            "FAKECUDA_CONSTANTS": "h100", "FAKECUDA_TOTAL_MEM": str(int(cards * self.bytes)), "FAKECUDA_CONTEXT_BYTES": "0",
            "FAKECUDA_MODULE_BYTES": "0", "FAKECUDA_LOCAL_MEMORY": "0", "FAKECUDA_LINK_GBPS": str(link_gbps * scale), **more})
        self.jobs = []

    def scheduler(self, *words):
        subprocess.run([self.prefix / "bin/gpuslice", "scheduler", *words], env=self.shell, check=True, capture_output=True)

    def job(self, part, *arguments, inside=True, **more):
        environment = self.outside
        if inside:
            _, environment = self.session(int(min(part + 0.06, 1) * self.bytes), oversubscribe=self.engine)
        self.jobs.append(Job(self.bench, environment, self.bytes, part, *arguments, **more))
        return self.jobs[-1]

    def close(self):
        self.bench.end([job.process for job in self.jobs])
        super().close()


class Residency:
    def __init__(self, bench, cpu_clock):
        self.bench, self.cpu_clock = bench, cpu_clock

    def run(self, keys):
        for key in keys:
            with self.cpu_clock() as cpus:
                rows = getattr(self, f"_{key}")()
            for text, value, unit, budget, details in rows:
                at_least = details.pop("at_least", False)
                self.bench.row(f"residency, {text}", value, unit, budget, cpus, at_least=at_least, case=key, **details)

    def _card(self, *arguments, **more):
        return Card(self.bench, *arguments, **more)

    def _alone(self, part, gpu_ms, cpu_ms, cycles, scale=1, **more):
        card = self._card(scale=scale)
        seconds = card.job(part, gpu_ms, cpu_ms, inside=False, **more).run(cycles)
        card.close()
        return seconds

    def _pair(self, part, gpu_ms, cpu_ms, cycles, engine, *scheduler, scale=1, **more):
        card = self._card(engine, scale=scale)
        card.scheduler(*scheduler)
        jobs = [card.job(part, gpu_ms, cpu_ms, **more) for _ in range(2)]
        seconds = together(jobs, cycles)
        card.close()
        return seconds

    def _against_serial(self, name, gpu_ms, cpu_ms, cycles):
        """Two copies of a job that needs nine tenths of the card, against the better of one after the other, and all time on
        the CPU beside the other's time on the GPU."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            alone = pool.submit(self._alone, 0.9, gpu_ms, cpu_ms, cycles)
            pair = pool.submit(self._pair, 0.9, gpu_ms, cpu_ms, cycles, "swap", "--quantum", f"{QUANTUM_S}s")
            alone, pair = alone.result(), pair.result()
        serial, overlap = 2 * alone, max(alone, (2 * gpu_ms * cycles + cpu_ms) / 1e3)
        return [(f"two of 90 % of the card, GPU/CPU {name}, of the better of serial and overlap", pair / min(serial, overlap), "times",
                 1.05, {"seconds": round(pair, 2), "serial": round(serial, 2), "overlap": round(overlap, 2)})]

    def _half(self):
        return self._against_serial("50/50", 5000, 5000, 2)

    def _most(self):
        return self._against_serial("90/10", 9000, 1000, 2)

    def _thrash(self):
        """Managed memory, with turns and without."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            runs = [pool.submit(self._alone, 0.9, 900, 100, 4, **PAGED)]
            runs += [pool.submit(self._pair, 0.9, 900, 100, 4, "managed", "--anti-thrash", how, **PAGED)
                     for how in ("off", "auto")]
            alone, off, on = (run.result() for run in runs)
        details = {"serial": round(2 * alone, 2)}
        return [("managed, two of 90 % of the card, without turns, of serial", off / (2 * alone), "times", 2,
                 {"seconds": round(off, 2), "at_least": True, **details}),
                ("managed, two of 90 % of the card, with turns, of serial", on / (2 * alone), "times", None,
                 {"seconds": round(on, 2), **details})]

    def _fits(self):
        """Two that fit together, in sessions whose memory could leave, against the same two without GPU Slice."""
        def run(inside):
            card = self._card()
            seconds = together([card.job(0.4, 900, 100, inside=inside) for _ in range(2)], 8)
            card.close()
            return seconds
        without, inside = run(False), run(True)
        return [("two that fit together, of without GPU Slice", 100 * inside / without, "%", 101,
                 {"seconds": round(inside, 3), "without": round(without, 3)})]

    def _exchange_waits(self, **more):
        """From when an idle session's successor wants the GPU until it has it, and how long one way takes: 90 % of the card each
        way."""
        card = self._card(link_gbps=LINK_GBPS / 8, **more)
        first, second = (card.job(0.9, KERNEL_MS, 0) for _ in range(2))
        for job in (first, second):  # host memory is there now
            job.run()
        time.sleep(1)
        waits = []
        for job in (first, second, first):
            time.sleep(1)
            waits.append(job.run() - KERNEL_MS / 1e3)
        card.close()
        return waits, first.bytes / (LINK_GBPS / 8 * 1e9)

    def _exchange(self):
        rows = []
        for text, least_ways, budget, more in (("link duplex, of the longer way", 1, 1.15, {}),
                                               ("link shared by both ways, of their sum", 2, 1.05, {"FAKECUDA_LINK_DUPLEX": "0"})):
            waits, way = self._exchange_waits(**more)
            rows.append((f"exchange of 90 % of the card, {text}", statistics.median(waits) / (least_ways * way), "times", budget,
                         {"seconds": [round(wait, 2) for wait in waits], "way": round(way, 2)}))
        return rows

    def _at_chance(self, jobs, idle_s, window_s, seed):
        """Each job's cycles begin at chance times, `idle_s` apart on the average; how long each took from when it was due."""
        took = [[] for _ in jobs]

        def lead(number, job):
            chance, end = random.Random(seed * 1000 + number), time.monotonic() + window_s
            due = time.monotonic() + chance.expovariate(1 / idle_s)
            while due < end:
                time.sleep(max(0, due - time.monotonic()))
                job.begin()
                took[number].append(job.end()[1] - due)
                due = max(due, time.monotonic()) + chance.expovariate(1 / idle_s)
        threads = [threading.Thread(target=lead, args=pair) for pair in enumerate(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [one for of_job in took for one in of_job]

    def _notebooks(self):
        """Four notebooks with 60 % of the card each, idle 95 % of the time: how long a cell takes."""
        cell_ms = 500
        card = self._card()
        jobs = [card.job(0.6, cell_ms, 0) for _ in range(4)]
        took = self._at_chance(jobs, cell_ms / 1e3 * 19, 50, 1)
        card.close()
        own = jobs[0].bytes / (LINK_GBPS * 1e9) + cell_ms / 1e3
        return [("four notebooks of 60 % of the card: a cell, of its restore and its solo time", statistics.median(took) / own,
                 "times", 1.3, {"own": round(own, 3), "cells": len(took), "p90": round(percentile(took, 0.9) / own, 2)})]

    def _servers(self):
        """Eight servers with 25 % of the card each, whose weights do not change, asked at chance."""
        def run(cards):
            card = self._card(cards=cards)
            jobs = [card.job(0.25, 40, 0, clean=True) for _ in range(8)]
            for job in jobs:  # what is first copied out is clean from then on
                job.run()
            took = self._at_chance(jobs, 1, 25, 2)
            card.close()
            return took
        with concurrent.futures.ThreadPoolExecutor() as pool:
            small, large = pool.submit(run, 1), pool.submit(run, 2.2)
            small, large = small.result(), large.result()
        p99 = percentile(small, 0.99), percentile(large, 0.99)
        return [("eight servers of 25 % of the card: p99, of that on a card twice as large", p99[0] / p99[1], "times", None,
                 {"p50_ms": round(1e3 * statistics.median(small), 1), "p99_ms": round(1e3 * p99[0], 1),
                  "large_p99_ms": round(1e3 * p99[1], 1), "requests": len(small)})]
