"""The bench's rows on what people look at: the dashboard's page in a real browser and `gpuslice top` on a terminal, over many
sessions with a program in each."""
import fcntl
import json
import os
import pathlib
import pty
import select
import statistics
import struct
import sys
import termios
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SOURCE / "tests" / "system"))
from browser import Browser, BrowserMissing  # noqa: E402 - behind the path

MIB = 1 << 20
LOOK_S = 8.0
OPENED = 3  # how often the page is

# Tells how long nothing else could run in the page, and when the first session was seen.
WATCH = """
    let last = performance.now();
    window.held = 0;
    setInterval(() => { const now = performance.now(); window.held = Math.max(window.held, now - last - 4); last = now; }, 4);
    const look = () => document.querySelector('#session-rows tr') ? (window.seen = performance.now()) : requestAnimationFrame(look);
    look();
"""


class Views:
    def __init__(self, bench, cpu_clock, count):
        self.bench, self.cpu_clock, self.count = bench, cpu_clock, count

    def run(self):
        bench = self.bench
        sessions, others = [], []
        for number in range(self.count):
            session, inside = bench.session(2 * MIB, name=f"view-{number:04}")
            sessions.append(session)
            others.append(bench.spawn(inside, "hold", MIB))
        for process in others:
            process.stdout.readline()
        try:
            self.alone()
            self.page()
            self.top()
        finally:
            bench.end(others)
            for session in sessions:
                bench._wait_empty(session)
                bench.release(session)

    def daemon_percent(self, seconds, work=time.sleep):
        pid, begin, before = self.bench.daemon.pid, time.monotonic(), self.bench._cpu_seconds(self.bench.daemon.pid)
        work(seconds)
        return 100 * (self.bench._cpu_seconds(pid) - before) / (time.monotonic() - begin)

    def row(self, name, value, unit, budget=None, clock=None, **more):
        self.bench.row(f"{self.count} sessions, {name}", value, unit, budget, clock, **more)

    def alone(self):
        time.sleep(2)
        self.row("nobody looks: daemon's CPU", self.daemon_percent(LOOK_S), "%", 1.0)

    def page(self):
        try:
            browser = Browser()
        except BrowserMissing as missing:
            self.bench.leave_out(f"{self.count} sessions, page: {missing}")
            return
        address = self.bench.request("POST", "/v1/dashboard")[1]["address"]
        token = (self.bench.folder / "run/simulated/http-token").read_text().strip()
        try:
            with self.cpu_clock() as clock:
                times = [browser.run(f"""
                    page = await tools.newPage();
                    await page.addInitScript({json.dumps(WATCH)});
                    await page.goto({json.dumps(f"http://{address}/#token={token}")});
                    await page.waitForFunction(() => window.seen);
                    const seen = await page.evaluate(() => window.seen);
                    await page.evaluate(() => document.getElementById('page').hidden = true); // it asks no more
                    return seen;""") for _ in range(OPENED)]
            self.row("page: until they are seen", statistics.median(times), "ms", 1000, clock)
            browser.run("await page.evaluate(() => document.getElementById('page').hidden = false);")
            browser.run("await page.waitForTimeout(1500); await page.evaluate(() => { window.held = 0; });")
            with self.cpu_clock() as clock:
                percent = self.daemon_percent(LOOK_S, lambda seconds: browser.run(f"await page.waitForTimeout({1000 * seconds});"))
            held = browser.run("return await page.evaluate(() => window.held);")
            self.row("page: an update holds it for at most", held, "ms", 100, clock)
            self.row("page open: daemon's CPU", percent, "%", None)
        finally:
            browser.close()

    def top(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(self.bench.prefix / "bin/gpuslice", ["gpuslice", "top"],
                      {**self.bench.shell, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"})
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        begin = time.monotonic()
        seen = None

        def read(seconds):
            nonlocal seen
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                if select.select([terminal], [], [], left)[0] and b"view-" in os.read(terminal, 65536) and not seen:
                    seen = time.monotonic() - begin
                    return

        with self.cpu_clock() as clock:
            read(10)
        self.row("top: until they are seen", 1000 * (seen or 10), "ms", 1000, clock)
        before = self.bench._cpu_seconds(pid)
        percent = self.daemon_percent(LOOK_S, read)
        self.row("top: an update's CPU time", 1000 * (self.bench._cpu_seconds(pid) - before) / LOOK_S, "ms", 100)
        self.row("top open: daemon's CPU", percent, "%", None)
        os.write(terminal, b"q")
        os.waitpid(pid, 0)
        os.close(terminal)
