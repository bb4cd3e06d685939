"""Memory that leaves the card, comes back, or changes places with another session's, while the process whose memory it is, or the
daemon, is stopped or killed at each step of that (preloads/steps.c): the others go on, whoever lives has every byte, and nothing of
the dead is left.

A run stops everyone at each step and kills at a few; GPUSLICE_TEST_STEPS=all kills at each, as ./run-tests --all does. The process
and the daemon have each step of a move among "suspend" and "come for another"; the other moves are for ./run-tests --all."""
import mmap
import os
import signal
import struct

import pytest

from conftest import MIB, wait_for
from moved import resume, suspend
from test_moves import Movable, free_bytes
from waiting import state_of

CARD = 128 * MIB
SESSION = 80 * MIB  # two of them do not fit together
KILLS = None if os.environ.get("GPUSLICE_TEST_STEPS") == "all" else 3


class Steps:
    """struct steps of preloads/steps.c."""

    LAYOUT = "IIII16s16s"

    def __init__(self, library, path):
        path.write_bytes(bytes(struct.calcsize(self.LAYOUT)))
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        self.environment = {"LD_PRELOAD": str(library), "STEPS_FILE": str(path)}

    def arm(self, thread, number, at=0):
        struct.pack_into(self.LAYOUT, self.memory, 0, 0, at, number, 0, thread.encode(), b"")
        struct.pack_into("I", self.memory, 0, 1)

    def disarm(self):
        struct.pack_into("I", self.memory, 0, 0)

    def count(self):
        return struct.unpack_from(self.LAYOUT, self.memory)[3]

    def what(self):
        return f"step {self.count()} ({struct.unpack_from(self.LAYOUT, self.memory)[5].rstrip(bytes(1)).decode()})"


class World:
    """A card; a session that stays on it and goes on, whatever becomes of the others; "x", whose steps are counted; and "y", for
    which there is no room beside "x". No session's ID begins like these names."""

    def __init__(self, make_daemon, make_gpu, product, reap, folder):
        if not (product.build / "tests/system/preloads/steps.so").exists():
            pytest.skip("this build has no preloads")
        self.steps = Steps(product.program("steps.so"), folder / "steps")
        self.product, self.reap = product, reap
        self.daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=CARD), GPUSLICE_RECOVERY_INTERVAL="1s")
        self.daemon.configure("host-memory-ahead = no")  # so that each move has all of its steps
        self.start_daemon()
        self.stays = self.run("stays", 8 * MIB, ["--memory", str(8 * MIB)], [])
        self.movables = {}

    def start_daemon(self):
        self.steps.disarm()
        self.daemon.more.update(self.steps.environment)
        self.daemon.start()
        for name in self.steps.environment:
            del self.daemon.more[name]
        self.daemon.cli("scheduler", "--anti-thrash", "off")  # whoever has come leaves after a tenth of a second

    def run(self, name, most, options, watched):
        environment = {**self.daemon.environment(), **(self.steps.environment if watched else {})}
        process = self.reap(self.daemon.spawn("run", "--name", name, *options, "--", self.product.program("movable"), "3", str(most // 4),
                                              env=environment))
        return Movable(process)

    def begin(self, name):
        movable = self.run(name, MIB, ["--oversubscribe", "--memory", str(SESSION)], watched=name == "x")
        for _ in range(2):
            assert movable.ask(f"alloc {32 * MIB}") == "allocated"
        assert movable.ask("fill 1") == "filled"
        self.movables[name] = movable
        return movable

    def needs(self, *names):
        """These are there, and the last of them is on the card."""
        for name in names:
            if name not in self.movables:
                self.begin(name)
        assert self.movables[names[-1]].ask("check") == "good"

    def others_go_on(self):
        assert self.stays.ask("touch") == "touched"

    def bury(self, name):
        """It is dead. That nothing of it is left, end() sees."""
        self.movables.pop(name).process.wait(20)
        wait_for(lambda: self.daemon.request("GET", f"/v1/sessions/{name}")[0] == 404, "the session of the dead to end")

    def end(self):
        assert self.stays.ask("check") == "good"
        for movable in [*self.movables.values(), self.stays]:
            movable.end()
        wait_for(lambda: self.daemon.request("GET", "/v1/sessions")[1] == [], "all sessions to end")
        wait_for(lambda: free_bytes(self.daemon) == CARD, "the card to be empty")


class Verb:
    """gpuslice suspend or resume of "x"."""

    def __init__(self, world, verb):
        self.world, self.verb = world, verb

    def prepare(self):
        self.world.needs("x")
        if self.verb == "resume":
            suspend(self.world.daemon, "x")

    def begin(self):
        self.command = self.world.reap(self.world.daemon.spawn(self.verb, "x"))

    def begin_and_end(self):
        self.begin()
        self.expect_end()

    def is_over(self):
        return self.command.poll() is not None

    def expect_end(self):
        assert self.command.wait(20) == 0, self.command.stderr.read()
        evicted = self.world.daemon.session("x")["evicted_bytes"]
        assert evicted >= 64 * MIB if self.verb == "suspend" else evicted == 0
        self.settle()

    def settle(self):
        """Whatever became of the command."""
        self.command.wait(20)
        if "x" in self.world.movables:
            resume(self.world.daemon, "x")
            assert self.world.movables["x"].ask("check") == "good"


class Exchange:
    """One of the two has work, and comes into what the other leaves."""

    def __init__(self, world, comes):
        self.world, self.comes = world, comes
        self.leaves = "y" if comes == "x" else "x"

    def prepare(self):
        self.world.needs(self.comes, self.leaves)

    def begin(self):
        self.has_begun = True
        self.world.movables[self.comes].send("check")

    def is_over(self):
        return self.world.movables[self.comes].has_answered(0)

    def expect_end(self):
        self.settle()

    def settle(self):
        for name in (self.comes, self.leaves):
            if name not in self.world.movables:
                continue
            movable = self.world.movables[name]
            assert (movable.read() if name == self.comes else movable.ask("check")) == "good"


class Ahead:
    """Host memory of "x" is made although nothing leaves yet."""

    def __init__(self, world):
        self.world = world

    def allow(self, answer):
        self.world.daemon.configure(f"host-memory-ahead = {answer}")
        self.world.daemon.process.send_signal(signal.SIGHUP)

    def prepare(self):
        self.allow("no")
        if "x" in self.world.movables:
            self.world.movables.pop("x").end()
        self.world.needs("y", "x")

    def begin(self):
        self.allow("yes")

    def is_over(self):
        """Whoever is stopped or killed: all of it is mapped."""
        lines = [line.split() for line in open(f"/proc/{self.world.movables['x'].process.pid}/maps") if "gpuslice-arena" in line]
        return sum(int(end, 16) - int(begin, 16) for begin, end in (line[0].split("-") for line in lines)) >= 2 * 32 * MIB

    def expect_end(self):
        wait_for(self.is_over, "host memory to be made", 20)
        self.settle()

    def settle(self):
        if "x" in self.world.movables:
            Verb(self.world, "suspend").begin_and_end()
            Verb(self.world, "resume").begin_and_end()


MOVES = {"ahead": Ahead, "suspend": lambda world: Verb(world, "suspend"), "resume": lambda world: Verb(world, "resume"),
         "leave for another": lambda world: Exchange(world, "y"), "come for another": lambda world: Exchange(world, "x")}


@pytest.fixture
def world(make_daemon, make_gpu, product, reap, tmp_path):
    return World(make_daemon, make_gpu, product, reap, tmp_path)


def stop_at_each(world, move, thread, find_process):
    """How many steps there were. The others go on at each."""
    move.prepare()
    pid = find_process().pid
    world.steps.arm(thread, signal.SIGSTOP)
    move.begin()
    while True:
        wait_for(lambda: state_of(pid) == "T" or move.is_over(), f"it to stop again or to be done, after {world.steps.what()}")
        if state_of(pid) != "T":
            break
        world.others_go_on()
        os.kill(pid, signal.SIGCONT)
    world.steps.disarm()
    os.kill(pid, signal.SIGCONT)  # if it has stopped once more since
    count = world.steps.count()
    move.expect_end()
    return count


def some_of(count):
    """The numbers of the steps at which somebody is killed."""
    kills = min(count, KILLS or count)
    return sorted({1 + number * (count - 1) // max(kills - 1, 1) for number in range(kills)})


OF_EACH_MOVE = pytest.mark.parametrize("kind", [
    kind if kind in ("suspend", "come for another") else pytest.param(kind, marks=pytest.mark.long) for kind in MOVES])


@OF_EACH_MOVE
def test_a_process_is_stopped_and_killed_at_each_step(world, kind):
    move = MOVES[kind](world)
    count = stop_at_each(world, move, "gpuslice-agent", lambda: world.movables["x"].process)
    assert count > 8, "hardly any steps: is it watched?"
    for number in some_of(count):
        move.prepare()
        process = world.movables["x"].process
        world.steps.arm("gpuslice-agent", signal.SIGKILL, number)
        move.begin()
        wait_for(lambda: process.poll() is not None or move.is_over(), f"it to die at step {number} or to be done")
        world.others_go_on()
        world.steps.disarm()
        print(f"killed at {world.steps.what()}")
        if world.steps.count() >= number:
            world.bury("x")
        move.settle()
    world.end()


@OF_EACH_MOVE
def test_the_daemon_is_stopped_and_killed_at_each_step(world, kind):
    move = MOVES[kind](world)
    count = stop_at_each(world, move, "gpusliced", lambda: world.daemon.process)
    assert count > 8, "hardly any steps: is it watched?"
    for number in some_of(count):
        kill_daemon(world, move, "gpusliced", number)
    world.end()


def kill_daemon(world, move, thread, number):
    """At this step, or not, if there are less this time."""
    move.prepare()
    world.steps.arm(thread, signal.SIGKILL, number)
    move.begin()
    wait_for(lambda: world.daemon.process.poll() is not None or move.is_over(), f"it to die at step {number} or to be done")
    world.others_go_on()
    world.steps.disarm()
    print(f"killed at {world.steps.what()}")
    if world.steps.count() >= number:
        world.daemon.process.wait(20)
        world.start_daemon()
    move.settle()


def test_the_helper_that_makes_host_memory_is_stopped_and_killed_at_each_step(world):
    """A process has its host memory for as long as it lives: so each time it is another one."""
    move = MOVES["suspend"](world)
    count = stop_at_each(world, move, "gpusliced-arena", lambda: world.daemon.process)
    assert count > 4, "hardly any steps: is it watched?"
    for number in some_of(count):
        world.movables.pop("x").end()
        kill_daemon(world, move, "gpusliced-arena", number)
    world.end()
