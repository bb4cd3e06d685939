"""`gpuslice top` in a real terminal, tmux's: what it shows, its keys, and that it leaves the terminal as it was."""
import os
import shutil
import signal
import subprocess
import time
import uuid

import pytest

from conftest import GIB, MIB, wait_for
from test_quota import in_session, start  # noqa: F401 - a fixture

if not shutil.which("tmux"):
    pytest.skip("tmux is missing; see scripts/install-deps", allow_module_level=True)


class Terminal:
    """A shell in tmux, in which `top` runs; `screen()` is what a person sees."""

    def __init__(self, daemon, width=80, height=24, locale="C.UTF-8"):
        self.socket = f"gpuslice-{uuid.uuid4().hex[:8]}"
        environment = daemon.environment(TERM="screen-256color", LC_ALL=locale)
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", width, "-y", height, "/bin/sh", env=environment)
        self.type("stty -g\n")
        self.settings = wait_for(lambda: next((line.split()[-1] for line in self.screen() if line.count(":") > 10), None), "the settings")
        self.type(f"clear; {daemon.product.gpuslice} top; echo status $?\n")
        self.shows("gpuslice top ")

    def tmux(self, *words, **options):
        return subprocess.run(["tmux", "-L", self.socket, *map(str, words)], capture_output=True, text=True, check=False,
                              **options).stdout

    def screen(self):
        return self.tmux("capture-pane", "-p").splitlines()

    def shows_in_colour(self, text):
        """The line with `text`, and what sets its colours."""
        return next(line for line in self.tmux("capture-pane", "-e", "-p").splitlines() if text in line)

    def shows(self, text, row=None):
        return wait_for(lambda: next((line for line in self.screen() if text in line and (row is None or row in line)), None),
                        f"'{text}' on the screen: " + "\n".join(self.screen()))

    def shows_not(self, text):
        wait_for(lambda: all(text not in line for line in self.screen()), f"'{text}' to go from the screen")

    def type(self, text):
        for part in text.splitlines(keepends=True):
            if part.rstrip("\n"):
                self.tmux("send-keys", "-l", part.rstrip("\n"))
            if part.endswith("\n"):
                self.tmux("send-keys", "Enter")

    def key(self, name):
        self.tmux("send-keys", name)

    def resize(self, width, height):
        self.tmux("resize-window", "-x", width, "-y", height)

    def pid(self):
        shell = int(self.tmux("list-panes", "-F", "#{pane_pid}"))
        return int(subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(shell)], text=True).split()[0])

    def is_as_it_was(self, status):
        """The terminal's settings, screen and cursor are those of before."""
        self.shows(f"status {status}")
        flags = self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag} #{keypad_flag}").split()
        assert flags == ["0", "1", "0"]
        self.type("clear; stty -g\n")
        self.shows(self.settings)

    def end(self):
        self.tmux("kill-server")


@pytest.fixture
def open_top():
    opened = []

    def open_top(*arguments, **options):
        opened.append(Terminal(*arguments, **options))
        return opened[-1]

    yield open_top
    for terminal in opened:
        terminal.end()


@pytest.fixture
def big(make_daemon, make_gpu):
    return make_daemon(gpu=make_gpu(FAKECUDA_TOTAL_MEM=8 * GIB)).start()


def create(daemon, name, **body):
    status, session = daemon.request("POST", "/v1/sessions", {"name": name, "memory_bytes": GIB, **body})
    assert status == 201, session
    return session


def test_it_shows_what_the_daemon_says(big, open_top, start):
    session = create(big, "train", compute="20%..60%", priority="high")
    puppet = start(in_session(big, session))
    puppet.get("alloc", 768 * MIB)
    top = open_top(big)
    row = top.shows("768MiB/1GiB")
    assert "train" in row and "20%..60%" in row and "█" in row
    assert "1 session on 1 GPU" in top.screen()[0] and "768MiB/8GiB" in top.shows("GPU Slice Sim..")
    assert top.screen()[1].split() == ["GPU", "NAME", "MEMORY", "USED", "/", "TOTAL", "BUSY", "BUSY"]
    assert "python" in top.shows(str(puppet.process.pid)) or "puppet" in top.shows(str(puppet.process.pid))
    assert "high" in top.shows(session["session_id"])
    puppet.end()
    top.shows("no processes")
    screen = top.screen()
    assert len(screen) <= 24 and all(len(line) <= 80 for line in screen)
    top.key("Enter")  # the detail is there as there is room, and goes
    top.shows_not("no processes")


def test_it_sorts_and_filters(big, open_top, start):
    for name, size in ("alpha", 10), ("beta", 30), ("gamma", 20):
        start(in_session(big, create(big, name))).get("alloc", size * MIB)
    top = open_top(big)
    top.shows("30MiB")

    def order():
        return [word for line in top.screen() for word in line.split()[:1] if word in ("alpha", "beta", "gamma")]

    wait_for(lambda: order() == ["beta", "gamma", "alpha"], "them by memory")
    for _ in range(3):
        top.key("s")
    wait_for(lambda: order() == ["alpha", "beta", "gamma"], "them by name")
    top.type("/amm\n")
    wait_for(lambda: order() == ["gamma"], "one of them")
    assert "with amm" in top.screen()[0]


def test_its_keys_change_and_release(big, open_top, start):
    create(big, "one")
    puppet = start(in_session(big, create(big, "two")))
    top = open_top(big)
    top.shows("two")
    top.type("/two\n")
    top.shows_not("one ")
    top.type("l")
    top.shows("set two: --memory")
    top.type("2GiB --compute 10%..40%\n")
    top.shows("two is changed")
    top.shows("10%..40%", row="2GiB")
    assert big.session("two")["vram_limit_bytes"] == 2 * GIB
    top.type("l")
    top.type("lots\n")
    top.shows("'lots'")
    top.type("l")
    top.type("1GiB --name one\n")
    top.shows("has the name 'one' already")
    assert "\x1b[31m" in top.shows_in_colour("has the name 'one' already")
    top.type("r")
    top.shows("End 1 process and release two? (y/n)")
    top.type("n")
    top.shows_not("(y/n)")
    assert puppet.process.poll() is None
    top.type("r")
    top.shows("(y/n)")
    top.type("y")
    top.shows("no session fits")
    assert [session["name"] for session in big.request("GET", "/v1/sessions")[1]] == ["one"]
    assert puppet.process.wait(20) != 0


def test_a_session_leaves_the_card_and_comes_back(big, open_top, start):
    start(in_session(big, create(big, "lends", oversubscribe="swap"))).get("alloc", 64 * MIB)
    top = open_top(big)
    top.shows("lends")
    top.type("z")
    top.shows("Suspend lends?")
    top.type("n")
    top.shows_not("Suspend lends?")
    assert big.session("lends")["residency"] == "resident"
    top.type("z")
    top.shows("Suspend lends?")
    top.type("y")
    top.shows("suspended", row="lends")
    top.shows("64MiB in host memory")
    top.type("z")
    top.shows("active", row="64MiB/1GiB")
    create(big, "stays")
    top.shows("stays")
    top.type("/stays\n")
    top.shows_not("lends ")
    top.type("z")
    top.shows("Suspend stays?")
    top.type("y")
    top.shows("cannot leave the card")


def test_the_selection_stays_at_its_place_when_its_session_goes(big, open_top):
    for name in ("alpha", "beta", "delta", "gamma"):
        create(big, name)
    top = open_top(big)
    top.shows("gamma")
    top.key("Down")
    top.key("Down")
    top.type("r")
    top.shows("Release delta?")
    top.type("y")
    top.shows("delta is released")
    top.shows("3 sessions")
    top.type("r")
    top.shows("Release gamma?")
    top.type("n")


def test_a_session_of_which_some_stays_is_partly_away(big, open_top, start):
    puppet = start(in_session(big, create(big, "lends", oversubscribe="swap")))
    puppet.get("alloc", 64 * MIB)
    puppet.get("ipcget", puppet.get("alloc", 32 * MIB))
    top = open_top(big, width=160)
    top.shows("lends")
    top.type("z")
    top.shows("Suspend lends?")
    top.type("y")
    top.shows("partly away", row="lends")
    top.shows("64MiB in host memory   32MiB stay (exported to other processes)")
    top.type("z")
    top.shows("active", row="96MiB/1GiB")


@pytest.mark.parametrize("width, height", [(80, 24), (200, 50), (40, 10), (30, 6), (10, 2)])
def test_it_lives_in_any_size(big, open_top, width, height):
    create(big, "train-of-thought-with-a-long-name", compute="20%..60%")
    top = open_top(big)
    top.shows("train")
    top.resize(width, height)
    wait_for(lambda: len(top.screen()) <= height, "the new size")
    if height >= 6:
        top.shows("train-", row="GiB" if width >= 40 else None)
        if not any("owner" in line for line in top.screen()):  # where there is room, it is there
            assert sum("train-" in line for line in top.screen()) == 1
            top.key("Enter")
        top.shows("owner")
    top.resize(80, 24)
    top.shows("train", row="20%..60%")
    top.type("q")
    top.is_as_it_was(0)


def test_gpus_for_which_there_is_no_room_are_counted(make_daemon, make_gpu, open_top):
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_GPUS=8)).start()
    create(daemon, "train")
    top = open_top(daemon)
    top.shows("and 4 more GPUs")
    assert sum("GPU Slice Sim" in line for line in top.screen()) == 4
    top.shows("train")
    top.resize(80, 50)
    top.shows_not("more GPUs")
    wait_for(lambda: sum("GPU Slice Sim" in line for line in top.screen()) == 8, "all of them")
    assert any("train" in line for line in top.screen())


def test_a_plain_terminal_gets_plain_characters(big, open_top, start):
    start(in_session(big, create(big, "train"))).get("alloc", 900 * MIB)
    top = open_top(big, locale="C")
    assert "#######" in top.shows("900MiB/1GiB")
    assert all(line.isascii() for line in top.screen())


def test_names_are_shown_and_lead_no_terminal(big, open_top, reap, product, tmp_path):
    create(big, "train")
    for name in ("データ", "x\x1b[31mred", "xデータ処理"):
        shutil.copy(product.program("puppet"), tmp_path / name)
        puppet = reap(big.spawn("run", "--session", "train", "--", tmp_path / name))
        puppet.stdin.write("context 0\n")
        puppet.stdin.flush()
        puppet.stdout.readline()
    top = open_top(big)
    top.shows("train")
    top.shows("データ ", row="0B")
    top.shows("x?[31mred", row="0B")
    top.shows("xデータ処 ", row="0B")  # the kernel keeps 15 bytes of a name
    used = {line.rindex("0B") + sum(ord(letter) > 0x2e80 for letter in line) for line in top.screen() if "0B " in line and "train" not in line}
    assert len(used) == 1  # one column, though letters are two cells wide


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(big, open_top, number):
    top = open_top(big)
    top.shows("no sessions")
    os.kill(top.pid(), number)
    top.is_as_it_was(0)


def test_a_crash_leaves_the_terminal_as_it_was(big, open_top):
    top = open_top(big)
    top.shows("no sessions")
    os.kill(top.pid(), signal.SIGSEGV)
    top.is_as_it_was(128 + signal.SIGSEGV)


def test_it_ends_with_its_terminal(big, open_top):
    top = open_top(big)
    top.shows("no sessions")
    pid = top.pid()
    top.end()
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "it to end")


def test_it_outlives_the_daemon(big, open_top):
    create(big, "train")
    top = open_top(big)
    top.shows("train")
    big.kill()
    top.shows("NO DAEMON")
    top.shows("train")  # what was known stays
    big.start()
    top.shows_not("NO DAEMON")
    top.type("q")
    top.is_as_it_was(0)


def test_a_daemon_that_hangs_is_lost_until_it_goes_on(big, open_top):
    create(big, "train")
    top = open_top(big)
    top.shows("train")
    big.process.send_signal(signal.SIGSTOP)
    try:
        top.shows("NO DAEMON")
        top.shows("train")
    finally:
        big.process.send_signal(signal.SIGCONT)
    top.shows_not("NO DAEMON")


def test_it_answers_keys_while_the_daemon_does_not(big, open_top):
    create(big, "train")
    top = open_top(big)
    top.shows("train")
    big.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(1.5)  # so that a question is under way
        top.type("?")
        top.shows("choose a session")
        top.type("q")
        top.is_as_it_was(0)
    finally:
        big.process.send_signal(signal.SIGCONT)


def test_a_thousand_sessions_can_be_gone_through(big, open_top):
    for number in range(1000):
        big.request("POST", "/v1/sessions", {"name": f"s{number:04}"})
    top = open_top(big)
    top.shows("1000 sessions")
    top.key("End")
    top.shows("s0999")
    top.type("/s0777\n")
    top.shows("s0777", row="8GiB")
    top.shows_not("s0999")


def test_without_a_terminal_it_says_what_to_use(daemon):
    result = daemon.cli("top", check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert "needs a terminal" in result.stderr and "gpuslice list" in result.stderr
