"""Sessions of 1.5, 2 and 4 times the card together, with memory of every kind that comes, goes, is copied and computed on, and as
frameworks' allocators have it (gallery.py), while they are made to leave and come back ten times a second, suspended, stopped and
killed at random, and the daemon too: every byte of those that live is right, and nothing of those that died is left. In longer runs,
others beside them lie about their memory.

`make soak` runs it for a third of its time; a test run, for some seconds."""
import contextlib
import os
import random
import signal
import time

import pytest

import attacks
import gallery
from conftest import MIB, wait_for
from moved import left_in_turns
from test_moves import Movable, free_bytes

CARD = 256 * MIB
SESSION = 128 * MIB
STEPS = 10
# Of frameworks' allocators, those of which all can leave: with all sessions on the card there is no room for what cannot.
FRAMEWORKS = [row for row in gallery.ROWS.values() if not row.stays]
PATIENCE_S = 120


class Medley(Movable):
    is_over = False  # it goes on for as long as it is asked


class Framework:
    """A program of the gallery, asked as medley is: it goes on to its next point, where it has found every byte right."""

    def __init__(self, program):
        self.program = program
        self.process = program.process
        self.is_over = False

    def send(self, _):
        self.program.go()

    def read(self):
        if not self.program.read(PATIENCE_S):
            self.is_over = True
            said, status, errors = self.program.end()
            return "good" if status == 0 and said[-1].startswith("digest ") else f"ended with {status}: {errors}"
        return "good"

    def end(self):
        _, status, errors = self.program.end()
        assert status == 0, errors


class Crowd:
    """Sessions that all want the card."""

    def __init__(self, daemon, product, reap, chance, count):
        self.daemon, self.product, self.reap, self.chance = daemon, product, reap, chance
        self.named = 0
        self.programs = {}
        for _ in range(count):
            self.begin()

    def begin(self):
        self.named += 1
        name = f"m{self.named}"
        options = ["--oversubscribe", "--name", name, "--memory", str(SESSION)]
        seed = self.chance.getrandbits(31)
        if self.chance.random() < 0.5:
            program = gallery.start(self.daemon, self.chance.choice(FRAMEWORKS), *options, wanted_mib=SESSION // MIB * 3 // 8, seed=seed)
            self.reap(program.process)
            self.programs[name] = Framework(program)
            assert self.programs[name].read() == "good"  # the first point is reached without a word
        else:
            self.programs[name] = Medley(self.reap(self.daemon.spawn("run", *options, "--", self.product.program("medley"),
                                                                     str(SESSION - 16 * MIB), str(seed))))

    def kill(self, name):
        program = self.programs.pop(name)
        program.process.kill()
        program.process.wait()
        self.begin()

    def last_words(self, name):
        """What it and its child have written on stderr, now that it is over with them."""
        self.programs[name].process.kill()
        return self.programs[name].process.stderr.read()

    @contextlib.contextmanager
    def stopped(self, name):
        os.kill(self.programs[name].process.pid, signal.SIGSTOP)
        yield
        os.kill(self.programs[name].process.pid, signal.SIGCONT)

    def step(self, restarts):
        names = self.chance.sample(sorted(self.programs), k=self.chance.randint(1, len(self.programs)))
        for name in names:
            self.programs[name].send(f"go {STEPS}")
        event, one = self.chance.random(), self.chance.choice(sorted(self.programs))
        if event < 0.2:
            self.daemon.cli("suspend", one, "--no-wait", check=False)
            time.sleep(self.chance.random() * 0.1)
            self.daemon.cli("resume", one, "--no-wait", check=False)
        elif event < 0.4:
            with self.stopped(one):
                time.sleep(self.chance.random() * 0.2)
        elif event < 0.5:
            self.kill(one)
            names = [name for name in names if name != one]
        elif event < 0.55 and restarts:
            self.daemon.kill()
            time.sleep(self.chance.random() * 0.1)
            self.daemon.start()
            self.daemon.cli("scheduler", "--anti-thrash", "off")
        for name in names:
            answer = self.programs[name].read()
            assert answer == "good", f"{name}: {answer} {self.last_words(name)}"
            if self.programs[name].is_over:
                del self.programs[name]
                self.begin()

    def release_others(self):
        """The sessions of those that lied."""
        for session in self.daemon.request("GET", "/v1/sessions")[1]:
            if session["name"] not in self.programs:
                self.daemon.request("DELETE", f"/v1/sessions/{session['session_id']}?kill=true")

    def finish(self):
        for program in self.programs.values():
            program.send("go 1")
            assert program.read() == "good"
        living = {name: program for name, program in self.programs.items() if not program.is_over}
        left = [bytes_left for name in living for bytes_left in left_in_turns(self.daemon, name)]
        assert sum(left) > 0
        for program in living.values():
            program.end()
        gpus = wait_for(lambda: (now := self.daemon.request("GET", "/v1/gpus")[1])[0]["processes"] == [] and now, "the card to be empty")
        assert gpus[0]["free_bytes"] == gpus[0]["total_bytes"]
        wait_for(lambda: self.daemon.request("GET", "/v1/sessions")[1] == [], "all sessions to end")


@pytest.mark.parametrize("factor", [1.5, 2, 4])
def test_no_byte_is_wrong_where_memory_is_short(make_daemon, make_gpu, product, reap, factor):
    seconds = float(os.environ.get("GPUSLICE_TEST_MOVES_SECONDS") or 6) / 3
    seed = int(os.environ.get("GPUSLICE_TEST_SEED", str(int(time.time()))))
    print(f"seed {seed}, {seconds:g} s, sessions of {factor} times the card")
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=CARD), GPUSLICE_RECOVERY_INTERVAL="1s").start()
    daemon.cli("scheduler", "--anti-thrash", "off")  # whoever has come leaves after a tenth of a second
    crowd = Crowd(daemon, product, reap, random.Random(seed), round(factor * CARD / SESSION))
    is_long = seconds > 10
    end = time.monotonic() + seconds
    steps = 0
    with contextlib.ExitStack() as stack:
        if is_long:
            stack.enter_context(attacks.attack(attacks.lie_about_memory, daemon, uid=os.getuid(), nice=10))
        while time.monotonic() < end:
            crowd.step(restarts=is_long)
            steps += 1
    crowd.release_others()
    crowd.finish()
    print(f"{steps} rounds")
    assert steps
    assert free_bytes(daemon) == CARD
