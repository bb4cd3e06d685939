"""What stays when programs of the node end: Kubernetes' own and ours, one at a time and at random."""
import os
import random
import re
import time

import pytest

from node import GPU_MIB, GPUS, MIB, SLEEP, allocations, container, granted, pod, request, template, wait_for

OURS = ("gpusliced", "gpuslice-kubelet")
SECONDS = float(os.environ.get("GPUSLICE_TEST_NODE_SECONDS", 40))
SEED = int(os.environ.get("GPUSLICE_TEST_NODE_SEED", 1))


def end(node, name):
    """Kill it; it starts again."""
    if name in OURS:
        node.stop(name)
        node.start_again(name)
    else:
        node.restart(name)


@pytest.mark.parametrize("name", [*OURS, "kubelet", "containerd", "kube-apiserver", "kube-scheduler", "etcd"])
def test_claims_and_pods_outlive_a_restart(dra, space, name):
    hold = f"ALLOC_BYTES={100 * MIB} ITERATIONS=6 HOLD=signal /bin/target_app"
    space.apply(template("share"), pod("before", container(hold), claims={"gpu": "share"}))
    wait_for(lambda: granted(space.log("before")) == 4, "memory to be held")
    (session,) = space.sessions()
    end(dra, name)
    dra.wait_ready()
    space.apply(pod("after", container(allocations(100, 6) + ";" + SLEEP), claims={"gpu": "share"}))
    wait_for(lambda: granted(space.log("after")) == 4, lambda: f"another pod to be limited {space.events()} {dra.log()}", deadline_s=150)
    (same,) = [one for one in space.sessions() if one["pod"] == "before"]
    assert same["session_id"] == session["session_id"] and same["used_bytes"] == 400 * MIB
    assert space.phases()["before"] == "Running"
    space.delete("pods", "--all")
    wait_for(lambda: space.sessions() == [], lambda: f"no session to be left {dra.log()}")


def end_machine(node):
    """As when the power goes: nothing that runs is left, nor what is in memory. Kubernetes' programs start again by themselves."""
    for name in OURS:
        node.stop(name)
    for name in ("kubelet", "containerd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"):
        node.inside("kill", "-STOP", node.pid(name), check=False)
    node.inside("sh", "-c", "for f in /proc/[0-9]*/comm; do read name <$f; case $name in containerd-shim*|target_app|pause|sleep) "
                            "kill -9 $(echo $f | cut -d/ -f3);; esac; done; rm -rf /run/gpuslice /run/cdi/*", check=False)
    for name in ("containerd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelet"):
        node.restart(name)


def health(space, name):
    """What the pod's status says of its devices."""
    return [(one["resourceID"], one["health"]) for status in space.pod(name)["status"].get("containerStatuses", [])
            for resource in status.get("allocatedResourcesStatus", []) for one in resource["resources"]]


def test_pods_go_on_when_the_machine_starts_again(dra, space):
    script = allocations(100, 6) + ";" + SLEEP
    space.apply(template("share"), pod("main", container(script), claims={"gpu": "share"}, restartPolicy="Always"))
    wait_for(lambda: granted(space.log("main")) == 4, "its memory")
    wait_for(lambda: [of for _, of in health(space, "main")] == ["Healthy"], lambda: f"its GPU's health {space.pod('main')['status']}")
    end_machine(dra)
    for name in OURS:
        dra.start_again(name)
    dra.wait_ready()
    dra.wait_published(GPUS)
    wait_for(lambda: space.pod("main")["status"]["containerStatuses"][0]["restartCount"] >= 1 and granted(space.log("main")) == 4,
             lambda: f"its second life: {space.pod('main')['status']} {space.log('main')} {space.events()} {dra.log()}", deadline_s=240)
    names = wait_for(lambda: (lambda said: said if said and {of for _, of in said} == {"Healthy"} else None)(health(space, "main")),
                     lambda: f"its GPU's health {space.pod('main')['status']} {dra.log()}")
    assert len({name for name, _ in names}) == len(names), names
    space.delete("pods", "--all")
    wait_for(lambda: space.sessions() == [], lambda: f"no session to be left {dra.log()}")


def test_a_slice_that_somebody_removes_is_published_again(dra):
    (before,) = dra.slices()
    dra.kubectl("delete", "resourceslice", before["metadata"]["name"])
    (after,) = wait_for(dra.slices, "the slice")
    assert after["metadata"]["uid"] != before["metadata"]["uid"] and after["spec"]["devices"] == before["spec"]["devices"]


def test_a_node_whose_daemon_is_away_publishes_nothing(dra):
    dra.stop("gpusliced")
    wait_for(lambda: dra.slices() == [], "the slice to go")
    dra.start_daemon()
    dra.wait_published(GPUS)


# --- At random ---------------------------------------------------------------------------------------------

MOST_PODS = 10  # they fit, whoever is on which GPU


class Chaos:
    """Pods come and go, and anything is killed at any moment. A pod is right when all its programs had exactly its limit."""

    PIECE = 20
    SIZES = (3, 5, 8)  # a pod's limit, in pieces

    def __init__(self, node, space, templates=True):
        self.node, self.space, self.chance = node, space, random.Random(SEED)
        self.pods, self.number, self.log = {}, 0, []  # pods: their limits in pieces
        for pieces in self.SIZES if templates else ():
            space.apply(template(f"share-{pieces}", request(memory=f"{pieces * self.PIECE}Mi", cores="5")))

    def add(self):
        if len(self.pods) == MOST_PODS:
            self.remove()
        self.number += 1
        name, pieces = f"chaos-{self.number}", self.chance.choice(self.SIZES)
        script = f"while :; do {allocations(self.PIECE, 20)}; /bin/sleep 1; done"
        made = self.space.apply(pod(name, container(script), claims={"gpu": f"share-{pieces}"}, restartPolicy="Always"), check=False)
        if made.returncode == 0:
            self.pods[name] = pieces

    def remove(self):
        if len(self.pods) > 3:
            name = self.chance.choice(sorted(self.pods))
            self.check(name)
            del self.pods[name]
            force = self.chance.choice([(), ("--force", "--grace-period=0")])
            self.node.inside("kubectl", "-n", self.space.name, "delete", "pod", name, "--wait=false", *force, check=False)

    def kill_processes(self):
        self.node.inside("sh", "-c", "for f in /proc/[0-9]*/comm; do read name <$f; [ \"$name\" = target_app ] && "
                                     "kill -9 $(echo $f | cut -d/ -f3); done", check=False)

    def check(self, name):
        """How often it was refused at exactly its limit. A program may be given less: nothing while the daemon is away, and not what
        one that died meanwhile had, until the daemon is back."""
        text, pieces = self.space.log(name), self.pods[name]
        limits = {int(number) for number in re.findall(r"of the limit (\d+)MiB", text)}
        assert limits <= {pieces * self.PIECE}, f"{name} was to have {pieces * self.PIECE} MiB: {limits}\n{text}"
        granted_most = max((int(number) for number in re.findall(r"ALLOC_OK iteration (\d+)$", text, re.M)), default=-1)
        assert granted_most < pieces, f"{name} was to have {pieces} pieces\n{text}"
        return text.count(f"ALLOC_FAIL at iteration {pieces} code=2")

    def run(self):
        actions = {
            **{f"{name} ends": lambda name=name: end(self.node, name) for name in (*OURS, "kubelet", "containerd")},
            "both of ours end": lambda: (self.node.stop("gpuslice-kubelet"), end(self.node, "gpusliced"),
                                         self.node.start_again("gpuslice-kubelet")),
            "a pod comes": self.add, "another pod comes": self.add, "a third pod comes": self.add,
            "a pod goes": self.remove, "another pod goes": self.remove, "processes die": self.kill_processes,
        }
        deadline = time.monotonic() + SECONDS
        self.add()
        while time.monotonic() < deadline:
            name = self.chance.choice(sorted(actions))
            self.log.append(name)
            actions[name]()
            limits = {pieces * self.PIECE * MIB for pieces in self.SIZES}
            assert {one["vram_limit_bytes"] for one in self.node.sessions() or []} <= limits
            time.sleep(self.chance.random() * 3)


def test_nothing_is_left_or_wrong_whoever_is_killed_when(dra, space):
    chaos = Chaos(dra, space)
    chaos.run()
    dra.wait_ready()
    wait_for(lambda: {name: "Running" for name in chaos.pods} == space.phases(),
             lambda: f"the pods to run: {space.phases()} {space.events()} {dra.log()}", deadline_s=240)
    for name in chaos.pods:
        before = chaos.check(name)
        wait_for(lambda: chaos.check(name) > before, lambda: f"{name} to be limited: {space.log(name)[-500:]}\n{dra.log()}", deadline_s=120)
    wait_for(lambda: {one["pod"] for one in space.sessions()} == set(chaos.pods),
             lambda: f"sessions of these pods alone: {space.sessions()} {sorted(chaos.pods)}")
    space.delete("pods", "--all")
    wait_for(lambda: space.sessions() == [], lambda: f"no session to be left: {space.sessions()}\n{dra.log()}", deadline_s=240)
    wait_for(lambda: space.get("resourceclaims") == [], "the claims to go")
    print(f"{len(chaos.log)} events: " + ", ".join(f"{name} {chaos.log.count(name)}" for name in sorted(set(chaos.log))))
