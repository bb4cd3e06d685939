"""Programs whose threads are cancelled, exit and fork in the middle of calls: nothing hangs, and the quota holds."""

import pytest

from conftest import MIB, has_words

LIMIT = 64 * MIB
DEADLINE_S = 60


@pytest.mark.parametrize("options", [(), ("--compute", "50%")], ids=["free", "shares"])
@pytest.mark.parametrize("seed", range(5))
def test_threads_that_are_cancelled_leave_nothing_locked_and_nothing_uncharged(daemon, reap, options, seed):
    program = reap(daemon.spawn("run", "--name", "rude", "--memory", f"{LIMIT}", *options, "--",
                                daemon.product.program("rude"), "30", str(seed)))
    taken = read_line(program)
    assert 0 < taken <= LIMIT
    session = daemon.session("rude")
    assert session["gpus"][0]["used_bytes"] <= LIMIT
    assert daemon.request("GET", "/v1/gpus")[1][0]["used_bytes"] <= LIMIT
    program.communicate(timeout=DEADLINE_S)
    assert program.returncode == 0


def read_line(program):
    """Its one line, or a failure when it hangs."""
    assert has_words(program.stdout, DEADLINE_S), "it hangs"
    line = program.stdout.readline()
    assert line, program.stderr.read()
    return int(line)
