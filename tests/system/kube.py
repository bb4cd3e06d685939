"""What a node has around gpuslice-kubelet: a kubelet that is not ours (tests/kubelet/kubelet.js), and a small API server."""
import contextlib
import http.server
import json
import os
import pathlib
import queue
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.parse

import pytest

from conftest import DEADLINE_S, MIB, SOURCE

DRIVER = "gpu.gpuslice.io"


class Missing(Exception):
    """Why it cannot be had here."""


class Kubelet:
    """kubelet.js below a folder of its own."""

    def __init__(self, folder):
        if not shutil.which("node") or not shutil.which("npm"):
            raise Missing("needs node and npm")
        installed = subprocess.run([SOURCE / "scripts" / "install-node-modules", "kubelet"], capture_output=True,
                                   text=True, timeout=300)
        if installed.returncode != 0:
            raise Missing(f"the kubelet's packages cannot be installed: {installed.stderr.strip()[-200:]}")
        self.folder = pathlib.Path(folder)
        self.process = subprocess.Popen(["node", SOURCE / "tests" / "kubelet" / "kubelet.js", self.folder],
                                        env={**os.environ, "NODE_PATH": installed.stdout.strip()},
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answers, self.events, self.seen = queue.Queue(), queue.Queue(), []
        threading.Thread(target=self._read, daemon=True).start()
        self.event("ready")

    def _read(self):
        for line in self.process.stdout:
            said = json.loads(line)
            (self.events if "event" in said else self.answers).put(said)

    def event(self, kind, deadline_s=DEADLINE_S, **wanted):
        """The next event of the kind in which `wanted` is true; others that came before it are dropped."""
        end = time.monotonic() + deadline_s
        while True:
            said = self.events.get(timeout=max(0.01, end - time.monotonic()))
            if said["event"] == kind and all(said.get(key) == value for key, value in wanted.items()):
                return said

    def do(self, what, **words):
        self.process.stdin.write(json.dumps({"do": what, **words}) + "\n")
        self.process.stdin.flush()
        return self.answers.get(timeout=60)

    def must(self, what, **words):
        said = self.do(what, **words)
        assert "answer" in said, said
        return said["answer"]

    def stop(self):
        self.process.stdin.close()
        self.process.wait(20)


class Plugin:
    """gpuslice-kubelet beside a daemon and a kubelet. Its clock is the test's, where the build has preloads."""

    def __init__(self, daemon, kubelet_folder, cdi, *options):
        self.daemon, self.options = daemon, [
            "--kubelet-dir", str(kubelet_folder), "--cdi-dir", str(cdi), *map(str, options)]
        self.cdi = pathlib.Path(cdi)
        self.log = daemon.folder / "kubelet.log"
        self.clock = daemon.folder / "kubelet-clock"
        self.seconds_later = 0
        self.process = None

    def start(self, *more, preload="", **variables):
        """With another library preloaded, if one is named."""
        program = self.daemon.product.prefix / "bin" / "gpuslice-kubelet"
        clock = self.daemon.product.build / "tests/system/preloads/later_clock.so"
        if clock.exists():
            variables |= {"LD_PRELOAD": f"{clock} {preload}", "LATER_CLOCK": str(self.clock)}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([program, *self.options, *map(str, more)],
                                            env={**self.daemon.environment(), **variables}, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)
        return self

    @contextlib.contextmanager
    def hurried(self):
        """Meanwhile twenty seconds pass for it in one. It looks at its clock once a second."""
        is_over = threading.Event()

        def pass_time():
            while not is_over.wait(0.05):
                self.seconds_later += 1
                new = self.clock.with_suffix(".new")
                new.write_text(str(self.seconds_later))
                new.rename(self.clock)

        passing = threading.Thread(target=pass_time)
        passing.start()
        try:
            yield
        finally:
            is_over.set()
            passing.join()

    def log_text(self):
        return self.log.read_text(errors="replace")

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(20) == 0, self.log_text()

    def kill(self):
        self.process.kill()
        self.process.wait()


class ApiServer:
    """Nodes, pods, claims and slices, over TLS. `answers` are what the next requests get instead: statuses, or "hang up"."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.key, self.certificate, self.token_file = (self.folder / name for name in ("api.key", "api.crt", "token"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout", self.key, "-out",
                        self.certificate, "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
                       check=True, capture_output=True)
        self.token = None
        self.change_token("first")
        self.objects, self.requests, self.answers, self.events = {}, [], [], []
        self.protocols = set()  # those that clients have agreed on
        self.version = 1
        self.lacks_gate = False  # DRAConsumableCapacity
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.history, self.watches, self.ended, self.stopped = [], 0, 0, False
        self.hold = threading.Event()  # cleared: requests hang
        self.hold.set()
        self.server = None
        self.port = 0
        self.start()

    def start(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *words):
                pass

            def setup(self):
                super().setup()
                outer.protocols.add(self.connection.selected_alpn_protocol())

            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                outer.hold.wait(60)
                with outer.lock:
                    reply = outer.handle(self.command, self.path, self.headers.get("Authorization"), body)
                if reply == "hang up":
                    self.close_connection = True
                    return
                if reply == "watch":
                    self.watch()
                    return
                status, document = reply
                text = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def watch(self):
                """One event a line, as a chunk each, until the server stops or is told to end it."""
                query = urllib.parse.parse_qs(self.path.partition("?")[2])
                sent = int(query["resourceVersion"][0])
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.close_connection = True
                with outer.lock:
                    mine = outer.watches = outer.watches + 1
                while True:
                    with outer.lock:
                        outer.changed.wait_for(lambda: outer.ended >= mine or outer.stopped
                                               or any(version > sent for version, _ in outer.history))
                        if outer.ended >= mine or outer.stopped:
                            break
                        news = [(version, event) for version, event in outer.history if version > sent]
                    for version, event in news:
                        text = event if isinstance(event, bytes) else json.dumps(event).encode()
                        self.wfile.write(b"%x\r\n%s\n\r\n" % (len(text) + 1, text))
                        sent = version
                self.wfile.write(b"0\r\n\r\n")

            do_GET = do_POST = do_PUT = do_DELETE = answer

        self.stopped = False
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        context.set_alpn_protocols(["h2", "http/1.1"])  # as the real one; here the first would get no answer
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        with self.lock:
            self.stopped = True
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()

    # --- What watches are told ---

    def tell(self, event):
        """With the lock."""
        self.history.append((self.version, event))
        self.changed.notify_all()

    def tell_watches(self, event):
        """Something of the test's own: an event as a dictionary, or bytes."""
        with self.lock:
            self.version += 1
            self.tell(event)

    def bookmark(self):
        with self.lock:
            self.version += 1
            self.tell({"type": "BOOKMARK", "object": {"kind": "ResourceSlice", "metadata": {"resourceVersion": str(self.version)}}})
            return self.version

    def end_watches(self):
        with self.lock:
            self.ended = self.watches
            self.changed.notify_all()

    def remove_slices(self):
        with self.lock:
            for path, one in list(self.objects.items()):
                if "/resourceslices/" in path:
                    self.version += 1
                    del self.objects[path]
                    self.tell({"type": "DELETED", "object": {**one, "metadata": {**one["metadata"], "resourceVersion": str(self.version)}}})

    @property
    def options(self):
        return ["--api-server", f"https://127.0.0.1:{self.port}", "--ca-file", self.certificate, "--token-file", self.token_file]

    def change_token(self, token):
        """From now on only this one counts; it is in the file."""
        self.token = token
        self.token_file.write_text(token + "\n")

    def put(self, path, document):
        if "/pods/" in path:
            *_, namespace, _, name = path.split("/")
            document = {**document, "metadata": {"namespace": namespace, "name": name, **document["metadata"]}}
        with self.lock:
            is_new = path not in self.objects
            self.objects[path] = document
            if document.get("kind") == "ResourceSlice":
                self.version += 1
                document["metadata"]["resourceVersion"] = str(self.version)
                self.tell({"type": "ADDED" if is_new else "MODIFIED", "object": document})

    def slices(self):
        with self.lock:
            return [document for path, document in self.objects.items() if "/resourceslices/" in path]

    def handle(self, method, url, authorization, body):
        path, _, query = url.partition("?")
        self.requests.append((method, url if "watch=true" in url else path))
        if self.answers:
            given = self.answers.pop(0)
            if given == "hang up":
                return given
            if isinstance(given, bytes):
                return 200, given
            return given, {"kind": "Status", "message": "as the test wants it"}
        if authorization != f"Bearer {self.token}":
            return 401, {"kind": "Status", "message": "Unauthorized"}
        if method == "GET" and path in self.objects:
            return 200, self.objects[path]
        if "watch=true" in query:
            return "watch"
        if method == "GET" and path.endswith("/resourceslices"):
            selector = dict(part.split("=") for part in urllib.parse.parse_qs(query)["fieldSelector"][0].split(","))
            return 200, {"metadata": {"resourceVersion": str(self.version)}, "items": [one for one in self.objects.values() if one.get("kind") == "ResourceSlice"
                                   and one["spec"]["driver"] == selector["spec.driver"]
                                   and one["spec"]["nodeName"] == selector["spec.nodeName"]]}
        self.version += 1
        if method == "POST" and path.endswith("/events"):
            assert path == f"/api/v1/namespaces/{body['metadata']['namespace']}/events"
            self.events.append(body)
            return 201, body
        if method == "POST" and path.endswith("/resourceslices"):
            path += "/" + body["metadata"]["name"]
            if path in self.objects:
                return 409, {"message": "it exists"}
        elif method == "PUT" and path in self.objects:
            if body["metadata"]["resourceVersion"] != self.objects[path]["metadata"]["resourceVersion"]:
                return 409, {"message": "it has been changed"}
        elif method == "DELETE" and path in self.objects:
            self.tell({"type": "DELETED", "object": self.objects.pop(path)})
            return 200, {}
        else:
            return 404, {"kind": "Status", "message": f"{path} not found"}
        body["metadata"]["resourceVersion"] = str(self.version)
        for device in body["spec"]["devices"] if self.lacks_gate else []:
            device.pop("allowMultipleAllocations")
        self.objects[path] = body
        self.tell({"type": "ADDED" if method == "POST" else "MODIFIED", "object": body})
        return 201 if method == "POST" else 200, body


# --- Fixtures, for tests that import them ------------------------------------------------------------------

@pytest.fixture
def short_folder():
    with tempfile.TemporaryDirectory(prefix="gk-") as folder:  # socket paths have 107 bytes
        yield folder


@pytest.fixture
def kubelet(short_folder):
    try:
        made = Kubelet(short_folder)
    except Missing as why:
        pytest.skip(str(why))
    yield made
    made.stop()


@pytest.fixture
def machine(make_daemon, make_gpu):
    """A daemon with two GPUs of which programs can have 1000 MiB: their driver keeps some more."""
    return make_daemon(make_gpu(FAKECUDA_GPUS=2, FAKECUDA_TOTAL_MEM=1000 * MIB, FAKECUDA_DEVICE="h100", FAKECUDA_CONSTANTS="default")).start()


def manifests(*words, **more):
    """Run tests/kubernetes/manifests.js to its end."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("needs node and npm")
    installed = subprocess.run([SOURCE / "scripts" / "install-node-modules", "kubernetes"], capture_output=True, text=True,
                               timeout=300)
    if installed.returncode != 0:
        pytest.skip(f"the packages cannot be installed: {installed.stderr.strip()[-200:]}")
    return subprocess.run(["node", SOURCE / "tests" / "kubernetes" / "manifests.js", *map(str, words)],
                          env={**os.environ, "NODE_PATH": installed.stdout.strip()}, capture_output=True, text=True,
                          timeout=60, **more)


def sessions(daemon):
    return daemon.request("GET", "/v1/sessions")[1]
