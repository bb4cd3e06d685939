"""Slices by the device plug-in on a real node."""
import pytest

from node import GPU_MIB, GPUS, MIB, SLEEP, allocations, container, granted, pod, wait_for

SLICE_MIB = GPU_MIB // 10


def sliced(name, count, script=SLEEP, annotations=None, **more):
    return pod(name, container(script, claims=(), slices=count), annotations=annotations, **more)


def allocatable(node):
    return node.get("nodes")[0]["status"]["allocatable"].get("gpuslice.io/gpu")


@pytest.fixture(autouse=True)
def offered(slices):
    wait_for(lambda: allocatable(slices) == str(10 * GPUS), lambda: f"ten slices a GPU {slices.log()}")


def test_a_pod_has_its_slices_and_is_named(slices, space):
    space.apply(sliced("main", 3, allocations(50, 20) + ";" + SLEEP))
    wait_for(lambda: granted(space.log("main")) == 6, lambda: f"three slices' memory: {space.log('main')} {space.events()} {slices.log()}")
    session = wait_for(lambda: next(iter(space.sessions()), None), "the pod's name")
    assert (session["pod"], session["container"], session["vram_limit_bytes"]) == ("main", "main", 3 * SLICE_MIB * MIB)
    assert session["compute_min_ratio"] == 0.3 and session["compute_max_ratio"] == 1
    space.delete("pod", "main")
    slices.wait_without_sessions()


def test_what_is_not_there_waits(slices, space):
    space.apply(sliced("first", 10), sliced("second", 10), sliced("third", 1))
    wait_for(lambda: sorted(space.phases().values()) == ["Pending", "Running", "Running"], lambda: f"two: {space.phases()}")
    space.wait_event("Insufficient gpuslice.io/gpu")
    running = [name for name, phase in space.phases().items() if phase == "Running"]
    (waiting,) = set(space.phases()) - set(running)
    space.delete("pod", running[0])
    space.wait_phase(waiting, "Running")


def test_each_container_has_its_own(slices, space):
    one, two = (container(allocations(50, 20) + ";" + SLEEP, name, claims=(), slices=count) for name, count in (("one", 1), ("two", 2)))
    space.apply(pod("main", one, two))
    wait_for(lambda: (granted(space.log("main", "-c", "one")), granted(space.log("main", "-c", "two"))) == (2, 4),
             lambda: f"their limits {space.events()}")
    wait_for(lambda: {(each["container"], each["vram_limit_bytes"] // MIB) for each in space.sessions()}
             == {("one", SLICE_MIB), ("two", 2 * SLICE_MIB)}, "their names")


def test_annotations_narrow_slices(slices, space):
    space.apply(sliced("ours", 2, annotations={"gpuslice.io/memory": "64MiB", "gpuslice.io/compute": "5%..15%", "gpuslice.io/priority": "low"}),
                sliced("theirs", 2, annotations={"tensor-fusion.ai/vram-limit": "32Mi", "tensor-fusion.ai/compute-percent-limit": "7",
                                                 "tensor-fusion.ai/qos": "medium"}),
                sliced("more", 1, annotations={"gpuslice.io/memory": "64GiB"}),
                sliced("wrong", 1, annotations={"gpuslice.io/memory": "lots", "gpuslice.io/compute": "900%"}))

    def found():
        return {one["pod"]: (one["vram_limit_bytes"] // MIB, one["compute_max_ratio"], one["priority"]) for one in space.sessions()}
    wanted = {"ours": (64, 0.15, "low"), "theirs": (32, 0.07, "normal"), "more": (SLICE_MIB, 1, "normal"),
              "wrong": (SLICE_MIB, 1, "normal")}
    wait_for(lambda: found() == wanted, lambda: f"{wanted}: {found()} {slices.log()}")
    space.wait_event("gpuslice.io/compute: ")


def test_annotations_that_cannot_be_are_said_in_the_pods_events(slices, space):
    space.apply(sliced("main", 1, annotations={"tensor-fusion.ai/gpu-ids": "GPU-1", "tensor-fusion.ai/vram-limit": "32Mi"}))
    space.wait_event("tensor-fusion.ai/gpu-ids has no effect")
    wait_for(lambda: [one["vram_limit_bytes"] // MIB for one in space.sessions()] == [32], "the rest to count")


def test_slices_of_two_gpus_have_each_gpus_own_limit(slices, space):
    """As the kubelet counts slices and no GPUs, a container may get the rest of one and some of another."""
    space.apply(sliced("main", 15, "exec /bin/sleep 3600", annotations={"gpuslice.io/memory": "700MiB"}))
    wait_for(lambda: [sorted(gpu["limit_bytes"] // MIB for gpu in one["gpus"]) for one in space.sessions() if one["pod"]]
             == [[5 * SLICE_MIB, 700]], lambda: f"the limits {space.sessions()} {space.events()} {slices.log()}")


@pytest.mark.parametrize("context", [
    {"runAsUser": 1000, "runAsNonRoot": True, "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False,
     "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}])
def test_limits_hold_for_containers_with_few_rights(slices, space, context):
    one = container(allocations(50, 20), claims=(), slices=2, securityContext=context)
    space.apply(pod("main", one))
    assert granted(space.wait_end("main")) == 4


def test_init_containers_and_failing_ones(slices, space):
    """The kubelet gives the init container's slice to the main one too, before either runs: it is in that one's session."""
    space.apply(pod("main", container(allocations(50, 20) + "; exit 1", claims=(), slices=2), restartPolicy="OnFailure",
                    initContainers=[container(allocations(50, 20), "before", claims=(), slices=1)]))
    wait_for(lambda: space.pod("main")["status"].get("containerStatuses", [{}])[0].get("restartCount", 0) >= 1, "a restart")
    assert granted(space.log("main", "-c", "before")) == 4
    wait_for(lambda: granted(space.log("main", "-c", "main")) == 4, "the limit of the second life")


@pytest.mark.parametrize("name", ["gpusliced", "gpuslice-kubelet", "kubelet", "containerd"])
def test_slices_outlive_a_restart(slices, space, name):
    space.apply(sliced("before", 2, f"ALLOC_BYTES={50 * MIB} ITERATIONS=20 HOLD=signal /bin/target_app"))
    wait_for(lambda: granted(space.log("before")) == 4, "memory to be held")
    session = wait_for(lambda: next(iter(space.sessions()), None), "the pod's name")
    registrations = slices.log().count("the kubelet has")
    if name.startswith("gpuslice"):
        slices.stop(name)
        slices.start_again(name)
    else:
        slices.restart(name)
    slices.wait_ready()
    if name in ("gpuslice-kubelet", "kubelet"):
        wait_for(lambda: slices.log().count("the kubelet has") > registrations, "another registration")
    wait_for(lambda: allocatable(slices) == str(10 * GPUS), "the slices again")
    space.apply(sliced("after", 3, allocations(50, 20) + ";" + SLEEP))
    wait_for(lambda: granted(space.log("after")) == 6, lambda: f"another pod to be limited {space.events()} {slices.log()}", deadline_s=150)
    (same,) = [one for one in space.sessions() if one["pod"] == "before"]
    assert same["session_id"] == session["session_id"] and same["used_bytes"] == 200 * MIB
    assert space.phases()["before"] == "Running"


def test_a_node_whose_daemon_is_away_offers_nothing(slices):
    slices.stop("gpusliced")
    wait_for(lambda: allocatable(slices) == "0", "no slice to be healthy")
    slices.start_daemon()
    wait_for(lambda: allocatable(slices) == str(10 * GPUS), "the slices again")
