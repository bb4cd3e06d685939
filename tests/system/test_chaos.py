"""Holders of leases and those who wait for one are killed, stopped and let go on at random: whatever happens to one, the
GPU's own clock says that the others go on.

GPUSLICE_TEST_SEED chooses a seed, GPUSLICE_TEST_CHAOS_EVENTS how much happens (25; ./run-tests --all: 100).
"""
import json
import os
import random
import signal
import time

from conftest import wait_for
from test_shares import Worker, start_clock

# A session's least share in percent, and what its processes run.
SESSIONS = (
    ("a", 20, (("500",), ("50", "graph=20"))),
    ("b", 30, (("500", "streams=4"), ("5000",))),
    ("c", 50, (("500",), ("50",))),
)
FOREVER_MS = 3_600_000
GOES_ON_S = 10  # until everybody who is not stopped has had the GPU again: patience, grace and turns are 1 s together
GOES_ON_NS = 100_000  # of its time, at least
WINDOW_S = 3
WITHIN = 6  # points; how exact shares are is test_shares' business, where CPUs are idle


class Party:
    """One process of a session, at work; another in its place once it has been killed."""

    def __init__(self, chaos, session, words):
        self.chaos, self.session, self.words = chaos, session, words
        self.start()

    def start(self):
        self.worker = Worker(self.chaos.daemon, self.chaos.reap, None, *self.words, session=self.session)
        self.worker.begin(FOREVER_MS)
        self.stopped = False

    @property
    def process(self):
        return self.worker.process

    def kill(self):
        """What it said on standard error before."""
        self.process.kill()
        _, errors = self.process.communicate(timeout=60)
        return errors


class Chaos:
    def __init__(self, daemon, reap, chance):
        self.daemon, self.reap, self.chance = daemon, reap, chance
        self.clock = start_clock(daemon, reap)
        for name, least, _ in SESSIONS:
            daemon.cli("create", "--name", name, "--compute", f"{least}%..100%")
        self.parties = [Party(self, name, words) for name, _, runs in SESSIONS for words in runs]
        self.longest_s, self.counts = 0.0, {}

    def running(self):
        return [party for party in self.parties if not party.stopped]

    def scheduler(self):
        return self.daemon.request("GET", "/v1/scheduler")[1]

    # --- What happens -------------------------------------------------------------------------------------------

    def kill(self, party):
        assert party.kill() == ""
        party.start()

    def stop(self, party):
        if len({other.session for other in self.running() if other is not party}) >= 2:
            os.kill(party.process.pid, signal.SIGSTOP)
            party.stopped = True

    def go_on(self, party):
        os.kill(party.process.pid, signal.SIGCONT)
        party.stopped = False

    def choose(self):
        """Somebody of a session that holds a lease just now, or that waits; or anybody."""
        holds = self.chance.random() < 0.5
        (gpu,) = self.scheduler()["gpus"]
        names = {s["name"] for s in gpu["sessions"] if (not s["waiting"]) == holds}
        return self.chance.choice([party for party in self.parties if party.session in names] or self.parties)

    def step(self):
        party = self.choose()
        act = self.chance.choice((self.go_on, self.kill) if party.stopped else (self.stop, self.stop, self.kill))
        self.counts[act.__name__] = self.counts.get(act.__name__, 0) + 1
        act(party)
        self.everybody_goes_on(f"after {act.__name__} of a process of session {party.session}")

    def everybody_goes_on(self, when):
        begin = time.monotonic()
        _, before = self.clock.read()

        def late():
            _, now = self.clock.read()
            return [party for party in self.running()
                    if now.get(party.process.pid, 0) - before.get(party.process.pid, 0) < GOES_ON_NS]
        wait_for(lambda: not late(), lambda: f"{[(party.session, party.process.pid) for party in late()]} to go on {when}: "
                 f"{self.scheduler()}\n{self.daemon.log_text()}", GOES_ON_S)
        self.longest_s = max(self.longest_s, time.monotonic() - begin)
        assert all(party.process.poll() is None for party in self.parties), "one ended by itself"

    def shares(self):
        """By session, in percent of what all got in a window."""
        _, before = self.clock.read()
        time.sleep(WINDOW_S)
        _, after = self.clock.read()
        got = {name: sum(after.get(p.process.pid, 0) - before.get(p.process.pid, 0)
                         for p in self.parties if p.session == name) for name, _, _ in SESSIONS}
        return {name: 100 * ns / sum(got.values()) for name, ns in got.items()}

    # --- At the end ---------------------------------------------------------------------------------------------

    def shares_are_back(self):
        for party in self.parties:
            if party.stopped:
                self.go_on(party)
        self.everybody_goes_on("at the end")
        seen = []
        while not seen or any(abs(seen[-1][name] - least) > WITHIN for name, least, _ in SESSIONS):
            assert len(seen) < 8, f"shares did not come back: {seen}"
            seen.append(self.shares())
        return seen[-1]

    def no_lease_is_stuck(self):
        shown = json.loads(self.daemon.cli("scheduler", "--json").stdout)
        (gpu,) = shown["gpus"]
        assert gpu["mode"] == "shares"
        assert sorted(session["name"] for session in gpu["sessions"]) == [name for name, _, _ in SESSIONS]
        # One that did not answer several times in a row, as the machine did not run it, is tried again after 10 s.
        wait_for(lambda: not any(session["undrainable"] for session in self.scheduler()["gpus"][0]["sessions"]),
                 "everybody to drain")
        wait_for(lambda: self.scheduler()["gpus"][0]["handovers"] > gpu["handovers"] + 10, "leases to go round")
        seen = set()

        def all_held():
            seen.update(s["name"] for s in self.scheduler()["gpus"][0]["sessions"] if s["lease"] == "exclusive")
            return len(seen) == len(SESSIONS)
        wait_for(all_held, "each session to hold the lease in turn")

    def end(self):
        for party in self.parties:
            assert party.kill() == ""
        wait_for(lambda: self.scheduler()["gpus"][0]["sessions"] == [], "nobody to hold or wait any more")
        for name, _, _ in SESSIONS:
            assert self.daemon.session(name)["lease"] == "none"


def test_the_others_go_on_when_a_process_is_killed_or_stopped(daemon, reap):
    seed = int(os.environ.get("GPUSLICE_TEST_SEED", str(int(time.time()))))
    print(f"GPUSLICE_TEST_SEED={seed}")
    chaos = Chaos(daemon, reap, random.Random(seed))
    chaos.everybody_goes_on("at first")
    for _ in range(int(os.environ.get("GPUSLICE_TEST_CHAOS_EVENTS") or 25)):
        chaos.step()
    shares = chaos.shares_are_back()
    chaos.no_lease_is_stuck()
    chaos.end()
    print(f"{chaos.counts}; all went on within {chaos.longest_s:.2f} s; {shares}")
