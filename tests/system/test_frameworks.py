"""The memory of frameworks, as the gallery's programs make it (tests/frameworks, gallery.py): without GPU Slice, in a session, at its
quota, suspended in the middle, and by turns with another program that does not fit beside it. Contents are right, what can leave
has left while it is away, nothing is left behind, and the answers are those that the program gets without GPU Slice.

A test run takes what is no variant of another row (Row.like), on one card, in sessions whose memory can leave: at its quota, and
suspended in the middle, where answers are compared as well; and by turns one row of each way in which memory leaves or stays. With
GPUSLICE_TEST_ALL every row is run in every way, on all cards, and in sessions that stay as well."""
import pytest

import gallery
from conftest import MIB, wait_for
from gallery import ALL, ROWS, STAYS, WANTED_MIB

# As unkind as the card is, but for what the driver takes for itself.
H100 = {"FAKECUDA_DEVICE": "h100", "FAKECUDA_BLOCK_BYTES": 0, "FAKECUDA_MODULE_BYTES": 0, "FAKECUDA_LOCAL_MEMORY": 0}
WITHOUT_IMEX = "h100-without-imex"
CARDS = {"default": {}, "h100": H100, WITHOUT_IMEX: {**H100, "FAKECUDA_IMEX": 0}}


USUAL = [name for name, row in ROWS.items() if not row.like]


def on_cards(usual, names=USUAL):
    """Rows and cards: these rows on the usual card; with GPUSLICE_TEST_ALL all of both."""
    pairs = [(card, name) for card in CARDS for name, row in ROWS.items() if row.fabric or card != WITHOUT_IMEX]
    return pytest.mark.parametrize("card,name", [pair for pair in pairs if ALL or pair[0] == usual and pair[1] in names])


in_sessions = pytest.mark.parametrize("oversubscribe", [True, False] if ALL else [True], ids=["swap", "stays"][:2 if ALL else 1])


@pytest.fixture
def make_card(make_gpu):
    """make_card(CARD, MIB)"""
    return lambda card, mib: make_gpu(FAKECUDA_TOTAL_MEM=mib * MIB, **CARDS[card])


@pytest.fixture
def begin(reap):
    """begin(PROGRAM): its process is gone when the test ends."""
    def begin(program):
        reap(program.process)
        return program
    return begin


def alone(make_card, begin, card, name, limit_mib, wanted_mib=WANTED_MIB):
    """What the program says and how it ends without GPU Slice, on a card as large as the session's limit."""
    lines, status, errors = begin(gallery.start_plain(make_card(card, limit_mib), ROWS[name], wanted_mib)).end()
    assert status == 0, errors
    return lines, status


class Slices:
    """A daemon over a card, with a session for each of these limits: {name: MiB}."""

    def __init__(self, daemon, limits, oversubscribe=True):
        self.daemon = daemon
        self.empty_bytes = self.card_bytes()
        for name, mib in limits.items():
            daemon.cli("create", "--name", name, "--memory", f"{mib}MiB", *(["--oversubscribe"] if oversubscribe else []))

    def card_bytes(self):
        return self.daemon.request("GET", "/v1/gpus")[1][0]["used_bytes"]

    def bytes_of(self, session="a"):
        """{what: bytes} of the session, as it is told."""
        told = self.daemon.session(session)
        return {key.removesuffix("_bytes"): told[key]
                for key in ("used_bytes", "orphan_bytes", "movable_bytes", "evicted_bytes", "unmovable_bytes")}

    def becomes(self, card=None, session="a", deadline_s=5, **expected):
        """Until the session has these bytes, and the card is used by so many."""
        def now():
            seen = self.bytes_of(session)
            return {**{key: seen[key] for key in expected}, **({} if card is None else {"card": self.card_bytes() - self.empty_bytes})}
        wanted = {**expected, **({} if card is None else {"card": card})}
        wait_for(lambda: now() == wanted, lambda: f"{wanted} of {session}, not {now()}", deadline_s)

    def is_left_empty(self, session="a"):
        self.becomes(session=session, deadline_s=0.5, used=0, orphan=0)

    def ends(self):
        self.becomes(card=0)


@pytest.fixture
def slices(make_daemon, make_card):
    """slices(CARD, MIB, LIMITS) is a card of so many MiB with these sessions."""
    return lambda card, mib, limits, **more: Slices(make_daemon(make_card(card, mib)).start(), limits, **more)


@pytest.mark.long
@in_sessions
@on_cards("default")
def test_the_answers_in_a_session_are_the_cards(slices, make_card, begin, card, name, oversubscribe):
    row = ROWS[name]
    expected = alone(make_card, begin, card, name, row.limit_mib)
    made = slices(card, 2 * row.limit_mib, {"a": row.limit_mib}, oversubscribe=oversubscribe)
    lines, status, errors = begin(gallery.start_in(made.daemon, "a", row)).end()
    assert (lines, status) == expected, errors
    assert lines[-1].endswith("refused 0") or name in ("xla-bfc", "rmm-arena")
    made.is_left_empty()
    made.ends()


@in_sessions
@on_cards("default")
def test_at_its_quota_a_program_is_told_what_a_small_card_tells(slices, make_card, begin, card, name, oversubscribe):
    row = ROWS[name]
    short_mib = row.limit_mib // 2 // 2 * 2
    expected = alone(make_card, begin, card, name, short_mib)
    assert not expected[0][-1].endswith("refused 0")
    made = slices(card, 2 * row.limit_mib, {"a": short_mib}, oversubscribe=oversubscribe)
    lines, status, errors = begin(gallery.start_in(made.daemon, "a", row)).end()
    if row.pools and oversubscribe:
        assert status == 0 and not lines[-1].endswith("refused 0"), errors  # a little sooner, and nothing is wrong
    else:
        assert (lines, status) == expected, errors
    made.is_left_empty()


def leaves(row, point):
    return point.held["memory"] + point.held["kept"] + row.tool_bytes


def stays(point):
    """Bytes by the reason why they cannot leave."""
    return {reason: point.held[kind] for kind, reason in STAYS.items() if point.held[kind]}


PARTLY_AWAY = 3  # what `gpuslice suspend` ends with where something stays


def suspend(made, row, point):
    """With every byte looked at: what the session says, and what the card has more of."""
    can_leave, cannot = leaves(row, point), sum(stays(point).values())
    made.becomes(card=can_leave + cannot, movable=can_leave, unmovable=cannot)
    status = made.daemon.cli("suspend", "a", check=False).returncode
    told = made.daemon.session("a")
    # What a pool only keeps leaves without a copy.
    assert can_leave - point.held["kept"] <= told["evicted_bytes"] <= can_leave, point
    assert {part["why"]: part["bytes"] for part in told["stays"]} == stays(point), point
    assert (status, told["residency"]) == ((PARTLY_AWAY, "partly_away") if cannot else (0, "away")), point
    made.becomes(card=cannot)


@on_cards("h100")
def test_suspended_in_the_middle_what_can_leave_leaves(slices, make_card, begin, card, name):
    row = ROWS[name]
    expected = alone(make_card, begin, card, name, row.limit_mib)
    made = slices(card, 2 * row.limit_mib, {"a": row.limit_mib})
    program = begin(gallery.start_in(made.daemon, "a", row))
    points = 0
    while point := program.read():
        suspend(made, row, point)
        if points % 2:
            program.go()  # its next call to the GPU waits
            made.daemon.cli("resume", "a")
        else:
            made.daemon.cli("resume", "a")
            program.go()
        points += 1
    assert points >= 2
    lines, status, errors = program.end()
    assert (lines, status) == expected, errors
    made.is_left_empty()
    made.ends()


PARTNER = "xla-bfc"  # three quarters of the card in one piece
# Of one heap, exported, of graphs, of a pool, mapped anew.
TAKE_TURNS = ["torch-native", "torch-expandable-ipc", "torch-graphs", "rmm-async", "xla-vmm"]


@on_cards("h100", TAKE_TURNS)
def test_programs_that_do_not_fit_together_take_turns(slices, make_card, begin, card, name):
    rows = {"a": name, "b": PARTNER}
    mib = ROWS[name].limit_mib
    wanted = {"a": WANTED_MIB, "b": WANTED_MIB // 2}
    expected = {session: alone(make_card, begin, card, rows[session], mib, wanted[session]) for session in "ab"}
    made = slices(card, mib, {"a": mib, "b": mib})
    made.daemon.cli("scheduler", "--anti-thrash", "off")  # who has come leaves after a tenth of a second
    programs, points = {}, {"a": None, "b": None}

    def start(session):
        programs[session] = begin(gallery.start_in(made.daemon, session, ROWS[rows[session]], wanted[session]))

    def read(session):
        """It works on, for which the other one must leave where both do not fit."""
        points[session] = programs[session].read()
        needed = sum(leaves(ROWS[rows[one]], points[one]) for one in "ab" if points[one])
        if all(points.values()) and needed > mib * MIB:
            other = "b" if session == "a" else "a"
            assert made.bytes_of(other)["evicted"] > 0, f"{other} at {points[other].name}, {session} at {points[session].name}"

    start("a")
    read("a")
    while points["a"].name not in ("full", "awake"):
        programs["a"].go()
        read("a")
    start("b")
    read("b")
    while any(points.values()):
        for session in "ab":
            if points[session]:
                programs[session].go()
                read(session)
    for session in "ab":
        lines, status, errors = programs[session].end()
        assert (lines, status) == expected[session], errors
        made.is_left_empty(session)
    made.ends()
