"""Claims on a real node: what a pod asks for in a ResourceClaim is what its programs get."""
import pytest

from node import (DRIVER, GPU_MIB, GPUS, MIB, OUT_OF_MEMORY, SLEEP, allocations, answers, claim, configuration, container, granted, pod,
                  puppet, request, template, wait_for)


def sharing(name, of="share", script=SLEEP, container_more=(), **more):
    return pod(name, container(script, **dict(container_more)), claims={"gpu": of}, **more)


def limits(space):
    """MiB a GPU, by pod."""
    return {one["pod"]: sorted(gpu["limit_bytes"] // MIB for gpu in one["gpus"]) for one in space.sessions()}


def on_gpu(index):
    return {"selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].index == {index}'}}]}


# --- Quotas, shares and counting ---------------------------------------------------------------------------

def test_two_pods_share_a_gpu_and_the_next_waits_until_one_ends(dra, space):
    space.apply(template("share", request(**on_gpu(0))), *[sharing(name) for name in ("one", "two", "three")])
    wait_for(lambda: sorted(space.phases().values()) == ["Pending", "Running", "Running"], lambda: f"two of three {dra.log()}")
    running = [name for name, phase in space.phases().items() if phase == "Running"]
    (waiting,) = set(space.phases()) - set(running)
    assert limits(space) == {name: [400] for name in running}
    assert {(one["compute_min_ratio"], one["compute_max_ratio"]) for one in space.sessions()} == {(0.4, 0.4)}
    space.wait_event("cannot allocate all claims")
    space.delete("pod", running[0])
    space.wait_phase(waiting, "Running")
    assert limits(space) == {running[1]: [400], waiting: [400]}


def test_a_quota_holds_to_the_byte_beside_another_pod(dra, space):
    lines = ("context 0", f"alloc {400 * MIB}", "free 1", f"alloc {398 * MIB}", f"alloc {2 * MIB}", "alloc 1")
    space.apply(template("share", request(**on_gpu(0))), *[sharing(name, script=puppet(*lines)) for name in ("one", "two")])
    for name in ("one", "two"):
        said = wait_for(lambda: (lambda said: said if len(said) == 6 else None)(answers(space.log(name))),
                        lambda: f"six answers: {space.log(name)} {space.events()} {dra.log()}")
        assert [words[0] for words in said] == ["0"] * 5 + [str(OUT_OF_MEMORY)]


def test_shares_hold_beside_each_other(dra, space):
    work = "{ /bin/sleep 2; printf '6000\\n'; exec /bin/sleep 3600; } | /bin/worker 500"
    space.apply(template("less", request(memory="100Mi", cores="20", **on_gpu(0))),
                template("more", request(memory="100Mi", cores="60", **on_gpu(0))),
                sharing("less", "less", work), sharing("more", "more", work))
    parts = {}
    for name in ("less", "more"):
        worked, took = map(int, wait_for(lambda: [line.split() for line in space.log(name).splitlines() if line[:1].isdigit()],
                                         lambda: f"{name}: {space.log(name)}")[0])
        parts[name] = 100 * worked / took
    assert parts["less"] < 25 and parts["more"] < 65, "no more than was asked for"
    assert parts["more"] > 2 * parts["less"], parts


def test_what_is_not_asked_for_is_a_tenth(dra, space):
    space.apply(template("share", request(memory=None, cores=None)), sharing("main"))
    space.wait_phase("main", "Running")
    (session,) = space.sessions()
    assert limits(space) == {"main": [GPU_MIB // 10]} and session["compute_max_ratio"] == 0.1


@pytest.mark.parametrize("memory, cores, mebibytes, share", [
    ("100.5Mi", "5", 101, 0.05),      # rounded up to the step
    ("1k", "10", 1, 0.1),             # and to the least
    ("104857600", "1", 100, 0.01),
    ("200M", "99", 191, 0.99),
])
def test_amounts_are_rounded_up_to_steps(dra, space, memory, cores, mebibytes, share):
    space.apply(template("share", request(memory=memory, cores=cores)), sharing("main"))
    space.wait_phase("main", "Running")
    (session,) = space.sessions()
    assert limits(space) == {"main": [mebibytes]} and session["compute_max_ratio"] == share


@pytest.mark.parametrize("memory, cores", [("1001Mi", "10"), ("100Mi", "101"), ("100Ti", "10")])
def test_more_than_a_gpu_has_waits_and_says_so(dra, space, memory, cores):
    space.apply(template("share", request(memory=memory, cores=cores)), sharing("main"))
    space.wait_event("cannot allocate all claims")
    assert space.phases() == {"main": "Pending"} and space.sessions() == []


def test_zero_is_the_least(dra, space):
    space.apply(template("share", request(memory="0", cores="0")), sharing("main"))
    space.wait_phase("main", "Running")
    (session,) = space.sessions()
    assert limits(space) == {"main": [1]} and session["compute_max_ratio"] == 0.01


# --- Claims of several kinds -------------------------------------------------------------------------------

def test_requests_of_one_claim_add_up_on_a_gpu(dra, space):
    space.apply(template("share", request("first", "100Mi", "10", **on_gpu(1)), request("second", "200Mi", "20", **on_gpu(1))),
                sharing("main", script=allocations(50, 10)))
    assert granted(space.wait_end("main")) == 6
    space.apply(sharing("again"))
    space.wait_phase("again", "Running")
    (session,) = [one for one in space.sessions() if one["pod"] == "again"]
    assert [gpu["limit_bytes"] // MIB for gpu in session["gpus"]] == [300] and session["compute_max_ratio"] == 0.3


def test_a_claim_of_two_gpus(dra, space):
    space.apply(template("share", request("first", "100Mi", "20"), request("second", "300Mi", "20"), constraints=[
        {"requests": ["first", "second"], "distinctAttribute": f"{DRIVER}/uuid"}]),
        sharing("main", script=SLEEP))
    space.wait_phase("main", "Running")
    assert limits(space) == {"main": [100, 300]}


def test_count_and_all(dra, space):
    space.apply(template("two", request(memory="100Mi", cores="10", allocationMode="ExactCount", count=2)),
                template("all", request(memory="100Mi", cores="10", allocationMode="All")), sharing("two", "two"), sharing("all", "all"))
    space.wait_phase("two", "Running")
    space.wait_phase("all", "Running")
    found = limits(space)
    assert found["all"] == [100] * GPUS and sum(found["two"]) == 200


def test_the_first_alternative_that_fits(dra, space):
    alternatives = [{"name": name, "deviceClassName": "gpuslice", "capacity": {"requests": {"memory": memory, "cores": "10"}}}
                    for name, memory in (("large", "4Gi"), ("small", "200Mi"))]
    space.apply(template("share", {"name": "gpu", "firstAvailable": alternatives}), sharing("main"))
    space.wait_phase("main", "Running")
    assert limits(space) == {"main": [200]}


@pytest.mark.parametrize("expression, fits", [
    ('device.attributes["gpu.gpuslice.io"].simulated && !device.attributes["gpu.gpuslice.io"].mig', True),
    ('device.attributes["gpu.gpuslice.io"].model.startsWith("NVIDIA") || device.attributes["gpu.gpuslice.io"].model != ""', True),
    ('device.attributes["gpu.gpuslice.io"].uuid.startsWith("GPU-")', True),
    ('device.attributes["gpu.gpuslice.io"].driverVersion.isGreaterThan(semver("1.0.0"))', True),
    ('device.attributes["gpu.gpuslice.io"].computeCapability.isGreaterThan(semver("1.0.0"))', True),
    ('device.capacity["gpu.gpuslice.io"].memory.compareTo(quantity("900Mi")) >= 0', True),
    ('device.capacity["gpu.gpuslice.io"].memory.compareTo(quantity("80Gi")) >= 0', False),
    ('device.attributes["gpu.gpuslice.io"].index == 7', False),
])
def test_devices_are_chosen_by_what_they_are(dra, space, expression, fits):
    space.apply(template("share", request(selectors=[{"cel": {"expression": expression}}])), sharing("main"))
    if fits:
        space.wait_phase("main", "Running")
    else:
        space.wait_event("cannot allocate all claims")


def test_a_claims_configuration_and_that_of_a_class(dra, space):
    name = f"{space.name}-polite"
    dra.apply({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": {
        "selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}],
        "config": [configuration(minimumShare="5%", maximumShare="50%", priority="low")]}})
    space.apply(template("class", request(deviceClassName=name)),
                template("both", request(deviceClassName=name), config=[configuration("gpu", maximumShare="90%", priority="normal")]),
                sharing("of-the-class", "class"), sharing("both", "both"))
    for one in ("of-the-class", "both"):
        space.wait_phase(one, "Running")
    assert {(one["pod"], one["compute_min_ratio"], one["compute_max_ratio"], one["priority"]) for one in space.sessions()} == {
        ("of-the-class", 0.05, 0.5, "low"), ("both", 0.05, 0.9, "normal")}
    dra.kubectl("delete", "deviceclass", name)


def test_pods_that_need_more_together_than_the_gpu_has_take_turns(dra, space):
    """Of the 400 MiB beside a pod that stays, each is counted with 150, may have all, and uses some 270: every byte is looked at."""
    script = "{ while :; do echo check; /bin/sleep 1; done; } | /bin/movable 50 10485760"
    space.apply(template("stays", request(memory="600Mi", cores="20", **on_gpu(0)), config=[configuration(minimumShare="0%", maximumShare="100%")]),
                sharing("stays", "stays", puppet("context 0", f"alloc {600 * MIB}")))
    wait_for(lambda: len(answers(space.log("stays"))) == 2, lambda: f"its memory {space.log('stays')} {space.events()}")
    name = f"{space.name}-movable"
    dra.apply({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": {
        "selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}],
        "config": [configuration(oversubscribe="swap", memoryLimit="400Mi", hostMemory="1Gi", minimumShare="0%", maximumShare="100%",
                                 priority="low")]}})
    space.apply(template("share", request(deviceClassName=name, memory="150Mi", cores="40", **on_gpu(0))),
        *[sharing(name, script=script) for name in ("one", "two")])

    def movable():
        return [one for one in space.sessions() if one["pod"] != "stays"]

    wait_for(lambda: len(movable()) == 2, lambda: f"two sessions {space.events()} {dra.log()}")
    assert {(one["gpus"][0]["limit_bytes"] // MIB, one["oversubscribe"], one["host_memory_limit_bytes"] // MIB, one["compute_min_ratio"],
             one["compute_max_ratio"], one["priority"]) for one in movable()} == {(400, "swap", 1024, 0, 1, "low")}
    wait_for(lambda: any(one["evicted_bytes"] for one in movable()), lambda: f"one to be away {space.sessions()} {dra.log()}")
    for name in ("one", "two"):
        wait_for(lambda: space.log(name).count("good") >= 2, lambda: f"{name} to have turns: {space.log(name)} {dra.log()}")
        assert "bad" not in space.log(name)
    dra.kubectl("delete", "deviceclass", f"{space.name}-movable")


@pytest.mark.parametrize("parameters, said", [
    ({"memoryLimit": "900Mi"}, "oversubscribe: swap"), ({"memoryLimit": "100Mi", "oversubscribe": "swap"}, "less than"),
    ({"hostMemory": "1Gi"}, "host memory"), ({"oversubscribe": "always"}, "oversubscribe"),
    ({"minimumShare": "lots"}, "minimumShare"), ({"minimumshare": "10%"}, "minimumshare"), ({"priority": "sky-high"}, "priority"),
    ({"minimumShare": "10%", "maximumShare": "5%"}, "is above its maximum"), ({"minimumShare": "90%"}, "minimumShare is 90%"),
    ({"priority": "critical"}, "priority is critical"), ({"memoryLimit": "900Mi", "oversubscribe": "swap"}, "is more than"), ({"kind": "Other"}, "kind"),
])
def test_configuration_that_is_wrong_is_said_in_the_pods_events(dra, space, parameters, said):
    space.apply(template("share", request(), config=[configuration(**parameters)]), sharing("main"))
    space.wait_event(said)
    assert space.phases() == {"main": "Pending"} and space.sessions() == []


def test_admin_access_sees_the_gpus_and_takes_nothing(dra, space):
    """As monitoring programs ask for it: beside pods that have all of it, with the driver and without a session."""
    dra.kubectl("label", "namespace", space.name, "resource.kubernetes.io/admin-access=true")
    space.apply(template("share", request(memory=f"{GPU_MIB}Mi", cores="100", **on_gpu(0))),
                template("look", request("gpu", None, None, adminAccess=True, allocationMode="All")), sharing("main"))
    space.wait_phase("main", "Running")
    space.apply(sharing("monitor", "look", "ls /usr/lib/*/libcuda.so.1 /usr/lib/*/libnvidia-ml.so.1; ls /run/gpuslice; exec /bin/sleep 3600"))
    log = space.wait_log("monitor", "libnvidia-ml.so.1")
    assert "libcuda.so.1" in log and "attach.sock" not in log
    assert [one["pod"] for one in space.sessions()] == ["main"]


@pytest.fixture
def taint(dra, space):
    """taint(DEVICE, EFFECT) by an administrator's rule; it is gone after the test."""
    if "devicetaintrules" not in dra.kubectl("api-resources", "--api-group=resource.k8s.io", "-o", "name"):
        pytest.skip("needs the feature gates DRADeviceTaints and DRADeviceTaintRules, and the API resource.k8s.io/v1alpha3")

    def make(device, effect):
        dra.apply({"apiVersion": "resource.k8s.io/v1alpha3", "kind": "DeviceTaintRule", "metadata": {"name": space.name}, "spec": {
            "deviceSelector": {"driver": DRIVER, "pool": dra.name, "device": device},
            "taint": {"key": "example.com/broken", "effect": effect}}})

    yield make
    dra.kubectl("delete", "devicetaintrule", space.name, "--ignore-not-found")


def names_by_index(node):
    return {one["attributes"]["index"]["int"]: one["name"] for one in node.wait_published()}


def test_a_tainted_gpu_takes_no_more_pods_and_keeps_those_it_has(dra, space, taint):
    space.apply(template("share", request(**on_gpu(0))), sharing("before"))
    space.wait_phase("before", "Running")
    taint(names_by_index(dra)[0], "NoSchedule")
    space.apply(sharing("after"))
    space.wait_event("cannot allocate all claims")
    assert limits(space) == {"before": [400]} and space.phases() == {"before": "Running", "after": "Pending"}
    dra.kubectl("delete", "devicetaintrule", space.name)
    space.wait_phase("after", "Running")


def test_pods_of_a_gpu_that_is_tainted_for_good_are_evicted_and_leave_nothing(dra, space, taint):
    one = sharing("-")["spec"]
    space.apply(template("share"), {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "main"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "main"}}, "template": {
            "metadata": {"labels": {"app": "main"}}, "spec": {**one, "restartPolicy": "Always"}}}})
    (session,) = wait_for(space.sessions, lambda: f"a session {space.events()}")
    gpu = session["gpus"][0]["index"]
    taint(names_by_index(dra)[gpu], "NoExecute")
    wait_for(lambda: [each["gpus"][0]["index"] for each in space.sessions()] == [1 - gpu],
             lambda: f"another pod on the other GPU {space.sessions()} {space.events()} {dra.log()}")


# --- Who shares a claim ------------------------------------------------------------------------------------

def test_containers_of_a_pod_share_its_claim(dra, space):
    hold = puppet("context 0", f"alloc {250 * MIB}")
    space.apply(template("share"), pod("main", container(hold, "first"), container(hold, "second"), claims={"gpu": "share"}))
    space.wait_phase("main", "Running")
    results = [wait_for(lambda: (lambda said: said if len(said) == 2 else None)(answers(space.log("main", "-c", name))),
                        "two answers")[1][0] for name in ("first", "second")]
    assert sorted(results) == ["0", str(OUT_OF_MEMORY)]
    assert len(space.sessions()) == 1


def test_init_containers_have_their_pods_claim(dra, space):
    space.apply(template("share"), pod("main", container(SLEEP), claims={"gpu": "share"},
                                       initContainers=[container(allocations(100, 6), "before")]))
    space.wait_phase("main", "Running")
    assert granted(space.log("main", "-c", "before")) == 4
    assert len(space.sessions()) == 1


def test_a_container_that_does_not_name_the_claim_has_no_gpu(dra, space):
    space.apply(template("share"), pod("main", container(SLEEP), container("ls /usr/local/gpuslice; /bin/target_app", "other", claims=()),
                                       claims={"gpu": "share"}))
    space.wait_phase("main", "Running")
    wait_for(lambda: "libcuda.so.1" in space.log("main", "-c", "other"), "the other's failure")
    assert granted(space.log("main", "-c", "other")) == 0


def test_pods_can_share_a_claim_that_outlives_them(dra, space):
    space.apply(claim("one-for-all"), sharing("first", "=one-for-all"), sharing("second", "=one-for-all"))
    for name in ("first", "second"):
        space.wait_phase(name, "Running")
    (session,) = space.sessions()
    space.delete("pod", "first")
    assert [one["session_id"] for one in space.sessions()] == [session["session_id"]]
    space.delete("pod", "second")
    wait_for(lambda: space.sessions() == [], "its end")
    space.apply(sharing("third", "=one-for-all"))
    space.wait_phase("third", "Running")
    assert limits(space) == {"third": [400]}


def test_of_two_claims_in_one_container_the_last_counts(dra, space):
    """A program is in one session: two claims of one container do not add up."""
    space.apply(template("first", request(memory="100Mi", cores="10")), template("second", request(memory="200Mi", cores="10")),
                pod("main", container(allocations(50, 10), claims=("a", "b")), claims={"a": "first", "b": "second"}))
    assert granted(space.wait_end("main")) == 4


# --- Kinds of pods -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("context", [
    {"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True},
    {"readOnlyRootFilesystem": True},
    {"seccompProfile": {"type": "RuntimeDefault"}, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    {"runAsUser": 65534, "readOnlyRootFilesystem": True, "seccompProfile": {"type": "RuntimeDefault"},
     "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    {"privileged": True},
], ids=["user", "read-only", "restricted", "nobody", "privileged"])
def test_limits_hold_for_containers_with_few_rights_and_many(dra, space, context):
    space.apply(template("share"), sharing("main", script=allocations(100, 6), container_more={"securityContext": context}))
    assert granted(space.wait_end("main")) == 4


def test_a_pod_with_the_hosts_namespaces(dra, space):
    space.apply(template("share"), sharing("main", script=allocations(100, 6), hostPID=True, hostIPC=True, hostNetwork=True))
    assert granted(space.wait_end("main")) == 4


def test_a_container_that_fails_starts_again_in_its_session(dra, space):
    script = allocations(100, 6) + "; exit 1"
    space.apply(template("share"), sharing("main", script=script, restartPolicy="OnFailure"))
    wait_for(lambda: space.pod("main")["status"].get("containerStatuses", [{}])[0].get("restartCount", 0) >= 1, "a restart")
    wait_for(lambda: granted(space.log("main")) == 4, "the limit of the second life")
    assert len(space.sessions()) == 1


def test_a_job_leaves_nothing(dra, space):
    one = pod("-", container(allocations(100, 6)), claims={"gpu": "share"})["spec"]
    space.apply(template("share"), {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": {
        "completions": 3, "parallelism": 3, "template": {"spec": one}}})
    wait_for(lambda: space.get("job", "job")["status"].get("succeeded") == 3, lambda: f"three to be done {space.events()}", deadline_s=120)
    wait_for(lambda: space.sessions() == [], "no session to be left")
    for each in space.get("pods"):
        assert granted(space.log(each["metadata"]["name"])) == 4


def test_a_drained_node_has_no_sessions_and_takes_pods_again(dra, space):
    space.apply(template("share"), sharing("main"))
    space.wait_phase("main", "Running")
    dra.kubectl("drain", dra.name, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=60s", f"--pod-selector=!none")
    wait_for(lambda: space.sessions() == [], "no session to be left")
    space.apply(sharing("next"))
    assert space.phases() == {"next": "Pending"}
    dra.kubectl("uncordon", dra.name)
    space.wait_phase("next", "Running")


def test_a_deleted_pod_has_its_session_until_its_grace_period_is_over(dra, space):
    last = f"trap '{allocations(100, 6)}; /bin/sleep 5; exit 0' TERM; while :; do /bin/sleep 0.2; done"
    space.apply(template("share"), sharing("main", script=last, terminationGracePeriodSeconds=60))
    space.wait_phase("main", "Running")
    space.kubectl("delete", "pod", "main", "--wait=false")
    wait_for(lambda: granted(space.log("main")) == 4, lambda: f"its last work {space.log('main')} {space.events()}")
    wait_for(lambda: space.phases() == {} and space.sessions() == [], "its end")


def test_a_cron_job_leaves_nothing_between_its_runs(dra, space):
    one = pod("-", container(allocations(100, 6)), claims={"gpu": "share"})["spec"]
    space.apply(template("share"), {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "cron"}, "spec": {
        "schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": one}}}}})
    for run in ("first", "second"):
        space.kubectl("create", "job", run, "--from=cronjob/cron")
        wait_for(lambda: space.get("job", run)["status"].get("succeeded") == 1, lambda: f"{run} to be done {space.events()}")
        wait_for(lambda: space.sessions() == [], "no session to be left")


def test_a_pod_deleted_by_force_leaves_nothing(dra, space):
    space.apply(template("share"), sharing("main"))
    space.wait_phase("main", "Running")
    space.kubectl("delete", "pod", "main", "--force", "--grace-period=0")
    wait_for(lambda: space.sessions() == [], "no session to be left")


def test_a_pod_deleted_while_it_starts_leaves_nothing(dra, space):
    space.apply(template("share", request(memory="100Mi", cores="5")), *[sharing(f"pod-{i}") for i in range(6)])
    space.kubectl("delete", "pods", "--all", "--wait=false")
    wait_for(lambda: space.phases() == {} and space.sessions() == [], lambda: f"nothing to be left {space.sessions()}")


def test_a_program_without_a_shell_or_loader_tricks_is_limited(dra, space):
    """As in a distroless image: the command is the program, the environment is empty but for what the claim brings."""
    one = container("", env=[{"name": "ALLOC_BYTES", "value": str(100 * MIB)}, {"name": "ITERATIONS", "value": "6"}])
    one["command"] = ["/bin/target_app"]
    space.apply(template("share"), pod("main", one, claims={"gpu": "share"}))
    assert granted(space.wait_end("main")) == 4


def test_a_cleared_environment_does_not_lift_the_limit(dra, space):
    script = f"exec env -i ALLOC_BYTES={100 * MIB} ITERATIONS=6 /bin/target_app"
    space.apply(template("share"), sharing("main", script=script))
    assert granted(space.wait_end("main")) <= 4
