"""What monitors are given: other formats of /metrics, a scrape configuration, alerts, a dashboard for Grafana."""
import json
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import MIB

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
