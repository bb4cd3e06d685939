"""Neighbours who mean harm, a few at a time and again others, beside programs whose bytes, shares and answers are checked.

`make soak` runs this as well as test_soak.py (SECONDS=..., SEED=...); ./run-tests --all for 20 seconds, ./run-tests not.
"""
import contextlib
import os
import pathlib
import random
import statistics
import subprocess
import time

import pytest

import attach_client
import attacks
from conftest import GIB, MIB, has_words, wait_for
from test_many_users import become
from test_moves import Movable
from test_quota import OK, OUT_OF_MEMORY, Puppet, in_session
from test_quota_shared import Sharer
from test_shares import start_clock
from workers import Worker

SECONDS = float(os.environ.get("GPUSLICE_TEST_HOSTILE_SECONDS") or 0)
CARD = GIB
UNIT = 512  # linear memory is charged in whole ones
LIMIT, MAKERS_LIMIT, RUDE_LIMIT = 64 * MIB, 16 * MIB, 32 * MIB
MINIMUM, LEAST = 60, 50  # percent of the GPU; the attackers take the CPUs too
ROUND_S, WINDOW_S = 6, 2
AT_ONCE = 3
WANDERS = 250 * MIB  # what the session whose memory leaves may have: it has some half of that
ANSWER_S, PATIENCE_S = 5, 40  # for the daemon's answers; for memory to come back while the machine is full of attackers
ACCOUNT_S, ACCOUNT_SLACK = 5, 8 * MIB

pytestmark = [
    pytest.mark.skipif(not SECONDS, reason="set GPUSLICE_TEST_HOSTILE_SECONDS, as make soak and ./run-tests --all do"),
    pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be many users"),
]


class Rude:
    """Programs in a session whose threads are cancelled in the middle of calls, one after the other."""

    def __init__(self, soak):
        self.soak = soak
        self.start()

    def start(self):
        soak = self.soak
        self.process = soak.reap(soak.daemon.spawn("run", "--session", "rude", "--", soak.daemon.product.program("rude"), 30,
                                                   soak.chance.randrange(1 << 20)))

    def step(self):
        if not has_words(self.process.stdout, 0):
            return
        taken = self.process.stdout.readline()
        assert taken and 0 <= int(taken) <= RUDE_LIMIT, self.process.stderr.read()
        self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        self.start()

    def end(self):
        self.process.kill()
        self.process.communicate()


class Makers:
    """Programs that take all of their session, export it to one that stays, and are killed."""

    def __init__(self, soak):
        self.soak = soak
        self.keeper, self.imported = self.begin(), 0

    def begin(self):
        sharer = Sharer(self.soak.daemon.product, in_session(self.soak.daemon, self.soak.makers))
        self.soak.reap(sharer.process)
        sharer.get("context", 0)
        return sharer

    def step(self):
        maker = self.begin()
        pool = maker.get("sharedpool")
        code, made = maker.do("poolalloc", pool, MAKERS_LIMIT - MIB)
        if code == OK:
            self.imported += 1
            maker.get("poolexport", pool)
            imported = self.keeper.take(attacks.socket.recv_fds(maker.socket, 1, 1)[1][0], "poolimport")
            self.keeper.get("pointeropen", imported, maker.get("pointerget", made))
        maker.kill()
        maker.socket.close()
        assert self.imported == 1, "the card holds all of it already"

    def end(self):
        self.keeper.kill()
        self.keeper.socket.close()


class Wanderer:
    """A session whose memory makes room for others and comes back. Each look is at all of its bytes."""

    def __init__(self, soak):
        self.soak = soak
        self.movable = Movable(soak.reap(soak.daemon.spawn("run", "--session", "wanders", "--",
                                                           soak.daemon.product.program("movable"), "8", str(20 * MIB))))
        self.asked = None
        self.ask()

    def ask(self):
        self.movable.send("check")
        self.asked = time.monotonic()

    def step(self):
        """The seconds that a look took; None while it goes on."""
        took = time.monotonic() - self.asked
        assert took < PATIENCE_S, f"a look at the memory takes {took:.0f} s"
        if not self.movable.has_answered(0):
            return None
        assert self.movable.read() == "good"
        self.ask()
        return took

    def rest(self):
        assert self.movable.has_answered(PATIENCE_S), "its memory does not come back"
        assert self.movable.read() == "good"
        self.asked = None


class Handing:
    """Two programs of a session that hand memory to each other by legacy IPC."""

    def __init__(self, soak):
        self.maker, self.opener = (Sharer(soak.daemon.product, in_session(soak.daemon, soak.handing)) for _ in range(2))
        for sharer in (self.maker, self.opener):
            soak.reap(sharer.process)
            sharer.get("context", 0)
        self.name = self.maker.get("ipcget", self.maker.get("alloc", MIB))

    def step(self):
        begin = time.monotonic()
        code, opened = self.opener.do("ipcopen", self.name)
        took = time.monotonic() - begin
        sockets = list(pathlib.Path("/dev/shm").glob(f"gpuslice-memory-{self.maker.process.pid}-*"))
        assert code == OK, f"no memory is handed over: {code} after {took:.1f} s; its maker's socket: {sockets}"
        self.opener.get("ipcclose", opened)
        return took


class Soak:
    def __init__(self, daemon, reap, chance):
        self.daemon, self.reap, self.chance = daemon, reap, chance
        for path in (daemon.folder, daemon.runtime, daemon.runtime / "simulated"):
            path.chmod(0o755)
        daemon.control_socket.chmod(0o666)
        daemon.attach_socket.chmod(0o666)
        self.kept = self.make("kept", LIMIT)
        self.makers = self.make("makers", MAKERS_LIMIT)
        self.make("rude", RUDE_LIMIT)
        self.handing = self.make("handing", 4 * MIB, oversubscribe="swap")
        self.make("wanders", WANDERS, oversubscribe="swap")
        self.make("shared", MIB, compute=f"{MINIMUM}%..100%")
        self.good = {session["name"] for session in daemon.request("GET", "/v1/sessions")[1]}
        self.puppet = Puppet(daemon.product, in_session(daemon, self.kept))
        reap(self.puppet.process)
        self.puppet.get("context", 0)
        self.worker = Worker(reap(daemon.spawn("run", "--session", "shared", "--", daemon.product.program("worker"), "500")))
        self.clock = start_clock(daemon, reap)
        self.wanderer, self.pair = Wanderer(self), Handing(self)
        self.wanderer.rest()
        self.rounds, self.worst, self.attacked = [], {}, {}
        taken, charged = self.accounts()
        self.free_of_charge, self.usual = taken - charged, taken + ACCOUNT_SLACK
        control, attach = daemon.control_socket, daemon.attach_socket
        self.attacks = {
            attacks.send_frames: (attach,), attacks.send_bodies: (control,), attacks.dawdle: (control,),
            attacks.crowd: (control, attach), attacks.send_slow_descriptors: (control, attach),
            attacks.ask_together: (control,), attacks.flood: (daemon,), attacks.scribble: (daemon,),
            attacks.map_much: (daemon,), attacks.fill_ledgers: (daemon,), attacks.change_sessions: (daemon,),
            attacks.queue_the_impossible: (daemon,), attacks.lie_about_memory: (daemon,),
            attacks.keep_host_memory: (daemon,), attacks.wait_in_hundreds: (daemon,), attacks.ask_for_room_again: (daemon,),
            attacks.ask_and_give_back: (daemon,), attacks.linger_at_memory_sockets: (daemon,), attacks.ask_in_vain: (daemon,),
            attacks.have_strange_names: (daemon,)}
        self.with_programs = {attacks.take_uncharged: (daemon,), attacks.stop_while_leaving: (daemon,),
                              attacks.short_sessions: (daemon,), attacks.close_descriptors: (daemon,)}
        if can_run(daemon):
            self.attacks |= self.with_programs
        else:
            print("other users cannot run the programs of this tree: without " +
                  ", ".join(one.__name__ for one in self.with_programs))

    def make(self, name, limit, **more):
        status, made = self.daemon.request("POST", "/v1/sessions", {"name": name, "gpus": [{"gpu": "0", "memory_bytes": limit}],
                                                                    **more})
        assert status == 201, made
        return made

    # --- What must be true beside them ------------------------------------------------------------------------------

    def use_all_bytes(self):
        """What fits is given, to the last byte, and what does not is refused."""
        held = self.chance.randrange(UNIT, LIMIT, UNIT)
        first = self.puppet.get("alloc", held)
        second = self.puppet.get("alloc", LIMIT - held)
        assert self.puppet.code("alloc", 1) == OUT_OF_MEMORY
        assert self.daemon.session("kept")["used_bytes"] == LIMIT
        self.puppet.get("free", first)
        self.puppet.get("free", second)
        assert self.daemon.session("kept")["used_bytes"] == 0

    def now(self):
        """A clock that stands while the daemon waits for a CPU, which others have."""
        with open(f"/proc/{self.daemon.process.pid}/schedstat") as file:  # proc(5): its main thread's; nanoseconds
            return time.monotonic() - int(file.read().split()[1]) / 1e9

    def ask(self):
        """The seconds that an answer took, and to be let in."""
        begin = self.now()
        status, session = self.daemon.request("GET", "/v1/sessions/kept")
        asked = self.now()
        assert (status, session["vram_limit_bytes"]) == (200, LIMIT)
        client = attach_client.Client(self.daemon.attach_socket).attach(session["session_id"], map_it=False)
        client.close()
        return asked - begin, self.now() - asked

    def share(self):
        """Which part of the GPU the worker has in a window."""
        before_ns, before = self.clock.read()
        end, took = time.monotonic() + WINDOW_S, []
        while time.monotonic() < end:
            took += self.ask()
            self.use_all_bytes()
            self.note("handing", self.pair.step())
            self.note("memory", self.wanderer.step() or 0)
        after_ns, after = self.clock.read()
        pid = self.worker.process.pid
        return 100 * (after.get(pid, 0) - before.get(pid, 0)) / (after_ns - before_ns), took

    def note(self, what, seconds):
        self.worst[what] = max(self.worst.get(what, 0), round(seconds, 2))

    def accounts(self):
        """(what the cards show as taken, what stands in somebody's account)"""
        gpus = self.daemon.request("GET", "/v1/gpus")[1]
        sessions = self.daemon.request("GET", "/v1/sessions")[1]
        return (sum(gpu["used_bytes"] for gpu in gpus),
                sum(session["used_bytes"] - session["evicted_bytes"] for session in sessions))

    def state(self):
        """What to look at where something is wrong."""
        keys = ("name", "vram_limit_bytes", "used_bytes", "driver_bytes", "orphan_bytes", "evicted_bytes", "residency", "oversubscribe")
        with contextlib.suppress(Exception):
            return "\n".join([str([{key: gpu[key] for key in ("used_bytes", "free_bytes", "reserved_bytes")}
                                   for gpu in self.daemon.request("GET", "/v1/gpus")[1]]),
                              *(str([one.get(key) for key in keys]) for one in self.daemon.request("GET", "/v1/sessions")[1][:40])])
        return "no answer"

    def must_be_accounted(self):
        last = []

        def is_so():
            last[:] = self.accounts()
            return last[0] - self.free_of_charge <= last[1] + ACCOUNT_SLACK
        wait_for(is_so, lambda: f"what the card shows to be in somebody's account: {last}, {self.free_of_charge} at first", ACCOUNT_S)

    def look(self, inside):
        """For a while, with what is inside: (the worker's part of the GPU by windows, the seconds that answers took)."""
        self.worker.begin(1000 * (ROUND_S + 2))
        shares, took, end = [], [], time.monotonic() + ROUND_S
        while time.monotonic() < end:
            share, more = self.share()
            shares.append(share)
            took += more
            if inside:
                inside.step()
        self.worker.end()
        return shares, took

    # --- What happens -----------------------------------------------------------------------------------------------

    def round(self):
        chosen = self.chance.sample(list(self.attacks), AT_ONCE)
        own = self.chance.choice([Rude, Makers, None])
        self.rounds.append([one.__name__ for one in chosen] + [own.__name__ if own else ""])
        with contextlib.ExitStack() as stack:
            counts = [stack.enter_context(attacks.attack(one, *self.attacks[one], uid=attacks.OTHER_USER + number, nice=10))
                      for number, one in enumerate(chosen)]
            inside = own(self) if own else None
            self.wanderer.ask()
            shares, took = self.look(inside)
            if max(shares) < LEAST:  # what others took of the machine's CPUs meanwhile is not what is looked for
                shares, took = self.look(inside)
            self.must_be_accounted()
            for one, count in zip(chosen, counts):
                self.attacked[one.__name__] = self.attacked.get(one.__name__, 0) + count(2)
            if inside:
                inside.end()
        assert max(shares) >= LEAST, f"of {MINIMUM} % it had {shares}"
        assert statistics.median(took) < 0.25 and max(took) < ANSWER_S, f"answers took {sorted(took)[-5:]} s"
        self.wanderer.rest()
        self.worst["share"] = min(self.worst.get("share", 100), max(shares))
        self.worst["answer"] = max(self.worst.get("answer", 0), max(took))
        self.clear()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))

    def clear(self):
        """All that the attackers made goes, and nothing is left of it."""
        def clear():
            others = [session["session_id"] for session in self.daemon.request("GET", "/v1/sessions")[1]
                      if session["name"] not in self.good]
            for session in others:
                assert self.daemon.request("DELETE", f"/v1/sessions/{session}?kill=true")[0] in (204, 404)
            return not others
        wait_for(clear, "the attackers' sessions to end")
        wait_for(lambda: not self.daemon.session("rude")["used_bytes"] and not self.daemon.session("makers")["processes"],
                 "the programs' bytes to be back")
        wait_for(lambda: self.descriptors() < 64, "the attackers' connections to be closed")
        wait_for(lambda: self.accounts()[0] <= self.usual, f"what the attackers took to be back: {self.accounts()}, {self.usual}")


def can_run(daemon):
    """Whether the attackers may run programs of the tree under test."""
    words = [*become(attacks.OTHER_USER), "test", "-r", daemon.product.interceptor, "-a", "-x", daemon.product.program("charges")]
    return subprocess.run(words).returncode == 0


def test_good_programs_do_not_notice_hostile_neighbours(make_daemon, make_gpu, product, small_disk, reap):
    seed = int(os.environ.get("GPUSLICE_TEST_SEED", str(int(time.time()))))
    chance = random.Random(seed)
    print(f"seed {seed}, {SECONDS:g} s")
    # A kernel that does not refuse descriptors, or this machine's.
    preload = {"LD_PRELOAD": product.program("old_kernel.so")} if chance.random() < 0.5 else {}
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_TOTAL_MEM=CARD, FAKECUDA_GPUS=2, FAKECUDA_OWNER=os.getuid()), GPUSLICE_RECOVERY_INTERVAL="1s", **preload)
    daemon.more["GPUSLICE_AUDIT_PATH"] = str(daemon.folder / "audit.log")
    small_disk(daemon.runtime, 64)
    soak = Soak(daemon.start(), reap, chance)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            soak.round()
        except BaseException:
            print(f"rounds: {soak.rounds}\n{daemon.log_text()[-6000:]}\n{soak.state()}")
            raise
    print(f"worst {soak.worst}; " + " ".join(f"{name}:{count}" for name, count in sorted(soak.attacked.items())))
