"""What monitors are given: other formats of /metrics, a scrape configuration, alerts, a dashboard for Grafana."""
import json
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import MIB, wait_for
from test_bad_input import fill
from test_config import write
from test_events import kept
from test_quota import in_session, start  # noqa: F401 - a fixture

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROMETHEUS = SOURCE / "packaging" / "prometheus"


def promtool(*words):
    if not shutil.which("promtool"):
        pytest.skip("promtool is missing; see scripts/install-deps")
    done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, cwd=PROMETHEUS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", ["metrics-page", "grafana-dashboard"])
def test_generated_pages_are_up_to_date(page):
    done = subprocess.run([SOURCE / "scripts" / page, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_prometheus_takes_the_configuration_and_the_rules():
    promtool("check", "config", "prometheus.yml")
    promtool("check", "rules", "gpuslice.rules.yml")


def test_alerts_fire_when_they_should():
    promtool("test", "rules", "gpuslice.rules.test.yml")


def test_rules_name_metrics_that_there_are(daemon):
    served = set(re.findall(r"^# TYPE (\w+)", daemon.request("GET", "/metrics")[1], re.M))
    named = set(re.findall(r"\bgpuslice_\w+", (PROMETHEUS / "gpuslice.rules.yml").read_text()))
    assert named and named <= served


def test_every_format_has_the_same_numbers(daemon):
    daemon.request("POST", "/v1/sessions", {"name": "m", "memory_bytes": 7 * MIB})
    status, lines = daemon.request("GET", "/metrics?format=json")
    assert status == 200
    samples = [json.loads(line) for line in lines.splitlines()]
    (limit,) = [sample for sample in samples if sample["metric"] == "gpuslice_session_limit_bytes"]
    assert limit["value"] == 7 * MIB and limit["labels"]["session"] == "m" and limit["time"] > 1.7e9
    (build,) = [sample for sample in samples if sample["metric"] == "gpuslice_build_info"]
    assert build["labels"]["version"] == daemon.request("GET", "/v1/version")[1]["version"]
    influx = daemon.request("GET", "/metrics?format=influx")[1]
    assert len(influx.splitlines()) == len(samples)
    form = re.compile(r"^\w+(,\w+=[\w.:+-]+)* value=[0-9.]+ \d{19}$")
    assert [line for line in influx.splitlines() if not form.match(line)] == []
    assert f"gpuslice_session_limit_bytes,session=m,owner={limit['labels']['owner']},gpu=0,UUID={limit['labels']['UUID']} value={7 * MIB} " in influx
    status, refused = daemon.request("GET", "/metrics?format=xml")
    assert (status, refused["error"]["code"]) == (400, "ERR_BAD_REQUEST")


INFLUX = re.compile(r"^\w+(,\w+=[\w.:+-]+)* value=[0-9.]+ \d{19}$")


def whole_lines(path):
    """A batch may be half written as one looks."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    return text[:text.rfind("\n") + 1].splitlines()


def unwritten(daemon):
    return [event["message"] for event in kept(daemon) if event["kind"] == "metrics.unwritten"]


def test_the_samples_go_to_a_file_too(daemon, tmp_path):
    path, other = tmp_path / "m.jsonl", tmp_path / "m.influx"
    daemon.request("POST", "/v1/sessions", {"name": "m", "memory_bytes": 7 * MIB})
    write(daemon, f"[daemon]\nmetrics-file = {path}\nmetrics-file-format = json\nmetrics-file-interval = 1s\n")
    times = lambda: {json.loads(line)["time"] for line in whole_lines(path)}
    wait_for(lambda: len(times()) >= 2, "samples of two times")
    served = [json.loads(line) for line in daemon.request("GET", "/metrics?format=json")[1].splitlines()]
    first = [json.loads(line) for line in whole_lines(path)]
    first = [sample for sample in first if sample["time"] == min(times())]
    series = lambda samples: {(sample["metric"], *sorted(sample["labels"].items())) for sample in samples}
    assert series(first) == series(served)
    (limit,) = [sample for sample in first if sample["metric"] == "gpuslice_session_limit_bytes"]
    assert limit["value"] == 7 * MIB
    assert path.stat().st_mode & 0o777 == 0o600
    write(daemon, f"[daemon]\nmetrics-file = {other}\nmetrics-file-interval = 1s\n")
    wait_for(lambda: whole_lines(other), "the other file")
    assert [line for line in whole_lines(other) if not INFLUX.match(line)] == []
    assert unwritten(daemon) == []


def test_a_file_of_samples_is_rotated(daemon, tmp_path):
    path, older = tmp_path / "m", tmp_path / "m.1"
    write(daemon, f"[daemon]\nmetrics-file = {path}\nmetrics-file-interval = 1s\nmetrics-file-max = 1KiB\n")
    stamps = lambda file: {int(line.split()[-1]) for line in whole_lines(file)}
    wait_for(lambda: path.exists() and older.exists(), "FILE.1")
    seen = stamps(older)
    assert len(seen) == 1  # each batch is larger than that
    wait_for(lambda: stamps(older) and min(stamps(older)) > max(seen), "the next FILE.1")
    names = lambda: sorted(file.name for file in tmp_path.iterdir() if file.name.startswith("m"))
    wait_for(lambda: names() == ["m", "m.1"], "FILE and FILE.1 alone")  # FILE is missing while it is being rotated


def test_a_folder_that_is_missing_is_told_once(daemon, tmp_path):
    path = tmp_path / "missing" / "m"
    write(daemon, f"[daemon]\nmetrics-file = {path}\nmetrics-file-interval = 1s\n")
    wait_for(lambda: unwritten(daemon), "the event")
    path.parent.mkdir()
    wait_for(lambda: whole_lines(path), "the file")
    (message,) = unwritten(daemon)
    assert str(path) in message and "No such file" in message


def test_a_full_disk_loses_samples_and_nothing_else(daemon, small_disk):  # noqa: F811
    folder = small_disk("metrics", 1)
    path = folder / "m"
    write(daemon, f"[daemon]\nmetrics-file = {path}\nmetrics-file-interval = 1s\n")
    wait_for(lambda: whole_lines(path), "the file")
    filler = fill(folder)
    wait_for(lambda: unwritten(daemon), "the event")
    written = len(whole_lines(path))
    assert daemon.request("POST", "/v1/sessions", {"name": "m", "memory_bytes": MIB})[0] == 201
    filler.unlink()
    wait_for(lambda: len(whole_lines(path)) > written, "more samples")
    (message,) = unwritten(daemon)
    assert "No space left" in message
    assert [line for line in whole_lines(path) if not INFLUX.match(line)] == []


def test_sessions_without_a_name_make_no_new_series_for_each_run(daemon):
    def labels():
        return sorted(re.findall(r'gpuslice_session_limit_bytes\{session="([^"]+)"', daemon.request("GET", "/metrics")[1]))

    first = daemon.request("POST", "/v1/sessions", {"memory_bytes": MIB})[1]["session_id"]
    daemon.request("POST", "/v1/sessions", {"memory_bytes": MIB})
    assert labels() == ["unnamed:1", "unnamed:2"]
    daemon.cli("release", first)
    daemon.request("POST", "/v1/sessions", {"memory_bytes": MIB})
    assert labels() == ["unnamed:1", "unnamed:2"]
    daemon.kill()
    daemon.start()
    assert labels() == ["unnamed:1", "unnamed:2"]


def test_what_an_administrator_has_to_mend_is_counted(daemon, start):  # noqa: F811
    def value(name):
        return float(re.search(rf"^{name} (.*)$", daemon.request("GET", "/metrics")[1], re.M)[1])

    session = daemon.request("POST", "/v1/sessions", {"memory_bytes": 32 * MIB})[1]
    for bytes_asked, deaths in ((MIB, 0), (64 * MIB, 1)):
        puppet = start(in_session(daemon, session))
        puppet.do("alloc", bytes_asked)
        puppet.end()
        wait_for(lambda: value("gpuslice_process_deaths_total") == deaths + 1, "its end to be seen")
        assert value("gpuslice_refused_deaths_total") == deaths
    assert value("gpuslice_config_refused") == 0 and value("gpuslice_host_memory_limit_bytes") > 0
    daemon.configure("no-such-key = 1")
    wait_for(lambda: value("gpuslice_config_refused") == 1, "the mistake to be counted")
