"""Memory that processes share, on the simulated GPU inside quotas: charged to one of them, to the byte, and given back.

What goes from one program to another goes through the test: descriptors over a socket of each puppet, names as words.
"""
import contextlib
import json
import os
import socket

import pytest

from conftest import MIB, wait_for
from test_driver_line import new_session, sampled
from test_quota import DEADLINE_S, INVALID_CONTEXT, INVALID_VALUE, LIMIT, OK, OUT_OF_MEMORY, Puppet, in_session

SIZE = 16 * MIB
CARD = 256 * MIB  # a small one, on which what can leave lies in small pieces
PIECE = 4 * MIB


class Sharer(Puppet):
    """A puppet with a socket for descriptors."""

    def __init__(self, product, environment):
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(DEADLINE_S)
        with theirs:
            super().__init__(product, {**environment, "PUPPET_SOCKET": str(theirs.fileno())}, pass_fds=[theirs.fileno()])

    def export(self, thing):
        """The descriptor, which is the caller's to close."""
        self.get("export", thing)
        return socket.recv_fds(self.socket, 1, 1)[1][0]

    def give(self, fd, *words):
        """Do what takes a descriptor; ours is closed."""
        socket.send_fds(self.socket, [b"\0"], [fd])
        os.close(fd)
        return self.do(*words)

    def take(self, fd, *words):
        result, thing = self.give(fd, *words)
        assert result == OK, words
        return thing

    def kill(self):
        self.process.kill()
        self.process.wait()

    def shown(self):
        """Used bytes by cuMemGetInfo and by NVML, which agree."""
        _, free, total = self.do("info")
        result, nvml_total, nvml_free, nvml_used, *_ = self.do("nvml", 0)
        assert (result, nvml_total, nvml_free) == (OK, total, free)
        assert nvml_used == total - free
        return nvml_used


@pytest.fixture
def start_sharer(product, reap):
    """start_sharer(environment): one with a context, until the test ends."""
    with contextlib.ExitStack() as sockets:
        def start(environment):
            sharer = Sharer(product, environment)
            reap(sharer.process)
            sockets.enter_context(sharer.socket)
            sharer.get("context", 0)
            return sharer
        yield start


@pytest.fixture
def start(start_sharer):
    def start(daemon, session, *preloads):
        environment = in_session(daemon, session)
        environment["LD_PRELOAD"] = ":".join(map(str, [environment["LD_PRELOAD"], *preloads]))
        return start_sharer(environment)
    return start


@pytest.fixture
def session(daemon):
    return new_session(daemon, memory_bytes=LIMIT)


@pytest.fixture
def other(daemon):
    return new_session(daemon, memory_bytes=LIMIT)


def lines(daemon, session):
    """(used, driver, orphan) bytes of the session after a fresh sample, as `gpuslice show` has them."""
    sampled(daemon, session)
    shown = json.loads(daemon.cli("show", session["session_id"], "--json").stdout)
    return shown["used_bytes"], shown["driver_bytes"], shown["orphan_bytes"]


def charged(daemon, session):
    """What programs asked for: small allocations share pieces, of which the rest is the driver line's."""
    used, driver, _ = lines(daemon, session)
    return used - driver


def becomes(daemon, session, expected):
    last = []

    def is_so():
        last[:] = [lines(daemon, session)]
        return last[0] == expected
    wait_for(is_so, f"{expected}")


# --- Memory of cuMemCreate, by descriptor ----------------------------------------------------------------------

def test_physical_memory_imported_in_its_session_is_charged_once(daemon, session, start):
    creator, importer = start(daemon, session), start(daemon, session)
    made = creator.get("shareable", SIZE)
    imported = importer.take(creator.export(made), "import", SIZE)
    mapping = importer.get("map", imported)
    assert lines(daemon, session) == (SIZE, 0, 0)
    assert creator.shown() == importer.shown() == SIZE
    assert importer.code("alloc", LIMIT - SIZE + 1) == OUT_OF_MEMORY
    importer.get("free", importer.get("alloc", LIMIT - SIZE))
    importer.get("unmap", mapping)
    importer.get("drop", imported)
    assert lines(daemon, session) == (SIZE, 0, 0)
    creator.get("drop", made)
    creator.get("free", creator.get("alloc", LIMIT))  # waits until the daemon has seen that it is gone
    assert lines(daemon, session) == (0, 0, 0)
    assert creator.shown() == importer.shown() == 0


@pytest.mark.parametrize("way", ["bind", "tiles"])
def test_physical_memory_of_another_session_is_charged_to_the_session_that_uses_it_without_a_mapping(make_daemon, make_gpu, start, way):
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_DEVICE="h100")).start()
    session, other = (new_session(daemon, memory_bytes=LIMIT) for _ in range(2))
    creator, importer = start(daemon, session), start(daemon, other)
    imported = importer.take(creator.export(creator.get("shareable", SIZE)), "import", SIZE)
    use = ["bind", importer.get("team", SIZE), imported] if way == "bind" else ["tiles", imported]
    full = importer.get("alloc", LIMIT - SIZE + 1)
    assert importer.code(*use) == OUT_OF_MEMORY
    importer.get("free", full)
    assert importer.code(*use) == OK
    importer.get("drop", imported)
    becomes(daemon, other, (SIZE, 0, 0))
    assert importer.code("alloc", LIMIT - SIZE + 1) == OUT_OF_MEMORY


def test_an_imported_multicast_object_holds_what_is_bound_to_it(make_daemon, make_gpu, start):
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_DEVICE="h100")).start()
    session = new_session(daemon, memory_bytes=LIMIT)
    creator, member = start(daemon, session), start(daemon, session)
    team = member.take(creator.export(creator.get("team", SIZE)), "import", SIZE)
    memory = member.get("shareable", SIZE)
    assert member.code("bind", team, memory) == OK
    member.get("drop", memory)
    assert lines(daemon, session) == (SIZE, 0, 0)
    assert member.code("alloc", LIMIT - SIZE + 1) == OUT_OF_MEMORY
    member.get("drop", team)
    assert lines(daemon, session) == (0, 0, 0)


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_importers_keep_when_the_creator_lets_go_stays_charged_once(daemon, session, start, is_killed):
    creator, importer = start(daemon, session), start(daemon, session)
    made = creator.get("shareable", SIZE)
    imported = importer.take(creator.export(made), "import", SIZE)
    mapping = importer.get("map", imported)
    if is_killed:
        creator.kill()
    else:
        creator.get("drop", made)
    becomes(daemon, session, (SIZE, 0, 0))
    assert importer.code("alloc", LIMIT - SIZE + 1) == OUT_OF_MEMORY
    importer.get("unmap", mapping)
    becomes(daemon, session, (SIZE, 0, 0))
    importer.get("drop", imported)
    becomes(daemon, session, (0, 0, 0))
    importer.get("alloc", LIMIT)


def test_nothing_is_stuck_when_both_holders_die(daemon, session, start):
    creator, importer = start(daemon, session), start(daemon, session)
    made = creator.get("shareable", SIZE)
    importer.get("map", importer.take(creator.export(made), "import", SIZE))
    creator.kill()
    becomes(daemon, session, (SIZE, 0, 0))
    importer.kill()
    becomes(daemon, session, (0, 0, 0))
    start(daemon, session).get("alloc", LIMIT)


def test_physical_memory_of_another_session_is_charged_to_the_session_that_maps_it(daemon, session, other, start):
    creator, importer = start(daemon, session), start(daemon, other)
    made = creator.get("shareable", SIZE)
    imported = importer.take(creator.export(made), "import", SIZE)
    assert lines(daemon, other) == (0, 0, 0)  # its size is not known yet
    mapping = importer.get("map", imported)
    again = importer.get("map", imported)
    assert lines(daemon, session) == lines(daemon, other) == (SIZE, 0, 0)
    assert creator.shown() == importer.shown() == SIZE
    importer.get("drop", imported)
    importer.get("unmap", mapping)
    assert importer.shown() == SIZE
    importer.get("unmap", again)
    becomes(daemon, other, (0, 0, 0))
    assert lines(daemon, session) == (SIZE, 0, 0)


def test_an_import_beyond_the_quota_is_refused_when_it_is_mapped(daemon, session, other, start):
    creator, importer = start(daemon, session), start(daemon, other)
    imported = importer.take(creator.export(creator.get("shareable", SIZE)), "import", SIZE)
    filler = importer.get("alloc", LIMIT - SIZE + 1)
    assert importer.code("map", imported) == OUT_OF_MEMORY
    assert lines(daemon, other) == (LIMIT - SIZE + 512, 0, 0)
    importer.get("free", filler)
    importer.get("alloc", LIMIT - SIZE)
    importer.get("map", imported)
    assert importer.shown() == LIMIT


def test_a_handle_retained_from_a_mapping_keeps_the_charge_of_an_import(daemon, session, other, start):
    creator, importer = start(daemon, session), start(daemon, other)
    imported = importer.take(creator.export(creator.get("shareable", SIZE)), "import", SIZE)
    mapping = importer.get("map", imported)
    retained = importer.get("retainhandle", mapping)
    importer.get("drop", imported)
    importer.get("unmap", mapping)
    assert importer.shown() == SIZE
    importer.get("drop", retained)
    becomes(daemon, other, (0, 0, 0))


def test_an_import_that_outlives_its_creator_in_another_session_counts_once(daemon, session, other, start):
    """Though the card now shows it for the importer, which it did not before."""
    creator, importer = start(daemon, session), start(daemon, other)
    imported = importer.take(creator.export(creator.get("shareable", SIZE)), "import", SIZE)
    mapping = importer.get("map", imported)
    creator.kill()
    becomes(daemon, session, (0, 0, 0))
    becomes(daemon, other, (SIZE, 0, 0))
    assert importer.code("alloc", LIMIT - SIZE + 1) == OUT_OF_MEMORY
    importer.get("unmap", mapping)
    importer.get("drop", imported)
    becomes(daemon, other, (0, 0, 0))
    importer.get("alloc", LIMIT)


@pytest.mark.parametrize("is_killed", [False, True])
def test_importers_of_another_sessions_memory_are_charged_together(daemon, session, other, start, is_killed):
    creator, *importers = start(daemon, session), *(start(daemon, other) for _ in range(3))
    descriptor = creator.export(creator.get("shareable", SIZE))
    held = {}
    for importer in importers:
        held[importer] = importer.take(os.dup(descriptor), "import", SIZE)
        importer.get("unmap", importer.get("map", held[importer]))
        assert lines(daemon, other) == (SIZE, 0, 0)
        assert importer.shown() == SIZE
    assert importers[0].code("alloc", LIMIT - SIZE + 1) == OUT_OF_MEMORY
    for importer in importers:
        assert lines(daemon, other) == (SIZE, 0, 0)
        if is_killed:
            importer.kill()
        else:
            importer.get("drop", held[importer])
    os.close(descriptor)
    becomes(daemon, other, (0, 0, 0))
    assert lines(daemon, session) == (SIZE, 0, 0)
    start(daemon, other).get("alloc", LIMIT)


def test_importers_of_another_sessions_memory_count_it_once_when_its_creator_has_gone(daemon, session, other, start):
    creator, first, second = start(daemon, session), start(daemon, other), start(daemon, other)
    descriptor = creator.export(creator.get("shareable", SIZE))
    first.get("map", first.take(os.dup(descriptor), "import", SIZE))
    second.get("map", second.take(descriptor, "import", SIZE))
    creator.kill()
    becomes(daemon, session, (0, 0, 0))
    becomes(daemon, other, (SIZE, 0, 0))
    first.kill()
    becomes(daemon, other, (SIZE, 0, 0))
    second.kill()
    becomes(daemon, other, (0, 0, 0))


def test_the_longest_mapping_of_all_importers_is_charged(daemon, session, other, start):
    creator, first, second = start(daemon, session), start(daemon, other), start(daemon, other)
    descriptor = creator.export(creator.get("shareable", SIZE))
    one = first.take(os.dup(descriptor), "import", SIZE // 2)
    two = second.take(descriptor, "import", SIZE)
    first.get("map", one)
    assert lines(daemon, other) == (SIZE // 2, 0, 0)
    second.get("map", two)
    assert lines(daemon, other) == (SIZE, 0, 0)


def test_what_another_session_exports_twice_is_charged_twice(daemon, session, other, start):
    """Its descriptors are two files here, which tell of no common origin."""
    creator, first, second = start(daemon, session), start(daemon, other), start(daemon, other)
    made = creator.get("shareable", SIZE)
    for importer in (first, second):
        importer.get("map", importer.take(creator.export(made), "import", SIZE))
    assert lines(daemon, other) == (2 * SIZE, 0, 0)
    assert lines(daemon, session) == (SIZE, 0, 0)


def test_memory_on_its_way_when_its_creator_dies_is_charged_to_the_process_that_maps_it(daemon, session, start):
    """And shown for that one by the card, from the moment it is imported."""
    creator, importer = start(daemon, session), start(daemon, session)
    descriptor = creator.export(creator.get("shareable", SIZE))
    creator.kill()
    wait_for(lambda: len(daemon.session(session["session_id"])["processes"]) == 1, "the creator to be gone")
    assert lines(daemon, session) == (SIZE, 0, 0)  # the descriptor keeps it
    imported = importer.take(descriptor, "import", SIZE)
    becomes(daemon, session, (SIZE, SIZE, 0))
    mapping = importer.get("map", imported)
    becomes(daemon, session, (SIZE, 0, 0))
    importer.get("unmap", mapping)
    importer.get("drop", imported)
    becomes(daemon, session, (0, 0, 0))


# --- Memory of cuMemAlloc, by handle ---------------------------------------------------------------------------

def test_memory_opened_in_its_session_is_charged_once(daemon, session, start):
    exporter, opener = start(daemon, session), start(daemon, session)
    made = exporter.get("alloc", SIZE)
    name = exporter.get("ipcget", made)
    opened = opener.get("ipcopen", name)
    assert lines(daemon, session) == (SIZE, 0, 0)
    assert exporter.shown() == opener.shown() == SIZE
    opener.get("ipcclose", opened)
    assert lines(daemon, session) == (SIZE, 0, 0)
    exporter.get("free", made)
    assert lines(daemon, session) == (0, 0, 0)


def test_memory_of_another_session_is_charged_until_closed_as_often_as_opened(daemon, session, other, start):
    exporter, opener = start(daemon, session), start(daemon, other)
    name = exporter.get("ipcget", exporter.get("alloc", SIZE))
    first, second = opener.get("ipcopen", name), opener.get("ipcopen", name)
    assert lines(daemon, other) == (SIZE, 0, 0)
    opener.get("ipcclose", first)
    assert opener.shown() == SIZE
    opener.get("ipcclose", second)
    assert opener.shown() == 0
    assert opener.code("ipcclose", second) == INVALID_VALUE
    assert lines(daemon, other) == (0, 0, 0)
    assert lines(daemon, session) == (SIZE, 0, 0)


@pytest.mark.parametrize("pieces", [1, 5])
def test_memory_that_was_handed_out_stays_where_the_rest_can_leave_the_card(make_daemon, make_gpu, start, pieces):
    size = pieces * PIECE
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=CARD)).start()
    session = new_session(daemon, memory_bytes=2 * size, oversubscribe="swap", name="moves")
    exporter, opener = start(daemon, session), start(daemon, session)
    small = exporter.get("alloc", 1000)
    made = exporter.get("alloc", size)
    exporter.get("paint", made, 7, size)
    exporter.get("paint", small, 3, 1000)
    name = exporter.get("ipcget", made)
    assert exporter.get("ipcget", made) == name
    opened, again = opener.get("ipcopen", name), opener.get("ipcopen", name)
    small_there = opener.get("ipcopen", exporter.get("ipcget", small))
    assert opener.do("look", opened, size - 1) == [OK, 7] and opener.do("look", small_there, 999) == [OK, 3]
    opener.get("paint", opened, 9, size)
    assert exporter.do("look", made, size - 1) == [OK, 9]
    assert charged(daemon, session) == size + 1024
    assert daemon.cli("suspend", "moves", check=False).returncode == 3  # partly away
    assert daemon.session("moves")["unmovable_bytes"] >= size
    daemon.cli("resume", "moves")
    assert opener.do("look", opened, size - PIECE) == [OK, 9] and exporter.do("look", small, 5) == [OK, 3]
    assert exporter.code("ipcopen", name) == INVALID_CONTEXT
    for thing in opened, again, small_there:
        opener.get("ipcclose", thing)
    assert opener.code("ipcclose", again) == INVALID_VALUE
    exporter.get("free", made)
    assert opener.code("ipcopen", name) == INVALID_VALUE
    exporter.get("free", small)
    assert charged(daemon, session) == 0
    exporter.kill()
    assert opener.code("ipcopen", name) == INVALID_VALUE


def test_memory_of_another_session_is_refused_beyond_the_quota(daemon, session, other, start):
    exporter, opener = start(daemon, session), start(daemon, other)
    name = exporter.get("ipcget", exporter.get("alloc", SIZE))
    filler = opener.get("alloc", LIMIT - SIZE + 1)
    assert opener.code("ipcopen", name) == OUT_OF_MEMORY
    assert lines(daemon, other) == (LIMIT - SIZE + 512, 0, 0)
    opener.get("free", filler)
    opener.get("alloc", LIMIT - SIZE)
    opener.get("ipcopen", name)
    assert opener.shown() == LIMIT


def test_one_does_not_open_ones_own_memory_and_is_not_charged_for_it(daemon, session, start):
    exporter = start(daemon, session)
    name = exporter.get("ipcget", exporter.get("alloc", SIZE))
    assert exporter.code("ipcopen", name) == INVALID_CONTEXT
    assert lines(daemon, session) == (SIZE, 0, 0)


def test_memory_that_its_dead_exporter_leaves_open_stays_charged_once(daemon, session, start):
    exporter, opener, another = start(daemon, session), start(daemon, session), start(daemon, session)
    name = exporter.get("ipcget", exporter.get("alloc", SIZE))
    opened = opener.get("ipcopen", name)
    another.get("ipcopen", name)
    exporter.kill()
    becomes(daemon, session, (SIZE, 0, 0))
    opener.get("ipcclose", opened)
    becomes(daemon, session, (SIZE, 0, 0))
    assert opener.code("alloc", LIMIT - SIZE + 1) == OUT_OF_MEMORY
    another.kill()
    becomes(daemon, session, (0, 0, 0))
    opener.get("alloc", LIMIT)


def test_openers_of_another_sessions_memory_are_charged_together(daemon, session, other, start):
    exporter, first, second = start(daemon, session), start(daemon, other), start(daemon, other)
    name = exporter.get("ipcget", exporter.get("alloc", SIZE))
    opened = first.get("ipcopen", name)
    second.get("ipcopen", name)
    assert lines(daemon, other) == (SIZE, 0, 0)
    first.get("ipcclose", opened)
    assert lines(daemon, other) == (SIZE, 0, 0)
    exporter.kill()
    becomes(daemon, other, (SIZE, 0, 0))
    second.kill()
    becomes(daemon, other, (0, 0, 0))


# --- Memory of pools, pointer by pointer -----------------------------------------------------------------------

def pooled(exporter, importer, kind="sharedpool"):
    """(what the exporter has in a pool, the pool as the importer has it, the memory's name)."""
    pool = exporter.get(kind)
    made = exporter.get("poolalloc", pool, SIZE)
    exporter.get("poolexport", pool)
    imported = importer.take(socket.recv_fds(exporter.socket, 1, 1)[1][0], "poolimport")
    return made, imported, exporter.get("pointerget", made)


def test_makers_that_die_leave_what_they_exported_to_nobody_uncharged(daemon, start):
    """Each fills the quota, hands it to one that stays, and is killed: the next one finds no room while the card holds it."""
    session = new_session(daemon, name="makers", memory_bytes=SIZE + MIB)
    keeper, taken = start(daemon, session), 0
    for _ in range(10):
        maker = start(daemon, session)
        pool = maker.get("sharedpool")
        code, made = maker.do("poolalloc", pool, SIZE)
        if code == OK:
            taken += 1
            maker.get("poolexport", pool)
            imported = keeper.take(socket.recv_fds(maker.socket, 1, 1)[1][0], "poolimport")
            keeper.get("pointeropen", imported, maker.get("pointerget", made))
        maker.kill()
    assert taken == 1


def test_pool_memory_imported_in_its_session_is_charged_once(daemon, session, start):
    exporter, importer = start(daemon, session), start(daemon, session)
    made, pool, name = pooled(exporter, importer)
    pointer = importer.get("pointeropen", pool, name)
    assert lines(daemon, session) == (SIZE, 0, 0)
    assert exporter.shown() == importer.shown() == SIZE
    importer.get("free", pointer)
    assert importer.code("free", pointer) == INVALID_VALUE
    assert lines(daemon, session) == (SIZE, 0, 0)
    exporter.kill()
    becomes(daemon, session, (0, 0, 0))


def test_a_process_that_destroyed_the_pools_it_shared_leaves_nothing(make_daemon, make_gpu, start):
    """Once the card shows it gone; and nothing until the next sample when it ends. NVML answers slowly here, and is left alone for a
    third of a second after each."""
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_NVML_LIST_NS=10_000_000)).start()
    session = new_session(daemon, memory_bytes=LIMIT)
    exporter, importer = start(daemon, session), start(daemon, session)
    exporter.get("alloc", SIZE)
    pool = exporter.get("sharedpool")
    made = exporter.get("poolalloc", pool, SIZE)
    exporter.get("poolexport", pool)
    imported = importer.take(socket.recv_fds(exporter.socket, 1, 1)[1][0], "poolimport")
    pointer = importer.get("pointeropen", imported, exporter.get("pointerget", made))
    for who, address, of in ((importer, pointer, imported), (exporter, made, pool)):
        who.get("free", address)
        assert who.code("pooldestroy", of) == OK
    becomes(daemon, session, (SIZE, 0, 0))
    exporter.kill()
    wait_for(lambda: len(daemon.session(session["session_id"])["processes"]) == 1, "its end to be seen")
    shown = daemon.session(session["session_id"])
    assert (shown["used_bytes"], shown["orphan_bytes"]) == (0, 0)


def test_pool_memory_of_the_host_is_charged_to_nobody(daemon, session, other, start):
    exporter, importer = start(daemon, session), start(daemon, other)
    _, pool, name = pooled(exporter, importer, "sharedhostpool")
    importer.get("pointeropen", pool, name)
    assert lines(daemon, session) == lines(daemon, other) == (0, 0, 0)
    assert importer.code("alloc", LIMIT) == OK


def test_pool_memory_of_another_session_is_charged_until_freed(daemon, session, other, start):
    exporter, importer = start(daemon, session), start(daemon, other)
    made, pool, name = pooled(exporter, importer)
    filler = importer.get("alloc", LIMIT - SIZE + 1)
    assert importer.code("pointeropen", pool, name) == OUT_OF_MEMORY
    importer.get("free", filler)
    pointer = importer.get("pointeropen", pool, name)
    assert lines(daemon, other) == (SIZE, 0, 0)
    assert importer.shown() == SIZE
    importer.get("freeasync", pointer)
    assert lines(daemon, other) == (0, 0, 0)
    assert lines(daemon, session) == (SIZE, 0, 0)


# --- Memory of other APIs --------------------------------------------------------------------------------------

def test_external_memory_is_charged_to_its_importer_until_destroyed(daemon, session, other, start):
    creator, importer = start(daemon, session), start(daemon, other)
    made = creator.get("shareable", SIZE)
    external = importer.take(creator.export(made), "external", SIZE)
    buffer = importer.get("buffer", external, SIZE)
    assert lines(daemon, other) == (SIZE, 0, 0)
    assert importer.shown() == SIZE
    importer.get("free", buffer)
    assert importer.shown() == SIZE
    importer.get("endexternal", external)
    becomes(daemon, other, (0, 0, 0))
    assert importer.shown() == 0
    assert lines(daemon, session) == (SIZE, 0, 0)


def test_external_memory_beyond_the_quota_is_refused(daemon, session, other, start):
    creator, importer = start(daemon, session), start(daemon, other)
    made = creator.get("shareable", SIZE)
    filler = importer.get("alloc", LIMIT - SIZE + 1)
    assert importer.give(creator.export(made), "external", SIZE) == [OUT_OF_MEMORY, 0]
    assert importer.give(creator.export(made), "external", SIZE + 1) == [OUT_OF_MEMORY, 0]
    importer.get("free", filler)
    assert importer.give(creator.export(made), "external", SIZE + 1) == [INVALID_VALUE, 0]
    assert importer.shown() == 0
    importer.take(creator.export(made), "external", SIZE)
    assert importer.shown() == SIZE


@pytest.mark.parametrize("is_exported_again", [False, True])
def test_external_memory_is_charged_once_in_its_makers_session(daemon, session, start, is_exported_again):
    creator, importer = start(daemon, session), start(daemon, session)
    made = creator.get("shareable", SIZE)
    descriptor = creator.export(made)

    def given():
        return creator.export(made) if is_exported_again else os.dup(descriptor)
    handle = importer.take(given(), "import", SIZE)
    externals = [importer.take(given(), "external", SIZE) for _ in range(3)]
    os.close(descriptor)
    assert lines(daemon, session) == (SIZE, 0, 0)
    creator.kill()
    wait_for(lambda: lines(daemon, session)[0] == SIZE, "the importer to be charged, once")
    importer.get("drop", handle)
    for external in externals:
        assert importer.code("alloc", LIMIT - SIZE + 1) == OUT_OF_MEMORY
        importer.get("endexternal", external)
    becomes(daemon, session, (0, 0, 0))
    importer.get("alloc", LIMIT)


def test_external_memory_of_another_session_is_charged_once_by_the_most_that_was_named(daemon, session, other, start):
    creator, first, second = start(daemon, session), start(daemon, other), start(daemon, other)
    descriptor = creator.export(creator.get("shareable", SIZE))
    part = first.take(os.dup(descriptor), "external", MIB)
    assert lines(daemon, other) == (MIB, 0, 0)
    whole, again = (second.take(os.dup(descriptor), "external", SIZE) for _ in range(2))
    mapping = second.get("map", second.take(descriptor, "import", SIZE))
    first.get("endexternal", part)
    second.get("endexternal", whole)
    second.get("unmap", mapping)
    assert lines(daemon, other) == (SIZE, 0, 0)
    second.get("endexternal", again)
    second.kill()
    becomes(daemon, other, (0, 0, 0))


def test_a_refused_import_of_external_memory_raises_no_charge(daemon, session, other, start):
    creator, importer = start(daemon, session), start(daemon, other)
    descriptor = creator.export(creator.get("shareable", SIZE))
    importer.take(os.dup(descriptor), "external", SIZE)
    assert importer.give(os.dup(descriptor), "external", SIZE + MIB) == [INVALID_VALUE, 0]
    assert importer.give(descriptor, "external", LIMIT + 1) == [OUT_OF_MEMORY, 0]
    assert lines(daemon, other) == (SIZE, 0, 0)
    assert importer.shown() == SIZE


# --- Contexts --------------------------------------------------------------------------------------------------

CONTEXT_COST = 4 * MIB


@pytest.fixture
def costly(make_daemon, make_gpu):
    """A daemon over a GPU whose contexts cost memory, and a session."""
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_CONTEXT_BYTES=CONTEXT_COST)).start()
    return daemon, new_session(daemon, memory_bytes=LIMIT)


def test_green_contexts_cost_one_context_together_and_their_memory_ends_with_the_last(costly, product, reap):
    daemon, session = costly
    puppet = Puppet(product, in_session(daemon, session))
    reap(puppet.process)
    first = puppet.get("green", 0)
    assert sampled(daemon, session)["used_bytes"] == CONTEXT_COST
    second = puppet.get("green", 0)
    assert sampled(daemon, session)["used_bytes"] == CONTEXT_COST
    puppet.get("alloc", SIZE)
    assert sampled(daemon, session)["used_bytes"] == CONTEXT_COST + SIZE
    assert puppet.code("alloc", LIMIT - SIZE - CONTEXT_COST + 1) == OUT_OF_MEMORY
    puppet.get("endgreen", second)
    assert sampled(daemon, session)["used_bytes"] == CONTEXT_COST + SIZE
    puppet.get("endgreen", first)
    assert lines(daemon, session) == (0, 0, 0)


def test_an_attached_context_ends_with_its_last_detach(costly, product, reap):
    daemon, session = costly
    puppet = Puppet(product, in_session(daemon, session))
    reap(puppet.process)
    puppet.get("context", 0)
    puppet.get("alloc", SIZE)
    puppet.get("attach")
    puppet.get("detach")
    assert sampled(daemon, session)["used_bytes"] == CONTEXT_COST + SIZE
    puppet.get("detach")
    assert lines(daemon, session) == (0, 0, 0)


@pytest.mark.parametrize("end", ["release", "reset"])
def test_the_end_of_the_primary_context_closes_what_was_opened_in_it(daemon, session, other, start, end):
    exporter, opener = start(daemon, session), start(daemon, other)
    name = exporter.get("ipcget", exporter.get("alloc", SIZE))
    opener.get("retain", 0)
    opener.get("ipcopen", name)
    external = opener.take(exporter.export(exporter.get("shareable", SIZE)), "external", SIZE)
    assert lines(daemon, other) == (2 * SIZE, 0, 0)
    opener.get(end, 0)
    opener.get("retain", 0)
    shown = lines(daemon, other)
    assert shown[1:] == (0, 0)
    opener.do("endexternal", external)
    becomes(daemon, other, (0, 0, 0))
    opener.get("ipcopen", name)
    assert opener.shown() == SIZE
