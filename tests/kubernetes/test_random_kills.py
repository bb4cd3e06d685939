"""Pods come and go while kubelet, container runtime, daemon, plug-in and programs are killed at random: by claims, and by slices.

GPUSLICE_TEST_NODE_SECONDS says how long each goes on, and GPUSLICE_TEST_NODE_SEED what happens."""
import os
import random
import re
import time

import pytest

from node import GPU_MIB, GPUS, MIB, OURS, allocations, container, pod, request, template, wait_for

SECONDS = float(os.environ.get("GPUSLICE_TEST_NODE_SECONDS", 40))
SEED = int(os.environ.get("GPUSLICE_TEST_NODE_SEED", 1))
SLICE_MIB = GPU_MIB // 10
PIECE_MIB = 20  # what programs allocate at a time, until they are refused


class Claims:
    """Each pod has a claim, which waits until the node takes it."""

    PIECES = (3, 5, 8)  # a pod's limit
    MOST_PODS = 10      # they fit, whoever is on which GPU

    @staticmethod
    def offer(node):
        node.start_plugin("dra")
        node.wait_published(GPUS)

    def __init__(self, space):
        space.apply(*[template(f"share-{pieces}", request(memory=f"{pieces * PIECE_MIB}Mi", cores="5")) for pieces in self.PIECES])

    def pod(self, name, pieces, script):
        return pod(name, container(script), claims={"gpu": f"share-{pieces}"}, restartPolicy="Always")


class Slices:
    """A pod that comes while the kubelet knows of no slices is failed by it; a controller would make another."""

    PIECES = tuple(count * SLICE_MIB // PIECE_MIB for count in (1, 2, 3))
    MOST_PODS = 6

    @staticmethod
    def offer(node):
        node.start_plugin("device-plugin")
        wait_for(lambda: node.get("nodes")[0]["status"]["allocatable"].get("gpuslice.io/gpu") == str(10 * GPUS), "ten slices a GPU")

    def __init__(self, space):
        pass

    def pod(self, name, pieces, script):
        return pod(name, container(script, claims=(), slices=pieces * PIECE_MIB // SLICE_MIB), restartPolicy="Always")


@pytest.fixture(params=[Claims, Slices], ids=["claims", "slices"])
def road(request, node):
    node.start_daemon()
    request.param.offer(node)
    yield request.param
    node.stop_all()


class Chaos:
    """A pod is right when all its programs had exactly its limit."""

    def __init__(self, node, space, road):
        self.node, self.space, self.road, self.chance = node, space, road(space), random.Random(SEED)
        self.pods, self.number, self.log = {}, 0, []  # pods: their limits in pieces

    # --- What happens ---

    def add(self):
        if len(self.pods) >= self.road.MOST_PODS:
            self.remove()
        self.number += 1
        name, pieces = f"chaos-{self.number}", self.chance.choice(self.road.PIECES)
        script = f"while :; do {allocations(PIECE_MIB, 20)}; /bin/sleep 1; done"
        if self.space.apply(self.road.pod(name, pieces, script), check=False).returncode == 0:
            self.pods[name] = pieces

    def remove(self):
        if len(self.pods) > 3:
            name = self.chance.choice(sorted(self.pods))
            self.refusals(name)
            del self.pods[name]
            force = self.chance.choice([(), ("--force", "--grace-period=0")])
            self.node.inside("kubectl", "-n", self.space.name, "delete", "pod", name, "--wait=false", *force, check=False)

    def kill_processes(self):
        self.node.inside("sh", "-c", "for f in /proc/[0-9]*/comm; do read name <$f; [ \"$name\" = target_app ] && "
                                     "kill -9 $(echo $f | cut -d/ -f3); done", check=False)

    def end_both(self):
        self.node.stop("gpuslice-kubelet")
        self.node.end("gpusliced")
        self.node.start_again("gpuslice-kubelet")

    def run(self):
        actions = {
            **{f"{name} ends": lambda name=name: self.node.end(name) for name in (*OURS, "kubelet", "containerd")},
            "both of ours end": self.end_both, "processes die": self.kill_processes,
            "a pod comes": self.add, "another pod comes": self.add, "a third pod comes": self.add,
            "a pod goes": self.remove, "another pod goes": self.remove,
        }
        limits = {pieces * PIECE_MIB * MIB for pieces in self.road.PIECES}
        deadline = time.monotonic() + SECONDS
        self.add()
        while time.monotonic() < deadline:
            name = self.chance.choice(sorted(actions))
            self.log.append(name)
            actions[name]()
            assert {one["vram_limit_bytes"] for one in self.node.sessions() or []} <= limits
            time.sleep(self.chance.random() * 3)

    # --- What must be true ---

    def refusals(self, name):
        """How often it was refused at exactly its limit. A program may be given less: nothing while the daemon is away, and not what
        one that died meanwhile had, until the daemon is back."""
        text, pieces = self.space.log(name), self.pods[name]
        limits = {int(number) for number in re.findall(r"of the limit (\d+)MiB", text)}
        assert limits <= {pieces * PIECE_MIB}, f"{name} was to have {pieces * PIECE_MIB} MiB: {limits}\n{text}"
        granted_most = max((int(number) for number in re.findall(r"ALLOC_OK iteration (\d+)$", text, re.M)), default=-1)
        assert granted_most < pieces, f"{name} was to have {pieces} pieces\n{text}"
        return text.count(f"ALLOC_FAIL at iteration {pieces} code=2")

    def forget_refused(self):
        """Returns how many the kubelet did not admit."""
        refused = [one["metadata"]["name"] for one in self.space.get("pods")
                   if one["status"].get("reason") in ("UnexpectedAdmissionError", "OutOfgpuslice.io/gpu")]
        for name in refused:
            self.pods.pop(name, None)
            self.space.delete("pod", name)
        return len(refused)


def test_nothing_is_left_or_wrong_whoever_is_killed_when(road, node, space):
    chaos = Chaos(node, space, road)
    chaos.run()
    node.wait_ready()
    refused = chaos.forget_refused()
    assert road is Slices or refused == 0, "a claim waits"
    wait_for(lambda: {name: "Running" for name in chaos.pods} == space.phases(),
             lambda: f"the pods to run: {space.phases()} {space.events()} {node.log()}", deadline_s=240)
    for name in chaos.pods:
        before = chaos.refusals(name)
        wait_for(lambda: chaos.refusals(name) > before, lambda: f"{name} to be limited: {space.log(name)[-500:]}\n{node.log()}", deadline_s=120)
    wait_for(lambda: {one["pod"] for one in space.sessions()} == set(chaos.pods),
             lambda: f"sessions of these pods alone: {space.sessions()} {sorted(chaos.pods)}")
    space.delete("pods", "--all")
    node.wait_without_sessions()
    wait_for(lambda: space.get("resourceclaims") == [], "the claims to go")
    print(f"{len(chaos.log)} events: " + ", ".join(f"{name} {chaos.log.count(name)}" for name in sorted(set(chaos.log)))
          + f"; {refused} pods not admitted")
