"""What a move has to show: bytes that left, by what the daemon says and by what the card shows as taken."""
import json

from conftest import wait_for

ROUNDING = 64 * 512  # linear memory is charged in whole units, which the simulated driver takes only with FAKECUDA_BLOCK_BYTES


def card_used(daemon):
    """What the cards show as taken, all together."""
    return sum(gpu["total_bytes"] - gpu["free_bytes"] for gpu in daemon.request("GET", "/v1/gpus")[1])


def wait_for_card(daemon, taken, left_bytes):
    """NVML, which may take its time, shows that so many bytes of `taken` have left the cards; fewer than 0: that they have come."""
    sign = 1 if left_bytes > 0 else -1
    wait_for(lambda: sign * (taken - card_used(daemon)) >= sign * left_bytes,
             lambda: f"{left_bytes} of {taken} bytes to have left the cards, not {taken - card_used(daemon)}")


def wait_until_shown(daemon, session, on_cards=None):
    """NVML shows what the session has on the cards, which it may still not do for what a program has just taken. Returns what the
    cards show as taken, all together."""
    if on_cards is None:
        on_cards = session["used_bytes"] if session["oversubscribe"] == "none" else session["movable_bytes"]
    wait_for(lambda: shown_of(daemon, session) >= on_cards - ROUNDING,
             lambda: f"{on_cards} bytes of {session['name']} to be shown, not {shown_of(daemon, session)}")
    return card_used(daemon)


def events(daemon, session):
    """The session's events."""
    return [json.loads(line) for line in daemon.cli("events", "--json", session["session_id"]).stdout.splitlines()]


def suspend(daemon, name):
    """All of the session's memory leaves. A session whose memory does not move leaves with its contexts. Returns the session."""
    before = daemon.session(name)
    assert before["residency"] == "resident"
    taken = wait_until_shown(daemon, before)
    daemon.cli("suspend", name)
    session = daemon.session(name)
    assert session["residency"] == "away" and session["movable_bytes"] == 0 and session["suspended_by"] == "user"
    if session["oversubscribe"] != "none":
        assert session["evicted_bytes"] >= before["movable_bytes"] > 0
    wait_for_card(daemon, taken, before["used_bytes"] - ROUNDING if session["oversubscribe"] == "none" else session["evicted_bytes"])
    return session


def suspend_in_part(daemon, name):
    """Some of the session's memory cannot leave. Returns what is said of it."""
    before, taken = daemon.session(name), card_used(daemon)
    result = daemon.cli("suspend", name, check=False)
    assert result.returncode == 3, (result.returncode, result.stderr)
    session = daemon.session(name)
    stays = {row["why"]: row["bytes"] for row in session["stays"]}
    assert session["residency"] == "partly_away" and session["movable_bytes"] == 0 and set(stays) - {"context"}
    assert sum(stays.values()) == session["unmovable_bytes"] and list(stays.values()) == sorted(stays.values(), reverse=True)
    assert session["evicted_bytes"] + session["unmovable_bytes"] <= session["used_bytes"] == before["used_bytes"]
    wait_for_card(daemon, taken, session["evicted_bytes"])
    return result.stderr.strip().split(" is partly away: ")[1]


def resume(daemon, name):
    """All of the session's memory comes back. Returns the session."""
    before, taken = daemon.session(name), card_used(daemon)
    daemon.cli("resume", name)
    session = daemon.session(name)
    assert session["residency"] == "resident" and session["evicted_bytes"] == 0 and session["suspended_by"] is None
    wait_for_card(daemon, taken, -before["evicted_bytes"])
    return session


def shown_of(daemon, session):
    """What the cards show for the session's processes."""
    pids = {process["pid"] for process in session["processes"]}
    return sum(process["used_bytes"] for gpu in daemon.request("GET", "/v1/gpus")[1] for process in gpu["processes"] if process["pid"] in pids)


def wait_until_away(daemon, name, least_bytes):
    """The session makes way by itself, with so many bytes; others may have taken the room already. Returns it."""
    session = wait_for(lambda: (now := daemon.session(name))["residency"] == "away" and now, f"{name} to have left")
    assert session["movable_bytes"] == 0 and session["evicted_bytes"] >= least_bytes
    # What is next in line may come ahead already, so the two are read until they agree.
    wait_for(lambda: shown_of(daemon, session) <= (now := daemon.session(name))["used_bytes"] - now["evicted_bytes"],
             f"the card to show {name} as away")
    return session


def left_in_turns(daemon, name):
    """How many bytes left each time that the session made way, by its events. A program that has just begun, and has not said yet where
    its memory is, counts as one that stays: those times are left out."""
    moves = [event for event in events(daemon, daemon.session(name)) if event["kind"] == "session.suspended"]
    return [event["evicted_bytes"] for event in moves if event["stays_bytes"] == 0]
