"""A simulated machine of the bench's own, with a daemon, and the programs' environments there."""
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(self.path)


class Machine:
    """`gpu` is what its programs and its daemon have of FAKECUDA_ variables, but for the machine's name."""

    def __init__(self, prefix, gpu):
        self.prefix = prefix
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gsb-"))
        self.name = f"bench-{uuid.uuid4().hex[:8]}"
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith(("GPUSLICE_", "FAKECUDA_", "CUDA_", "NVSHARE_"))
                 and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
        self.gpu = {"FAKECUDA_NAME": self.name, **gpu}
        self.shell = {**clean, **self.gpu, "GPUSLICE_SIMULATED": "1", "GPUSLICE_RUNTIME_DIR": str(self.folder / "run"),
                      "GPUSLICE_STATE_DIR": str(self.folder / "state")}
        (self.folder / "run").mkdir(mode=0o700)
        self.outside = {**clean, **self.gpu, "LD_LIBRARY_PATH": str(prefix / "lib/gpuslice/simulated")}
        self.log = open(self.folder / "daemon.log", "wb")
        self.daemon = subprocess.Popen([prefix / "bin/gpusliced", "--simulated"], env=self.shell,
                                       stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.control = self.folder / "run/simulated/control.sock"
        self._wait_ready()

    def _wait_ready(self):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                if self.request("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        sys.exit(f"the daemon did not start:\n{(self.folder / 'daemon.log').read_text()}")

    def close(self):
        self.daemon.terminate()
        self.daemon.wait()
        for path in pathlib.Path("/dev/shm").glob(f"fakecuda-*{self.name}*"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def request(self, method, path, body=None):
        connection = Connection(self.control)
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
            return answer.status, json.loads(text) if text.startswith(("{", "[")) else text
        finally:
            connection.close()

    def session(self, memory_bytes, gpus=1, **more):
        """A new session's ID, and the environment of a program in it; on the first GPU, or on the first ones."""
        limits = [{"gpu": str(gpu), "memory_bytes": memory_bytes} for gpu in range(gpus)]
        status, session = self.request("POST", "/v1/sessions", {"gpus": limits, **more})
        if status != 201:
            sys.exit(f"no session: {session}")
        inside = {**self.outside, **session["environment"],
                  "LD_PRELOAD": str(self.prefix / "lib/gpuslice/libgpuslice.so")}
        return session["session_id"], inside

    def apart(self, number):
        """The environment of a program on another machine like this, without GPU Slice: its GPU is its own."""
        return {**self.outside, "FAKECUDA_NAME": f"{self.name}-{number}"}

    def release(self, session_id):
        self.request("DELETE", f"/v1/sessions/{session_id}")
