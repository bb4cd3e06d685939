"""The device plug-in: slices of GPUs, given to containers by a kubelet that is not ours."""
import json
import os
import socket
import struct
import subprocess

import pytest

from conftest import MIB, wait_for
from kube import ApiServer, Plugin, kubelet, machine, sessions, short_folder  # noqa: F401, fixtures among them
from test_quota import OUT_OF_MEMORY, Puppet

RESOURCE = "gpuslice.io/gpu"


@pytest.fixture
def make_plugin(product, kubelet, tmp_path):
    if not (product.prefix / "bin" / "gpuslice-kubelet").exists():
        pytest.skip("gpuslice-kubelet was left out of this build")
    made = []

    def make(daemon, *options):
        plugin = Plugin(daemon, kubelet.folder, tmp_path / "cdi", "--mode", "device-plugin", *options)
        made.append(plugin)
        return plugin
    yield make
    for plugin in made:
        if plugin.process.poll() is None:
            plugin.stop()


@pytest.fixture
def plugin(make_plugin, machine):
    return make_plugin(machine).start()


def ids_of(said):
    return [device["ID"] for device in said["devices"]]


def gpu_of(slice_id):
    """UUID-HASH-slice-N"""
    return slice_id.rsplit("-", 3)[0]


def registered(kubelet):
    """What the kubelet was told: the registration and the slices."""
    devices = kubelet.event("devices")
    return kubelet.event("registered"), devices


def pod(name, *ids, namespace="team", container="main"):
    return {"name": name, "namespace": namespace,
            "containers": [{"name": container, "devices": [{"resource_name": RESOURCE, "device_ids": list(ids)}]}]}


# --- Registration ------------------------------------------------------------------------------------------

def test_every_gpu_is_offered_as_ten_slices(machine, kubelet, plugin):
    said, devices = registered(kubelet)
    assert said["request"]["resource_name"] == RESOURCE and said["request"]["version"] == "v1beta1"
    assert said["options"]["get_preferred_allocation_available"] is True
    uuids = [gpu["uuid"] for gpu in machine.request("GET", "/v1/gpus")[1]]
    assert sorted(gpu_of(one) + one[-8:] for one in ids_of(devices)) == sorted(f"{uuid}-slice-{number}" for uuid in uuids for number in range(10))
    assert {device["health"] for device in devices["devices"]} == {"Healthy"}


def test_name_and_number_of_slices_can_be_others(machine, kubelet, make_plugin):
    make_plugin(machine, "--resource", "nvshare.com/gpu", "--slices", 3).start()
    said, devices = registered(kubelet)
    assert said["request"]["resource_name"] == "nvshare.com/gpu" and len(devices["devices"]) == 6


def test_a_kubelet_that_starts_anew_is_registered_with_again(kubelet, plugin):
    registered(kubelet)
    for _ in range(2):
        kubelet.must("restart")
        registered(kubelet)
    plugin.kill()
    kubelet.event("watch ended")
    plugin.start()
    registered(kubelet)


@pytest.fixture
def rare_timers(machine):
    """To be preloaded: the plug-in does nothing of its own accord then, but what an event has it do."""
    library = machine.product.build / "tests/system/preloads/rare_timers.so"
    if not library.exists():
        pytest.skip("this build has no preloads")
    return str(library)


def test_a_kubelet_that_starts_need_not_wait_for_the_plug_ins_next_look(machine, kubelet, make_plugin, rare_timers):
    """It judges the node's pods a second later. A socket of a kubelet that is not there yet is in nobody's way."""
    plugin = make_plugin(machine).start(preload=rare_timers)
    registered(kubelet)
    for _ in range(5):
        kubelet.must("restart")
        registered(kubelet)
    assert "refuses" not in plugin.log_text()


def test_a_kubelet_that_starts_before_it_has_answered_is_asked_anew(machine, kubelet, make_plugin, rare_timers):
    kubelet.must("silent")
    make_plugin(machine).start(preload=rare_timers)
    kubelet.event("devices")
    kubelet.must("restart", keeps_connections=True)
    registered(kubelet)


def test_a_refusal_is_said_once_and_asked_again(kubelet, machine, make_plugin):
    kubelet.must("refuse", why="not today")
    plugin = make_plugin(machine).start()
    wait_for(lambda: "not today" in plugin.log_text(), "the refusal in the log")
    kubelet.must("refuse", why=None)
    registered(kubelet)
    assert plugin.log_text().count("not today") == 1


def test_it_does_not_start_beside_a_plug_in_that_offers_the_same_gpus(machine, kubelet, make_plugin):
    uuid = machine.request("GET", "/v1/gpus")[1][1]["uuid"]
    kubelet.must("rival", name="nvidia-gpu.sock", devices=["GPU-of-no-one", f"{uuid}::4"])
    plugin = make_plugin(machine).start()
    assert plugin.process.wait(20) == 1
    assert "nvidia-gpu.sock" in plugin.log_text() and uuid in plugin.log_text()


def test_it_does_not_start_with_more_slices_than_a_list_holds(make_daemon, make_gpu, kubelet, make_plugin):
    daemon = make_daemon(make_gpu(FAKECUDA_GPUS=9)).start()
    plugin = make_plugin(daemon, "--slices", 1000).start()
    assert plugin.process.wait(20) == 1
    assert "9 GPUs of 1000 slices each have 9000" in plugin.log_text()


def test_as_many_slices_as_may_be_fit_into_a_list(make_daemon, make_gpu, kubelet, make_plugin):
    make_plugin(make_daemon(make_gpu(FAKECUDA_GPUS=8)).start(), "--slices", 1000).start()
    _, devices = registered(kubelet)
    assert len(devices["devices"]) == 8000


def test_plug_ins_of_other_devices_do_not_matter(machine, kubelet, plugin, make_plugin):
    registered(kubelet)
    plugin.kill()
    kubelet.event("watch ended")
    kubelet.must("rival", name="rdma.sock", devices=["mlx5_0"])
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(kubelet.folder / "device-plugins" / "gone.sock"))
    plugin.start()
    registered(kubelet)


def test_gpus_are_unhealthy_when_the_daemon_has_gone_for_good(machine, kubelet, plugin):
    _, devices = registered(kubelet)
    machine.kill()
    with plugin.hurried():
        later = kubelet.event("devices", deadline_s=40)
    assert ids_of(later) == ids_of(devices)
    assert {device["health"] for device in later["devices"]} == {"Unhealthy"}
    machine.start()
    assert {device["health"] for device in kubelet.event("devices")["devices"]} == {"Healthy"}


# --- Allocating --------------------------------------------------------------------------------------------

def allocate(kubelet, *ids):
    (container,) = kubelet.must("allocate", containers=[list(ids)])["container_responses"]
    return container


def test_a_containers_slices_are_one_session_with_their_memory_and_time(machine, kubelet, plugin, product, reap):
    _, devices = registered(kubelet)
    ids = sorted(ids_of(devices))[:3]
    given = allocate(kubelet, *ids)
    (session,) = sessions(machine)
    assert session["gpus"][0]["uuid"] == gpu_of(ids[0]) and ids[0].endswith("-slice-0") and session["vram_limit_bytes"] == 300 * MIB
    assert (session["compute_min_ratio"], session["compute_max_ratio"]) == (0.3, 1)
    assert given["envs"]["GPUSLICE_SESSION"] == session["session_id"]
    mounts = {mount["container_path"]: mount for mount in given["mounts"]}
    assert mounts["/run/gpuslice"]["host_path"] == os.path.dirname(session["own_socket"])
    assert mounts["/run/gpuslice"]["read_only"] and mounts["/etc/ld.so.preload"]["read_only"]
    assert given["cdi_devices"] == [{"name": f"gpuslice.io/slice={ids[0]}"}]
    (file,) = plugin.cdi.iterdir()
    specification = json.loads(file.read_text())
    assert specification["kind"] == "gpuslice.io/slice"
    assert [device["name"] for device in specification["devices"]] == ids
    # A program with what the kubelet hands over, as far as it needs no container.
    environment = {**given["envs"], "GPUSLICE_IPC_SOCK": session["own_socket"], "FAKECUDA_FOLDER": "/dev/shm",
                   "LD_PRELOAD": str(product.interceptor), "LD_LIBRARY_PATH": str(product.simulated)}
    puppet = Puppet(product, environment)
    reap(puppet.process)
    puppet.get("context", 0)
    puppet.get("alloc", 250 * MIB)
    assert puppet.code("alloc", 60 * MIB) == OUT_OF_MEMORY


def test_size_and_share_of_a_slice_can_be_set(machine, kubelet, make_plugin):
    make_plugin(machine, "--slice-memory", "64MiB", "--slice-compute", "5%..20%", "--slice-oversubscribe=managed").start()
    _, devices = registered(kubelet)
    allocate(kubelet, *sorted(ids_of(devices))[:2])
    (session,) = sessions(machine)
    assert session["vram_limit_bytes"] == 128 * MIB and session["oversubscribe"] == "managed"
    assert (session["compute_min_ratio"], session["compute_max_ratio"]) == (0.05, 0.2)


# --- What is offered fits ----------------------------------------------------------------------------------

def one_gpus(devices):
    """The slices of the first GPU."""
    first = gpu_of(min(ids_of(devices)))
    return sorted(one for one in ids_of(devices) if one.startswith(first))


@pytest.mark.parametrize("options, offered", [
    (("--slice-memory", "300MiB"), 3), (("--slice-compute", "30%"), 3), (("--slice-compute", "5%..20%", "--slices", 30), 20),
    (("--slice-memory", "300MiB", "--slice-compute", "0%..100%", "--slice-oversubscribe"), 10),
], ids=["memory", "time", "more of them", "memory that can leave"])
def test_all_that_is_offered_can_be_given(machine, kubelet, make_plugin, options, offered):
    plugin = make_plugin(machine, *options).start()
    _, devices = registered(kubelet)
    slices = one_gpus(devices)
    assert len(slices) == offered, plugin.log_text()
    for one in slices:
        allocate(kubelet, one)
    assert len(sessions(machine)) == offered


def test_what_cannot_be_offered_is_said_with_its_reason(machine, kubelet, make_plugin, tmp_path):
    api = ApiServer(tmp_path)
    plugin = make_plugin(machine, *api.options, "--node", "here", "--slice-memory", "300MiB").start()
    _, devices = registered(kubelet)
    uuids = {gpu_of(one) for one in ids_of(devices)}
    wait_for(lambda: len(api.events) == len(uuids), "an event for each GPU")
    for event in api.events:
        assert (event["type"], event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Warning", "Node", "here")
        assert "offers 3 of its 10 slices; one more does not fit: 300MiB" in event["message"]
        assert event["message"] in plugin.log_text()
    api.stop()


def test_other_sessions_take_slices_away_and_give_them_back(machine, kubelet, plugin):
    _, devices = registered(kubelet)
    uuid = gpu_of(one_gpus(devices)[0])
    taken = one_gpus(devices)[0]
    allocate(kubelet, taken)
    _, session = machine.request("POST", "/v1/sessions", {"memory_bytes": 150 * MIB, "gpus": [{"gpu": uuid}]})
    with plugin.hurried():
        fewer = kubelet.event("devices", deadline_s=40)
    assert len(one_gpus(fewer)) == 8 and taken in one_gpus(fewer)
    machine.cli("release", session["session_id"])
    with plugin.hurried():
        assert len(one_gpus(kubelet.event("devices", deadline_s=40))) == 10
    wait_for(lambda: f"it is over that GPU {uuid} offers 8 of its 10 slices" in plugin.log_text(), "the news")


def test_more_slices_beside_containers_with_larger_ones_fit(machine, kubelet, make_plugin):
    """Slices became half as large while five containers have the former ones."""
    plugin = make_plugin(machine, "--slice-compute", "0%..100%").start()
    _, devices = registered(kubelet)
    larger = one_gpus(devices)[:5]
    for one in larger:
        allocate(kubelet, one)
    plugin.kill()
    kubelet.event("watch ended")
    plugin.start("--slices", 20)
    _, devices = registered(kubelet)
    slices = one_gpus(devices)
    assert set(larger) < set(slices) and len(slices) == 15, "500 MiB are left for slices of 50 MiB"
    for one in set(slices) - set(larger):
        allocate(kubelet, one)


def test_a_refusal_has_no_percent_sign(machine, kubelet, plugin):
    """The kubelet takes the text for a format."""
    _, devices = registered(kubelet)
    uuid = gpu_of(one_gpus(devices)[0])
    machine.request("POST", "/v1/sessions", {"compute": "95%..100%", "gpus": [{"gpu": uuid}]})
    said = kubelet.do("allocate", containers=[one_gpus(devices)[:1]])
    assert "10 percent of GPU" in said["error"] and "%" not in said["error"], said


def test_slices_that_are_given_again_end_the_session_that_had_them(machine, kubelet, plugin):
    _, devices = registered(kubelet)
    ids = sorted(ids_of(devices))
    allocate(kubelet, *ids[:3])
    allocate(kubelet, *ids[3:6])
    first, second = [session["session_id"] for session in sessions(machine)]
    allocate(kubelet, *ids[2:3])  # the kubelet says that its old container has gone
    left = [session["session_id"] for session in sessions(machine)]
    assert first not in left and second in left and len(left) == 2
    assert len(list(plugin.cdi.iterdir())) == 2
    again = allocate(kubelet, *ids[2:3])  # as after a crash, before the answer was seen
    assert again["envs"]["GPUSLICE_SESSION"] not in left and len(sessions(machine)) == 2


def names_by_session(plugin):
    """Which CDI names lead to which sessions; each name is in one specification."""
    found = {}
    for path in plugin.cdi.iterdir():
        for device in json.loads(path.read_text())["devices"]:
            assert device["name"] not in found
            found[device["name"]] = next(entry.partition("=")[2] for entry in device["containerEdits"]["env"]
                                         if entry.startswith("GPUSLICE_SESSION="))
    return found


def test_an_init_container_with_more_slices_has_a_name_that_leads_somewhere(machine, kubelet, plugin):
    """The kubelet gives any of its slices to the pod's other containers, before it runs, and keeps the name that it was told."""
    _, devices = registered(kubelet)
    first, second, third, *_ = sorted(ids_of(devices))
    allocate(kubelet, first, second, third)
    allocate(kubelet, second, third)
    one = allocate(kubelet, third)["envs"]["GPUSLICE_SESSION"]
    assert names_by_session(plugin) == dict.fromkeys((first, second, third), one)
    two = allocate(kubelet, first)["envs"]["GPUSLICE_SESSION"]
    assert names_by_session(plugin) == {first: two, second: one, third: one}
    assert {session["session_id"] for session in sessions(machine)} == {one, two}
    three = allocate(kubelet, third)["envs"]["GPUSLICE_SESSION"]  # of another pod, the first having gone
    assert names_by_session(plugin) == {first: two, second: three, third: three}


def test_what_is_not_a_slice_of_this_node_is_refused(machine, kubelet, plugin):
    _, devices = registered(kubelet)
    good = ids_of(devices)[0]
    for ids in (["GPU-none-slice-1"], [good, "nonsense"], [good.replace("-slice-", "-slice-99")], []):
        said = kubelet.do("allocate", containers=[ids])
        assert said["code"] == 3, said
    assert sessions(machine) == []
    assert kubelet.do("unknown")["code"] == 12


def test_slices_of_as_few_gpus_as_possible_are_preferred(kubelet, plugin):
    _, devices = registered(kubelet)
    ids = sorted(ids_of(devices))
    first, second = ids[:10], ids[10:]

    def prefer(available, count, must=()):
        answer = kubelet.must("prefer", available=available, count=count, must=list(must))
        (chosen,) = answer["container_responses"]
        assert len(set(chosen["deviceIDs"])) == len(chosen["deviceIDs"])
        return set(chosen["deviceIDs"])

    assert prefer(first[:4] + second, 4) == set(first[:4]), "they fill a GPU up"
    assert prefer(first[:3] + second, 4) < set(second)
    assert prefer(first + second[:2], 2) == set(second[:2])
    assert prefer(first + second, 3, second[:1]) < set(second)
    assert len(prefer(first + second, 15)) == 15
    assert prefer(["nonsense"], 1) == set()


# --- Pods --------------------------------------------------------------------------------------------------

def test_a_session_is_called_after_its_pod_and_ends_with_it(machine, kubelet, plugin):
    _, devices = registered(kubelet)
    ids = sorted(ids_of(devices))
    allocate(kubelet, *ids[:2])
    kubelet.must("pods", pods=[pod("train-0", ids[1], ids[0])])
    session = wait_for(lambda: next((one for one in sessions(machine) if one["pod"]), None), "the pod's name")
    assert (session["namespace"], session["pod"], session["container"]) == ("team", "train-0", "main")
    allocate(kubelet, *ids[2:4])
    kubelet.must("pods", pods=[pod("other", ids[2], ids[3])])
    wait_for(lambda: {one["pod"] for one in sessions(machine)} == {"train-0", "other"}, "the other pod's name")
    # Younger sessions are left alone: their containers may not be listed yet.
    with plugin.hurried():
        wait_for(lambda: {one["pod"] for one in sessions(machine)} == {"other"}, "the first one's end", deadline_s=60)
    wait_for(lambda: len(list(plugin.cdi.iterdir())) == 1, "its specification to be removed")


TRAIN_0 = "/api/v1/namespaces/team/pods/train-0"


def set_phase(api, phase):
    api.put(TRAIN_0, {"metadata": {}, "spec": {"nodeName": "here"}, "status": {"phase": phase}})


def run_train_0(machine, kubelet, make_plugin, tmp_path):
    """The API server, which has a pod with one slice, and the plug-in, whose session has its name."""
    api = ApiServer(tmp_path)
    set_phase(api, "Running")
    plugin = make_plugin(machine, "--node", "here", *api.options).start()
    _, devices = registered(kubelet)
    give_train_0(machine, kubelet, ids_of(devices)[:1])
    return api, plugin


def give_train_0(machine, kubelet, ids):
    allocate(kubelet, *ids)
    kubelet.must("pods", pods=[pod("train-0", *ids)])
    wait_for(lambda: [one["pod"] for one in sessions(machine)] == ["train-0"], "the pod's name")


def test_a_kubelet_that_lists_no_pods_costs_none_its_session(machine, kubelet, make_plugin, tmp_path):
    """As one that has just started, and waits for the API server to tell it its pods."""
    api, plugin = run_train_0(machine, kubelet, make_plugin, tmp_path)
    kubelet.must("pods", pods=[])
    asked = api.requests.count(("GET", TRAIN_0))
    with plugin.hurried():
        wait_for(lambda: api.requests.count(("GET", TRAIN_0)) > asked + 2, "the API server to be asked for the pod", deadline_s=60)
    assert [one["pod"] for one in sessions(machine)] == ["train-0"]
    set_phase(api, "Succeeded")
    with plugin.hurried():
        wait_for(lambda: sessions(machine) == [], "the session's end", deadline_s=60)
    api.stop()


def test_the_specification_of_a_session_that_somebody_else_ended_goes(machine, kubelet, plugin):
    """As when the daemon or the plug-in is killed between the session's end and its specification's."""
    _, devices = registered(kubelet)
    ids = sorted(ids_of(devices))
    allocate(kubelet, *ids[:2])
    allocate(kubelet, *ids[2:4])
    gone, stays = sessions(machine)
    kubelet.must("pods", pods=[pod("stays", *ids[2:4])])
    machine.cli("release", gone["session_id"])
    wait_for(lambda: [path.name for path in plugin.cdi.iterdir()] == [f"gpuslice-{stays['name']}.json"],
             lambda: f"the other's alone to be left: {[path.name for path in plugin.cdi.iterdir()]}", deadline_s=60)


@pytest.mark.parametrize("answers", [[], [500], ["hang up", 401, b"no JSON"]], ids=["at once", "refused", "not answered"])
def test_annotations_narrow_a_slice(machine, kubelet, make_plugin, tmp_path, answers):
    """Also if the API server does not say what they are when it is asked first."""
    api = ApiServer(tmp_path)
    path = "/api/v1/namespaces/team/pods/train-0"
    api.put(path, {"metadata": {"annotations": {
        "gpuslice.io/memory": "32MiB", "tensor-fusion.ai/vram-limit": "48MiB", "gpuslice.io/priority": "low",
        "tensor-fusion.ai/compute-percent-limit": "15"}}})
    api.answers = list(answers)
    plugin = make_plugin(machine, *api.options).start()
    _, devices = registered(kubelet)
    ids = sorted(ids_of(devices))
    allocate(kubelet, ids[0])
    kubelet.must("pods", pods=[pod("train-0", ids[0])])
    session = wait_for(lambda: next((one for one in sessions(machine) if one["priority"] == "low"), None), "the change")
    assert session["vram_limit_bytes"] == 32 * MIB and session["compute_max_ratio"] == 0.15
    assert (session["namespace"], session["pod"], session["container"]) == ("team", "train-0", "main")
    assert api.events == [] and api.requests == [("GET", path)] * (len(answers) + 1)
    assert plugin.log_text().count("cannot read pods' annotations") == (1 if answers else 0)
    api.stop()


@pytest.mark.parametrize("annotations", [
    {"gpuslice.io/compute": "100%", "gpuslice.io/memory": "9999999GiB"},
    {"gpuslice.io/compute": "40%..90%", "gpuslice.io/priority": "critical", "gpuslice.io/host-memory": "1TiB"},
    {"gpuslice.io/memory": "0", "tensor-fusion.ai/compute-percent-limit": "000000000000000000099%"},
    {"gpuslice.io/memory": "-1", "gpuslice.io/priority": "x" * 39 + "\u00e9", "gpuslice.io/compute": "nan..inf"},
    {"gpuslice.io/priority": "low\n\x1b[2Jgpuslice-kubelet: fine", "gpuslice.io/host-memory": "16777215TiB"},
    {"gpuslice.io/idle-suspend": "99999999999d", "gpuslice.io/memory": "1" * 5000, "gpuslice.io/when-full": "{}" * 5000},
], ids=range(6))
def test_no_annotation_widens_what_the_administrator_gave(machine, kubelet, make_plugin, tmp_path, annotations):
    """Whoever may make pods writes them. Whatever they say, the neighbour's slice is as it was, and each answer is text."""
    api = ApiServer(tmp_path)
    api.put("/api/v1/namespaces/team/pods/train-0", {"metadata": {"uid": "of-the-pod", "annotations": annotations}})
    plugin = make_plugin(machine, *api.options, "--slice-memory", "64MiB", "--slice-compute", "5%..20%",
                         "--slice-oversubscribe").start()
    _, devices = registered(kubelet)
    ids = sorted(ids_of(devices))
    allocate(kubelet, ids[0])
    allocate(kubelet, ids[1])
    kubelet.must("pods", pods=[pod("train-0", ids[0]), pod("neighbour", ids[1])])
    wait_for(lambda: all(one["container"] for one in sessions(machine)), "the labels, which come with the change")
    by_pod = {one["pod"]: one for one in sessions(machine)}
    for session in by_pod.values():
        assert 0 < session["vram_limit_bytes"] <= 64 * MIB
        assert session["compute_min_ratio"] <= 0.05 and session["compute_max_ratio"] <= 0.2
        assert session["priority"] in ("low", "normal") and session["oversubscribe"] == "swap"
    same = ("vram_limit_bytes", "compute_min_ratio", "compute_max_ratio", "priority", "host_memory_limit_bytes")
    assert [by_pod["neighbour"][key] for key in same] == [64 * MIB, 0.05, 0.2, "normal", None]
    for event in api.events:
        assert len(event["message"]) <= 1024 and event["message"].isascii() and event["message"].isprintable()
    assert "\n\x1b" not in plugin.log_text() and "\ngpuslice-kubelet: fine" not in plugin.log_text()
    api.stop()


def test_a_pod_that_cannot_be_read_gives_its_session_its_name(machine, kubelet, make_plugin, tmp_path):
    """So that nobody ends the session as one without a pod, while the API server does not answer."""
    api = ApiServer(tmp_path)
    api.stop()
    make_plugin(machine, *api.options).start()
    _, devices = registered(kubelet)
    allocate(kubelet, ids_of(devices)[0])
    kubelet.must("pods", pods=[pod("train-0", ids_of(devices)[0])])
    session = wait_for(lambda: next((one for one in sessions(machine) if one["pod"]), None), "the pod's name")
    assert (session["namespace"], session["pod"], session["container"]) == ("team", "train-0", None)
    api.start()  # it has no such pod
    wait_for(lambda: sessions(machine)[0]["container"] == "main", "the last label")
    api.stop()


def test_what_the_daemon_refuses_is_told_to_the_pod_once(machine, kubelet, make_plugin, tmp_path):
    api = ApiServer(tmp_path)
    path = "/api/v1/namespaces/team/pods/train-0"
    api.put(path, {"metadata": {"annotations": {"gpuslice.io/idle-suspend": "5m", "gpuslice.io/memory": "32MiB",
                                                    "gpuslice.io/priority": "low"}}})
    make_plugin(machine, *api.options).start()
    _, devices = registered(kubelet)
    ids = sorted(ids_of(devices))
    allocate(kubelet, ids[0])
    kubelet.must("pods", pods=[pod("train-0", ids[0])])
    (event,) = wait_for(lambda: api.events, "an event")
    assert "gpuslice.io/idle-suspend: 5m: the daemon" in event["message"] and "idle suspension" in event["message"]
    (session,) = sessions(machine)
    assert session["container"] == "main"
    assert (session["vram_limit_bytes"], session["priority"]) == (32 * MIB, "low"), "the others apply"
    allocate(kubelet, ids[1])  # another comparison
    kubelet.must("pods", pods=[pod("train-0", ids[0]), pod("other", ids[1])])
    wait_for(lambda: all(one["pod"] for one in sessions(machine)), "the other's label")
    assert len(api.events) == 1 and api.requests.count(("GET", path)) == 1
    api.stop()


def test_what_annotations_ask_for_in_vain_is_told_to_the_pod(machine, kubelet, make_plugin, tmp_path):
    api = ApiServer(tmp_path)
    api.put("/api/v1/namespaces/team/pods/train-0", {"metadata": {"uid": "of-the-pod", "annotations": {
        "tensor-fusion.ai/gpu-ids": "GPU-1", "gpuslice.io/compute": "900%", "gpuslice.io/memory": "32MiB"}}})
    plugin = make_plugin(machine, *api.options).start()
    _, devices = registered(kubelet)
    ids = sorted(ids_of(devices))
    allocate(kubelet, ids[0])
    kubelet.must("pods", pods=[pod("train-0", ids[0])])
    (event,) = wait_for(lambda: api.events, "an event")
    assert (event["type"], event["involvedObject"]["uid"], event["involvedObject"]["name"]) == ("Warning", "of-the-pod", "train-0")
    assert "gpu-ids has no effect" in event["message"] and "gpuslice.io/compute: " in event["message"]
    wait_for(lambda: sessions(machine)[0]["vram_limit_bytes"] == 32 * MIB, "the rest to count")
    assert "gpu-ids has no effect" in plugin.log_text()
    api.stop()


# --- Another mode, another name ----------------------------------------------------------------------------

def test_containers_keep_their_sessions_when_the_resource_is_renamed(machine, kubelet, make_plugin, tmp_path):
    """Its slices have IDs of their own, so the kubelet gives away nothing that a container has."""
    plugin = make_plugin(machine).start()
    _, devices = registered(kubelet)
    before = set(ids_of(devices))
    taken = one_gpus(devices)[:2]
    give_train_0(machine, kubelet, taken)
    plugin.kill()
    kubelet.event("watch ended")
    plugin.start("--resource", "example.com/slice")
    _, devices = registered(kubelet)
    assert not before & set(ids_of(devices)) and len(one_gpus(devices)) == 8, "two are still given under the former name"
    for one in one_gpus(devices):
        allocate(kubelet, one)
    with plugin.hurried():
        wait_for(lambda: "session" in plugin.log_text() or plugin.seconds_later > 60, "a minute", deadline_s=60)
    assert "train-0" in [one["pod"] for one in sessions(machine)]


def test_sessions_of_slices_end_with_their_containers_in_the_other_mode(machine, kubelet, make_plugin, tmp_path):
    api, plugin = run_train_0(machine, kubelet, make_plugin, tmp_path)
    plugin.kill()
    plugin.start("--mode", "dra")
    wait_for(lambda: "still have slices" in plugin.log_text(), "the note")
    set_phase(api, "Succeeded")
    kubelet.must("pods", pods=[])
    with plugin.hurried():
        wait_for(lambda: sessions(machine) == [] and not list(plugin.cdi.iterdir()), "the session's end", deadline_s=60)
        wait_for(lambda: "it is over that containers" in plugin.log_text(), "the note to go", deadline_s=60)
    api.stop()


# --- Peers that break the rules ----------------------------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


SETTINGS = frame(4, 0, 0)
# :method POST, :path /v1beta1.DevicePlugin/Allocate, as literals that no table needs
PATH = b"/v1beta1.DevicePlugin/Allocate"
HEADERS = b"\x83\x86\x04" + bytes([len(PATH)]) + PATH


@pytest.mark.parametrize("bytes_sent", [
    b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), PREFACE, PREFACE + os.urandom(512),
    PREFACE + SETTINGS + frame(1, 4, 1, b"\xff" * 200),
    PREFACE + SETTINGS + frame(1, 4, 1, HEADERS) + frame(0, 1, 1, b"\0\0\0\0\5ab"),
    PREFACE + SETTINGS + frame(1, 4, 1, HEADERS) + frame(0, 1, 1, b"\1\0\0\0\2ab"),
    PREFACE + SETTINGS + frame(1, 4, 1, HEADERS) + frame(0, 1, 1, b"\0\xff\xff\xff\xff"),
    PREFACE + SETTINGS + frame(1, 4, 1, HEADERS) + frame(0, 1, 1, b"\0\0\0\0\3\x0a\xff\xff"),
    PREFACE + SETTINGS + frame(1, 5, 1, HEADERS),
    PREFACE + SETTINGS + frame(3, 0, 99, b"\0\0\0\0") * 50,
    PREFACE + SETTINGS + frame(6, 0, 0, b"12345678") * 2000,
    PREFACE + SETTINGS + b"".join(frame(1, 4, n, HEADERS) + frame(3, 0, n, b"\0\0\0\x08") for n in range(1, 2001, 2)),
], ids=range(14))
def test_a_peer_that_breaks_the_protocol_hurts_nobody_else(machine, kubelet, plugin, bytes_sent):
    _, devices = registered(kubelet)
    path = kubelet.folder / "device-plugins" / "gpuslice.io-gpu.sock"
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(20)
        peer.connect(str(path))
        try:
            peer.sendall(bytes_sent)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(65536):
                pass
        except OSError:
            pass  # it hung up on us
    allocate(kubelet, ids_of(devices)[0])
    assert len(sessions(machine)) == 1 and plugin.process.poll() is None


def test_connections_that_say_nothing_do_not_keep_the_kubelet_out_for_good(machine, kubelet, plugin):
    registered(kubelet)
    path = kubelet.folder / "device-plugins" / "gpuslice.io-gpu.sock"
    peers = []
    for _ in range(100):
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(str(path))
        peers.append(peer)
    files = os.listdir(f"/proc/{plugin.process.pid}/fd")
    assert len(files) < 60, "no more than a few are held"
    for peer in peers:
        peer.close()
    kubelet.must("restart")
    registered(kubelet)


def test_wrong_words_end_with_status_2(product, machine):
    program = product.prefix / "bin" / "gpuslice-kubelet"
    for words, said in ((["--mode", "none"], "--mode"), (["--slices", "0"], "--slices"), (["extra"], "extra"),
                        (["--mode", "device-plugin", "--resource", "gpu"], "--resource"), (["--nonsense"], "--nonsense"),
                        ([], "--node")):
        result = subprocess.run([program, *words], env={"PATH": "/bin"}, capture_output=True, text=True, timeout=20)
        assert result.returncode == 2 and said in result.stderr, result.stderr
