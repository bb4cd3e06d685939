"""Programs that do not keep the GPU busy all the time, under shares: beside the same programs without GPU Slice, at about the
same time. What each got is the simulated GPU's own account."""
import pathlib
import re
import subprocess

import pytest

from workers import Clock, Load

pytestmark = pytest.mark.usefixtures("before_others")

SETTLE_MS, WINDOW_MS = 1000, 2000
TRIES = 4  # the CPUs are shared with other tests, and a program that is not run submits nothing
BACKLOG = ("kernel=400", "ahead=20")


def further(*cases):
    """Of a kind that a first case shows already."""
    return [pytest.param(*case, marks=pytest.mark.long) for case in cases]


def side_by_side(daemon, reap):
    """run([words], [options of run]): what each load did in a window, with its percent of the GPU's time in `gpu`, and of
    what it was charged in `charged`; without options, outside GPU Slice."""
    pipes = {"text": True, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    program = daemon.product.program("load")
    clock = Clock(reap(subprocess.Popen([daemon.product.program("gpu_clock")], env=daemon.gpu.environment(), **pipes)))

    def charged():
        """Seconds, by the pids of sessions' programs."""
        sessions = daemon.request("GET", "/v1/sessions")[1]
        return {process["pid"]: one["gpus"][0]["gpu_seconds"] for one in sessions for process in one["processes"]}

    def run(loads, options=None):
        if options:
            started = [Load(reap(daemon.spawn("run", *option, "--", program, *words))) for words, option in zip(loads, options)]
        else:
            started = [Load(reap(subprocess.Popen([program, *words], env=daemon.gpu.environment(), **pipes))) for words in loads]
        for window_ms in (SETTLE_MS, WINDOW_MS):
            charged_before, (before_ns, before) = charged(), clock.read()
            for load in started:
                load.begin(window_ms)
            results = [load.end() for load in started]
            charged_after, (after_ns, after) = charged(), clock.read()
        for load, result in zip(started, results):
            pid = load.process.pid
            result["gpu"] = 100 * (after.get(pid, 0) - before.get(pid, 0)) / (after_ns - before_ns)
            result["charged"] = 1e11 * (charged_after.get(pid, 0) - charged_before.get(pid, 0)) / (after_ns - before_ns)
            load.process.stdin.close()
            load.process.wait()
        return results
    return run


@pytest.fixture
def together(daemon, reap):
    return side_by_side(daemon, reap)


@pytest.fixture
def h100_daemon(make_daemon, make_gpu):
    """Where calls cost time, and the GPU takes some to switch."""
    return make_daemon(make_gpu(FAKECUDA_CONSTANTS="h100")).start()


@pytest.fixture
def together_on_h100(h100_daemon, reap):
    return side_by_side(h100_daemon, reap)


@pytest.fixture(params=["0", "1"], ids=["events-at-once", "events-wait"])
def together_anyhow(make_daemon, make_gpu, reap, request):
    """Whether an event on an idle stream is reached at once, or waits for the GPU as calls do."""
    return side_by_side(make_daemon(make_gpu(FAKECUDA_EVENT_WAITS=request.param)).start(), reap)


def is_charged_for_use(one, part=0.03):
    return abs(one["charged"] - one["gpu"]) <= max(0.5, part * one["gpu"])


def compute(*shares):
    return [("--compute", share) for share in shares]


def holds(try_once):
    """Whether one of several tries comes out as promised; what they were, if none does."""
    seen = []
    for _ in range(TRIES):
        is_held, figures = try_once()
        if is_held:
            return
        seen.append(figures)
    pytest.fail(f"none of these is as promised: {seen}")


def test_a_program_that_needs_less_than_its_maximum_is_not_slowed(together):
    words = ("kernel=50", "gap=400")

    def try_once():
        without, = together([words])
        within, = together([words], compute("0%..25%"))
        return within["gpu"] >= 0.95 * without["gpu"], (within, without)
    holds(try_once)


@pytest.mark.long
def test_short_kernels_are_charged_for_themselves_where_calls_cost_more(together_on_h100):
    """On a card most of the time in which such a call is before the GPU is its way there and back."""
    for _ in range(2):
        results = together_on_h100([("kernel=50", "gap=60"), ("kernel=20", "gap=40")], compute("30%..100%", "30%..100%"))
        if all(one["charged"] < one["gpu"] + 15 for one in results):
            return
    pytest.fail(f"{results}")


@pytest.mark.parametrize("more", [("back",), *further([()], [("copy=64",)])], ids=["copies-back", "waits", "copies"])
def test_calls_that_differ_by_their_place_are_charged_for_what_they_use(together, more):
    """Who measures the first calls of bursts, or those in the middle, takes the others to be like them."""
    def try_once():
        one, = together([("kernel=40", "burst=7", "last=600", "gap=500", *more)], compute("10%..100%"))
        return is_charged_for_use(one), one
    holds(try_once)


@pytest.mark.parametrize("words", [("kernel=5", "burst=100", "gap=200"), *further([("kernel=10", "graph=20", "gap=300")])],
                         ids=["launches", "graphs"])
def test_what_takes_as_long_to_hand_over_is_charged_for_what_it_uses(together_on_h100, words):
    """The GPU is hardly behind the thread, so marks are reached before the next one is recorded."""
    def try_once():
        one, = together_on_h100([words], compute("10%..100%"))
        return is_charged_for_use(one), one
    holds(try_once)


def test_bursts_beside_a_backlog_are_charged_for_what_they_use_where_the_gpu_takes_time_to_switch(together_on_h100):
    """What switching takes nobody used: who takes all that the backlog leaves to be theirs charges 12 % too much."""
    def try_once():
        results = together_on_h100([("kernel=40", "burst=7", "last=600", "gap=500", "back"), ("kernel=5000", "ahead=20")],
                                   compute("20%..100%", "40%..100%"))
        return all(is_charged_for_use(one, 0.05) for one in results), results
    holds(try_once)


@pytest.mark.long
def test_calls_that_differ_are_not_charged_for_the_time_of_switching(together_on_h100):
    """What the GPU has begun with tells that, where events wait for the GPU as calls do; else they are charged a quarter too much."""
    def try_once():
        results = together_on_h100([("kernel=20-500", "gap=600"), ("kernel=77", "gap=0")], compute("15%..100%", "50%..100%"))
        return is_charged_for_use(results[0], 0.15), results
    holds(try_once)


SIDE_BY_SIDE = pytest.mark.parametrize("words", [("kernel=20", "burst=10", "joined", "gap=500"),
                                                 *further([("kernel=200", "burst=3", "threads=2", "gap=900")],
                                                          [("kernel=50", "burst=10", "threads=4", "gap=3000")])],
                                       ids=["joined", "two", "four"])


@pytest.mark.long
@SIDE_BY_SIDE
def test_streams_side_by_side_are_charged_for_what_they_use(together, words):
    """What they do at the same time counts once, also where the program waits for one of them only."""
    def try_once():
        one, = together([words], compute("10%..100%"))
        return is_charged_for_use(one), one
    holds(try_once)


@SIDE_BY_SIDE
def test_streams_side_by_side_are_charged_for_what_they_use_beside_a_backlog(together, words):
    """In company they are at the same time all the more, and alone, where it is found out what they take, for a moment only."""
    def try_once():
        one, backlog = together([words, BACKLOG], compute("10%..100%", "10%..100%"))
        return is_charged_for_use(one, 0.06), (one, backlog)
    holds(try_once)


@pytest.mark.long
def test_short_kernels_of_several_threads_are_charged_for_what_they_use_in_turns(together):
    """They begin a turn all at once, and are at the same time less often later."""
    def try_once():
        one, backlog = together([("kernel=60", "threads=3", "gap=150"), BACKLOG], compute("20%..100%", "20%..100%"))
        return is_charged_for_use(one, 0.12), (one, backlog)
    holds(try_once)


def test_copies_that_nobody_waits_for_are_not_charged(together):
    def try_once():
        one, = together([("kernel=100", "gap=300", "copy=1000")], compute("10%..100%"))
        return is_charged_for_use(one), one
    holds(try_once)


@pytest.mark.long
def test_a_guest_beside_one_that_its_maximum_stops_is_charged_for_what_it_uses(together):
    """Each time that the other's gate is closed, the agent remembers what calls took while it was open."""
    def try_once():
        results = together([("kernel=60", "burst=2", "gap=500"), BACKLOG], compute("30%..100%", "20%..40%"))
        return is_charged_for_use(results[0], 0.1), results
    holds(try_once)


@pytest.mark.long
def test_an_answer_word_by_word_is_charged_for_what_it_uses(together):
    """More than a quarter of its time are the long kernels of one burst in a hundred."""
    def try_once():
        one, = together([("kernel=20", "burst=50", "seldom=100", "gap=300")], compute("10%..100%"))
        return is_charged_for_use(one), one
    holds(try_once)


def agent_sleeps(pid):
    """How often the agent of a process has slept."""
    agent, = (task for task in pathlib.Path(f"/proc/{pid}/task").iterdir() if (task / "comm").read_text() == "gpuslice-agent\n")
    return int(re.search(r"^voluntary_ctxt_switches:\t(\d+)", (agent / "status").read_text(), re.M)[1])


def sleeps_of_first(loads):
    """How often the agent of the first load sleeps in a window in which all work, once the daemon knows them."""
    pid = loads[0].process.pid
    for window_ms in (SETTLE_MS, WINDOW_MS):
        before = agent_sleeps(pid)
        for load in loads:
            load.begin(window_ms)
        for load in loads:
            load.end()
    return agent_sleeps(pid) - before


def test_short_bursts_do_not_wake_the_agent(daemon, reap):
    """Before it looks, they are done already: it is not to wait for the next one."""
    load = Load(reap(daemon.spawn("run", "--compute", "50%..100%", "--", daemon.product.program("load"), "kernel=3", "gap=50")))
    load.begin(SETTLE_MS)
    load.end()
    before = agent_sleeps(load.process.pid)
    load.begin(WINDOW_MS)
    bursts = load.end()["bursts"]
    assert agent_sleeps(load.process.pid) - before < bursts / 10


@pytest.mark.long
def test_threads_side_by_side_do_not_wake_the_agent(daemon, reap):
    """Marks tell when each of them had work, so nobody looks at them beside."""
    program = daemon.product.program("load")
    loads = [Load(reap(daemon.spawn("run", "--compute", "10%..100%", "--", program, *words)))
             for words in (("kernel=200", "burst=3", "threads=2", "gap=900"), BACKLOG)]
    assert sleeps_of_first(loads) < 120 * WINDOW_MS / 1000, "50 a second for reports"


def test_a_change_of_turns_wakes_agents_a_few_times(h100_daemon, reap):
    """Who comes next begins before the last kernel of the one before has ended: nobody waits for that one's agent to see it."""
    program = h100_daemon.product.program("load")
    loads = [Load(reap(h100_daemon.spawn("run", "--compute", "50%..100%", "--", program, "kernel=2000", "ahead=20")))
             for _ in range(2)]

    def counts():
        gpu = h100_daemon.request("GET", "/v1/scheduler")[1]["gpus"][0]
        return sum(agent_sleeps(load.process.pid) for load in loads), gpu["handovers"]
    for window_ms in (SETTLE_MS, WINDOW_MS):
        (sleeps_before, turns_before) = counts()
        for load in loads:
            load.begin(window_ms)
        for load in loads:
            load.end()
        (sleeps, turns) = counts()
    assert (sleeps - sleeps_before) / (turns - turns_before) < 27


@pytest.mark.long
def test_short_gaps_within_a_burst_do_not_wake_the_agent(daemon, reap):
    """A program with neighbours of a lower priority tells when it rests. Its gaps are shorter than a rest, so nobody is to be told
    of them."""
    program = daemon.product.program("load")
    loads = [Load(reap(daemon.spawn("run", "--priority", priority, "--", program, *words)))
             for priority, words in (("high", ("kernel=400", "gap=800")), ("low", ("kernel=200", "ahead=20")))]
    assert sleeps_of_first(loads) < 500 * WINDOW_MS / 1000, "220 a second"


def test_a_maximum_holds_for_a_program_with_gaps(together):
    words = ("kernel=300", "gap=300")

    def try_once():
        within, = together([words], compute("0%..25%"))
        assert within["gpu"] < 25 + 100 * (50 + 20) / WINDOW_MS, "never more, but for what was saved up"
        if within["gpu"] > 23:
            return True, within
        without, = together([words])  # on CPUs so busy that it comes to no more at all
        return within["gpu"] > 0.92 * min(without["gpu"], 25), (within, without)
    holds(try_once)


@pytest.mark.long
def test_a_maximum_holds_for_calls_that_differ_beside_a_light_program(together):
    tailed, _ = together([("kernel=20-8000", "gap=500"), ("kernel=400", "gap=1000")], compute("0%..25%", "50%..100%"))
    assert tailed["gpu"] < 26 + 100 * (50 + 20) / WINDOW_MS, f"a point, and what was saved up: {tailed}"


@pytest.mark.parametrize("words", [("kernel=100", "gap=100"), *further([("kernel=20", "gap=20")], [("kernel=300", "gap=300")])],
                         ids=["100us", "20us", "300us"])
def test_a_pair_of_light_programs_does_as_much_as_without_shares(together, words):
    def try_once():
        without = sum(load["gpu"] for load in together([words] * 2))
        within = sum(load["gpu"] for load in together([words] * 2, compute("50%..100%", "50%..100%")))
        return within >= 0.95 * without, (within, without)
    holds(try_once)


@pytest.mark.long
@pytest.mark.parametrize("kernel", ["kernel=2", "kernel=5"])
def test_a_pair_of_launch_bound_programs_does_as_much_as_without_shares_where_calls_cost_more(together_on_h100, kernel):
    """Few of their calls are measured, and one that waited for the other's slice, as the first of a burst does, says little of
    how long the others did."""
    words = (kernel, "burst=100", "gap=200")

    def try_once():
        without = sum(load["gpu"] for load in together_on_h100([words] * 2))
        within = sum(load["gpu"] for load in together_on_h100([words] * 2, compute("50%..100%", "50%..100%")))
        return within >= 0.95 * without, (within, without)
    holds(try_once)


def test_periodic_bursts_beside_a_backlog_are_as_soon_done_as_without_shares(together):
    loads = [("kernel=700", "burst=2", "period=17000"), BACKLOG]

    def try_once():
        without, _ = together(loads)
        within, backlog = together(loads, compute("40%..100%", "20%..100%"))
        return (within["p50_ms"] <= 1.1 * without["p50_ms"] and within["p99_ms"] <= 1.5 * without["p99_ms"]
                and backlog["gpu"] >= 88), (within, without, backlog)
    holds(try_once)


@pytest.mark.long  # on CPUs that are short, it says what those leave
@pytest.mark.parametrize("kernel, gap, minimum", [("kernel=80", "gap=120", 50), ("kernel=25", "gap=60", 20)])
def test_short_kernels_beside_a_backlog_get_their_minimum(together_anyhow, kernel, gap, minimum):
    """A short one in each slice would be an eighth of their speed alone. Where events wait for slices, all wait alike for theirs."""
    shares = compute(f"{minimum}%..100%", f"{100 - minimum}%..100%")

    def try_once():
        alone, = together_anyhow([(kernel, gap)])
        within, backlog = together_anyhow([(kernel, gap), BACKLOG], shares)
        return (within["gpu"] >= (minimum - 3) / 100 * alone["gpu"] and backlog["gpu"] >= 97 - minimum), (alone, within, backlog)
    holds(try_once)


def test_a_burst_of_a_higher_priority_is_sooner_done_than_without_shares(together):
    loads = [("kernel=1000", "period=20000"), ("kernel=200", "ahead=20")]

    def try_once():
        without, _ = together(loads)
        within, backlog = together(loads, [("--priority", "high"), ("--priority", "low")])
        return within["p50_ms"] < 0.8 * without["p50_ms"] and backlog["gpu"] > 85, (within, without, backlog)
    holds(try_once)


def test_a_session_greedy_for_a_moment_is_a_guest_again(h100_daemon, reap):
    """Where the GPU takes time to switch, a backlog beside it misses a little of its minimum, and whoever takes much is made to
    wait: what it took in its turns is not what it takes."""
    program = h100_daemon.product.program("load")

    def try_once():
        backlog, light = loads = [Load(reap(h100_daemon.spawn("run", "--compute", share, "--", program, *words)))
                                  for share, words in (("80%..100%", BACKLOG), ("20%..100%", ("kernel=100", "gap=900")))]
        bursts = []
        for words in ((), (), ("kernel=400", "gap=0", "ahead=20"), ("kernel=100", "gap=900", "ahead=0"), ()):
            backlog.begin(1000)
            light.begin(1000, *words)
            bursts.append([load.end()["bursts"] for load in loads][1])
        for load in loads:
            load.process.stdin.close()
            load.process.wait()
        return bursts[4] >= 0.8 * bursts[1], bursts
    holds(try_once)
