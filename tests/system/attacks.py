"""What users who mean harm do to a daemon: each attack is a function that goes on until its process is ended, and says how far
it has come. attack() runs one in a process of another user, where we may."""
import contextlib
import ctypes
import json
import mmap
import os
import random
import resource
import select
import signal
import socket
import struct
import subprocess
import time
import traceback

import attach_client
from attach_client import GRANT, REVOKE, Agent, Client, Refused
from conftest import MIB

OTHER_USER = 12345
SEED = 20260131
BODY_BYTES = 64 << 10


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def in_child(action, *arguments):
    """A child that does this, and ends with it, whatever comes of it; its pid."""
    child = os.fork()
    if child == 0:
        die_with_parent()
        with contextlib.suppress(Exception):
            action(*arguments)
        os._exit(0)
    return child


@contextlib.contextmanager
def attack(action, *arguments, uid=OTHER_USER, nice=0):
    """Run `action(say, *arguments)` in a process of another user (where we may) until the block ends. It begins once the
    process has said something; what it says last is its count."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            os.setsid()
            os.nice(nice)
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            die_with_parent()  # not before: it ends with a change of users
            action(lambda count: os.write(writing, struct.pack("<Q", count)), *arguments)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    said, poll = [], select.poll()
    poll.register(reading, select.POLLIN)

    def count(at_least, deadline_s=60):
        end = time.monotonic() + deadline_s
        while not said or said[-1] < at_least:
            assert poll.poll(1000 * max(0, end - time.monotonic())), f"{said[-1:]} of {at_least}"
            chunk = os.read(reading, 8)
            assert chunk, "the attacker has ended"
            said.append(struct.unpack("<Q", chunk)[0])
        return said[-1]

    try:
        count(1)
        yield count
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)


def http(path):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(60)
    connection.connect(str(path))
    return connection


def send_frames(say, path):
    """Frames of every wrong kind, one or a few a connection."""
    rng = random.Random(SEED)
    valid = [attach_client.hello("0123456789ab"), attach_client.hello("0123456789ab", "f" * 64),
             attach_client.packet(attach_client.AGENT, bytes(104)), attach_client.packet(attach_client.WANT, bytes(8)),
             attach_client.packet(attach_client.RETURNED, b"\xff" * 40), attach_client.notice(0)]

    def frame():
        kind = rng.randrange(6)
        data = bytearray(rng.choice(valid))
        if kind == 0:
            return rng.randbytes(rng.randrange(1, 700))
        if kind == 1:
            return bytes(data[:rng.randrange(1, len(data))])
        if kind == 2:
            return bytes(data) + rng.randbytes(rng.randrange(1, 100_000))
        if kind == 3:
            struct.pack_into("<H", data, 4, rng.randrange(3, 65536))
        elif kind == 4:
            struct.pack_into("<H", data, 6, rng.randrange(65536))
        else:
            for _ in range(rng.randrange(1, 9)):
                data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data)

    count = 0
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(60)
            connection.connect(str(path))
            try:
                for _ in range(rng.randrange(1, 4)):
                    connection.send(frame())
                    count += 1
            except OSError:
                pass  # the daemon was quicker to hang up
        if count // 50 * 50 > count - 3:
            say(count)


def send_bodies(say, path):
    """64 KiB of JSON, 20,000 arrays in each other, and halves of both; each must be refused."""
    bodies = [b'{"name": "' + b"a" * (BODY_BYTES - 12) + b'"}', b"[" * 20_000 + b"]" * 20_000,
              b'{"gpus": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", b'{"a": ' * 10_000,
              b"{" + b",".join(b'"k%d": 0' % i for i in range(5_000)) + b"}"]
    count = 0
    while True:
        body = bodies[count % len(bodies)]
        assert len(body) <= BODY_BYTES
        with http(path) as connection:
            connection.sendall(b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: "
                               b"%d\r\n\r\n" % len(body) + body)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        assert answer.split()[1] == b"400", answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "ERR_BAD_REQUEST"
        count += 1
        say(count)


def dawdle(say, path):
    """Readers that never read and writers of a byte at a time."""
    writers = [http(path) for _ in range(100)]
    for _ in range(100):
        reader = http(path)
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(1000):
                reader.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10)
        writers.append(reader)  # kept open
    text = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{"
    for count in range(1_000_000):
        for writer in writers[:100]:
            with contextlib.suppress(OSError):
                writer.send(text[count:count + 1] or b" ")
        say(count + 1)
        time.sleep(0.01)


def crowd(say, control, attach):
    """500 connections on each socket that say nothing; those that the daemon closes are made again."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))
    sockets = ((socket.SOCK_STREAM, control), (socket.SOCK_SEQPACKET, attach))
    crowds = {kind: [] for kind, _ in sockets}
    while True:
        for kind, path in sockets:
            while len(crowds[kind]) < 500:
                connection = socket.socket(socket.AF_UNIX, kind)
                connection.connect(str(path))
                crowds[kind].append(connection)
            poll = select.poll()
            for connection in crowds[kind]:
                poll.register(connection, select.POLLIN)
            closed = {fd for fd, _ in poll.poll(10)}
            for connection in crowds[kind]:
                if connection.fileno() in closed:
                    connection.close()
            crowds[kind] = [connection for connection in crowds[kind] if connection.fileno() >= 0]
        say(1000)


def crowd_tcp(say, address, text):
    """As many connections over TCP as there can be, and more, that send this a byte at a time; those that are closed are made
    again."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))
    crowd, count = {}, 0  # how many bytes each has sent
    while True:
        while len(crowd) < 1500:
            try:
                connection = socket.create_connection(address, timeout=1)
            except OSError:
                break
            connection.setblocking(False)
            crowd[connection] = 0
        for connection, sent in list(crowd.items()):
            try:
                with contextlib.suppress(BlockingIOError):
                    crowd[connection] += connection.send(text[sent:sent + 1])
                with contextlib.suppress(BlockingIOError):
                    if not connection.recv(4096, socket.MSG_PEEK):
                        raise ConnectionResetError
            except OSError:
                del crowd[connection]
                connection.close()
        count += 1
        say(count)


# --- Descriptors that are slow to close ----------------------------------------------------------------------------

def lingering(linger_s=60):
    """A TCP socket whose last close waits for so long, as nobody reads at its other end, and that end."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    other, _ = server.accept()
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while client.send(bytes(1 << 16)):
            pass
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, linger_s))
    return client, other


def send_lingering(path, kind, body, linger_s=60):
    """Send such a socket along with the bytes. Its other end; None: it was not taken."""
    connection = socket.socket(socket.AF_UNIX, kind)
    connection.connect(str(path))
    client, other = lingering(linger_s)
    try:
        connection.sendmsg([body], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", client.fileno()))])
    except PermissionError:
        other.close()  # ours is reset, and closed at once
        other = None
    client.close()
    connection.close()
    return other


# --- The GPU's time ---------------------------------------------------------------------------------------------

def take_a_turn(daemon, session):
    """A process's only deed: it has a turn, claims that its work takes 2 s a piece, and keeps the turn until it is left behind."""
    client = Client(daemon.attach_socket).attach(session)
    agent = Agent(daemon.attach_socket, client, session)
    agent.want()
    kind, lease = agent.receive()[:2]
    while kind != GRANT or lease == 0:  # it was free, or closed
        if kind == REVOKE:
            agent.give_back(lease)
            agent.want()
        kind, lease = agent.receive()[:2]
    while True:
        agent.report(lease, 0, longest_ns=2_000_000_000)
        try:
            if agent.receive(0.005)[0] == REVOKE:
                break
        except TimeoutError:
            pass
    time.sleep(2.1)


def change_sessions(say, daemon):
    """A new session, a turn that is not given back, death, and again."""
    count = 0
    while True:
        session = make_session(daemon)
        child = in_child(take_a_turn, daemon, session)
        count += 1
        say(count)
        os.waitpid(child, 0)
        daemon.request("DELETE", f"/v1/sessions/{session}")


# --- More of them -----------------------------------------------------------------------------------------------

def make_whole_session(daemon, memory_bytes=MIB, **wishes):
    """All that is said of it. It is on the GPU where the good programs are."""
    status, made = daemon.request("POST", "/v1/sessions", {"gpus": [{"gpu": "0", "memory_bytes": memory_bytes}], **wishes})
    assert status == 201, made
    return made


def make_session(daemon, **wishes):
    """Its ID."""
    return make_whole_session(daemon, **wishes)["session_id"]


def send_slow_descriptors(say, control, attach):
    """Sockets that linger for two seconds, left unread with the daemon."""
    count = 0
    while True:
        for path, kind, body in ((attach, socket.SOCK_SEQPACKET, attach_client.hello("000000000000")),
                                 (control, socket.SOCK_STREAM, b"GET /healthz HTTP/1.1\r\n\r\n"),
                                 (control, socket.SOCK_STREAM, b"GET /heal")):
            with contextlib.suppress(ConnectionError):
                other = send_lingering(path, kind, body, linger_s=2)
                if other:
                    other.close()
            count += 1
        say(count)
        time.sleep(0.05)


def ask_together(say, path):
    """200 bodies of 64 KiB whose last bytes come together."""
    body = b"{" + b",".join(b'"k%d": [[0]]' % i for i in range(4_000))
    body += b" " * (BODY_BYTES - len(body) - 1)
    head = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % BODY_BYTES
    count = 0
    while True:
        connections = [http(path) for _ in range(200)]
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.sendall(head + body)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.sendall(b"}")
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.recv(65536)
            connection.close()
            count += 1
        say(count)


def flood(say, daemon):
    """Wants, reports and notices as fast as they go, on ten connections of each kind."""
    sessions = [make_session(daemon) for _ in range(10)]
    notice = attach_client.notice(attach_client.CONTEXT)
    count, floods = 0, {}
    while True:
        for session in sessions:
            try:
                if session not in floods:
                    client = Client(daemon.attach_socket).attach(session, map_it=False)
                    floods[session] = client, Agent(daemon.attach_socket, client, session)
                    client.socket.setblocking(False)
                    floods[session][1].socket.setblocking(False)
                client, agent = floods[session]
                for number in range(100):
                    agent.want()
                    agent.report(number, 1 << number % 64)
                    client.send(notice)
            except BlockingIOError:
                pass
            except (OSError, Refused):  # it was cut off
                for one in floods.pop(session, ()):
                    one.close()
        count += 1
        say(count)


def lie_about_memory(say, daemon):
    """Fifty sessions that wait for the card: they say that some of their memory is away, or here without work, want it back, ask for
    room, and do nothing of what they are told."""
    rng, count, agents = random.Random(SEED), 0, []
    for _ in range(50):
        session = make_session(daemon, oversubscribe="swap")
        client = Client(daemon.attach_socket).attach(session, map_it=False)
        agents.append((client, Agent(daemon.attach_socket, client, session)))
        agents[-1][1].socket.setblocking(False)
    while True:
        for _, agent in agents:
            with contextlib.suppress(BlockingIOError, OSError):
                flags = rng.choice([0, attach_client.AWAY | attach_client.WAITS_FOR_MEMORY, attach_client.HAS_NO_WORK])
                resident, evicted = (rng.choice([0, MIB, 1 << 30, 1 << 62]) for _ in range(2))
                agent.tell_memory(resident, evicted, arena_bytes=evicted, flags=flags)
                agent.need_room(count + 1, rng.choice([1, MIB, 1 << 30]), rng.randrange(3))
                agent.socket.recv(4096)
        count += 1
        say(count)


def write_over(usage, rng):
    """All of a ledger, its joint memory and its requests: anything, and numbers that look right."""
    for _ in range(200):
        at = rng.randrange(attach_client.GPUS + attach_client.GPU_BYTES) & ~7
        usage[at:at + 8] = rng.randbytes(8) if rng.random() < 0.5 else struct.pack("<Q", rng.randrange(1100))
    for at in range(attach_client.OWNERS, attach_client.GPUS, 8):
        if rng.random() < 0.3:
            usage[at:at + 8] = struct.pack("<Q", rng.randrange(1 << 44))


def scribble_once(daemon, session, seed):
    clients = [Client(daemon.attach_socket).attach(session) for _ in range(8)]
    for _ in range(5):
        write_over(clients[0].usage, random.Random(seed))
        daemon.request("GET", f"/v1/sessions/{session}")


def scribble(say, daemon):
    """A process that has eight slots writes over its session's ledger, and ends; again and again."""
    rng, count = random.Random(SEED), 0
    while True:
        session, seed = make_session(daemon), rng.random()
        os.waitpid(in_child(scribble_once, daemon, session, seed), 0)
        daemon.request("DELETE", f"/v1/sessions/{session}?kill=true")
        count += 1
        say(count)


def map_much(say, daemon):
    """A process with 30,000 mappings that attaches and hangs up, again and again."""
    session, libc = make_session(daemon), ctypes.CDLL(None)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    begin = libc.mmap(None, 60_000 * 4096, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    for page in range(0, 60_000, 2):
        libc.mprotect(begin + page * 4096, 4096, 0)
    count = 0
    while True:
        with contextlib.suppress(Refused):
            Client(daemon.attach_socket).attach(session, map_it=False).close()
        count += 1
        say(count)


def fill_ledgers(say, daemon):
    """A ledger's file is made as long as it goes, and its reserve taken."""
    count, sessions = 0, [make_session(daemon) for _ in range(4)]
    while True:
        for session in sessions:
            with contextlib.suppress(Refused):
                client = Client(daemon.attach_socket).attach(session, map_it=False)
                at = client.usage_bytes
                with contextlib.suppress(OSError):
                    os.posix_fallocate(client.fds[1], 0, at)
                with contextlib.suppress(OSError):
                    for _ in range(4096):
                        at += os.pwrite(client.fds[1], b"x" * 4096, at)
                client.close()
        count += 1
        say(count)


def queue_the_impossible(say, daemon):
    """One byte is held, and the whole card is waited for, which can never come."""
    card = daemon.request("GET", "/v1/gpus")[1][0]["total_bytes"]
    make_session(daemon, memory_bytes=1)
    whole = {"gpus": [{"gpu": "0", "memory_bytes": card}], "wait": True}
    count, waiting = 0, []
    while True:
        status, made = daemon.request("POST", "/v1/sessions", whole)
        assert status == 202, made
        waiting.append(made["session_id"])
        if len(waiting) > 500:
            daemon.request("DELETE", f"/v1/sessions/{waiting.pop(0)}")
        count += 1
        say(count)


# --- Memory that nobody is charged for ------------------------------------------------------------------------------

TAKING_BYTES = 48 * MIB
WAYS = [("linear", 1, 60_000), ("linear", MIB + 1, 200), ("default-pool", 4 * MIB, 30), ("made-pool", 4 * MIB, 30),
        ("managed-pool", 4 * MIB, 30), ("prefetch", 4 * MIB, 30), ("advice", 4 * MIB, 30), ("physical", 4 * MIB, 30),
        ("descriptor", 4 * MIB, 30), ("import", 4 * MIB, 30), ("external", 4 * MIB, 30), ("passed-on", 2 * MIB, 300),
        ("volume", 16384, 256), ("module", 20 * MIB, 6), ("local", 65536, 1), ("library", 20 * MIB, 6),
        ("library-launch", 20 * MIB, 6), ("graph-local", 65536, 1), ("pool-pointer", 4 * MIB, 30)]


def start_program(daemon, session, *words, **more):
    """A program of ours in the session, as `gpuslice run` would start it."""
    environment = {**daemon.gpu.environment(LD_PRELOAD=daemon.product.interceptor), **session["environment"],
                   "LD_LIBRARY_PATH": str(daemon.product.simulated)}
    return subprocess.Popen([*map(str, words)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, preexec_fn=die_with_parent, text=True, **more)


def take_uncharged(say, daemon):
    """By one way after the other (programs/charges.c), on GPUs of the session and of others, as much as it gets; what descriptors
    keep stays while the program lives."""
    rng, count, session = random.Random(os.getpid()), 0, make_whole_session(daemon, memory_bytes=TAKING_BYTES)
    while True:
        words = []
        for way, size, times in rng.sample(WAYS, 3):
            words += [way + rng.choice(["", "", "@1"]), size, times]
        taker = start_program(daemon, session, daemon.product.program("charges"), *words)
        for _ in range(3):
            if not select.select([taker.stdout], [], [], 5)[0] or not taker.stdout.readline():
                break
            with contextlib.suppress(BrokenPipeError):
                taker.stdin.write("\n")
                taker.stdin.flush()
            count += 1
            say(count)
        taker.kill()
        taker.communicate()


def keep_four_chunks(daemon, session):
    client = Client(daemon.attach_socket).attach(session)
    agent, kept = Agent(daemon.attach_socket, client, session), []
    agent.tell_memory(64 * MIB)
    for _ in range(4):
        daemon.request("POST", f"/v1/sessions/{session}/suspend")
        fd, size = agent.receive_chunk(0.5)
        kept.append(mmap.mmap(fd, size))
        kept[-1][:MIB] = bytes(MIB)
        agent.tell_memory(64 * MIB, arena_bytes=size)
        agent.tell_memory(64 * MIB)
        daemon.request("POST", f"/v1/sessions/{session}/resume")


def keep_host_memory(say, daemon):
    """Host memory that a process says it gave back, and has mapped; or that it passes on before it dies."""
    session, count = make_session(daemon, memory_bytes=256 * MIB, oversubscribe="swap", host_memory_bytes=128 * MIB), 0
    while True:
        os.waitpid(in_child(keep_four_chunks, daemon, session), 0)
        daemon.request("POST", f"/v1/sessions/{session}/resume")
        count += 1
        say(count)


# --- Waiting without end --------------------------------------------------------------------------------------------

def stop_while_leaving(say, daemon):
    """Programs with memory that are stopped again and again, so also while they are to leave the card or come back."""
    rng, count, movables = random.Random(os.getpid()), 0, []
    for _ in range(3):
        session = make_whole_session(daemon, memory_bytes=350 * MIB, oversubscribe="swap")
        movables.append(start_program(daemon, session, daemon.product.program("movable"), 20, 8 * MIB))
    while True:
        movable = rng.choice(movables)
        os.kill(movable.pid, signal.SIGCONT)
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            movable.stdin.write("touch\n")
            movable.stdin.flush()
        time.sleep(rng.random() / 4)
        os.kill(movable.pid, signal.SIGSTOP)
        while select.select([movable.stdout], [], [], 0)[0] and movable.stdout.readline():
            pass
        count += 1
        say(count)


def wait_in_hundreds(say, daemon):
    """150 sessions that wait for room, and say so a hundred times a second together."""
    agents, count = [], 0
    with contextlib.suppress(Refused):
        for _ in range(150):
            session = make_session(daemon, oversubscribe="swap")
            client = Client(daemon.attach_socket).attach(session, map_it=False)
            agents.append((client, Agent(daemon.attach_socket, client, session)))
            agents[-1][1].socket.setblocking(False)
    while True:
        client, agent = agents[count % len(agents)]
        with contextlib.suppress(BlockingIOError, OSError):
            agent.tell_memory(0, MIB, flags=attach_client.AWAY | attach_client.WAITS_FOR_MEMORY)
            agent.need_room(count + 1, MIB)
            agent.socket.recv(4096)
        count += 1
        say(count)
        time.sleep(0.01)


def ask_for_room_again(say, daemon):
    """A session of 16 MiB that may not leave asks for nearly all of the card, again and again, and uses none of what it gets."""
    card, session = daemon.request("GET", "/v1/gpus")[1][0]["total_bytes"], make_session(daemon, memory_bytes=16 * MIB)
    client = Client(daemon.attach_socket).attach(session)
    agent, count = Agent(daemon.attach_socket, client, session), 0
    agent.socket.setblocking(False)
    while True:
        with contextlib.suppress(BlockingIOError):
            agent.need_room(count + 1, card * 19 // 20, count % 3)
            agent.socket.recv(4096)
        count += 1
        say(count)
        time.sleep(0.01)


def ask_and_give_back(say, daemon):
    """Sessions that ask for host memory, all of them, and give it back, again and again."""
    agents, count = [], 0
    for _ in range(20):
        session = make_session(daemon, memory_bytes=64 * MIB, oversubscribe="swap")
        client = Client(daemon.attach_socket).attach(session)
        agents.append((session, client, Agent(daemon.attach_socket, client, session)))
    while True:
        for session, _, agent in agents:
            agent.tell_memory(64 * MIB)
            daemon.request("POST", f"/v1/sessions/{session}/suspend")
            with contextlib.suppress(TimeoutError):
                os.close(agent.receive_chunk(0.05)[0])
                agent.tell_memory(64 * MIB)
            daemon.request("POST", f"/v1/sessions/{session}/resume")
            count += 1
            say(count)


def short_sessions(say, daemon):
    """Two loops of programs that work for a moment, each in a new session without a minimum."""
    loops, count = [None, None], 0
    while True:
        for number, made in enumerate(loops):
            if made:
                made[1].communicate(timeout=20)
                daemon.request("DELETE", f"/v1/sessions/{made[0]}")
            session = make_whole_session(daemon)
            worker = start_program(daemon, session, daemon.product.program("worker"), 500)
            worker.stdout.readline()
            worker.stdin.write("100\n")
            worker.stdin.close()
            worker.stdin = None
            loops[number] = session["session_id"], worker
            count += 1
            say(count)


def close_descriptors(say, daemon):
    """Two programs that work all the time, with a maximum, and close their sockets ten times a second (preloads/descriptors.c)."""
    product, workers, count = daemon.product, [], 0
    preload = f"LD_PRELOAD={product.interceptor}:{product.program('descriptors.so')}"
    for _ in range(2):
        session = make_whole_session(daemon, compute="0%..10%")
        workers.append(start_program(daemon, session, "env", preload, product.program("worker"), 500))
        workers[-1].stdout.readline()
        workers[-1].stdin.write("1000000\n")
        workers[-1].stdin.flush()
    while True:
        for worker in workers:
            worker.send_signal(signal.SIGUSR1)
        count += 1
        say(count)
        time.sleep(0.1)


def linger_at_memory_sockets(say, daemon):
    """Sockets that linger, sent to each socket by which programs hand out their memory."""
    count = 0
    while True:
        with open("/proc/net/unix") as table:
            names = [line.split()[-1].replace("@", "\0") for line in table if "gpuslice-memory-" in line]
        for name in names:
            with contextlib.suppress(OSError):
                other = send_lingering(name, socket.SOCK_SEQPACKET, bytes(8), linger_s=2)
                if other:
                    other.close()
        count += 1
        say(count)
        time.sleep(0.05)


# --- Names and records ----------------------------------------------------------------------------------------------

def ask_in_vain(say, daemon):
    """Requests that are refused, each of them a line of the audit file."""
    count = 0
    while True:
        for body in ({"memory_bytes": 1 << 60}, {"memory_bytes": MIB, "owner_uid": 0}, {"memory_bytes": MIB, "managed": True}):
            status, _ = daemon.request("POST", "/v1/sessions", body)
            assert status in (400, 403, 409, 429, 507), status
        count += 1
        say(count)


def attach_as(daemon, session, name):
    ctypes.CDLL(None).prctl(15, name)  # PR_SET_NAME
    Client(daemon.attach_socket).attach(session)


def have_strange_names(say, daemon):
    """Processes that are not called by characters, and end as soon as they are in."""
    session, count = make_session(daemon), 0
    while True:
        name = random.Random(count).choice([b"\xff\xfe", b"\x1b[2J\n", b"\"}],", b""])
        os.waitpid(in_child(attach_as, daemon, session, name), 0)
        daemon.request("GET", f"/v1/sessions/{session}")
        count += 1
        say(count)
