"""Host memory for what leaves the card: made ahead of need, within bounds, given back where others need it; and what leaves does not
wait for all of it."""
import contextlib
import mmap
import os
import pathlib
import signal
import socket
import time

import pytest

from attach_client import Agent, Client
from conftest import MIB, wait_for
from moved import resume, suspend
from test_moves import WORKS, memory_cgroup, run_movable  # noqa: F401 # a fixture

CHUNK = 64 * MIB


@pytest.fixture
def crowded(make_daemon, make_gpu):
    """crowded(*LINES): a daemon with these lines of gpuslice.conf, whose card has 400 MiB."""
    def begin(*lines):
        daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=400 * MIB, FAKECUDA_CONTEXT_BYTES=0, **WORKS))
        return daemon.configure(*lines).start()
    return begin


def run(daemon, reap, name, mib, *options):
    """A program with one allocation of so much."""
    movable = run_movable(daemon, reap, 1, MIB, "--name", name, "--oversubscribe", "--memory", "350MiB", *options)
    assert movable.ask(f"alloc {mib * MIB}") == "allocated" and movable.ask("fill 1") == "filled"
    return movable


def host_bytes(daemon, name):
    return daemon.session(name)["host_memory_bytes"]


def lacks(daemon, name):
    session = daemon.session(name)
    return max(0, session["movable_bytes"] + session["evicted_bytes"] - session["host_memory_bytes"])


def wait_until_made(daemon, name):
    wait_for(lambda: daemon.session(name)["movable_bytes"] >= MIB and lacks(daemon, name) == 0, f"host memory of {name} to be made", 30)
    return host_bytes(daemon, name)


def end(*movables):
    for movable in movables:
        assert movable.ask("check") == "good"
        movable.end()


def test_the_first_suspend_finds_its_host_memory_there(crowded, reap):
    """Where the limits of the sessions on the card add up to more than it has."""
    daemon = crowded()
    a, b = run(daemon, reap, "a", 200), run(daemon, reap, "b", 100)
    made = {name: wait_until_made(daemon, name) for name in "ab"}
    assert daemon.session("a")["residency"] == daemon.session("b")["residency"] == "resident"
    suspend(daemon, "a")
    assert daemon.session("a")["evicted_bytes"] >= 200 * MIB and host_bytes(daemon, "a") == made["a"]
    resume(daemon, "a")
    suspend(daemon, "b")
    assert host_bytes(daemon, "b") == made["b"]
    resume(daemon, "b")
    end(a, b)


def test_nothing_is_made_for_a_session_that_does_not_have_to_leave(daemon, reap):
    stays, idles = run(daemon, reap, "stays", 100), run(daemon, reap, "idles", 100, "--idle-suspend", "1h")
    wait_until_made(daemon, "idles")
    wait_for(lambda: daemon.session("stays")["movable_bytes"] >= 100 * MIB, "the daemon to have heard of it")
    assert host_bytes(daemon, "stays") == 0
    daemon.cli("set", "stays", "--idle-suspend", "1h")
    wait_until_made(daemon, "stays")
    end(stays, idles)


def test_the_setting_forbids_it(crowded, reap):
    daemon = crowded("host-memory-ahead = no")
    movable = run(daemon, reap, "a", 100, "--idle-suspend", "1h")
    suspend(daemon, "a")  # it works as ever, and keeps what it was given then
    given = host_bytes(daemon, "a")
    resume(daemon, "a")
    assert movable.ask(f"alloc {200 * MIB}") == "allocated"
    wait_for(lambda: lacks(daemon, "a") > 0, "the daemon to have heard of it")
    assert host_bytes(daemon, "a") == given
    daemon.configure("host-memory-ahead = yes")
    daemon.process.send_signal(signal.SIGHUP)
    wait_until_made(daemon, "a")
    movable.end()


def test_what_was_made_ahead_goes_back_where_another_session_needs_it(crowded, reap):
    """Half of all host memory is left for needs; and what one session needs, others do not keep."""
    daemon = crowded("host-memory = 320MiB")
    a = run(daemon, reap, "a", 200)
    b = run(daemon, reap, "b", 150)
    wait_for(lambda: host_bytes(daemon, "a") + host_bytes(daemon, "b") == 2 * CHUNK, "host memory to be made", 30)
    suspend(daemon, "a")
    assert daemon.session("a")["evicted_bytes"] >= 200 * MIB
    assert host_bytes(daemon, "a") + host_bytes(daemon, "b") <= 320 * MIB
    resume(daemon, "a")
    suspend(daemon, "b")  # and the other way round
    resume(daemon, "b")
    end(a, b)


def test_who_is_to_be_resumed_is_away(crowded, reap):
    """A session that came back gives up its copies where another one needs the room. A refusal names what helps."""
    daemon = crowded("host-memory = 128MiB", "host-memory-ahead = no")
    a, b, large = run(daemon, reap, "a", 100), run(daemon, reap, "b", 100), run(daemon, reap, "large", 150)
    for name, mib in (("a", 100), ("b", 100), ("large", 150)):
        wait_for(lambda name=name, mib=mib: daemon.session(name)["movable_bytes"] >= mib * MIB, f"the daemon to have heard of {name}")
    suspend(daemon, "a")
    refused = daemon.cli("suspend", "b", check=False).stderr
    assert "sessions keep 128MiB of the 128MiB" in refused and "resume or release a session that is suspended" in refused
    resume(daemon, "a")
    suspend(daemon, "b")
    resume(daemon, "b")
    refused = daemon.cli("suspend", "large", check=False).stderr
    assert "sessions keep 0B of the 128MiB" in refused and "raise that" in refused and "resume" not in refused
    end(a, b, large)


def test_a_stopped_process_gives_no_host_memory_back(crowded, reap):
    """Whoever needs it stays on the card as a whole, and leaves once the other goes on."""
    daemon = crowded("host-memory = 320MiB", "host-memory-ahead = no")
    b = run(daemon, reap, "b", 100)
    suspend(daemon, "b")
    resume(daemon, "b")
    assert host_bytes(daemon, "b") == 2 * CHUNK
    a = run(daemon, reap, "a", 200)
    wait_for(lambda: daemon.session("a")["movable_bytes"] >= 200 * MIB, "the daemon to have heard of it")
    b.process.send_signal(signal.SIGSTOP)
    refused = daemon.cli("suspend", "a", check=False)
    assert refused.returncode == 1 and "host-memory" in refused.stderr
    assert daemon.session("a")["residency"] == "resident" and daemon.session("a")["evicted_bytes"] == 0
    b.process.send_signal(signal.SIGCONT)
    wait_for(lambda: host_bytes(daemon, "b") == 0, "what it was asked for to go back")
    suspend(daemon, "a")
    resume(daemon, "a")
    end(a, b)


def test_a_daemon_that_is_killed_meanwhile_goes_on(crowded, reap):
    daemon = crowded()
    a, b = run(daemon, reap, "a", 250), run(daemon, reap, "b", 50)
    wait_for(lambda: host_bytes(daemon, "a") > 0, "host memory to be made")
    daemon.kill()
    daemon.start()
    made = wait_until_made(daemon, "a")
    assert made < daemon.session("a")["movable_bytes"] + 2 * CHUNK
    suspend(daemon, "a")
    assert host_bytes(daemon, "a") == made
    resume(daemon, "a")
    end(a, b)


def test_a_machine_that_is_short_of_memory_gets_it_back(crowded, reap, memory_cgroup):  # noqa: F811
    """As much as it lacks: what has gone back is there for others, so the rest may stay."""
    daemon = crowded()
    kills = memory_cgroup(daemon.process, 800 * MIB)
    a, b = run(daemon, reap, "a", 200), run(daemon, reap, "b", 100)
    wait_until_made(daemon, "a")
    made = wait_until_made(daemon, "b") + host_bytes(daemon, "a")
    folder, bound, used = cgroup_of(daemon.process.pid)
    (folder / bound).write_text(str(int((folder / used).read_text()) + 50 * MIB))  # less than is left to others
    wait_for(lambda: host_bytes(daemon, "a") + host_bytes(daemon, "b") < made, "host memory to go back", 30)
    assert kills() == 0
    (folder / bound).write_text(str(800 * MIB))
    suspend(daemon, "a")
    resume(daemon, "a")
    end(a, b)


def cgroup_of(pid):
    """The memory cgroup's folder, and the names of its bound and of what it uses."""
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers.split(",") in (["memory"], [""]) and path.endswith(f"gpuslice-{pid}"):
            root = pathlib.Path("/sys/fs/cgroup") / ("memory" if controllers else "") / path.lstrip("/")
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
            return root, *names
    raise AssertionError("it has no memory cgroup of its own")


def begin_to_lie(daemon, session):
    """A process with an agent that says that it has so much on the card as one chunk holds."""
    client = Client(daemon.attach_socket).attach(session)
    agent = Agent(daemon.attach_socket, client, session)
    agent.tell_memory(CHUNK)
    return client, agent


def ask_for_chunk(daemon, session, agent):
    """(descriptor, size) of the next chunk, or None where the session may have no more; and what was answered. What the agent said
    before may be heard after the request: then it is asked again."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        status, answer = daemon.request("POST", f"/v1/sessions/{session}/suspend")
        if status == 409:
            return None, answer
        with contextlib.suppress(TimeoutError):
            return agent.receive_chunk(0.2), answer
    raise AssertionError("neither a chunk nor a refusal came")


def test_what_a_process_says_that_it_gave_back_counts_until_nobody_has_it(daemon):
    """It keeps a mapping of one chunk after the other, or a descriptor, and touches it again."""
    daemon.cli("create", "--name", "liar", "--memory", "350MiB", "--oversubscribe", "--host-memory", "128MiB")
    session = daemon.session("liar")["session_id"]
    client, agent = begin_to_lie(daemon, session)
    kept, mapped = [], []
    while len(kept) + len(mapped) < 8:
        chunk, answer = ask_for_chunk(daemon, session, agent)
        if not chunk:
            break
        fd, size = chunk
        agent.tell_memory(CHUNK, arena_bytes=size)
        agent.tell_memory(CHUNK)
        daemon.request("POST", f"/v1/sessions/{session}/resume")
        if kept:
            mapped.append(mmap.mmap(fd, size))
            os.close(fd)
        else:
            kept.append(fd)
    assert not chunk and answer["error"]["code"] == "ERR_HOST_MEMORY" and (len(kept), len(mapped)) == (1, 1)
    assert host_bytes(daemon, "liar") == 2 * CHUNK
    mapped.pop().close()
    wait_for(lambda: host_bytes(daemon, "liar") == CHUNK, "the mapped chunk to be seen as gone")
    os.close(kept.pop())
    wait_for(lambda: host_bytes(daemon, "liar") == 0, "the other chunk to be seen as gone")
    client.close()


def test_memory_that_a_dead_process_passed_on_is_freed(daemon):
    daemon.cli("create", "--name", "liar", "--memory", "350MiB", "--oversubscribe")
    session = daemon.session("liar")["session_id"]
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    child = os.fork()
    if child == 0:
        try:
            _, agent = begin_to_lie(daemon, session)
            socket.send_fds(theirs, [b"!"], [agent.receive_chunk()[0]])
            theirs.recv(1)  # until it is killed
        finally:
            os._exit(1)
    try:
        theirs.close()
        wait_for(lambda: daemon.session("liar")["processes"], "the process to attach")
        assert daemon.request("POST", f"/v1/sessions/{session}/suspend")[0] < 300
        fd = socket.recv_fds(ours, 1, 1)[1][0]
        assert os.fstat(fd).st_blocks * 512 == CHUNK
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    wait_for(lambda: os.fstat(fd).st_blocks == 0, "its memory to be freed")
    with pytest.raises(PermissionError):
        os.posix_fallocate(fd, 0, CHUNK)
    assert host_bytes(daemon, "liar") == 0
    os.close(fd)


def test_a_session_that_host_memory_can_never_hold_is_warned_of_when_it_is_made(crowded):
    daemon = crowded("host-memory = 128MiB")
    said = daemon.cli("create", "--name", "large", "--oversubscribe", "--memory", "300MiB").stderr
    assert "session large may use 300MiB of GPU memory and at most 128MiB of host memory" in said
    assert "give it --memory 128MiB or less" in said and "at most 128MiB fit into host memory" in daemon.cli("show", "large").stdout
    assert daemon.cli("create", "--oversubscribe", "--memory", "300MiB", "--host-memory", "64MiB").stderr.count("at most 64MiB of host") == 1
    assert daemon.cli("create", "--oversubscribe", "--memory", "100MiB").stderr == ""
