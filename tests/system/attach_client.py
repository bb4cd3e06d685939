"""A small client of attach.sock, for tests of the daemon: src/wire/wire.h by struct, and the ledger as bytes.

It is what the interceptor is to the daemon, and can be worse: every field of a message is the test's to choose.
"""
import array
import ctypes
import mmap
import os
import signal
import socket
import struct
import time

MAGIC, VERSION, LAYOUT, NO_SLOT = 0x43494C53, 1, 1, 0xFFFFFFFF
HELLO, WELCOME, REFUSED, CONTEXT_CREATED, CONTEXT_COST, NOTICE, UNKNOWN = range(1, 8)
AGENT, WANT, GRANT, REVOKE, CLOSED, RETURNED, REPORT, WAITED, BURST = range(8, 17)
MOVED, ARENA, KEEP, EVICT, RESTORE, RESTORE_PART, NEED, ROOM = range(17, 25)
FREE, WANTED, REPORTS, BURSTS, STILL, STALLS, STEP, COMPANY, MEASURE, OVERLAPS = (1 << n for n in range(10))  # flags of a lease
AWAY, WAITS_FOR_MEMORY, HAS_NO_WORK = 1, 2, 4  # flags of MOVED
STAYS = 24  # reasons that MOVED has room for, of which stays.def has the first
DRAINED, IDLE, UNDRAINED = 1, 2, 3  # outcomes
NO_SESSION, NOT_OWNER, FULL, BAD_VERSION, BAD_TOKEN, BROKEN, INTERNAL = range(1, 8)
SLOTS = 1024
CROWD = 800  # connections at once: many more than the daemon lets say nothing

# src/ledger/usage.h
EXPORTS, SHARES, SHARE_HOLDERS = 1024, 255, 64
PLACES = SLOTS + SHARES
WORDS_BYTES = 16 * PLACES + 16  # in whole lines
GPUS_USED, OWNERS, GPUS = 24, 64, 64 + WORDS_BYTES + 8 * SHARE_HOLDERS * SHARES + 16 * EXPORTS
REQUESTS = 64 + WORDS_BYTES  # in a GPU
GPU_BYTES = REQUESTS + 64 * PLACES
# struct ledger_policy
POLICY_CLOSED, POLICY_GPUS, POLICY_GPU_BYTES = 40, 64, 64


def packet(kind, body=b"", magic=MAGIC, version=VERSION):
    return struct.pack("<IHH", magic, version, kind) + body


CONTEXT, DENIED = 1, 4  # kinds of notices
BY_LIMIT = 1  # a cause of refusals


def notice(kind, unknown_pointers=0, cause=0, gpu=0, asked=0, used=0, limit=0):
    return packet(NOTICE, struct.pack("<IIIIQQQ", kind, unknown_pointers, cause, gpu, asked, used, limit))


def hello(session, token="", slot=NO_SLOT, generation=0, versions=(VERSION, VERSION), layouts=(LAYOUT, LAYOUT)):
    return packet(HELLO, struct.pack("<HHIIIQ16s72s", *versions, *layouts, slot, generation, session.encode(),
                                     token.encode()))


class Refused(Exception):
    def __init__(self, reason, message):
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class Client:
    """One connection; after attach() also one slot."""

    def __init__(self, path, timeout_s=20):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(timeout_s)
        self.socket.connect(str(path))
        self.policy = self.usage = None
        self.fds = []

    def send(self, data):
        self.socket.send(data)

    def receive(self):
        """(type, body, descriptors); type None at end of file."""
        data, control, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(16))
        fds = array.array("i")
        for level, kind, value in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(value)
        if not data:
            return None, b"", []
        magic, version, kind = struct.unpack_from("<IHH", data)
        assert magic == MAGIC
        self.version = version
        return kind, data[8:], list(fds)

    def attach(self, session, token="", map_it=True, **more):
        self.send(hello(session, token, **more))
        kind, body, fds = self.receive()
        if kind == REFUSED:
            reason, text = struct.unpack("<I252s", body)
            raise Refused(reason, text.partition(b"\0")[0].decode())
        assert kind == WELCOME and len(fds) == 2, (kind, fds)
        self.slot, self.layout, self.generation, self.epoch, self.policy_bytes, self.usage_bytes = struct.unpack(
            "<IIQQQQ", body)
        self.fds = fds
        if map_it:
            self.policy = mmap.mmap(fds[0], self.policy_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
            self.usage = mmap.mmap(fds[1], self.usage_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        return self

    def hold(self, held_bytes, gpu=0):
        """Put bytes into our slot, as a grant would, without asking anybody."""
        at = GPUS + gpu * GPU_BYTES + 64 + 16 * self.slot
        struct.pack_into("<Q", self.usage, GPUS_USED, struct.unpack_from("<Q", self.usage, GPUS_USED)[0] | 1 << gpu)
        struct.pack_into("<QQ", self.usage, at, held_bytes, self.generation << 40)

    def count_refused(self, count, gpu=0):
        """Say in our slot how many requests were refused."""
        struct.pack_into("<Q", self.usage, GPUS + gpu * GPU_BYTES + REQUESTS + 64 * self.slot + 32, count)

    def limit(self, gpu=0):
        return struct.unpack_from("<Q", self.policy, POLICY_GPUS + gpu * POLICY_GPU_BYTES + 16)[0]

    def context_bytes(self, gpu=0):
        return struct.unpack_from("<Q", self.policy, POLICY_GPUS + gpu * POLICY_GPU_BYTES + 24)[0]

    def closed(self):
        return struct.unpack_from("<I", self.policy, POLICY_CLOSED)[0]

    def ask_context_cost(self, gpu=0):
        self.send(packet(CONTEXT_CREATED, struct.pack("<I", gpu)))
        kind, body, _ = self.receive()
        if kind is None:
            return None
        assert kind == CONTEXT_COST
        answered_gpu, _, cost = struct.unpack("<IIQ", body)
        assert answered_gpu == gpu
        return cost

    def is_hung_up(self):
        """Wait until the daemon has closed the connection, at most as long as the timeout."""
        try:
            return self.receive()[0] is None
        except ConnectionResetError:
            return True

    def close(self):
        self.socket.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []


def attach_at_once(daemon, path, session, count, token=""):
    """So many connections that have all sent HELLO before the daemon looks at any. Returns the types of its answers."""
    mapped = Client(path).attach(session, token)  # so that the daemon does not take this process for one that exec'd
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        clients = [Client(path) for _ in range(count)]
        for client in clients:
            client.send(hello(session, token))
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    answers = []
    for client in clients:
        kind, _, client.fds = client.receive()
        answers.append(kind)
        client.close()
    mapped.close()
    return answers


class Agent:
    """The agent's connection of a process that is attached as `client`: GRANT and REVOKE come, and the test answers."""

    def __init__(self, path, client, session, token="", versions=(VERSION, VERSION), **more):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        self.socket.connect(str(path))
        slot, generation = more.get("slot", client.slot), more.get("generation", client.generation)
        self.send(AGENT, struct.pack("<HHIQ16s72s", *versions, slot, generation, session.encode(), token.encode()))

    def send(self, kind, body):
        self.socket.send(packet(kind, body))

    def want(self, gpus=1):
        self.send(WANT, struct.pack("<Q", gpus))

    def give_back(self, lease, busy_ns=0, outcome=DRAINED, longest_ns=0, waited_ns=0):
        if busy_ns:
            self.report(lease, busy_ns, longest_ns)
        self.send(RETURNED, struct.pack("<QQQII", lease, longest_ns, waited_ns, outcome, 0))

    def report(self, lease, busy_ns, longest_ns=0, waited_ns=0):
        """Without a number of calls, and none measured."""
        self.send(REPORT, struct.pack("<8Q", lease, busy_ns, longest_ns, waited_ns, 0, 0, 0, 0))

    def tell_waits(self, counts):
        self.send(WAITED, struct.pack("<16I", *counts))

    def tell_memory(self, resident_bytes=0, evicted_bytes=0, stays_bytes=(), arena_bytes=0, flags=0):
        """`stays_bytes`: one number for each row of stays.def, from the first; 0 for the rest."""
        stays = [*stays_bytes, *[0] * (STAYS - len(stays_bytes))]
        self.send(MOVED, struct.pack(f"<QQQ{STAYS}QQII", 0, resident_bytes, evicted_bytes, *stays, arena_bytes, 0, flags))

    def need_room(self, number, size, attempt=0):
        self.send(NEED, struct.pack("<QQII", number, size, 0, attempt))

    def receive(self, timeout_s=20):
        """(GRANT, lease, flags), (REVOKE, lease, patience_ns), (REFUSED, reason, text), or None at the end of the
        connection."""
        self.socket.settimeout(timeout_s)
        data = self.socket.recv(4096)
        if not data:
            return None
        _, _, kind = struct.unpack_from("<IHH", data)
        if kind == REFUSED:
            reason, text = struct.unpack("<I252s", data[8:])
            return kind, reason, text.partition(b"\0")[0].decode()
        if kind == GRANT:
            lease, flags, _ = struct.unpack("<QII", data[8:])
            return kind, lease, flags
        assert kind == REVOKE, kind
        return kind, *struct.unpack("<QQ", data[8:])

    def receive_chunk(self, timeout_s=20):
        """A descriptor of the next chunk of host memory that comes, and its size. Other messages before it are dropped."""
        self.socket.settimeout(timeout_s)
        while True:
            data, fds, _, _ = socket.recv_fds(self.socket, 4096, 1)
            assert data, "the daemon closed the connection"
            if struct.unpack_from("<IHH", data)[2] == ARENA:
                return fds[0], struct.unpack("<Q", data[8:])[0]

    def is_told_nothing(self, for_s):
        """Whether no message comes for so long."""
        try:
            self.receive(for_s)
        except TimeoutError:
            return True
        return False

    def close(self):
        self.socket.close()


class Child:
    """A process of its own that attaches and then waits: attached(), kill(), and so on."""

    def __init__(self, path, session, token="", held_bytes=0, uid=None, refused=0):
        reading, writing = os.pipe()
        waiting, going = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                # Die with the test, should that be killed.
                ctypes.CDLL(None).prctl(1, 9)
                os.close(reading)
                os.close(going)
                if uid:
                    os.setgroups([])
                    os.setgid(uid)
                    os.setuid(uid)
                try:
                    self.client = Client(path).attach(session, token)
                    if held_bytes:
                        self.client.hold(held_bytes)
                    if refused:
                        self.client.count_refused(refused)
                    os.write(writing, b"attached %d" % self.client.slot)
                except Refused as refused:
                    os.write(writing, b"refused %d" % refused.reason)
                code = self.live(waiting)
            finally:
                os._exit(code)
        os.close(writing)
        os.close(waiting)
        self.going = going
        self.said = b""
        while chunk := os.read(reading, 100):
            self.said += chunk
            if len(self.said.split()) > 1:
                break
        os.close(reading)
        self.reaped = False

    def live(self, waiting):
        """In the child: until told, or until the test has gone."""
        while command := os.read(waiting, 1):
            if command == b"c":  # close every descriptor but stay mapped
                os.closerange(3, waiting)
                os.closerange(waiting + 1, 5000)
            elif command == b"x":
                os.execv("/bin/sleep", ["sleep", "1000"])
            elif command == b"f":  # a child that keeps the connection; then another program
                if os.fork() == 0:
                    ctypes.CDLL(None).prctl(1, 9)
                    time.sleep(1000)
            elif command == b"q":
                break
        return 0

    def tell(self, command):
        os.write(self.going, command)

    def kill(self, number=9):
        os.kill(self.pid, number)
        self.wait()

    def wait(self):
        if not self.reaped:
            os.waitpid(self.pid, 0)
            self.reaped = True
            os.close(self.going)
