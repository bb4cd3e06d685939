"""A browser that tests lead: Debian's chromium by playwright-core (tests/dashboard/driver.mjs)."""
import json
import pathlib
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[2]


class BrowserMissing(Exception):
    pass


class Browser:
    """run(code) is the body of an async function of (page, tools), and gives what that returns."""

    def __init__(self):
        found = subprocess.run([SOURCE / "scripts" / "dashboard-browser"], capture_output=True, text=True)
        if found.returncode:
            raise BrowserMissing(found.stderr.strip())
        folder, chromium = found.stdout.split()
        self.process = subprocess.Popen(["node", SOURCE / "tests" / "dashboard" / "driver.mjs", folder, chromium],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hear()

    def hear(self):
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"failure": "the browser's driver has ended"}
        assert "failure" not in answer, answer["failure"]
        return answer["value"]

    def run(self, code):
        self.process.stdin.write(json.dumps({"code": code}) + "\n")
        self.process.stdin.flush()
        return self.hear()

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()
