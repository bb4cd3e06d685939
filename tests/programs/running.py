"""A program that was started, and what it says while it works."""
import subprocess
import threading
import time

from waiting import wait_for


class Running:
    """Reads what a program prints, each line with its time, so that the program never waits for us."""

    def __init__(self, words, environment, is_step, folder):
        self.process = subprocess.Popen([str(word) for word in words], env=environment, cwd=folder, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.is_step = is_step
        self.lines, self.times, self.errors = [], [], []
        self.readers = [threading.Thread(target=self._read), threading.Thread(target=self._read_errors)]
        for reader in self.readers:
            reader.start()

    def _read(self):
        for line in self.process.stdout:
            if self.is_step(line):
                self.times.append(time.monotonic())
            self.lines.append(line.rstrip("\n"))

    def _read_errors(self):
        self.errors.extend(self.process.stderr)

    @property
    def steps(self):
        return len(self.times)

    def has_ended(self):
        return self.process.poll() is not None

    def told(self):
        return "".join(self.errors)[-2000:]

    def wait_steps(self, count, deadline_s=60):
        """Until it has done so many steps; it must not end before."""
        wait_for(lambda: self.steps >= count or self.has_ended(), lambda: f"step {count} after {self.steps}: {self.told()}", deadline_s)
        assert self.steps >= count, f"it ended with {self.process.returncode} after {self.steps} steps: {self.told()}"

    def end(self, deadline_s=120):
        """Wait until it has ended by itself; its status."""
        self.process.wait(deadline_s)
        for reader in self.readers:
            reader.join()
        return self.process.returncode

    def stop(self):
        if not self.has_ended():
            self.process.kill()
        self.end()
        self.process.stdout.close()
        self.process.stderr.close()

    def rate(self, since, until):
        """Steps a second between two moments."""
        return sum(since <= at < until for at in self.times) / (until - since)
