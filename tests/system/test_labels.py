"""Free words of sessions: who carries them, and how long."""
import csv
import io
import json

from attach_client import Client
from conftest import MIB, wait_for


def test_labels_are_carried_by_lists_events_and_restarts(daemon):
    daemon.cli("create", "--name", "a", "--memory", "1MiB", "--label", "team=vision", "--label", "stage=test,run=7")
    daemon.cli("create", "--name", "b", "--memory", "1MiB")
    listed = daemon.cli("list", "--format", "name,label").stdout
    assert "team=vision,stage=test,run=7" in listed
    assert daemon.session("b")["label"] is None
    assert "Labels    team=vision,stage=test,run=7\n" in daemon.cli("show", "a").stdout and "Labels" not in daemon.cli("show", "b").stdout
    told = [json.loads(line) for line in daemon.cli("events", "--json").stdout.splitlines()]
    created = {event["name"]: event.get("label") for event in told if event["kind"] == "session.created"}
    assert created == {"a": "team=vision,stage=test,run=7", "b": None}
    daemon.kill()
    daemon.start()
    assert daemon.session("a")["label"] == "team=vision,stage=test,run=7"


def test_what_was_used_carries_the_labels_of_each_session(daemon):
    daemon.cli("create", "--name", "a", "--memory", "1MiB", "--label", "team=vision,run=7")
    taker = Client(daemon.attach_socket).attach(daemon.session("a")["session_id"])
    taker.hold(MIB)
    used = wait_for(lambda: json.loads(daemon.cli("usage", "--json").stdout)["rows"], "something to be used")
    assert [(row["name"], row["label"]) for row in used] == [("a", "team=vision,run=7")]
    daemon.cli("set", "a", "--label", "team=speech,run=8")
    wait_for(lambda: "team=speech,run=8" in daemon.cli("usage").stdout, "the new labels")
    (row,) = csv.DictReader(io.StringIO(daemon.cli("usage", "--csv").stdout))
    assert row["label"] == "team=speech,run=8"
    assert "label" not in json.loads(daemon.cli("usage", "--by", "user", "--json").stdout)["rows"][0]
    taker.close()


def test_labels_that_are_set_replace_those_before(daemon):
    daemon.cli("create", "--name", "a", "--label", "team=vision")
    daemon.cli("set", "a", "--label", "team=speech")
    assert daemon.session("a")["label"] == "team=speech"


def test_what_is_not_a_label_is_refused(daemon):
    assert daemon.cli("create", "--label", "vision", check=False).returncode == 2
    for label in ("a=b,", "a=b c", 'a="b"', "=b", "a" * 240 + "=b", 7):
        status, answer = daemon.request("POST", "/v1/sessions", {"label": label})
        assert status == 400 and "'label'" in json.dumps(answer)


def test_metrics_carry_labels_where_that_is_chosen(daemon):
    daemon.cli("create", "--name", "a", "--label", "team=vision,run=7")
    assert "vision" not in daemon.request("GET", "/metrics")[1]
    daemon.config.mkdir(parents=True, exist_ok=True)
    (daemon.config / "gpuslice.conf").write_text("[daemon]\nmetrics-labels = yes\n")
    wait_for(lambda: 'label="team=vision,run=7"' in daemon.request("GET", "/metrics")[1], "the label in the metrics")
    assert "label=team\\=vision\\,run\\=7" in daemon.request("GET", "/metrics?format=influx")[1]


def test_a_declared_session_loses_the_labels_that_its_file_no_longer_has(daemon):
    daemon.config.mkdir(parents=True, exist_ok=True)
    file = daemon.config / "sessions.conf"
    file.write_text("[a]\nlabel = team=vision\n")
    wait_for(lambda: daemon.request("GET", "/v1/sessions/a")[1].get("label") == "team=vision", "the label")
    file.write_text("[a]\n")
    wait_for(lambda: daemon.request("GET", "/v1/sessions/a")[1]["label"] is None, "no label")


def test_a_session_is_found_by_its_pod(daemon):
    for container in ("main", "side"):
        assert daemon.request("POST", "/v1/sessions", {"namespace": "lab", "pod": "train-0", "container": container,
                                                       "memory_bytes": MIB})[0] == 201
    assert daemon.request("POST", "/v1/sessions", {"namespace": "lab", "pod": "other", "memory_bytes": MIB})[0] == 201
    assert json.loads(daemon.cli("show", "lab/other", "--json").stdout)["pod"] == "other"
    assert json.loads(daemon.cli("show", "lab/train-0/side", "--json").stdout)["container"] == "side"
    assert "2 sessions are for containers of the pod" in daemon.cli("show", "lab/train-0", check=False).stderr
    assert "no session" in daemon.cli("show", "lab/none", check=False).stderr
    daemon.cli("release", "lab/train-0/side", "lab/other")
    assert [session["pod"] for session in json.loads(daemon.cli("history", "lab/other", "--json").stdout)] == ["other"]
    assert len(daemon.cli("events", "lab/train-0").stdout.splitlines()) == 4
