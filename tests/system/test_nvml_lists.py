"""NVML's lists of processes beside the running ones: inside a session they hold the session's own and nobody else."""
import os
import subprocess

import pytest

from conftest import MIB, wait_for
from test_driver_line import INSUFFICIENT_SIZE, environment_of, new_session, start  # noqa: F401

NOT_FOUND, VERSION_MISMATCH = 6, 25
WHOLE = "by_index(0)"


def test_utilization_is_that_of_the_sessions_processes(daemon, start):  # noqa: F811
    session, stranger = (new_session(daemon, memory_bytes=64 * MIB) for _ in range(2))
    program, mate = (start(environment_of(daemon, session)) for _ in range(2))
    other, outside = start(environment_of(daemon, stranger)), start(daemon.gpu.environment())
    for each in (program, mate, other):
        each.do("context()")
    for function in ("utilization", "utilization_info"):
        assert program.do(f"{function}({WHOLE})")[0] in (0, NOT_FOUND)
        everybody = {program.own_pid, mate.own_pid, other.own_pid}
        for _ in range(20):  # each sample is of the last second: on a busy machine that may have been another's
            for each in (program, mate, other):
                each.say("spin(30)")
            for each in (program, mate, other):
                assert each.hear() == 0
            seen_outside = set(outside.do(f"{function}({WHOLE})")[2])
            seen = program.do(f"{function}({WHOLE})")
            assert set(seen[2]) <= {program.own_pid, mate.own_pid}
            if seen_outside == everybody and len(seen[2]) == 2:
                break
        else:
            pytest.fail(f"{function}: never saw all: {seen_outside}, {seen}")
        assert seen[:2] == [0, 2]
        for _ in range(20):
            program.do("spin(30)")
            if (told := program.do(f"{function}({WHOLE}, 0)"))[1] in (1, 2):
                break
        assert told[0] == INSUFFICIENT_SIZE
    assert program.do(f"utilization_info({WHOLE}, 64, 9)")[0] == VERSION_MISMATCH


def test_a_session_that_did_nothing_finds_no_utilization(daemon, start):  # noqa: F811
    session, stranger = (new_session(daemon, memory_bytes=64 * MIB) for _ in range(2))
    idle, busy = start(environment_of(daemon, session)), start(environment_of(daemon, stranger))
    outside = start(daemon.gpu.environment())
    idle.do("context()")
    busy.do("context()")

    def busy_is_seen():
        assert busy.do("spin(50)") == 0
        return outside.do(f"utilization({WHOLE})")[2] == [busy.own_pid]

    wait_for(busy_is_seen, "the stranger's work")
    assert idle.do(f"utilization({WHOLE})")[0] == NOT_FOUND
    assert idle.do(f"utilization_info({WHOLE})")[0] == NOT_FOUND


@pytest.fixture
def crowd(daemon, product, start, tmp_path):  # noqa: F811
    """Two programs in a session, on a GPU where NVML shows them, the test and another session's."""
    folder = product.build / "tests" / "system" / "preloads" / "crowd"
    session, stranger = (new_session(daemon, memory_bytes=64 * MIB) for _ in range(2))
    pids = tmp_path / "pids"
    more = {"LD_LIBRARY_PATH": f"{folder}:{product.simulated}", "CROWD_FILE": pids,
            "CROWD_UUID": session["gpus"][0]["uuid"]}
    program, mate = (start(environment_of(daemon, session, **more)) for _ in range(2))
    other = start(environment_of(daemon, stranger, **more))
    for each in (program, mate, other):
        each.do("context()")
    pids.write_text("\n".join(map(str, (other.own_pid, mate.own_pid, os.getpid(), program.own_pid))))
    return program, mate, other


@pytest.mark.parametrize("version", ["", "_v2", "_v3"])
def test_mps_lists_hold_the_sessions_processes(crowd, version):
    program, mate, other = crowd
    result, count, listed = program.do(f"processes({WHOLE}, '{version}', 'MPSCompute')")
    assert (result, count, sorted(listed)) == (0, 2, sorted([[program.own_pid, 5], [mate.own_pid, 5]]))
    assert other.do(f"processes({WHOLE}, '{version}', 'MPSCompute')") == [0, 1, [[other.own_pid, 5]]]
    assert program.do(f"processes({WHOLE}, '{version}', 'MPSCompute', 1)")[:2] == [INSUFFICIENT_SIZE, 2]


def test_detailed_lists_hold_the_sessions_processes_in_each_mode(crowd):
    program, mate, other = crowd
    for mode in range(3):
        result, count, listed = program.do(f"details({WHOLE}, {mode})")
        assert (result, count, sorted(listed)) == (0, 2, sorted([[program.own_pid, mode], [mate.own_pid, mode]]))
    assert program.do(f"details({WHOLE}, 2, 0)") == [INSUFFICIENT_SIZE, 2, []]
    assert program.do(f"details({WHOLE}, 0, 64, 2)")[0] == VERSION_MISMATCH
    assert other.do(f"details({WHOLE}, 1)")[2] == [[other.own_pid, 1]]


def test_accounting_is_of_the_sessions_processes(crowd):
    program, mate, other = crowd
    result, count, listed = program.do(f"accounting({WHOLE})")
    assert (result, count, sorted(listed)) == (0, 2, sorted([program.own_pid, mate.own_pid]))
    assert program.do(f"accounting({WHOLE}, 0)") == [INSUFFICIENT_SIZE, 2, []]
    assert program.do(f"accounted_most({WHOLE}, {mate.own_pid})") == [0, mate.own_pid * 1000]
    assert program.do(f"accounted_most({WHOLE}, {other.own_pid})")[0] == NOT_FOUND
    assert program.do(f"accounted_most({WHOLE}, {os.getpid()})")[0] == NOT_FOUND


def test_lists_have_the_pids_of_the_callers_namespace(daemon, product, start, tmp_path):  # noqa: F811
    outside = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*outside, "true"], capture_output=True).returncode != 0:
        pytest.skip("no pid namespaces here")
    folder = product.build / "tests" / "system" / "preloads" / "crowd"
    session = new_session(daemon, memory_bytes=64 * MIB)
    pids = tmp_path / "pids"
    more = {"LD_LIBRARY_PATH": f"{folder}:{product.simulated}", "CROWD_FILE": pids,
            "CROWD_UUID": session["gpus"][0]["uuid"]}
    inner = start(environment_of(daemon, session, **more), outside)
    inner.do("context()")
    real = daemon.session(session["session_id"])["processes"][0]["pid"]
    assert inner.own_pid == 1 and real != 1
    pids.write_text(f"{os.getpid()}\n{real}\n")
    assert inner.do(f"processes({WHOLE}, '_v3', 'MPSCompute')")[2] == [[1, 5]]
    assert inner.do(f"details({WHOLE}, 1)")[2] == [[1, 1]]
    assert inner.do(f"accounting({WHOLE})")[2] == [1]
    assert inner.do(f"accounted_most({WHOLE}, 1)") == [0, real * 1000]
