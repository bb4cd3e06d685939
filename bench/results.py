"""A file of the bench's results: the run, and its rows, one a line and sorted by name, so that two commits' files can be compared.

The file that is committed (bench/results.json) is of one whole run of one commit on one machine. `refusal` says why a run may not
write it, and `check` why a file may not stand there: rows of other runs do not match the digest of the run's own."""
import datetime
import hashlib
import json
import os
import pathlib
import platform
import subprocess
import typing

SOURCE = pathlib.Path(__file__).resolve().parents[1]
COMMITTED = SOURCE / "bench" / "results.json"


class Wrong(Exception):
    """What is wrong with a file of results."""


class Run(typing.NamedTuple):
    commit: str | None   # None: the source is not a git repository
    is_clean: bool       # the working tree was as that commit has it
    options: dict        # those that make it other than the whole bench; {}: it is the whole bench
    started: str
    machine: dict


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _git(*words):
    done = subprocess.run(["git", "-C", SOURCE, *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def machine():
    model = "unknown"
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith(("model name", "Model")):
                model = line.split(":", 1)[1].strip()
                break
    return {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release().split("-")[0],
            "machine": platform.machine(), "gpu": "simulated"}


def begin(options):
    """The run that begins now."""
    return Run(_git("rev-parse", "HEAD"), _git("status", "--porcelain") == "", options, now(), machine())


def refusal(run):
    """Why this run may not write the committed file, with what to do; None if it may."""
    elsewhere = "leave --out away, or name another file"
    if run.options:
        return f"bench/results.json is of a whole run, and this one is not ({', '.join(run.options)}): {elsewhere}"
    if run.commit is None:
        return f"bench/results.json is of a commit, and {SOURCE} is not a git repository: {elsewhere}"
    if not run.is_clean:
        return f"bench/results.json is of a commit, and the working tree differs from {run.commit[:8]}: commit first, or {elsewhere}"
    return None


def digest(rows):
    return hashlib.sha256("\n".join(_line(row) for row in rows).encode()).hexdigest()[:16]


def _line(row):
    return json.dumps(row, ensure_ascii=False)


def save(path, run, rows, left_out=()):
    """The run has ended now; `left_out`: what this machine could not measure."""
    of_run = {"commit": run.commit, "clean": run.is_clean, "options": run.options, "started": run.started, "ended": now(),
              "left_out": list(left_out)}
    write(path, of_run, run.machine, rows)


def write(path, of_run, machine, rows):
    rows = sorted(rows, key=lambda row: row["name"])  # those of one name, of parties that are alike, as they were measured
    text = (f'{{\n "run": {json.dumps(of_run)},\n "machine": {json.dumps(machine)},\n "digest": "{digest(rows)}",\n "rows": [\n'
            + ",\n".join("  " + _line(row) for row in rows) + "\n ]\n}\n")
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.replace(path)


def read(path):
    return json.loads(path.read_text())


def check(results):
    """A file that may be committed; else Wrong. `clean`, `started` and `ended` are null where a run did not write them down yet."""
    run, rows = results["run"], results["rows"]
    if run["options"] or run["clean"] is False:
        raise Wrong(f"the run was not of the whole bench and of a clean working tree: {run}")
    if not run["commit"]:
        raise Wrong("the run names no commit")
    if [row["name"] for row in rows] != sorted(row["name"] for row in rows):
        raise Wrong("the rows are not sorted by name")
    if digest(rows) != results["digest"]:
        raise Wrong("the rows are not those that the run wrote: run the whole bench again instead of replacing some")
