"""What bench/results.py lets into bench/results.json: one whole run of one commit."""
import json
import subprocess
import sys

import pytest

from conftest import SOURCE

sys.path.append(str(SOURCE / "bench"))
import results  # noqa: E402 - behind the path

MACHINE = {"cpu": "any", "cores": 2, "kernel": "6.1", "machine": "x86_64", "gpu": "simulated"}
WHOLE = results.Run("0123456789abcdef", True, {}, "2026-01-01T00:00:00Z", MACHINE)
ROWS = [{"name": "second", "value": 2.0, "void": False}, {"name": "first", "value": 1.0, "void": False},
        {"name": "first", "value": 0.5, "void": False}]


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "results.json"
    results.save(path, WHOLE, ROWS)
    return path


def test_rows_are_sorted_and_have_a_line_each(saved):
    lines = [line.strip().rstrip(",") for line in saved.read_text().splitlines() if line.startswith("  {")]
    assert [json.loads(line)["value"] for line in lines] == [1.0, 0.5, 2.0]


def test_a_file_says_of_which_run_it_is(saved):
    run = results.read(saved)["run"]
    assert (run["commit"], run["clean"], run["started"]) == (WHOLE.commit, True, WHOLE.started)
    assert run["ended"] > run["started"] and results.read(saved)["machine"] == MACHINE


def test_what_the_machine_could_not_measure_is_told(tmp_path):
    results.save(tmp_path / "results.json", WHOLE, ROWS, ["a page: no browser is here"])
    assert results.read(tmp_path / "results.json")["run"]["left_out"] == ["a page: no browser is here"]


def test_a_whole_runs_rows_are_accepted(saved):
    results.check(results.read(saved))


@pytest.mark.parametrize("change", [lambda rows: rows[0].update(value=7.0), lambda rows: rows.pop(),
                                    lambda rows: rows.append({"name": "third", "value": 3.0, "void": False})],
                         ids=["replaced", "left out", "added"])
def test_rows_of_another_run_are_found(saved, change):
    found = results.read(saved)
    change(found["rows"])
    with pytest.raises(results.Wrong, match="the rows are not those that the run wrote"):
        results.check(found)


@pytest.mark.parametrize("run, problem", [
    (WHOLE._replace(options={"only": ["memory"]}), "of a whole run, and this one is not (only)"),
    (WHOLE._replace(options={"quick": True, "device": "h100"}), "of a whole run, and this one is not (quick, device)"),
    (WHOLE._replace(is_clean=False), "the working tree differs from 01234567"),
    (WHOLE._replace(commit=None), "not a git repository")])
def test_other_runs_may_not_write_the_committed_file(run, problem, saved):
    assert problem in results.refusal(run)
    results.save(saved, run, ROWS)
    with pytest.raises(results.Wrong):
        results.check(results.read(saved))


def test_a_whole_run_may_write_the_committed_file():
    assert results.refusal(WHOLE) is None


def test_the_bench_refuses_before_it_measures(tmp_path):
    before = results.COMMITTED.read_bytes()
    done = subprocess.run([SOURCE / "bench" / "run", tmp_path, tmp_path, "--only", "memory", "--out", results.COMMITTED],
                          capture_output=True, text=True)
    assert done.returncode == 2 and "this one is not (only)" in done.stderr
    assert results.COMMITTED.read_bytes() == before
