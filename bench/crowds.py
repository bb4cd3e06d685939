"""The bench's rows on sessions that wait for room on the card: what their messages cost the daemon, and others' answers.

One user has so many sessions, whose memory can leave the card. The card is full of what does not leave, so all of them wait, and say so
again and again, a hundred times a second together. They are a process of bench/crowds.py, by the protocol that programs speak.
"""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "system"))
from attach_client import AWAY, WAITS_FOR_MEMORY, Agent, Client  # noqa: E402 - behind the path

MIB = 1 << 20
OTHER_USER = 12345
LIMIT = 8 * MIB
MESSAGES_A_SECOND = 100
COUNTS = 0, 300, 600, 900  # five descriptors each, of which a user may have a quarter


def wait_and_say(attach_socket, sessions):
    """All of the sessions wait, and say so in turn."""
    waiting = []
    for session in sessions:
        client = Client(attach_socket).attach(session, map_it=False)
        waiting.append((client, Agent(attach_socket, client, session)))
        waiting[-1][1].socket.setblocking(False)
        waiting[-1][1].tell_memory(0, MIB, flags=AWAY | WAITS_FOR_MEMORY)
    print("waiting", flush=True)
    begin = time.monotonic()
    for number in range(1 << 40):
        agent = waiting[number % len(waiting)][1]
        with contextlib.suppress(BlockingIOError):
            agent.tell_memory(0, MIB, flags=AWAY | WAITS_FOR_MEMORY)
            agent.need_room(number + 1, LIMIT)
            agent.socket.recv(4096)
        time.sleep(max(0, begin + 2 * (number + 1) / MESSAGES_A_SECOND - time.monotonic()))


class Waiting:
    def __init__(self, bench, cpu_clock, percentile, counts, window_s):
        self.bench, self.cpu_clock, self.percentile, self.counts, self.window_s = bench, cpu_clock, percentile, counts, window_s
        self.owner = {"owner_uid": OTHER_USER} if os.getuid() == 0 else {}  # root answers for each of its sessions apart

    def run(self):
        bench = self.bench
        if self.owner:  # who may enter, to attach
            for path in (bench.folder, bench.folder / "run", bench.control.parent):
                path.chmod(0o755)
            bench.control.with_name("attach.sock").chmod(0o666)
        for count in self.counts:
            free_bytes = bench.request("GET", "/v1/gpus")[1][0]["free_bytes"]
            full, inside = bench.session(free_bytes - LIMIT, oversubscribe="swap")
            holders = bench.holders(inside, 1, free_bytes - LIMIT - MIB)
            os.kill(holders[0].pid, signal.SIGSTOP)  # it could leave, and does not: for 30 s the others hope that it will
            self.measure(full, count)
            os.kill(holders[0].pid, signal.SIGCONT)
            bench.end(holders)
            bench._wait_empty(full)
            bench.release(full)

    def measure(self, other, count):
        bench = self.bench
        sessions = [bench.session(LIMIT, oversubscribe="swap", **self.owner)[0] for _ in range(count)]
        waiting = subprocess.Popen([sys.executable, __file__, bench.control.with_name("attach.sock"), *sessions], text=True,
                                   stdout=subprocess.PIPE, user=self.owner.get("owner_uid")) if count else None
        if waiting and waiting.stdout.readline() != "waiting\n":
            sys.exit("the sessions do not wait")
        times, used, began = [], bench._cpu_seconds(bench.daemon.pid), time.perf_counter()
        with self.cpu_clock() as clock:
            while time.perf_counter() - began < self.window_s:
                begin = time.perf_counter()
                bench.request("GET", f"/v1/sessions/{other}")
                times.append((time.perf_counter() - begin) * 1e3)
                time.sleep(0.01)
        seconds = time.perf_counter() - began
        used = (bench._cpu_seconds(bench.daemon.pid) - used) / seconds
        waits = sum(one["waits_for_room"] for one in bench.request("GET", "/v1/sessions")[1]) if count else 0
        bench.row(f"control call beside {count} sessions of one user that wait for room", self.percentile(times, 0.5), "ms",
                  clock=clock, p99=round(self.percentile(times, 0.99), 3), cpu=f"{100 * used:.1f} %", waiting=waits)
        if waiting:
            waiting.kill()
            waiting.wait()
            waiting.stdout.close()
        for session in sessions:
            bench.request("DELETE", f"/v1/sessions/{session}?kill=true")
        while len(bench.request("GET", "/v1/sessions")[1]) > 1:  # their descriptors count until then
            time.sleep(0.05)


if __name__ == "__main__":
    wait_and_say(sys.argv[1], sys.argv[2:])
