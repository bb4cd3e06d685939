"""What stays when a program of the node ends, Kubernetes' own or ours, or all of them."""
import pytest

from node import GPUS, MIB, OURS, SLEEP, allocations, container, granted, pod, template, wait_for


@pytest.mark.parametrize("name", [*OURS, "kubelet", "containerd", "kube-apiserver", "kube-scheduler", "etcd"])
def test_claims_and_pods_outlive_a_restart(dra, space, name):
    hold = f"ALLOC_BYTES={100 * MIB} ITERATIONS=6 HOLD=signal /bin/target_app"
    space.apply(template("share"), pod("before", container(hold), claims={"gpu": "share"}))
    wait_for(lambda: granted(space.log("before")) == 4, "memory to be held")
    (session,) = space.sessions()
    dra.end(name)
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
