"""Memory as frameworks make it leaves the card, byte for byte, until others use it: `gpuslice suspend` and `resume` of puppets."""
import socket
import time

import pytest

from conftest import MIB, wait_for
from test_driver_line import new_session
from test_quota import INVALID_VALUE, OK, in_session
from test_quota_shared import start_sharer  # noqa: F401 # a fixture

SIZE = 48 * MIB
POSIX, FABRIC = 1, 8
HW_DECOMPRESS = 2
NOT_PERMITTED, NOT_SUPPORTED = 800, 801

# What each asks for: handle types, whether RDMA may reach it, usage.
FRAMEWORKS = {
    "vLLM before 0.11": (0, 0, 0),
    "torch_memory_saver": (0, 1, 0),
    "expandable segments of PyTorch 2.6": (POSIX, 0, 0),
    "expandable segments of PyTorch 2.9": (POSIX, 1, 0),
    "vLLM since 0.16": (FABRIC, 1, 0),
    "NCCL": (FABRIC | POSIX, 1, 0),
    "for decompression": (0, 0, HW_DECOMPRESS),
}
POOLS = {"plain": (0, 0), "RMM": (0, HW_DECOMPRESS), "shareable": (POSIX, 0), "fabric": (FABRIC, HW_DECOMPRESS)}


@pytest.fixture(params=["default", "h100"])
def daemon(request, make_daemon, make_gpu):
    return make_daemon(make_gpu(FAKECUDA_DEVICE=request.param, FAKECUDA_CONSTANTS="default")).start()


@pytest.fixture
def start(start_sharer):
    return lambda daemon, session, **environment: start_sharer({**in_session(daemon, session), **environment})


@pytest.fixture
def session(daemon):
    return new_session(daemon, memory_bytes=256 * MIB, oversubscribe="swap", name="moves")


def has_fabric(daemon):
    return daemon.gpu.settings["FAKECUDA_DEVICE"] == "h100"


def card_used(daemon):
    gpu = daemon.request("GET", "/v1/gpus")[1][0]
    return gpu["total_bytes"] - gpu["free_bytes"]


def see_leave(daemon, puppet, thing, stays=0):
    """All but `stays` bytes leave twice, and each time the memory is back as it was."""
    for value in (5, 6):
        puppet.get("paint", thing, value, SIZE)
        before = card_used(daemon)
        daemon.cli("suspend", "moves", check=False)
        shown = daemon.session("moves")
        assert (shown["evicted_bytes"], shown["movable_bytes"], shown["unmovable_bytes"]) == (SIZE - stays, 0, stays)
        # A sample may have been taken while the engine still had memory of its own for the move.
        wait_for(lambda: before - card_used(daemon) == SIZE - stays, "the card to show that it has left")
        daemon.cli("resume", "moves")
        assert daemon.session("moves")["evicted_bytes"] == 0
        wait_for(lambda: card_used(daemon) == before, "the card to show that it is back")
        for at in (0, SIZE // 2 + 1, SIZE - 1):
            assert puppet.do("look", thing, at) == [OK, value]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_memory_that_frameworks_make_leaves_the_card(daemon, session, start, framework):
    types, for_rdma, usage = FRAMEWORKS[framework]
    puppet = start(daemon, session)
    if types & FABRIC and not has_fabric(daemon):
        assert puppet.code("made", types, for_rdma, usage, SIZE) == NOT_SUPPORTED
        types = POSIX  # as they all do then
    see_leave(daemon, puppet, puppet.get("made", types, for_rdma, usage, SIZE))


@pytest.mark.parametrize("kind", POOLS)
def test_memory_of_pools_leaves_the_card_whatever_they_are_made_for(daemon, session, start, kind):
    types, usage = POOLS[kind]
    puppet = start(daemon, session)
    if types & FABRIC and not has_fabric(daemon):
        assert puppet.code("poolof", types, usage) == NOT_SUPPORTED
        return
    see_leave(daemon, puppet, puppet.get("poolalloc", puppet.get("poolof", types, usage), SIZE))


def test_fabric_handles_that_a_process_may_not_have_are_refused_while_its_memory_is_away(make_daemon, make_gpu, start):
    """Else the memory could not come back."""
    daemon = make_daemon(make_gpu(FAKECUDA_DEVICE="h100", FAKECUDA_CONSTANTS="default")).start()
    session = new_session(daemon, memory_bytes=256 * MIB, oversubscribe="swap", name="moves")
    puppet = start(daemon, session, FAKECUDA_IMEX="0")
    kept = puppet.get("made", POSIX, 1, 0, SIZE)
    puppet.get("paint", kept, 7, SIZE)
    daemon.cli("suspend", "moves")
    assert puppet.code("made", FABRIC, 1, 0, SIZE) == NOT_PERMITTED
    puppet.get("made", POSIX, 1, 0, SIZE)
    daemon.cli("resume", "moves")
    assert puppet.do("look", kept, SIZE - 1) == [OK, 7]
    assert puppet.code("made", FABRIC, 1, 0, SIZE) == NOT_PERMITTED


def test_exported_memory_stays_and_is_what_the_importer_sees(daemon, session, start):
    exporter, importer = start(daemon, session), start(daemon, session)
    made = exporter.get("made", POSIX, 1, 0, SIZE)
    assert exporter.code("fabricget", made) != OK  # was not asked for, and pins nothing
    see_leave(daemon, exporter, made)
    imported = importer.take(exporter.export(made), "import", SIZE)
    mapped = importer.get("map", imported)
    see_leave(daemon, exporter, made, stays=SIZE)
    importer.get("paint", mapped, 9, SIZE)
    assert exporter.do("look", made, SIZE - 1) == [OK, 9]


def test_memory_by_fabric_handle_is_charged_once_and_stays(make_daemon, make_gpu, start):
    daemon = make_daemon(make_gpu(FAKECUDA_DEVICE="h100", FAKECUDA_CONSTANTS="default")).start()
    session = new_session(daemon, memory_bytes=256 * MIB, oversubscribe="swap", name="moves")
    other = new_session(daemon, memory_bytes=256 * MIB, oversubscribe="swap", name="other")
    exporter, importer, outsider = start(daemon, session), start(daemon, session), start(daemon, other)
    made = exporter.get("made", FABRIC, 1, 0, SIZE)
    see_leave(daemon, exporter, made)
    fabric = exporter.get("fabricget", made)
    mapped = importer.get("map", importer.get("fabricimport", fabric, SIZE))
    importer.get("paint", mapped, 9, SIZE)
    assert exporter.do("look", made, SIZE - 1) == [OK, 9]
    wait_for(lambda: daemon.session("moves")["used_bytes"] == SIZE, "it to be charged once")
    there = outsider.get("map", outsider.get("fabricimport", fabric, SIZE))
    assert outsider.do("look", there, 1) == [OK, 9]
    wait_for(lambda: daemon.session("other")["used_bytes"] == SIZE, "it to be charged to the other session")
    see_leave(daemon, exporter, made, stays=SIZE)


def test_an_exported_pool_s_memory_stays_and_what_was_taken_before_goes_to_importers_too(daemon, session, start):
    exporter, importer = start(daemon, session), start(daemon, session)
    empty = card_used(daemon)
    pool = exporter.get("sharedpool")
    small = exporter.get("poolalloc", pool, 1 * MIB)
    before = exporter.get("poolalloc", pool, SIZE)
    exporter.get("paint", small, 2, 1 * MIB)
    exporter.get("paint", before, 3, SIZE)
    exporter.get("poolexport", pool)
    imported = importer.take(socket.recv_fds(exporter.socket, 1, 1)[1][0], "poolimport")
    later = exporter.get("poolalloc", pool, 4 * MIB)
    exporter.get("paint", later, 4, 4 * MIB)
    daemon.cli("suspend", "moves", check=False)
    shown = daemon.session("moves")
    assert (shown["evicted_bytes"], shown["unmovable_bytes"]) == (SIZE + 2 * MIB, 4 * MIB)
    daemon.cli("resume", "moves")
    names = [exporter.get("pointerget", thing) for thing in (small, before, later)]
    there = [importer.get("pointeropen", imported, name) for name in names]
    for thing, (value, size) in zip(there, ((2, MIB), (3, SIZE), (4, 4 * MIB))):
        assert importer.do("look", thing, 0) == [OK, value] and importer.do("look", thing, size - 1) == [OK, value]
    used = SIZE + 2 * MIB + 4 * MIB
    wait_for(lambda: daemon.session("moves")["used_bytes"] == used, "it to be charged once")
    wait_for(lambda: daemon.session("moves")["movable_bytes"] == 0, "none of it to count as movable")
    daemon.cli("suspend", "moves", check=False)
    shown = daemon.session("moves")
    assert (shown["evicted_bytes"], shown["unmovable_bytes"]) == (0, used)
    daemon.cli("resume", "moves")
    importer.get("paint", there[1], 8, SIZE)
    assert exporter.do("look", before, SIZE - 1) == [OK, 8] and exporter.do("look", small, 5) == [OK, 2]
    for thing in there:
        importer.get("free", thing)
    assert importer.code("free", there[0]) == INVALID_VALUE
    for thing in (small, before, later):
        exporter.get("free", thing)
    exporter.get("sync")
    assert importer.code("pointeropen", imported, names[1]) == INVALID_VALUE
    wait_for(lambda: daemon.session("moves")["used_bytes"] == 0, "all to be given back")
    assert card_used(daemon) == empty


@pytest.mark.parametrize("pin", ["ipcget", "managed", "array", "context"])
def test_what_stays_is_told_at_once_even_by_a_program_that_rests(make_daemon, make_gpu, start, pin):
    """The agent of such a program looks once a second by itself."""
    daemon = make_daemon(make_gpu(FAKECUDA_CONTEXT_BYTES=4 * MIB)).start()
    session = new_session(daemon, memory_bytes=256 * MIB, oversubscribe="swap", name="moves")
    puppet = start(daemon, session)
    rests_for = 0.45  # longer than it takes the agent to see that the program rests
    late = []
    for _ in range(4):
        made = puppet.get("alloc", 4 * MIB)
        time.sleep(rests_for)
        before = daemon.session("moves")["unmovable_bytes"]
        thing = puppet.get("ipcget", made) if pin == "ipcget" else puppet.get(pin, 0 if pin == "context" else 4 * MIB)
        told = time.monotonic()
        wait_for(lambda: daemon.session("moves")["unmovable_bytes"] >= before + 4 * MIB, "it to be told")
        late.append(time.monotonic() - told)
        assert thing is not None
    assert sorted(late)[2] < 0.1, late
