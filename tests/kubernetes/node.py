"""A node of a real Kubernetes: kubelet, API server, scheduler and containerd, in a folder that somebody else made.

GPUSLICE_TEST_NODE is the folder of a node that is up, and GPUSLICE_TEST_NODE_KIT the folder with two commands: `in NODE COMMAND`
runs a command inside the node, with kubectl and ctr in its PATH, and `image ARCHIVE NAME ROOT COMMAND` packs a folder as an image.
With a third, `account NODE NAMESPACE NAME`, which prints a service account's kubeconfig, rights are tried as well. The node starts
each of its programs again when it ends, and NODE/run/NAME.pid holds the program's number.
"""
import functools
import json
import os
import pathlib
import subprocess
import sys
import types

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(SOURCE / "tests" / "system"))
import waiting  # noqa: E402, it is there

MIB = 1 << 20
OUT, KIT = os.environ.get("GPUSLICE_TEST_NODE"), os.environ.get("GPUSLICE_TEST_NODE_KIT")
DRIVER = "gpu.gpuslice.io"
OURS = ("gpusliced", "gpuslice-kubelet")
IMAGE = "localhost/gpuslice-test:1"
GPU_MIB, GPUS = 1000, 2
OUT_OF_MEMORY = 2


wait_for = functools.partial(waiting.wait_for, deadline_s=90.0, interval_s=0.2)


def product_of(prefix):
    """What podman_host.make_root() wants to know of what is installed there."""
    return types.SimpleNamespace(interceptor=f"{prefix}/lib/gpuslice/libgpuslice.so",
                                 simulated=pathlib.Path(prefix, "lib/gpuslice/simulated"))


class Node:
    def __init__(self, prefix, folder):
        self.prefix, self.folder = pathlib.Path(prefix), pathlib.Path(folder)
        self.processes, self.settings = {}, {}
        (self.name,) = [item["metadata"]["name"] for item in self.get("nodes")]

    # --- Commands ---

    def inside(self, *words, **more):
        more.setdefault("check", True)
        more.setdefault("timeout", 120)
        try:
            return subprocess.run([f"{KIT}/in", OUT, *map(str, words)], capture_output=True, text=True, **more)
        except subprocess.CalledProcessError as failed:
            raise AssertionError(f"{' '.join(map(str, words))}: {failed.stderr or failed.stdout}") from None

    def kubectl(self, *words, **more):
        return self.inside("kubectl", *words, **more).stdout

    def get(self, *what):
        answer = json.loads(self.kubectl("get", *what, "-o", "json"))
        return answer["items"] if answer["kind"].endswith("List") else answer

    def apply(self, *documents, **more):
        """Documents as dictionaries, or YAML texts."""
        text = "\n---\n".join(one if isinstance(one, str) else json.dumps(one) for one in documents)
        return self.inside("kubectl", "apply", "-f", "-", input=text, **more)

    @staticmethod
    def shipped_documents(but):
        documents = (SOURCE / "packaging/kubernetes/gpuslice.yaml").read_text().split("\n---\n")
        return "\n---\n".join(one for one in documents if not any(f"\nkind: {kind}\n" in one for kind in but))

    def apply_rights(self):
        """What the chart has beside its DaemonSet."""
        self.apply(self.shipped_documents(but=["DaemonSet"]))

    def remove_rights(self):
        """All but the namespace."""
        self.inside("kubectl", "delete", "-f", "-", input=self.shipped_documents(but=["DaemonSet", "Namespace"]))

    # --- Programs of the node itself ---

    def pid(self, name):
        return (pathlib.Path(OUT) / "run" / f"{name}.pid").read_text().strip()

    def restart(self, name, signal="KILL"):
        """Of Kubernetes' own: kubelet, containerd, kube-apiserver... It may be on its way already."""
        before = self.pid(name)
        self.inside("kill", f"-{signal}", before, check=False)
        wait_for(lambda: self.pid(name) != before, f"{name} to start again")

    def wait_ready(self):
        wait_for(lambda: self.inside("kubectl", "wait", "--for=condition=Ready", f"node/{self.name}", "--timeout=5s",
                                     check=False).returncode == 0, "the node to be ready", deadline_s=120)

    def end(self, name):
        """Kill it, Kubernetes' own or ours; it starts again."""
        if name in OURS:
            self.stop(name)
            self.start_again(name)
        else:
            self.restart(name)

    # --- Ours, started by hand ---

    def start(self, name, *words):
        settings = {"GPUSLICE_SIMULATED": "1", "FAKECUDA_NAME": "node", "FAKECUDA_TOTAL_MEM": GPU_MIB * MIB, "FAKECUDA_GPUS": GPUS,
                    "FAKECUDA_CONTEXT_BYTES": 0, **self.settings}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [f"{KIT}/in", OUT, "env", *(f"{key}={value}" for key, value in settings.items()), "sh", "-c",
                 "echo $$ >$0; exec \"$@\"", self.folder / f"{name}.pid", self.prefix / "bin" / name, *map(str, words)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start_daemon(self):
        self.start("gpusliced", "--system")

    def start_plugin(self, mode, *more):
        token = self.kubectl("-n", "gpuslice", "create", "token", "gpuslice", "--duration=4h", "--bound-object-kind=Node",
                             f"--bound-object-name={self.name}")
        (self.folder / "token").write_text(token)
        self.plugin_words = ["--mode", mode, "--node", self.name, "--api-server", "https://10.96.0.1", "--ca-file",
                             f"{OUT}/pki/ca.crt", "--token-file", self.folder / "token", *more]
        self.start("gpuslice-kubelet", *self.plugin_words)

    def start_again(self, name):
        if name == "gpusliced":
            self.start_daemon()
        else:
            self.start(name, *self.plugin_words)

    def stop(self, name, signal="KILL"):
        """By its number in the node."""
        self.inside("kill", f"-{signal}", (self.folder / f"{name}.pid").read_text().strip(), check=False)
        self.processes.pop(name).wait(20)

    def stop_all(self):
        for name in list(self.processes):
            self.stop(name, "TERM")

    def log(self):
        return "".join(f"{path.name}: {path.read_text(errors='replace')[-3000:]}\n" for path in self.folder.glob("*.log"))

    # --- What is there ---

    def gpuslice(self, *words, **more):
        return self.inside("env", "GPUSLICE_SIMULATED=1", self.prefix / "bin" / "gpuslice", *words, **more)

    def sessions(self):
        """None while the daemon does not answer."""
        found = self.gpuslice("list", "--json", check=False)
        return json.loads(found.stdout) if found.returncode == 0 else None

    def wait_without_sessions(self):
        wait_for(lambda: self.sessions() == [], lambda: f"no session to be left: {self.sessions()}\n{self.log()}")
        wait_for(lambda: "gpuslice" not in self.inside("sh", "-c", "ls /run/cdi").stdout, "no CDI specification to be left")

    def slices(self):
        return [one for one in self.get("resourceslices") if one["spec"]["driver"] == DRIVER]

    def wait_published(self, gpus=GPUS):
        return wait_for(lambda: next((one["spec"]["devices"] for one in self.slices() if len(one["spec"]["devices"]) == gpus),
                                     None), lambda: f"{gpus} GPUs to be published\n{self.log()}")


class Space:
    """One test's namespace."""

    def __init__(self, node, name):
        self.node, self.name = node, name
        node.kubectl("create", "namespace", name)
        wait_for(lambda: node.inside("kubectl", "-n", name, "get", "serviceaccount", "default", check=False).returncode == 0,
                 "the namespace")

    def kubectl(self, *words, **more):
        return self.node.kubectl("-n", self.name, *words, **more)

    def get(self, *what):
        return self.node.get("-n", self.name, *what)

    def apply(self, *documents, **more):
        text = "\n---\n".join(one if isinstance(one, str) else json.dumps(one) for one in documents)
        return self.node.inside("kubectl", "-n", self.name, "apply", "-f", "-", input=text, **more)

    def pod(self, name):
        return self.get("pod", name)

    def phases(self):
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in self.get("pods")}

    def wait_phase(self, name, *phases):
        return wait_for(lambda: self.phases().get(name) in phases,
                        lambda: f"{name} to be {phases}: {self.events()}\n{self.node.log()}", deadline_s=120)

    def log(self, name, *more):
        return self.node.inside("kubectl", "-n", self.name, "logs", name, *more, check=False).stdout

    def wait_log(self, name, text, *more):
        return wait_for(lambda: (lambda said: said if text in said else None)(self.log(name, *more)),
                        lambda: f"{name} to say '{text}': {self.log(name, *more)}\n{self.events()}\n{self.node.log()}", deadline_s=120)

    def wait_end(self, name):
        """The log of `allocations` that ended; the container runtime can write the last lines later than that."""
        self.wait_phase(name, "Succeeded", "Failed")
        return self.wait_log(name, "ALLOC_FAIL")

    def events(self):
        return self.kubectl("get", "events", "-o", "custom-columns=ON:.involvedObject.name,WHY:.reason,WHAT:.message")

    def wait_event(self, text):
        wait_for(lambda: text in self.events(), lambda: f"an event with '{text}': {self.events()}\n{self.node.log()}", deadline_s=120)

    def sessions(self):
        return [one for one in self.node.sessions() or [] if one["namespace"] == self.name]

    def delete(self, *words):
        self.kubectl("delete", *words, "--ignore-not-found", timeout=180)

    def remove(self):
        """Its objects go by and by; `make_space` waits for its sessions to end."""
        self.delete("pods,jobs,statefulsets", "--all", "--force", "--grace-period=0", "--wait=false")
        self.node.kubectl("delete", "namespace", self.name, "--ignore-not-found", "--force", "--grace-period=0", "--wait=false")


# --- Documents ---------------------------------------------------------------------------------------------

def request(name="gpu", memory="400Mi", cores="40", **more):
    capacity = {key: value for key, value in (("memory", memory), ("cores", cores)) if value is not None}
    return {"name": name, "exactly": {"deviceClassName": "gpuslice", **({"capacity": {"requests": capacity}} if capacity else {}),
                                      **more}}


def configuration(*requests, **parameters):
    return {**({"requests": list(requests)} if requests else {}), "opaque": {"driver": DRIVER, "parameters": {
        "apiVersion": "gpu.gpuslice.io/v1alpha1", "kind": "SessionConfig", **parameters}}}


def devices(*requests, config=(), **more):
    return {"devices": {"requests": list(requests) or [request()], **({"config": list(config)} if config else {}), **more}}


def template(name, *requests, **more):
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
            "spec": {"spec": devices(*requests, **more)}}


def claim(name, *requests, **more):
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": devices(*requests, **more)}


def container(script, name="main", claims=("gpu",), slices=0, image=IMAGE, **more):
    resources = {}
    if claims:
        resources["claims"] = [{"name": one} if isinstance(one, str) else one for one in claims]
    if slices:
        resources["limits"] = {"gpuslice.io/gpu": str(slices)}
    return {"name": name, "image": image, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script], "resources": resources, **more}


def pod(name, *containers, claims=None, annotations=None, **spec):
    """`claims`: {name in the pod: template, or "=CLAIM"}"""
    def source(of):
        return {"resourceClaimName": of[1:]} if of.startswith("=") else {"resourceClaimTemplateName": of}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations or {}}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False,
        **({"resourceClaims": [{"name": key, **source(of)} for key, of in claims.items()]} if claims else {}), **spec,
        "containers": list(containers)}}


SLEEP = "exec /bin/sleep 3600"


def puppet(*lines, then="exec /bin/sleep 3600"):
    """A script: tests/system/programs/puppet.c does these lines, and then the container does `then` beside it."""
    said = "\\n".join(lines)
    return f"{{ printf '{said}\\n'; {then}; }} | /bin/puppet"


def answers(log):
    """What the puppet answered, a list of words each."""
    return [line.split() for line in log.splitlines() if line[:1].isdigit()][1:]


def allocations(mebibytes_each, count):
    """A script that allocates so many blocks and frees them; its log says for how many there was room."""
    return f"ALLOC_BYTES={mebibytes_each * MIB} ITERATIONS={count} /bin/target_app"


def granted(log):
    return log.count("ALLOC_OK")
