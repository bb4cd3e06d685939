"""Memory that the driver pages: gpuslice run --oversubscribe=managed."""
import pytest

from conftest import MIB, wait_for
from moved import left_in_turns
from test_moves import Movable, assert_good_in_turns, run_movable


CARD = 256 * MIB


@pytest.fixture
def paging(make_daemon, make_gpu):
    """A daemon over a card of 256 MiB that pages managed memory."""
    return make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=CARD, FAKECUDA_PAGING=1)).start()


@pytest.fixture
def start(paging, reap):
    """start(BUFFERS, BYTES, *OPTIONS) runs movable with `gpuslice run --oversubscribe=managed OPTIONS`."""
    def begin(buffers, most, *options):
        return run_movable(paging, reap, buffers, most, "--oversubscribe=managed", *options)
    return begin


def test_it_leaves_without_a_copy_and_every_byte_is_there_after(paging, start):
    movable = start(30, 8 * MIB, "--name", "a", "--memory", "240MiB")
    session = paging.session("a")
    assert session["oversubscribe"] == "managed" and not session["single_oversubscribe"]
    wait_for(lambda: paging.session("a")["movable_bytes"] > 80 * MIB, "its memory to be told")
    paging.cli("suspend", "a")
    session = paging.session("a")
    assert session["residency"] == "away" and session["evicted_bytes"] > 80 * MIB and session["host_memory_bytes"] == 0
    movable.send("check")
    paging.cli("resume", "a")
    assert movable.read() == "good"
    assert movable.ask("fill 2") == "filled" and movable.ask("check") == "good" and movable.ask("ask") == "good"
    movable.end()


def test_a_daemon_that_begins_knows_how_memory_is_backed(paging, start):
    movable = start(10, 8 * MIB, "--name", "a", "--memory", "768MiB", "--single-oversubscribe")
    paging.stop()
    paging.start()
    wait_for(lambda: paging.session("a")["processes"], "its process")
    session = paging.session("a")
    assert session["oversubscribe"] == "managed" and session["single_oversubscribe"]
    assert session["vram_limit_bytes"] == 768 * MIB
    assert movable.ask("check") == "good"
    movable.end()


def test_one_program_is_larger_than_the_card_where_it_may_be(paging, start):
    refused = paging.cli("run", "--oversubscribe=managed", "--memory", "3GiB", "--", "/bin/true", check=False)
    assert refused.returncode == 1 and "more than GPU 0 has" in refused.stderr
    refused = paging.cli("run", "--oversubscribe=swap", "--single-oversubscribe", "--memory", "3GiB", "--", "/bin/true", check=False)
    assert refused.returncode == 1 and "--oversubscribe=managed" in refused.stderr
    large = start(80, 8 * MIB, "--name", "a", "--memory", "768MiB", "--single-oversubscribe")
    assert paging.session("a")["used_bytes"] > CARD + 20 * MIB
    assert large.ask("fill 1") == "filled" and large.ask("check") == "good"
    # Beside one that stays there is room for the rest of the card.
    paging.cli("suspend", "a")
    assert paging.session("a")["evicted_bytes"] > CARD
    paging.cli("resume", "a")
    assert paging.session("a")["evicted_bytes"] == 0 and large.ask("check") == "good"
    large.end()


def test_two_that_do_not_fit_together_take_turns(paging, start):
    """Of the card each may have seven eighths, and uses more than half."""
    movables = [start(38, 8 * MIB, "--name", name, "--memory", "225MiB") for name in "ab"]
    wait_for(lambda: [paging.session(name)["residency"] for name in "ab"].count("away") == 1, "one of them to be away")
    assert_good_in_turns(movables)
    for name in "ab":
        assert min(left_in_turns(paging, name)) > CARD / 2
    assert "session.move_failed" not in paging.cli("events", "--json").stdout
    for movable in movables:
        movable.end()


def test_without_turns_the_driver_pages_both(paging, start):
    paging.cli("scheduler", "--anti-thrash", "off")
    movables = [start(38, 8 * MIB, "--name", name, "--memory", "225MiB") for name in "ab"]
    for movable in movables:
        movable.send("check")
    assert [movable.read() for movable in movables] == ["good"] * 2
    assert [paging.session(name)["residency"] for name in "ab"] == ["resident"] * 2
    assert "session.suspended" not in paging.cli("events", "--json").stdout
    for movable in movables:
        movable.end()


def test_nvshares_variable_says_the_same(paging):
    paging.cli("create", "--name", "a", "--oversubscribe=managed", "--memory", "3GiB",
               env=paging.environment(NVSHARE_ENABLE_SINGLE_OVERSUB="1"))
    assert paging.session("a")["single_oversubscribe"]


@pytest.mark.parametrize("engine", ["swap", "managed"])
def test_three_sessions_take_turns_on_two_gpus(make_daemon, make_gpu, product, reap, engine):
    """One of them has memory on both: each GPU has turns of its own, and a session that is suspended in the middle of its turn gives
    its room to who waits."""
    daemon = make_daemon(make_gpu(FAKECUDA_GPUS=2, FAKECUDA_TOTAL_MEM=160 * MIB, FAKECUDA_CONTEXT_BYTES=0, FAKECUDA_PAGING=1)).start()

    def begin(name, gpu):
        return Movable(reap(daemon.spawn("run", "--session", name, "--", "env", f"CUDA_VISIBLE_DEVICES={gpu}",
                                         product.program("movable"), "20", str(10 * MIB))))
    for name, gpus in (("a", "0"), ("b", "1"), ("c", "01")):
        daemon.cli("create", "--name", name, f"--oversubscribe={engine}", "--memory", "150MiB", *(word for gpu in gpus for word in ("--gpu", gpu)))
    a, b, *c = [begin("a", 0), begin("b", 1), begin("c", 0), begin("c", 1)]
    assert [gpu["used_bytes"] > 80 * MIB for gpu in daemon.session("c")["gpus"]] == [True, True]
    for movable in (a, b, *c):
        movable.send("check")
    assert [movable.read() for movable in (a, b, *c)] == ["good"] * 4
    a.send("work 1500\ntoil")
    assert a.read().startswith("worked")
    for movable in c:
        movable.send("check")
    daemon.cli("suspend", "a")
    assert daemon.session("a")["suspended_by"] == "user" and daemon.session("a")["evicted_bytes"] > 75 * MIB
    assert [movable.read() for movable in c] == ["good"] * 2 and b.ask("check") == "good"
    a.send("touch")  # it is to toil no more, and cannot say so
    assert not a.has_answered(0.1)
    daemon.cli("resume", "a")
    assert a.read().startswith("worked") and a.read() == "touched"
    assert "session.move_failed" not in daemon.cli("events", "--json").stdout
    for movable in (a, b, *c):
        assert movable.ask("check") == "good"
        movable.end()
