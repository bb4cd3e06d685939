"""The units as they are, under a real systemd: a container boots a copy of this machine, in which the product is installed
for the whole machine and the simulated GPU stands where NVIDIA's libraries would."""
import os
import pathlib
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.skipif(os.getuid() != 0 or not shutil.which("systemd-nspawn"),
                                reason="needs root and systemd-nspawn (Debian: systemd-container)")

# What the unit finds in the place of a driver, and a watchdog that does not take half a minute.
DROP_IN = """[Service]
Environment=FAKECUDA_OWNER=0 FAKECUDA_CONTEXT_BYTES=0
WatchdogSec=3
"""

UNIT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh /root/steps
ExecStopPost=/bin/systemctl --no-block poweroff
"""

# Each step's output goes to a file of its name. `alice` may use the daemon, `mallory` is in no group.
STEPS = """
step() {{ name=$1; shift; echo "$name"; "$@" >"/root/said/$name" 2>&1; echo "status $?" >>"/root/said/$name"; }}
as() {{ user=$1; shift; setpriv --reuid="$user" --regid="$user" --init-groups env FAKECUDA_OWNER=0 HOME=/ "$@"; }}
until_it() {{ for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; echo "never: $*"; return 1; }}
pid() {{ systemctl show --property MainPID --value gpusliced; }}
is_another() {{ as alice timeout 1 gpuslice list && [ "$(pid)" != "$1" ]; }}

mkdir -p /root/said
touch /dev/nvidiactl
ln -s {library}/simulated/libcuda.so.1 {library}/simulated/libnvidia-ml.so.1 /usr/lib/
useradd --user-group alice; useradd --user-group mallory
systemd-sysusers; usermod --append --groups gpuslice alice
systemctl daemon-reload
step start systemctl start gpusliced.socket gpusliced-attach.socket
step before systemctl is-active gpusliced.service
step gpus as alice gpuslice gpus
step after systemctl is-active gpusliced.service
step stranger as mallory gpuslice gpus
step quota as alice env ALLOC_BYTES=4194304 ITERATIONS=3 gpuslice run --memory 8MiB -- {examples}/target_app
step create as alice gpuslice create --name week --memory 2GiB
mkfifo /lines; exec 3<>/lines; chmod 666 /lines; chmod 755 /root
as alice gpuslice run --session week -- python3 /root/program.py </lines >/root/said/program 2>&1 & program=$!
until_it grep -q "holds it" /root/said/program
step doctor as alice gpuslice doctor

old=$(pid); systemctl kill --signal KILL gpusliced
step killed until_it is_another "$old"
step week_after_kill as alice gpuslice show week
old=$(pid); systemctl restart gpusliced
step restarted until_it is_another "$old"
old=$(pid); systemctl stop gpusliced 2>/dev/null
step woken until_it is_another "$old"
old=$(pid); kill -STOP "$old"
step hung until_it is_another "$old"
step result journalctl --unit gpusliced --grep 'Watchdog timeout' --output cat
step reload systemctl reload gpusliced
step week_at_end as alice gpuslice show week
echo >&3; wait "$program"; echo "status $?" >>/root/said/program
step modes stat --format '%a %U %G %n' /run/gpuslice /run/gpuslice/control.sock /run/gpuslice/attach.sock /var/lib/gpuslice
step journal journalctl --unit gpusliced --output cat
"""

# Holds memory, and finds it as it was when it is told to go on.
PROGRAM = """
import ctypes
cuda, context, address, back = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.create_string_buffer(8)
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20)) == 0
assert cuda.cuMemcpyHtoD_v2(address, b"a week", ctypes.c_size_t(7)) == 0
print("holds it", flush=True)
input()
assert cuda.cuMemcpyDtoH_v2(back, address, ctypes.c_size_t(7)) == 0
print(back.value.decode())
"""

BOOT = """
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/new" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/new,workdir=$1/work" "$1/root"
rm -rf "$1/root/var/lib/gpuslice" "$1/root/etc/gpuslice"
echo 0123456789abcdef0123456789abcdef >"$1/root/etc/machine-id" # or it would be a first boot, which enables all units
# Nothing of this machine's own services.
find "$1/root/etc/systemd/system" -mindepth 1 -delete
cp -r "$2"/. "$1/root/usr/local/"
cp -r "$3"/. "$1/root/"
timeout 150 systemd-nspawn --quiet --directory="$1/root" --private-network --register=no --keep-unit --boot \
    systemd.unit=multi-user.target systemd.wants=steps.service </dev/null >"$3/console" 2>&1 || true
cp -r "$1/root/root/said" "$3/" || { tail -5 "$3/console"; exit 1; }
"""


@pytest.fixture(scope="module")
def said(product, tmp_path_factory):
    """What each step said, by its name."""
    folder = tmp_path_factory.mktemp("systemd")
    names = {"library": "/usr/local/lib/gpuslice", "examples": "/usr/local/share/gpuslice/examples/bin"}
    for path, text in (("root/steps", STEPS.format(**names)), ("root/program.py", PROGRAM), ("etc/systemd/system/steps.service", UNIT),
                       ("etc/systemd/system/gpusliced.service.d/simulated.conf", DROP_IN)):
        (folder / "files" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "files" / path).write_text(text)
    (folder / "machine").mkdir()
    booted = subprocess.run(["unshare", "--mount", "sh", "-c", BOOT, "sh", folder / "machine", product.prefix, folder / "files"],
                            capture_output=True, text=True, timeout=180)
    if booted.returncode:
        pytest.skip(f"systemd does not boot in a container here: {booted.stdout[-300:]} {booted.stderr[-300:]}")
    return {path.name: path.read_text() for path in (folder / "files" / "said").iterdir()}


def done(text):
    return text.endswith("status 0\n")


def test_the_sockets_are_there_at_once_and_start_the_daemon(said):
    assert done(said["start"]), said["start"]
    assert said["before"].startswith("inactive")
    assert done(said["gpus"]) and "GPU Slice Simulated GPU" in said["gpus"]
    assert said["after"].startswith("active")


def test_only_members_of_its_group_may_speak_with_it(said):
    assert "group 'gpuslice'" in said["stranger"] and not done(said["stranger"])
    assert said["modes"].splitlines()[:4] == [
        "755 root root /run/gpuslice", "660 root gpuslice /run/gpuslice/control.sock",
        "666 root root /run/gpuslice/attach.sock", "700 root root /var/lib/gpuslice"]


def test_a_user_s_program_is_held_to_its_quota(said):
    assert [line for line in said["quota"].splitlines() if line.startswith("ALLOC")] == ["ALLOC_OK iteration 0", "ALLOC_OK iteration 1", "ALLOC_FAIL at iteration 2 code=2"]


def test_doctor_looks_at_the_daemon_that_it_asked(said):
    assert "no other daemon runs here" in said["doctor"], said["doctor"]


@pytest.mark.parametrize("how", ["killed", "restarted", "woken", "hung"])
def test_another_daemon_comes_and_serves(said, how):
    assert done(said[how]), said["journal"]


def test_a_hung_daemon_is_ended_by_the_watchdog(said):
    assert "Watchdog timeout" in said["result"]


def test_a_session_and_its_program_outlive_all_of_it(said):
    assert done(said["week_after_kill"]) and done(said["week_at_end"])
    assert "python3" in said["week_at_end"], said["week_at_end"]
    assert said["program"] == "holds it\na week\nstatus 0\n"


def test_reload_reads_the_configuration_again(said):
    assert done(said["reload"])
    assert "the configuration is read again" in said["journal"]
