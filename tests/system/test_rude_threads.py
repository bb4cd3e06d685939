"""Programs whose threads are cancelled, exit and fork in the middle of calls, or that take descriptors which they do not know:
nothing hangs, the quota holds, and what is theirs is left alone."""

import pytest

from conftest import MIB, has_words
from test_shares import Worker

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


@pytest.mark.parametrize("how", ["close", "replace"])
def test_programs_may_take_the_descriptors_of_ours(daemon, reap, how):
    """In turns with another program: nothing of theirs is read or written, and where they left us nothing we come again."""
    rival = Worker(daemon, reap, "50%..100%", "200")
    rival.begin(600_000)
    program = reap(daemon.spawn("run", "--compute", "50%..100%", "--", daemon.product.program("squatter"), how))
    output, errors = program.communicate(timeout=DEADLINE_S)
    assert (program.returncode, errors) == (0, "")
    first, *later = map(int, output.split())
    assert first >= 3, "one to attach by, one of the agent's, and one to wake it"
    assert all(later), "it is in the daemon's turns again"
