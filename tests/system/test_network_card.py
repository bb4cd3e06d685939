"""A network card that reads the GPU's memory by itself finds it where it was told of it, whatever else leaves the card."""
from conftest import MIB
from moved import resume
from test_moves import run_movable


def test_what_a_network_card_was_told_of_stays_where_it_is(make_daemon, make_gpu, reap):
    daemon = make_daemon(make_gpu(FAKECUDA_DEVICE="h100", FAKECUDA_CONSTANTS="default")).start()
    movable = run_movable(daemon, reap, 3, 4 * MIB, "--name", "a", "--memory", "64MiB", "--oversubscribe")
    assert movable.ask("fill 1") == "filled"
    assert movable.ask("register") == "registered" and movable.ask("reach") == "good"
    assert movable.ask(f"alloc {8 * MIB}") == "allocated"
    suspended = daemon.cli("suspend", "a", check=False)
    assert suspended.returncode == 3 and "set to CU_POINTER_ATTRIBUTE_SYNC_MEMOPS" in suspended.stderr
    stays = {row["why"]: row["bytes"] for row in daemon.session("a")["stays"]}
    assert stays["sync-memops"] > 0 and daemon.session("a")["evicted_bytes"] >= 8 * MIB
    resume(daemon, "a")
    assert movable.ask("free") == "freed" and movable.ask("reach") == "good" and movable.ask("check") == "good"
    movable.end()
