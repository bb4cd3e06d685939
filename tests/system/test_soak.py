"""Everything at once, for as long as asked: programs come, allocate, are stopped, killed, exec and fork, while sessions are
made, resized and released, the daemon is ended, killed and replaced, and its disk fills. What every call must answer is
known, and after every step what the daemon shows is compared with it, to the byte.

`make soak` runs this for ten minutes (SECONDS=..., SEED=...); a test run, for a minute.
"""
import json
import os
import random
import resource
import signal
import subprocess
import time

from conftest import DEADLINE_S, GIB, MIB, has_words, wait_for
from test_quota import OK, OUT_OF_MEMORY, Puppet, in_session

SESSIONS_MOST, PUPPETS_MOST, THINGS_MOST = 5, 4, 400
STORM_LIMIT = 32 * MIB
UNIT = 512  # linear memory is charged in whole ones


class Program:
    """A puppet and what it holds, by the number of each thing."""

    def __init__(self, soak, session):
        self.session, self.stopped = session, False
        self.puppet = Puppet(soak.product, in_session(soak.daemon, session.made))
        soak.reap(self.puppet.process)
        self.begin()

    def begin(self):
        self.things, self.made = {}, 1
        self.puppet.get("context", 0)
        self.attached = self.knows_limit = True

    @property
    def held(self):
        return sum(self.things.values())

    @property
    def pid(self):
        return self.puppet.process.pid


class Session:
    def __init__(self, name, made, limit):
        self.name, self.made, self.limit = name, made, limit
        self.programs = []
        self.lost = 0  # bytes of those that died while no daemon ran

    @property
    def held(self):
        return self.lost + sum(program.held for program in self.programs)


class Soak:
    def __init__(self, daemon, product, reap, chance):
        self.daemon, self.product, self.reap, self.chance = daemon, product, reap, chance
        self.sessions, self.made, self.up, self.counts, self.last = [], 0, False, {}, []
        self.start()
        daemon.cli("create", "--name", "storm", "--memory", STORM_LIMIT)
        self.storms = [reap(daemon.spawn("run", "--session", "storm", "--", product.program("storm"), 2,
                                         chance.randrange(1 << 30))) for _ in range(2)]
        self.workers = []
        for name in ("turns0", "turns1"):
            daemon.cli("create", "--name", name, "--memory", "8MiB", "--compute", "40%")
            worker = reap(daemon.spawn("run", "--session", name, "--", product.program("worker"), 500))
            assert worker.stdout.readline() == "ready\n"
            self.workers.append(worker)
        wait_for(lambda: len(self.shown("storm")["processes"]) == 2, "the storms to attach")

    def shown(self, name):
        return self.daemon.session(name)

    def programs(self, stopped=False):
        return [program for session in self.sessions for program in session.programs if program.stopped == stopped]

    # --- What happens -------------------------------------------------------------------------------------------

    def start(self):
        self.daemon.start()
        self.up = True
        for session in self.sessions:
            session.lost = 0
            for program in session.programs:
                program.knows_limit = True

    def look(self):
        """All programs that run meet this daemon. One that never did keeps the limits of the daemon before."""
        for program in self.programs():
            wait_for(lambda: self.has_met(program), "a program to meet the daemon")
        for program in self.programs(stopped=True):
            program.knows_limit = False

    def has_met(self, program):
        """Whether it sees the limit that is in force. Where the CPUs are so busy that a new daemon takes longer than a second
        to let it in, it goes on under the one before, and comes again a second later."""
        return program.puppet.do("info")[2] == program.session.limit

    def crash(self):
        self.look()
        self.daemon.kill()
        self.up = False

    def end(self):
        self.look()
        self.daemon.process.terminate()
        assert self.daemon.process.wait(DEADLINE_S) == 0
        self.up = False

    def replace(self):
        """Killed and started at once, so that programs hardly notice."""
        self.crash()
        self.start()

    def create(self):
        if len(self.sessions) == SESSIONS_MOST:
            return
        name, limit = f"s{self.made}", self.chance.randrange(4, 64) * MIB + self.chance.randrange(5)
        self.made += 1
        more = {"compute": self.chance.choice(["10%", "5%..50%"])} if self.chance.random() < 0.3 else {}
        status, made = self.daemon.request("POST", "/v1/sessions", {"name": name, "memory_bytes": limit, **more})
        if more and status == 409 and "time is more than is left" in made["error"]["message"]:
            return
        assert status == 201, made
        self.sessions.append(Session(name, made, limit))

    def release(self):
        session = self.chance.choice(self.sessions)
        if any(program.stopped for program in session.programs):
            return
        status, answer = self.daemon.request("DELETE", f"/v1/sessions/{session.name}")
        assert status == (409 if session.programs else 204), answer
        if session.programs:
            status, answer = self.daemon.request("DELETE", f"/v1/sessions/{session.name}?kill=true")
            assert status == 204, answer
            for program in session.programs:
                assert program.puppet.process.wait(DEADLINE_S) == -signal.SIGTERM
        self.sessions.remove(session)

    def resize(self, session=None):
        session = session or self.chance.choice(self.sessions)
        session.limit = self.chance.randrange(4, 64) * MIB + self.chance.randrange(5)
        return session, self.daemon.request("PATCH", f"/v1/sessions/{session.name}", {"memory_bytes": session.limit})

    def resize_well(self):
        _, (status, answer) = self.resize()
        assert status == 200, answer

    def fill_disk(self):
        """A change that cannot be written is in force, and said to be lost with the daemon; the next one is kept."""
        pid = self.daemon.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, before[1]))
        session, (status, answer) = self.resize()
        assert status == 500, answer
        self.check()
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        status, answer = self.resize(session)[1]
        assert status == 200, answer

    def attach(self):
        session = self.chance.choice(self.sessions)
        if len(session.programs) < PUPPETS_MOST:
            session.programs.append(Program(self, session))

    def allocate(self):
        program = self.chance.choice(self.programs())
        left = program.session.limit - program.session.held
        count = self.chance.choice([left, left // UNIT * UNIT, left // UNIT * UNIT + 1, self.chance.randrange(1, 4 * MIB), 1])
        charged = -(-count // UNIT) * UNIT
        if count <= 0 or program.made == THINGS_MOST or not (self.up or program.knows_limit):
            return
        code, number = program.puppet.do("alloc", count)
        if self.up and (code == OK) != (charged <= left) and not self.has_met(program):
            if code == OK:
                program.puppet.get("free", number)
                program.made += 1
            wait_for(lambda: self.has_met(program), "a program to meet the daemon")
            code, number = program.puppet.do("alloc", count)
        assert code == (OK if charged <= left else OUT_OF_MEMORY), f"{count} bytes beside {left}: {code}"
        if code == OK:
            program.things[number] = charged
            program.made += 1

    def free(self):
        program = self.chance.choice(self.programs())
        if program.things:
            number = self.chance.choice(list(program.things))
            program.puppet.get("free", number)
            del program.things[number]

    def kill(self):
        program = self.chance.choice(self.programs() + self.programs(stopped=True))
        program.puppet.process.kill()
        program.puppet.process.wait()
        program.session.programs.remove(program)
        if not self.up:
            program.session.lost += program.held

    def stop(self):
        program = self.chance.choice(self.programs())
        program.puppet.process.send_signal(signal.SIGSTOP)
        program.stopped = True

    def go_on(self):
        program = self.chance.choice(self.programs(stopped=True))
        program.puppet.process.send_signal(signal.SIGCONT)
        program.stopped = False

    def execute(self):
        """The same process becomes another program: its memory goes, and it attaches anew."""
        program = self.chance.choice(self.programs())
        assert program.puppet.do("exec") == [OK, "ready"]
        program.things, program.attached = {}, False
        self.check()  # freed before it has said anything
        program.begin()

    def fork(self):
        program = self.chance.choice(self.programs())
        assert program.puppet.do("fork") == [OK, "child"]
        assert program.puppet.do("exit") == [0, "parent"]

    def work(self):
        """Both sessions' work comes through the gate, in turns."""
        for worker in self.workers:
            worker.stdin.write("20\n")
            worker.stdin.flush()
        for worker in self.workers:
            assert has_words(worker.stdout), "work does not come through the gate"
            done_ns, _ = map(int, worker.stdout.readline().split())
            assert done_ns >= 0

    # --- What must be true --------------------------------------------------------------------------------------

    def check(self):
        if not self.up:
            return
        assert self.daemon.process.poll() is None, self.daemon.log_text()[-2000:]

        def wrong():
            shown = {session["name"]: session for session in self.daemon.request("GET", "/v1/sessions")[1]}
            if set(shown) != {"storm", "turns0", "turns1", *(session.name for session in self.sessions)}:
                return sorted(shown)
            assert shown["storm"]["used_bytes"] <= STORM_LIMIT
            for session in self.sessions:
                is_there = (shown[session.name]["used_bytes"], shown[session.name]["vram_limit_bytes"],
                            {process["pid"] for process in shown[session.name]["processes"]})
                expected = (session.held, session.limit, {program.pid for program in session.programs if program.attached})
                if is_there != expected:
                    return f"{session.name}: {is_there}, expected {expected}"
            return None

        # A death and an exec are seen soon after, not before the call that asks.
        end = time.monotonic() + DEADLINE_S
        while (problem := wrong()) and time.monotonic() < end:
            time.sleep(0.002)
        assert problem is None, problem
        for process in self.storms + self.workers:
            assert process.poll() is None, process.stderr.read()

    def step(self):
        free, stopped = self.programs(), self.programs(stopped=True)
        actions = []
        if self.up:
            actions += [self.create] * 2 + [self.crash, self.end, self.replace]
            if self.sessions:
                actions += [self.resize_well] * 3 + [self.attach] * 5 + [self.release, self.fill_disk]
        else:
            actions += [self.start] * 4
        if free:
            actions += [self.allocate] * 12 + [self.free] * 6 + [self.stop] * 2 + [self.fork]
            if self.up:
                actions += [self.execute] * 2
        if free or stopped:
            actions += [self.kill] * 2
        if stopped:
            actions += [self.go_on] * 3
        actions += [self.work]
        action = self.chance.choice(actions)
        self.counts[action.__name__] = self.counts.get(action.__name__, 0) + 1
        self.last = [*self.last[-19:], action.__name__]
        action()
        self.check()

    def story(self):
        """What a failure is understood by."""
        shown = json.dumps(self.daemon.request("GET", "/v1/sessions")[1]) if self.up else "no daemon"
        expected = {session.name: (session.limit, {program.pid: program.held for program in session.programs})
                    for session in self.sessions}
        return f"the last steps: {' '.join(self.last)}\nexpected: {expected}\nshown: {shown}\n{self.daemon.log_text()[-6000:]}"

    def finish(self):
        """Everybody leaves, and nothing is left."""
        if not self.up:
            self.start()
        for worker in self.workers:
            worker.stdin.close()
            assert worker.wait(DEADLINE_S) == 0, worker.stderr.read()
        for storm in self.storms:
            storm.send_signal(signal.SIGTERM)
        for storm in self.storms:
            assert storm.wait(DEADLINE_S) in (0, -signal.SIGTERM), storm.stderr.read()
        for program in self.programs() + self.programs(stopped=True):
            program.puppet.process.kill()
            program.session.programs.remove(program)
        wait_for(lambda: not any(session["processes"] or session["used_bytes"]
                                 for session in self.daemon.request("GET", "/v1/sessions")[1]), "every byte to be back")
        wait_for(lambda: self.daemon.request("GET", "/v1/gpus")[1][0]["used_bytes"] == 0, "the card to be empty")
        for session in self.daemon.request("GET", "/v1/sessions")[1]:
            assert self.daemon.request("DELETE", f"/v1/sessions/{session['session_id']}")[0] == 204
        assert os.listdir(self.daemon.runtime / "simulated" / "ledgers") == []
        self.end()


def test_soak(make_daemon, make_gpu, product, reap):
    seconds = float(os.environ.get("GPUSLICE_TEST_SOAK_SECONDS") or 60)
    seed = int(os.environ.get("GPUSLICE_TEST_SEED", str(int(time.time()))))
    print(f"seed {seed}, {seconds:g} s")
    soak = Soak(make_daemon(gpu=make_gpu(FAKECUDA_TOTAL_MEM=GIB), GPUSLICE_RECOVERY_INTERVAL="1s"), product, reap, random.Random(seed))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            soak.step()
        except (AssertionError, subprocess.TimeoutExpired) as wrong:
            raise AssertionError(f"{wrong}\n{soak.story()}") from wrong
    soak.finish()
    print(" ".join(f"{name}:{count}" for name, count in sorted(soak.counts.items())))
    assert soak.counts["allocate"] > 10
