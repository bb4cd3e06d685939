"""Slices by the device plug-in while anything is killed at any moment."""
import pytest

from node import GPU_MIB, GPUS, allocations, container, pod, wait_for
from test_restarts import Chaos

SLICE_MIB = GPU_MIB // 10
MOST_PODS = 6  # of three slices at most each


class SlicesChaos(Chaos):
    """A pod that comes while the kubelet knows of no slices is failed by it; a controller would make another."""

    SIZES = (SLICE_MIB // 20, 2 * SLICE_MIB // 20, 3 * SLICE_MIB // 20)

    def __init__(self, node, space):
        super().__init__(node, space, templates=False)

    def add(self):
        if len(self.pods) >= MOST_PODS:
            self.remove()
        self.number += 1
        name, slices = f"chaos-{self.number}", self.chance.choice((1, 2, 3))
        script = f"while :; do {allocations(self.PIECE, 20)}; /bin/sleep 1; done"
        made = self.space.apply(pod(name, container(script, claims=(), slices=slices), restartPolicy="Always"), check=False)
        if made.returncode == 0:
            self.pods[name] = slices * SLICE_MIB // self.PIECE

    def forget_refused(self):
        """Returns how many the kubelet did not admit."""
        refused = [one["metadata"]["name"] for one in self.space.get("pods")
                   if one["status"].get("reason") in ("UnexpectedAdmissionError", "OutOfgpuslice.io/gpu")]
        for name in refused:
            self.pods.pop(name, None)
            self.space.delete("pod", name)
        return len(refused)


@pytest.fixture(autouse=True)
def offered(slices):
    wait_for(lambda: slices.get("nodes")[0]["status"]["allocatable"].get("gpuslice.io/gpu") == str(10 * GPUS), "ten slices a GPU")


def test_no_slice_is_left_or_wrong_whoever_is_killed_when(slices, space):
    chaos = SlicesChaos(slices, space)
    chaos.run()
    slices.wait_ready()
    refused = chaos.forget_refused()
    wait_for(lambda: {name: "Running" for name in chaos.pods} == space.phases(),
             lambda: f"the pods to run: {space.phases()} {space.events()} {slices.log()}", deadline_s=240)
    for name in chaos.pods:
        before = chaos.check(name)
        wait_for(lambda: chaos.check(name) > before, lambda: f"{name} to be limited: {space.log(name)[-500:]}\n{slices.log()}", deadline_s=120)
    wait_for(lambda: {one["pod"] for one in space.sessions()} == set(chaos.pods),
             lambda: f"sessions of these pods alone: {space.sessions()} {sorted(chaos.pods)}")
    space.delete("pods", "--all")
    slices.wait_without_sessions()
    print(f"{len(chaos.log)} events, {refused} pods not admitted")
