"""Defaults of new sessions, and ceilings for users and groups, over a system daemon that two users share."""
import json
import os
import pwd

import pytest

from conftest import SOURCE, wait_for

MIB = 1 << 20
ONE, OTHER = 12345, 12346  # users without an account

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: other users' programs are started")


class Shared:
    """A system daemon and its users."""

    def __init__(self, daemon):
        self.daemon = daemon
        daemon.folder.chmod(0o755)
        daemon.runtime.chmod(0o755)

    def configure(self, text):
        self.daemon.config.mkdir(parents=True, exist_ok=True)
        (self.daemon.config / "gpuslice.conf").write_text(text)

    def start(self):
        self.daemon.start("--system")
        self.daemon.control_socket.chmod(0o666)  # stands for the membership of the group that may use it
        return self

    def reconfigure(self, text, marker):
        """Change the file, and wait until `marker`, its last value, is in force."""
        self.configure(text)
        wait_for(lambda: marker in self.daemon.cli("config", "--json").stdout, "the file to be in force")

    def cli(self, uid, *arguments, **options):
        gid = next((user.pw_gid for user in pwd.getpwall() if user.pw_uid == uid), uid)
        return self.daemon.cli(*arguments, user=uid, group=gid, extra_groups=[], cwd="/", **options)

    def refused(self, uid, *arguments):
        """What is said about a request that is refused, without 'gpuslice: '."""
        result = self.cli(uid, *arguments, check=False)
        assert (result.returncode, result.stdout) == (1, ""), result.stdout
        return result.stderr.removeprefix("gpuslice: ")

    def session(self, name):
        return next(s for s in json.loads(self.daemon.cli("list", "--json").stdout) if s["name"] == name)


@pytest.fixture
def shared(make_daemon):
    return Shared(make_daemon())


def test_what_a_session_does_not_say_is_the_defaults(shared):
    shared.configure("[defaults]\nmemory = 96MiB\ncompute = 5%..30%\npriority = low\nttl = 1h\n")
    shared.start()
    shared.cli(ONE, "create", "--name", "silent")
    silent = shared.session("silent")
    assert (silent["vram_limit_bytes"], silent["gpus"][0]["reserved"]) == (96 * MIB, True)
    assert (silent["compute_min_ratio"], silent["compute_max_ratio"]) == (0.05, 0.3)
    assert silent["priority"] == "low" and silent["expires_at"] is not None
    shared.cli(ONE, "create", "--name", "loud", "--memory", "8MiB", "--compute", "50%", "--priority", "high", "--ttl", "1d")
    loud = shared.session("loud")
    assert (loud["vram_limit_bytes"], loud["compute_min_ratio"], loud["priority"]) == (8 * MIB, 0.5, "high")
    assert loud["expires_at"] > silent["expires_at"]


def test_everybody_has_the_ceiling_of_a_star_unless_another_section_says_more(shared):
    shared.configure(f"[user:*]\nsessions = 1\n[user:{OTHER}]\nsessions = 2\n[group:studnets]\nsessions = 1\n")
    shared.start()
    assert "there is no group 'studnets'" in shared.daemon.log_text()
    shared.cli(ONE, "create")
    assert "the ceiling is that of [user:*]" in shared.refused(ONE, "create")
    shared.cli(OTHER, "create")
    shared.cli(OTHER, "create")
    for _ in range(2):
        shared.daemon.cli("create")  # root


def test_memory_is_bounded_for_all_of_a_users_sessions_together(shared):
    shared.configure(f"[user:{ONE}]\nmemory = 256MiB\n")
    shared.start()
    shared.cli(ONE, "create", "--name", "a", "--memory", "128MiB")
    shared.cli(ONE, "create", "--name", "b", "--memory", "128MiB")
    said = shared.refused(ONE, "create", "--memory", "1B")
    assert "1B (1 bytes) of GPU memory beside the 256MiB of your other sessions is more than the 256MiB allowed" in said
    assert said.endswith(f"the ceiling is that of [user:{ONE}] ({shared.daemon.config}/gpuslice.conf:1)\n")
    assert "more than the 256MiB allowed" in shared.refused(ONE, "set", "a", "--memory", "129MiB")
    assert shared.session("a")["vram_limit_bytes"] == 128 * MIB
    assert len(json.loads(shared.cli(ONE, "list", "--json").stdout)) == 2
    shared.cli(OTHER, "create", "--memory", "512MiB")  # whom it is not about
    shared.cli(ONE, "set", "b", "--memory", "64MiB")
    shared.cli(ONE, "set", "a", "--memory", "192MiB")


def test_what_a_session_does_not_say_is_at_most_the_ceiling(shared):
    shared.configure(f"[defaults]\nmemory = 768MiB\n[user:{ONE}]\nmemory = 512MiB\ncompute = 50%\npriority = low\n")
    shared.start()
    shared.cli(ONE, "create", "--name", "a")
    a = shared.session("a")
    assert (a["vram_limit_bytes"], a["compute_min_ratio"], a["compute_max_ratio"], a["priority"]) == (
        512 * MIB, 0, 0.5, "low")
    assert "512MiB (536870912 bytes) of GPU memory beside the 512MiB" in shared.refused(ONE, "create")
    shared.cli(ONE, "release", "a")
    shared.reconfigure(f"[user:{ONE}]\nmemory = 7GiB\n", '"7GiB"')  # more than the card has: the whole card, unreserved
    shared.cli(ONE, "create", "--name", "b")
    assert (shared.session("b")["vram_limit_bytes"], shared.session("b")["gpus"][0]["reserved"]) == (1024 * MIB, False)


def test_the_manuals_example_lets_a_student_in(shared):
    games = pwd.getpwnam("games")
    text = (SOURCE / "docs/configuration.md").read_text().split("```ini\n", 1)[1].split("```", 1)[0]
    shared.configure(text.replace("[group:students]", "[group:games]").replace("GiB", "MiB").replace("127.0.0.1:9400", "127.0.0.1:0"))
    shared.start()
    shared.cli(games.pw_uid, "create", "--name", "first")
    assert (shared.session("first")["vram_limit_bytes"], shared.session("first")["compute_max_ratio"]) == (4 * MIB, 0.5)
    assert "up to 50% of GPU 0's time beside the 50.00%" in shared.refused(games.pw_uid, "create")


def test_sessions_and_priorities_are_bounded(shared):
    shared.configure(f"[user:{ONE}]\nsessions = 1\npriority = normal\n[user:{OTHER}]\nsessions = 0\n")
    shared.start()
    assert "priority high is above normal, the highest allowed" in shared.refused(ONE, "create", "--priority", "high")
    shared.cli(ONE, "create", "--name", "a")
    assert "another session beside your 1 is more than the 1 that you may have" in shared.refused(ONE, "create")
    assert "priority critical is above normal" in shared.refused(ONE, "set", "a", "--priority", "critical")
    assert f"[user:{OTHER}]" in shared.refused(OTHER, "create")
    shared.cli(ONE, "release", "a")
    shared.cli(ONE, "create")


def test_shares_are_bounded_on_each_gpu(make_daemon, make_gpu):
    shared = Shared(make_daemon(make_gpu(FAKECUDA_GPUS=2)))
    shared.configure(f"[user:{ONE}]\ncompute = 50%\n")
    shared.start()
    shared.cli(ONE, "create", "--name", "a", "--gpu", "0", "--compute", "10%..40%")
    said = shared.refused(ONE, "create", "--gpu", "0", "--compute", "0%..11%")
    assert "up to 11% of GPU 0's time beside the 40.00% of your other sessions is more than the 50% allowed" in said
    shared.cli(ONE, "create", "--name", "b", "--gpu", "1", "--compute", "50%")
    shared.cli(ONE, "create", "--name", "c", "--gpu", "0", "--compute", "10%")
    assert "up to 41%" in shared.refused(ONE, "set", "a", "--compute", "41%")
    assert "up to 50% of GPU 1's time" in shared.refused(ONE, "create", "--gpu", "1")


def test_a_waiting_session_counts_with_what_it_asks_for(shared, reap):
    shared.configure(f"[user:{ONE}]\nmemory = 768MiB\n")
    shared.start()
    shared.cli(OTHER, "create", "--name", "big", "--memory", "1GiB")
    environment = shared.daemon.environment()
    reap(shared.daemon.spawn("create", "--name", "waits", "--memory", "512MiB", "--wait", user=ONE, group=ONE,
                             extra_groups=[], cwd="/", env=environment))
    wait_for(lambda: len(json.loads(shared.daemon.cli("list", "--json").stdout)) == 2, "it to be in the queue")
    said = shared.refused(ONE, "create", "--memory", "512MiB", "--wait")
    assert "beside the 512MiB of your other sessions is more than the 768MiB allowed" in said


def test_a_users_own_section_stands_before_those_of_groups(shared):
    games = pwd.getpwnam("games")
    shared.configure("[group:games]\nmemory = 64MiB\nsessions = 1\n[user:games]\nmemory = 128MiB\n")
    shared.start()
    shared.cli(games.pw_uid, "create", "--memory", "128MiB")
    said = shared.refused(games.pw_uid, "create", "--memory", "1B")
    assert said.endswith(f"the ceiling is that of [group:games] ({shared.daemon.config}/gpuslice.conf:1)\n")
    shared.cli(ONE, "create", "--memory", "128MiB")


def test_of_several_groups_the_lowest_ceiling_holds(shared):
    games = pwd.getpwnam("games")
    shared.configure("[group:games]\nmemory = 128MiB\nsessions = 2\n"
                     f"[group:{games.pw_gid}]\nmemory = 64MiB\nsessions = 3\n[group:of-nobody]\nmemory = 1B\n")
    shared.start()
    assert f"the 64MiB allowed; ask for less with --memory, or release a session; the ceiling is that of [group:{games.pw_gid}]" in (
        shared.refused(games.pw_uid, "create", "--memory", "65MiB"))
    shared.cli(games.pw_uid, "create", "--memory", "1MiB")
    shared.cli(games.pw_uid, "create", "--memory", "1MiB")
    assert "more than the 2 that you may have" in shared.refused(games.pw_uid, "create", "--memory", "1MiB")


def test_a_lowered_ceiling_ends_nothing_and_lets_go_down(shared):
    shared.configure("")
    shared.start()
    shared.cli(ONE, "create", "--name", "a", "--memory", "512MiB")
    shared.reconfigure(f"[user:{ONE}]\nmemory = 128MiB\nsessions = 77\n", '"77"')
    assert shared.session("a")["vram_limit_bytes"] == 512 * MIB
    assert "the 128MiB allowed" in shared.refused(ONE, "create", "--memory", "1B")
    assert "the 128MiB allowed" in shared.refused(ONE, "set", "a", "--memory", "513MiB")
    shared.cli(ONE, "set", "a", "--memory", "256MiB")
    shared.cli(ONE, "set", "a", "--priority", "high")
