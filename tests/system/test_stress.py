"""Programs of one session that race, are killed and are stopped at any moment: no byte is lost or left behind."""
import os
import random
import signal
import time

from conftest import MIB, wait_for

PROCESSES, THREADS = 8, 4
LIMIT = 96 * MIB
ENDED = (0, -signal.SIGTERM)  # in its own time, or before it could catch the signal; anything else is a fault it saw

SHOWN = ("used_bytes", "driver_bytes", "orphan_bytes", "processes", "gpus")


def session_of(daemon):
    return daemon.session("stress")


def test_killed_and_stopped_programs_leave_no_bytes_and_hold_nobody_up(daemon, product, reap):
    seconds = float(os.environ.get("GPUSLICE_TEST_STRESS_SECONDS", "10"))
    seed = int(os.environ.get("GPUSLICE_TEST_SEED", str(int(time.time()))))
    print(f"seed {seed}")
    chance = random.Random(seed)
    daemon.cli("create", "--name", "stress", "--memory", LIMIT)

    def start():
        return reap(daemon.spawn("run", "--session", "stress", "--", product.program("storm"), THREADS,
                                 chance.randrange(1 << 30)))

    running = [start() for _ in range(PROCESSES)]
    stopped, kills = [], 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(chance.random() * 0.02)
        victim = chance.choice(running)
        action = chance.random()
        if action < 0.3:
            victim.kill()
            victim.wait()
            running[running.index(victim)] = start()
            stopped = [p for p in stopped if p is not victim]
            kills += 1
        elif action < 0.65:
            victim.send_signal(signal.SIGSTOP)
            stopped.append(victim)
        elif stopped:
            stopped.pop(chance.randrange(len(stopped))).send_signal(signal.SIGCONT)
        session = session_of(daemon)
        assert session["used_bytes"] <= LIMIT, f"{ {what: session[what] for what in SHOWN} }\n{daemon.log_text()[-2000:]}"
    assert kills > 20

    # With all but one stopped at whatever they were doing, that one still gets through to its end.
    for process in running[1:]:
        process.send_signal(signal.SIGSTOP)
    free_one = running.pop(0)
    free_one.send_signal(signal.SIGCONT)
    free_one.send_signal(signal.SIGTERM)
    assert free_one.wait(20) in ENDED, free_one.stderr.read()

    # What NVML shows of the card is what the session says, once nobody is in the middle of a call.
    for process in running:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
    for process in running:
        assert process.wait(20) in ENDED, process.stderr.read()
    wait_for(lambda: not session_of(daemon)["processes"], "all processes to leave the session")
    assert session_of(daemon)["used_bytes"] == 0
    wait_for(lambda: daemon.request("GET", "/v1/gpus")[1][0]["used_bytes"] == 0, "the card to be empty")

    # And the quota is whole again.
    result = daemon.cli("run", "--session", "stress", "--", "env", f"ALLOC_BYTES={LIMIT // 4}", "ITERATIONS=5",
                        product.program("target_app"))
    assert result.stdout.count("ALLOC_OK") == 4

