"""The DRA driver: claims are prepared and unprepared by a kubelet that is not ours, beside a small API server over TLS."""
import json
import random
import shutil
import signal
import uuid

import pytest

from conftest import MIB, wait_for
from kube import DRIVER, ApiServer, Plugin, kubelet, machine, manifests, sessions, short_folder  # noqa: F401, fixtures among them
from test_quota import OUT_OF_MEMORY, Puppet

NODE = "node-1"
DEADLINE_EXCEEDED = 4
REGISTRATION = f"{DRIVER}-reg.sock"


@pytest.fixture
def api(tmp_path):
    server = ApiServer(tmp_path)
    server.put(f"/api/v1/nodes/{NODE}", {"metadata": {"name": NODE, "uid": "node-uid"}})
    yield server
    server.stop()


@pytest.fixture
def plugin(product, machine, kubelet, api, tmp_path):
    if not (product.prefix / "bin" / "gpuslice-kubelet").exists():
        pytest.skip("gpuslice-kubelet was left out of this build")
    made = Plugin(machine, kubelet.folder, tmp_path / "cdi", "--node", NODE, *api.options)
    yield made.start()
    made.stop()


@pytest.fixture
def greeted(kubelet, plugin):
    """The kubelet has found the plug-in and taken it."""
    greet(kubelet)
    return kubelet


def greet(kubelet):
    wait_for(lambda: (kubelet.folder / "plugins_registry" / REGISTRATION).exists(), "the plug-in's socket")
    return wait_for(lambda: kubelet.do("greet", name=REGISTRATION).get("answer"), "the plug-in to answer")


def gpu_names(machine):
    return [gpu["uuid"].lower() for gpu in machine.request("GET", "/v1/gpus")[1]]


def result(device, memory="64Mi", cores="25", **more):
    return {"driver": DRIVER, "request": "gpu", "pool": NODE, "device": device,
            "consumedCapacity": {"memory": memory, "cores": cores}, **more}


def make_claim(api, *results, name=None, config=(), pod="train-0"):
    """A claim as the scheduler leaves it; what the kubelet says of it."""
    claim = {"namespace": "team", "uid": str(uuid.uuid4()), "name": name or f"claim-{uuid.uuid4().hex[:8]}"}
    api.put(f"/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/{claim['name']}", {
        "metadata": {"name": claim["name"], "namespace": "team", "uid": claim["uid"]},
        "status": {"reservedFor": [{"resource": "pods", "name": pod, "uid": "pod-uid"}],
                   "allocation": {"devices": {"results": list(results), "config": list(config)}}}})
    return claim


def prepare(kubelet, *claims, **more):
    return kubelet.must("prepare", claims=list(claims), **more)["claims"]


def unprepare(kubelet, *claims):
    return kubelet.must("unprepare", claims=list(claims))["claims"]


# --- Publishing --------------------------------------------------------------------------------------------

def test_the_kubelet_is_told_where_claims_are_prepared(kubelet, plugin):
    info = greet(kubelet)
    assert (info["type"], info["name"], info["supported_versions"]) == (
        "DRAPlugin", DRIVER, ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"])
    assert info["endpoint"] == str(kubelet.folder / "plugins" / DRIVER / "dra.sock")


def test_gpus_are_published_when_the_kubelet_has_the_driver(api, machine, kubelet, plugin):
    wait_for(lambda: (kubelet.folder / "plugins_registry" / REGISTRATION).exists(), "the plug-in's socket")
    assert api.slices() == []
    greet(kubelet)
    (published,) = wait_for(api.slices, "the slice")
    assert published["metadata"]["ownerReferences"][0]["uid"] == "node-uid"
    spec = published["spec"]
    assert (spec["driver"], spec["nodeName"]) == (DRIVER, NODE)
    assert spec["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    assert [device["name"] for device in spec["devices"]] == gpu_names(machine)
    assert manifests("check-json", input=json.dumps(published)).stdout == ""
    device = spec["devices"][0]
    assert device["allowMultipleAllocations"] is True
    assert device["attributes"]["uuid"]["string"].lower() == device["name"]
    assert device["attributes"]["mig"] == {"bool": False} and device["attributes"]["model"]["string"]
    assert device["capacity"]["memory"]["value"] == "1000Mi" and device["capacity"]["cores"]["value"] == "100"
    assert device["capacity"]["memory"]["requestPolicy"] == {"default": "100Mi", "validRange": {"min": "1Mi", "step": "1Mi"}}


def test_a_slice_that_the_kubelet_wiped_is_published_again(api, greeted):
    wait_for(api.slices, "the slice")
    api.remove_slices()
    greeted.must("restart")
    greet(greeted)
    wait_for(api.slices, "the slice again")


def test_claims_that_are_left_are_served_in_the_other_mode(machine, api, plugin, greeted):
    """Their pods would be Terminating for ever."""
    wait_for(api.slices, "the slice")
    claim, later = (make_claim(api, result(gpu_names(machine)[0])) for _ in range(2))
    prepare(greeted, claim)
    notes = greeted.folder / "plugins" / DRIVER / "notes"
    plugin.kill()
    plugin.start("--mode", "device-plugin")
    greet(greeted)
    wait_for(lambda: api.slices() == [], "no GPU to be offered to claims")
    assert "claims of the mode dra" in notes.read_text()
    assert "--mode is device-plugin" in prepare(greeted, later)[later["uid"]]["error"]
    assert unprepare(greeted, claim)[claim["uid"]]["error"] == ""
    assert sessions(machine) == []
    wait_for(lambda: not (greeted.folder / "plugins_registry" / REGISTRATION).exists(), "the driver to go")
    wait_for(lambda: not notes.exists(), "the note to go")


def test_strange_slices_of_the_driver_are_removed_and_others_stay(api, kubelet, plugin):
    path = "/apis/resource.k8s.io/v1/resourceslices/"
    for name, driver, node in (("old", DRIVER, NODE), ("elsewhere", DRIVER, "node-2"), ("others", "gpu.nvidia.com", NODE)):
        api.put(path + name, {"kind": "ResourceSlice", "metadata": {"name": name, "resourceVersion": "1"},
                              "spec": {"driver": driver, "nodeName": node, "pool": {"generation": 1}}})
    greet(kubelet)
    wait_for(lambda: {one["metadata"]["name"] for one in api.slices()} == {"elsewhere", "others", f"{NODE}-{DRIVER}"},
             "the slices to be right")


@pytest.mark.parametrize("answers", [
    [500, 409, "hang up"], [401], [b"no JSON at all"], [b"[]", b"{\"items\":7}"], pytest.param([503] * 3, marks=pytest.mark.long)])
def test_publishing_is_tried_again_until_it_is_done(api, kubelet, plugin, answers):
    wait_for(lambda: (kubelet.folder / "plugins_registry" / REGISTRATION).exists(), "the plug-in's socket")
    api.answers = list(answers)
    greet(kubelet)
    wait_for(api.slices, "the slice")
    assert not api.answers and plugin.process.poll() is None


def test_an_api_server_that_does_not_count_capacity_is_said_and_asked_again(api, kubelet, plugin):
    wait_for(lambda: (kubelet.folder / "plugins_registry" / REGISTRATION).exists(), "the plug-in's socket")
    api.lacks_gate = True
    greet(kubelet)
    wait_for(lambda: "feature gate DRAConsumableCapacity" in plugin.log_text(), "the warning")
    api.lacks_gate = False
    with plugin.hurried():
        wait_for(lambda: api.slices()[0]["spec"]["devices"][0].get("allowMultipleAllocations"), "the slice as it is to be", deadline_s=40)
    wait_for(lambda: "it is over that the API server drops" in plugin.log_text(), "the news")
    wait_for(lambda: [event["type"] for event in api.events] == ["Warning", "Normal"], "the events")
    assert all("feature gate" in event["message"] for event in api.events)


def watches(api):
    """The versions that watches began at."""
    return [int(url.rpartition("resourceVersion=")[2]) for method, url in api.requests if "watch=true" in url]


def lists(api):
    return sum(path.endswith("/resourceslices") for method, path in api.requests if method == "GET")


def test_what_others_do_to_the_slice_is_seen_at_once_and_mended(api, greeted):
    wait_for(api.slices, "the slice")
    wait_for(lambda: watches(api), "a watch")
    before = lists(api)
    for _ in range(2):
        api.remove_slices()
        wait_for(api.slices, "the slice again")
    (slice_,) = api.slices()
    api.put(f"/apis/resource.k8s.io/v1/resourceslices/{NODE}-{DRIVER}",
            {**slice_, "metadata": {"name": slice_["metadata"]["name"]}, "spec": {**slice_["spec"], "devices": []}})
    wait_for(lambda: len(api.slices()[0]["spec"]["devices"]) == 2, "the devices again")
    assert lists(api) == before, "nothing was polled"


@pytest.mark.parametrize("event", [
    {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}},
    b"this is not JSON", b"[]", pytest.param(b"{}", marks=pytest.mark.long), b"{\"type\": \"ADDED\"}",
], ids=["expired", "text", "list", "empty", "no object"])
def test_a_watch_that_cannot_go_on_begins_with_a_list(api, greeted, plugin, event):
    wait_for(api.slices, "the slice")
    wait_for(lambda: watches(api), "a watch")
    before = lists(api)
    api.tell_watches(event)
    wait_for(lambda: lists(api) > before, "a list")
    api.history.clear()  # what came before it is no news
    api.remove_slices()
    wait_for(api.slices, "the slice again")
    assert plugin.process.poll() is None


def test_a_watch_goes_on_where_it_ended_and_bookmarks_move_that(api, greeted):
    wait_for(api.slices, "the slice")
    wait_for(lambda: watches(api), "a watch")
    before = lists(api)
    version = api.bookmark()
    wait_for(lambda: (api.end_watches(), version in watches(api))[1], "a watch from the bookmark on")
    api.remove_slices()
    wait_for(api.slices, "the slice again")
    assert lists(api) == before


def test_an_api_server_that_hangs_keeps_no_other_call_waiting(api, machine, greeted):
    """Its requests would take longer together than the kubelet waits for another answer."""
    wait_for(api.slices, "the slice")
    claims = [make_claim(api, result(gpu_names(machine)[0], memory="10Mi", cores="5")) for _ in range(8)]
    api.hold.clear()
    assert greeted.do("prepare", claims=claims, deadline=1)["code"] == DEADLINE_EXCEEDED
    greet(greeted)
    assert unprepare(greeted, {"namespace": "team", "uid": str(uuid.uuid4()), "name": "other"})
    api.hold.set()
    wait_for(lambda: not any(one["error"] for one in prepare(greeted, *claims).values()), "the claims", deadline_s=60)
    unprepare(greeted, *claims)
    assert sessions(machine) == []


def test_requests_share_no_connection_that_may_have_died(api, greeted):
    """With HTTP/2, later requests would wait for an answer on the connection of one that had none in time."""
    wait_for(api.slices, "the slice")
    assert api.protocols == {"http/1.1"}


def test_a_daemon_that_hangs_keeps_no_other_call_waiting(api, machine, greeted):
    wait_for(api.slices, "the slice")
    claims = [make_claim(api, result(gpu_names(machine)[0], memory="10Mi", cores="5")) for _ in range(3)]
    machine.process.send_signal(signal.SIGSTOP)
    assert greeted.do("prepare", claims=claims, deadline=1)["code"] == DEADLINE_EXCEEDED
    greet(greeted)
    machine.process.send_signal(signal.SIGCONT)
    wait_for(lambda: not any(one["error"] for one in prepare(greeted, *claims).values()), "the claims", deadline_s=60)
    unprepare(greeted, *claims)
    assert sessions(machine) == []


def test_an_api_server_that_comes_back_is_found(api, kubelet, plugin):
    wait_for(lambda: (kubelet.folder / "plugins_registry" / REGISTRATION).exists(), "the plug-in's socket")
    api.stop()
    greet(kubelet)
    wait_for(lambda: "cannot ask the API server" in plugin.log_text(), "the failure in the log")
    api.start()
    wait_for(api.slices, "the slice")
    assert plugin.log_text().count("cannot ask the API server") == 1, "it is said once"


def test_a_gpu_that_is_gone_is_not_published_any_more(api, machine, greeted, plugin):
    (before,) = wait_for(api.slices, "the slice")
    machine.stop()
    with plugin.hurried():
        wait_for(lambda: api.slices() == [], "the slice to go with the daemon", deadline_s=60)
    machine.start()
    (after,) = wait_for(api.slices, "the slice again", deadline_s=60)
    assert after["spec"]["devices"] == before["spec"]["devices"]


def test_health_is_told_at_once_and_again(machine, greeted, plugin):
    def healths(said):
        return {(one["device"]["pool_name"], one["device"]["device_name"]): one["health"] for one in said["devices"]}

    first = greeted.event("health")
    assert healths(first) == {(NODE, name): "HEALTHY" for name in gpu_names(machine)}
    machine.stop()
    with plugin.hurried():
        end = greeted.event("health", deadline_s=60)
        while set(healths(end).values()) != {"UNHEALTHY"}:
            end = greeted.event("health", deadline_s=60)
    assert set(healths(end)) == set(healths(first))
    assert end["devices"][0]["last_updated_time"] > first["devices"][0]["last_updated_time"]
    machine.start()


# --- Preparing ---------------------------------------------------------------------------------------------

def specification_of(session, plugin):
    return json.loads((plugin.cdi / f"gpuslice-{session['name']}.json").read_text())


def puppet_in(session, plugin, product, reap):
    """A program with a context, and with what a container of the session gets, as far as it needs no container."""
    environment = dict(entry.split("=", 1) for entry in specification_of(session, plugin)["devices"][0]["containerEdits"]["env"])
    environment |= {"GPUSLICE_IPC_SOCK": session["own_socket"], "FAKECUDA_FOLDER": "/dev/shm",
                    "LD_PRELOAD": str(product.interceptor), "LD_LIBRARY_PATH": str(product.simulated)}
    puppet = Puppet(product, environment)
    reap(puppet.process)
    puppet.get("context", 0)
    return puppet


def test_a_claim_is_a_session_with_what_was_consumed(api, machine, greeted, plugin, product, reap):
    device = gpu_names(machine)[1]
    claim = make_claim(api, result(device, shareID="share-1", request="gpu/first"))
    answer = prepare(greeted, claim)
    assert set(answer) == {claim["uid"]} and answer[claim["uid"]]["error"] == ""
    (prepared,) = answer[claim["uid"]]["devices"]
    assert prepared["request_names"] == ["gpu"] and (prepared["pool_name"], prepared["device_name"]) == (NODE, device)
    assert prepared["cdi_device_ids"] == [f"gpuslice.io/claim={claim['uid']}-0"] and prepared["share_id"] == "share-1"
    (session,) = sessions(machine)
    assert session["gpus"][0]["uuid"].lower() == device and session["vram_limit_bytes"] == 64 * MIB
    assert (session["compute_min_ratio"], session["compute_max_ratio"]) == (0.25, 0.25)
    assert (session["namespace"], session["pod"]) == ("team", "train-0")
    assert [file.name for file in plugin.cdi.iterdir()] == [f"gpuslice-{session['name']}.json"]
    specification = specification_of(session, plugin)
    assert f"{specification['kind']}={specification['devices'][0]['name']}" == prepared["cdi_device_ids"][0]
    puppet = puppet_in(session, plugin, product, reap)
    puppet.get("alloc", 40 * MIB)
    assert puppet.code("alloc", 40 * MIB) == OUT_OF_MEMORY
    puppet.process.kill()
    assert unprepare(greeted, claim)[claim["uid"]]["error"] == ""
    assert sessions(machine) == [] and list(plugin.cdi.iterdir()) == []


@pytest.mark.parametrize("parameters, words", [
    ({"minimumShare": "99%", "maximumShare": "100%"}, "minimumShare is 99%"), ({"priority": "critical"}, "priority is critical"),
    ({"oversubscribe": "swap", "memoryLimit": "1000Mi"}, "memoryLimit of")], ids=["share", "priority", "memory"])
def test_a_claim_gives_itself_no_more_than_was_counted(api, machine, greeted, parameters, words):
    claim = make_claim(api, result(gpu_names(machine)[0], memory="64Mi", cores="1"), config=[{"source": "FromClaim", "opaque": {
        "driver": DRIVER, "parameters": parameters}}])
    answer = prepare(greeted, claim)
    assert words in answer[claim["uid"]]["error"] and sessions(machine) == []


def test_a_classs_configuration_sets_share_and_priority(api, machine, greeted):
    claim = make_claim(api, result(gpu_names(machine)[0]), config=[{"source": "FromClass", "opaque": {
        "driver": DRIVER, "parameters": {"apiVersion": "gpu.gpuslice.io/v1alpha1", "kind": "SessionConfig",
                                         "minimumShare": "10%", "maximumShare": "80%", "priority": "high"}}}])
    prepare(greeted, claim)
    (session,) = sessions(machine)
    assert (session["compute_min_ratio"], session["compute_max_ratio"], session["priority"]) == (0.1, 0.8, "high")


def names_in(answer):
    """CDI names, and what else the answer has."""
    names = [name for one in answer.values() for device in one["devices"] for name in device["cdi_device_ids"]]
    rest = {uid: {**one, "devices": [{**device, "cdi_device_ids": None} for device in one["devices"]]} for uid, one in answer.items()}
    return names, rest


def names_that_lead_somewhere(plugin):
    return {f"gpuslice.io/claim={device['name']}" for path in plugin.cdi.glob("*.json")
            for device in json.loads(path.read_text())["devices"]}


def test_names_are_given_once_and_stay_good(api, machine, greeted, plugin):
    """A kubelet that starts anew adds what it is told to what it knows, and takes CDI names for the IDs of devices."""
    names = gpu_names(machine)
    claim = make_claim(api, result(names[0]), result(names[1]))
    given = []
    for _ in range(3):
        given += names_in(prepare(greeted, claim))[0]
        plugin.kill()
        plugin.start()
        greet(greeted)
    assert len(given) == len(set(given)) == 6 and names_that_lead_somewhere(plugin) == set(given)
    unprepare(greeted, claim)


def test_preparing_and_unpreparing_again_changes_nothing(api, machine, greeted, plugin):
    claim = make_claim(api, result(gpu_names(machine)[0]))
    first = prepare(greeted, claim)
    (session,) = sessions(machine)
    assert names_in(prepare(greeted, claim))[1] == names_in(first)[1]
    assert [one["session_id"] for one in sessions(machine)] == [session["session_id"]]
    for file in plugin.cdi.iterdir():
        file.unlink()  # as a reboot does with /run
    after = prepare(greeted, claim)
    assert names_in(after)[1] == names_in(first)[1] and len(list(plugin.cdi.iterdir())) == 1
    assert not set(names_in(after)[0]) & set(names_in(first)[0]), "the kubelet keeps the old ones beside"
    assert set(names_in(first)[0] + names_in(after)[0]) <= names_that_lead_somewhere(plugin)
    for _ in range(2):
        assert unprepare(greeted, claim)[claim["uid"]]["error"] == ""
    assert sessions(machine) == []
    assert list((greeted.folder / "plugins" / DRIVER / "claims").iterdir()) == []


def test_sessions_of_claims_that_the_kubelet_has_lost_end_if_their_pods_have_gone(api, machine, greeted, plugin, product, reap):
    """As after `kubeadm reset`. The kubelet unprepares none of them."""
    pod = "/api/v1/namespaces/team/pods/"
    for name in ("runs", "gone", "busy"):
        prepare(greeted, make_claim(api, result(gpu_names(machine)[0], cores="5"), pod=name))
    known = make_claim(api, result(gpu_names(machine)[0], cores="5"), pod="known")
    runs, gone, busy = sessions(machine)
    puppet = puppet_in(busy, plugin, product, reap)
    plugin.kill()
    shutil.rmtree(greeted.folder / "plugins" / DRIVER)
    api.put(pod + "runs", {"metadata": {}, "spec": {"nodeName": NODE}, "status": {"phase": "Running"}})
    plugin.start()
    wait_for(lambda: len(sessions(machine)) == 2, "the end of the one that nobody uses")
    greet(greeted)
    prepare(greeted, known)
    puppet.process.kill()
    wait_for(lambda: {one["pod"] for one in sessions(machine)} == {"runs", "known"}, "the end of the one whose program has ended")
    wait_for(lambda: {file.name for file in plugin.cdi.iterdir()} == {f"gpuslice-{one['name']}.json" for one in sessions(machine)},
             "the others' specifications to go")
    assert gone["session_id"] not in {one["session_id"] for one in sessions(machine)}
    assert runs["session_id"] in {one["session_id"] for one in sessions(machine)}


@pytest.mark.parametrize("who", ["plugin", "daemon", "kubelet"])
def test_claims_outlive_a_restart(api, machine, greeted, plugin, who):
    claim = make_claim(api, result(gpu_names(machine)[0]))
    first = prepare(greeted, claim)
    (session,) = sessions(machine)
    if who == "plugin":
        plugin.kill()
        plugin.start()
        wait_for(lambda: "has gpu.gpuslice.io" in plugin.log_text(), "")
    elif who == "daemon":
        machine.kill()
        machine.start()
    else:
        greeted.must("restart")
    greet(greeted)
    assert names_in(wait_for(lambda: prepare(greeted, claim), "an answer"))[1] == names_in(first)[1]
    assert names_that_lead_somewhere(plugin) >= set(names_in(first)[0])
    assert [one["session_id"] for one in sessions(machine)] == [session["session_id"]]
    other = make_claim(api, result(gpu_names(machine)[0]))
    answer = wait_for(lambda: (lambda said: said if not said[other["uid"]]["error"] else None)(prepare(greeted, other)),
                      "another claim")
    assert answer[other["uid"]]["devices"]
    unprepare(greeted, claim, other)
    assert sessions(machine) == []


@pytest.mark.parametrize("seed", range(3))
def test_no_kill_at_any_time_loses_or_leaves_a_session(api, machine, greeted, plugin, seed):
    """The kubelet asks again until it has its answer, as the real one does."""
    chance = random.Random(seed)
    names, living = gpu_names(machine), {}

    def until_done(action, claim):
        def once():
            said = greeted.do(action, claims=[claim], deadline=5)
            return "answer" in said and not said["answer"]["claims"][claim["uid"]]["error"]
        wait_for(once, f"{action} ({plugin.log_text()[-500:]})", deadline_s=60)

    def begin():
        mebibytes = chance.randrange(10, 60)
        claim = make_claim(api, result(chance.choice(names), memory=f"{mebibytes}Mi", cores="5"))
        until_done("prepare", claim)
        living[claim["uid"]] = (claim, mebibytes)

    def end():
        if living:
            until_done("unprepare", living.pop(chance.choice(sorted(living)))[0])

    def kill_plugin():
        plugin.kill()
        plugin.start()
        greet(greeted)

    def kill_daemon():
        machine.kill()
        machine.start()

    def restart_kubelet():
        greeted.must("restart")
        greet(greeted)

    for _ in range(25):
        chance.choice([begin, begin, begin, end, end, kill_plugin, kill_daemon, restart_kubelet])()
        wanted = {f"claim-{uid}": mebibytes * MIB for uid, (_, mebibytes) in living.items()}
        assert {one["name"]: one["vram_limit_bytes"] for one in sessions(machine)} == wanted
        assert len(list(plugin.cdi.glob("*.json"))) == len(wanted)
    while living:
        end()
    assert sessions(machine) == [] and list(plugin.cdi.iterdir()) == []


def test_each_claim_has_its_own_answer(api, machine, greeted):
    device = gpu_names(machine)[0]
    good = make_claim(api, result(device))
    missing = {"namespace": "team", "uid": str(uuid.uuid4()), "name": "missing"}
    anew = {**make_claim(api, result(device)), "uid": str(uuid.uuid4())}
    unknown = make_claim(api, result("gpu-of-another-node"))
    too_much = make_claim(api, result(device, memory="990Mi"))
    odd = {"namespace": "team/../x", "uid": "../../etc", "name": "a b"}
    answer = prepare(greeted, good, missing, anew, unknown, too_much, odd)
    assert set(answer) == {claim["uid"] for claim in (good, missing, anew, unknown, too_much, odd)}
    for claim, words in ((missing, "404"), (anew, "deleted and made again"), (unknown, "gpu-of-another-node"), (too_much, "MiB"),
                         (odd, "invalid namespace, name or UID")):
        assert words in answer[claim["uid"]]["error"] and not answer[claim["uid"]]["devices"], answer[claim["uid"]]
    assert answer[good["uid"]]["error"] == "" and len(sessions(machine)) == 1
    answer = unprepare(greeted, good, missing, odd)
    assert [answer[claim["uid"]]["error"] == "" for claim in (good, missing, odd)] == [True, True, False]
    assert prepare(greeted) == {} and unprepare(greeted) == {}


def test_the_token_is_read_again_when_it_has_changed(api, machine, greeted):
    claim = make_claim(api, result(gpu_names(machine)[0]))
    wait_for(api.slices, "the slice")
    api.token = "second"  # the file still has the first
    assert "401" in prepare(greeted, claim)[claim["uid"]]["error"]
    api.change_token("third")
    assert prepare(greeted, claim)[claim["uid"]]["error"] == ""
    api.token_file.write_text("")
    assert "no token" in prepare(greeted, make_claim(api, result(gpu_names(machine)[0]))).popitem()[1]["error"]


@pytest.mark.parametrize("answer", [500, "hang up", b"no JSON", b"7", b"{\"metadata\":7}", b"{\"metadata\":{\"uid\":[]}}",
                                    b"[" * 3000])
def test_an_invalid_answer_fails_its_claim_alone(api, machine, greeted, plugin, answer):
    wait_for(api.slices, "the slice")
    claim = make_claim(api, result(gpu_names(machine)[0]))
    with api.lock:
        api.answers = [answer]
    said = prepare(greeted, claim)
    if not said[claim["uid"]]["error"]:  # a look at what is published came first
        unprepare(greeted, claim)
        pytest.skip("the answer went to another request")
    assert sessions(machine) == []
    assert prepare(greeted, claim)[claim["uid"]]["error"] == "" and plugin.process.poll() is None


def test_a_certificate_of_another_authority_is_not_believed(product, api, machine, kubelet, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    stranger = ApiServer(other)
    plugin = Plugin(machine, kubelet.folder, tmp_path / "cdi2", "--node", NODE, "--api-server",
                    f"https://127.0.0.1:{api.port}", "--ca-file", stranger.certificate, "--token-file", api.token_file)
    plugin.start()
    try:
        greet(kubelet)
        wait_for(lambda: "certificate" in plugin.log_text(), "the refusal in the log")
        assert api.slices() == [] and api.requests == []
    finally:
        plugin.stop()
        stranger.stop()
