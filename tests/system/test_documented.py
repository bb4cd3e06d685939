"""What README.md, CONTRIBUTING.md, the manual, the help texts and the documents tell people to type is run, line by line,
and what they show of configuration files and JSON is read. A command that cannot run here has a row with the reason."""
import json
import os
import pathlib
import platform
import pwd
import re
import shutil
import socket
import subprocess

import pytest

from conftest import SOURCE, wait_for
from machine import Machine

# Commands that are not run here, by how they begin, and why.
ELSEWHERE = {
    "gpu-check": "takes minutes; test_gpu_check.py runs it",
    "make ": "builds; make -n says here that the target exists",
    "./run-": "builds; that it can be started is looked at here, and test_the_demo runs the demo",
    "tar xzf": "test_the_bundle_as_in_the_readme",
    "sudo ": "test_an_installation_as_in_the_readme, test_the_package_as_in_the_readme",
    "systemctl ": "needs systemd; test_an_installation_as_in_the_readme",
    "source <(gpuslice completion": "test_completion.py",
    "gpuslice cdi": "test_containers.py",
    "gpuslice top": "needs a terminal; test_top.py",
    "gpuslice config check [FILE]": "shows the form; the examples check files",
    "bin/gpuslice": "test_bundle.py",
    "gpuslice-": "test_the_bundle_as_in_the_readme",
}
CONTAINERS = ("podman", "docker", "nerdctl", "apptainer")


def blocks(path, language):
    """The fenced blocks of a Markdown file whose first words are `language`."""
    return re.findall(rf"^```{language}\n(.*?)^```", (SOURCE / path).read_text(), re.MULTILINE | re.DOTALL)


def commands_of(text):
    """A command a line; one that goes on in the next ends with a backslash; what is behind ' #' is for the reader."""
    for line in text.replace("\\\n", " ").splitlines():
        command = re.sub(r"(^|\s+)# .*", "", line).strip()
        if command:
            yield command


def indented(path):
    """Commands that stand indented by four spaces in a document."""
    for line in re.findall(r"^    (\S.*)$", (SOURCE / path).read_text(), re.MULTILINE):
        if re.match(r"(gpuslice|curl|make|systemctl)\b", line):
            yield re.sub(r"\s{3,}.*", "", line)


def manual():
    """Commands of the pages' own text; those of verbs come from the help texts."""
    for page in sorted((SOURCE / "docs/man").glob("*.in")):
        for literal in re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed", page.read_text(), re.MULTILINE | re.DOTALL):
            if not literal.startswith("["):
                yield from commands_of(literal.replace("\\-", "-"))
        for line in re.findall(r"^\.Dl (.*)$", page.read_text(), re.MULTILINE):
            yield line.replace("\\-", "-")


def help_texts(product):
    listed = subprocess.check_output([product.gpuslice, "help"], text=True)
    for verb in re.findall(r"^  (\w+) {2,}", listed, re.MULTILINE):
        text = subprocess.check_output([product.gpuslice, verb, "--help"], text=True).partition("\nColumns:")[0].partition("\nOptions:")[0]
        yield from re.findall(r"^  (\S.*)$", text, re.MULTILINE)
    yield from re.findall(r"^  (gpuslice .*)$", listed, re.MULTILINE)


class Workplace:
    """A folder, a shell and a machine with two simulated GPUs, as somebody who tries the examples would have."""

    def __init__(self, daemon, folder):
        self.daemon, self.folder = daemon, folder
        (folder / "bin").mkdir()
        for name in ("python", "jq", "xdg-open"):
            self.stub(folder / "bin" / pathlib.Path(name).name)
        self.stub(folder / "train.py")
        shutil.copytree(daemon.product.prefix / "share/doc/gpuslice/examples", folder / "etc")
        shutil.copy(folder / "etc" / "gpuslice.conf", folder)
        runtime = folder / "xdg"
        runtime.mkdir(mode=0o700)
        (runtime / "gpuslice").symlink_to(daemon.runtime / "simulated")
        self.environment = {**daemon.environment(), "XDG_RUNTIME_DIR": str(runtime),
                            "PATH": f"{folder}/bin:{daemon.product.prefix}/bin:{os.environ['PATH']}"}

    @staticmethod
    def stub(path):
        if not path.exists():
            path.write_text("#!/bin/sh\nexit 0\n")
            path.chmod(0o755)

    def run(self, command):
        for name in re.findall(r"(?<![\w/])\./([\w-]+)", command):
            self.stub(self.folder / name)
        command = command.replace("/usr/local/lib/gpuslice", str(self.daemon.product.prefix / "lib/gpuslice"))
        command = command.replace("/etc/gpuslice/", "etc/").replace("http://127.0.0.1:8080", f"http://{self.daemon.http}")
        for name in re.findall(r"gpuslice create .*--name (\w+)", command):  # of an example before
            subprocess.run([self.daemon.product.gpuslice, "release", name], env=self.environment, capture_output=True)
        if re.search(r"^gpuslice \w+ (.* )?(--follow|-f|--watch)\b(?!.*\n)", command):  # goes on until it is interrupted
            command = re.sub(r"^gpuslice", "timeout -s INT 2 gpuslice", command) + "; test $? = 124"
        done = subprocess.run(["bash", "-uc", command + "\nresult=$?\nwait\nexit $result"], cwd=self.folder, env=self.environment,
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def workplace(make_daemon, make_gpu, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        http = f"127.0.0.1:{probe.getsockname()[1]}"
    daemon = make_daemon(make_gpu(FAKECUDA_GPUS=2, FAKECUDA_TOTAL_MEM=64 << 30), GPUSLICE_HTTP_ADDR=http).start()
    daemon.http = http
    return Workplace(daemon, tmp_path)


def reason(command):
    return next((why for begin, why in ELSEWHERE.items() if command.startswith(begin)), None)


def run_all(workplace, commands):
    ran = []
    for command in commands:
        if any(f"-- {engine} " in command or command.startswith(f"{engine} ") for engine in CONTAINERS):
            continue  # test_containers_podman.py
        if not reason(command):
            workplace.run(command)
            ran.append(command)
    return ran


# --- Commands -------------------------------------------------------------------------------------------------

def test_the_readmes_commands(workplace):
    commands = [command for block in blocks("README.md", "sh") for command in commands_of(block)]
    assert len(run_all(workplace, commands)) > 10
    assert json.loads(workplace.run("gpuslice list --json")) == []


def block(path, name):
    (text,) = blocks(path, f"sh {name}")
    return text


@pytest.fixture
def real_card(make_daemon, make_gpu, tmp_path):
    """A workplace on which a context takes as much as on a GPU that no test has set up."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=16 << 30, FAKECUDA_CONTEXT_BYTES=256 << 20)).start()
    daemon.http = ""
    return Workplace(daemon, tmp_path)


def test_a_python_program_without_a_gpu(real_card):
    assert real_card.run(block("docs/simulated-gpu.md", "ctypes")).splitlines() == [
        "768 of 1024 MiB are free", "512 MiB: 0", "512 MiB: 2"]


@pytest.mark.skipif(not shutil.which("ffmpeg"), reason="ffmpeg is missing; see scripts/install-deps")
def test_the_readmes_real_program(real_card):
    """Refused at its quota, then suspended and resumed among its frames, which are the same in the end."""
    plain = real_card.run("ffmpeg -v error -f lavfi -i testsrc2=d=4 -vf format=yuv420p -f md5 -").strip()
    _, film, last = real_card.run(block("README.md", "ffmpeg")).splitlines()
    assert plain == last and plain.startswith("MD5=")
    assert re.match(r"film +(suspended|leaving|partly away) ", film)


def test_the_verbs_examples(workplace, product):
    workplace.run("gpuslice create --name train --memory 1GiB")
    commands = list(help_texts(product))
    assert len(run_all(workplace, commands)) > 8


def test_the_manuals_commands(workplace):
    commands = list(manual())
    assert "gpuslice config check gpuslice.conf" in run_all(workplace, commands)


def test_the_documents_commands(workplace):
    for path in sorted((SOURCE / "docs").glob("*.md")):
        name = path.relative_to(SOURCE)
        listed = [*indented(name), *(command for block in blocks(name, "sh") for command in commands_of(block))]
        run_all(workplace, listed)
        workplace.run("for id in $(gpuslice list --json | sed -n 's/.*\"session_id\": \"\\(.*\\)\",/\\1/p'); do gpuslice release $id; done")


def test_developers_commands_exist():
    for path in ("README.md", "CONTRIBUTING.md", "bench/README.md", "docs/soak.md", "docs/gpu-check.md", "docs/bundle.md"):
        text = (SOURCE / path).read_text()
        for command in [*re.findall(r"`(make [a-z-]+[^`]*)`", text), *(line for block in blocks(path, "sh[^\n]*") for line in commands_of(block))]:
            words = command.removeprefix("sudo ").split()
            if words[0] == "make":
                arguments = [word for word in words[1:] if "$" not in word and "|" not in word and "'" not in word]
                subprocess.run(["make", "-n", *arguments], cwd=SOURCE, check=True, capture_output=True)
            elif words[0].startswith("./run-"):
                assert os.access(SOURCE / words[0], os.X_OK), command


def test_the_readme_is_short_and_its_links_lead_somewhere():
    text = (SOURCE / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    for path in ("README.md", "CONTRIBUTING.md", "bench/README.md", *(p.relative_to(SOURCE) for p in (SOURCE / "docs").rglob("*.md"))):
        for target in re.findall(r"\]\(([^)#\s]+)", (SOURCE / path).read_text()):
            if not target.startswith("http"):
                assert ((SOURCE / path).parent / target).exists(), f"{path} leads to {target}"
    for version in re.findall(r"gpuslice[_-](\d+\.\d+\.\d+)", text):
        assert f"version: '{version}'" in (SOURCE / "meson.build").read_text()


def anchors(page):
    """As GitHub names a page's headings."""
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)}


def test_links_to_headings_lead_to_them():
    for page in [*(SOURCE / "docs").rglob("*.md"), SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", SOURCE / "bench/README.md"]:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert anchor in anchors((page.parent / target) if target else page), f"{page}: {target}#{anchor}"


def test_the_pages_for_engineers_are_short_and_listed():
    """Each has its words in a table and a picture. Rows of tables that name rules and settings do not count."""
    index = (SOURCE / "docs/architecture.md").read_text()
    assert len(index.splitlines()) <= 120
    for page in (SOURCE / "docs/internals").glob("*.md"):
        text = page.read_text()
        assert f"(internals/{page.name})" in index, page.name
        assert len([line for line in text.splitlines() if not line.startswith("| `")]) <= 150, page.name
        assert "\n|---" in text and "\n```\n" in text, page.name


def test_the_demo(product, tmp_path):
    """With the tree that is built; its last line works as it is printed."""
    shutil.copy(SOURCE / "run-demo", tmp_path)
    (tmp_path / "scripts").mkdir()
    for name, says in (("install-deps", ""), ("build", ""), ("stage", f"echo {product.prefix}")):
        script = tmp_path / "scripts" / name
        script.write_text(f"#!/bin/sh\n{says}\n")
        script.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSLICE_", "FAKECUDA_"))}
    done = subprocess.run(["./run-demo"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ALLOC_FAIL at iteration 4 code=2" in done.stdout
    assert re.search(r"bob .* 1\.5GiB / 3GiB ", done.stdout)
    shares = dict(re.findall(r"^(\w+): +busy: .*: (\d+)% of the GPU's time$", done.stdout, re.MULTILINE))
    assert set(shares) == {"alice", "bob"}  # how much each gets on a busy machine is test_shares.py's
    last = done.stdout.splitlines()[-1]
    mine = {**environment, "GPUSLICE_RUNTIME_DIR": str(tmp_path / "run"), "GPUSLICE_STATE_DIR": str(tmp_path / "state"),
            "FAKECUDA_NAME": f"demo-test-{os.getpid()}"}
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "run/simulated").mkdir(mode=0o700)
    try:
        ran = subprocess.run(["sh", "-c", last], cwd=tmp_path, env=mine, capture_output=True, text=True, timeout=60)
        assert ran.stdout.splitlines()[-1] == "PASS", ran
    finally:
        lock = tmp_path / "run/simulated/lock"
        if lock.exists() and (pid := lock.read_text().strip()):
            os.kill(int(pid), 15)
        for left in pathlib.Path("/dev/shm").glob(f"fakecuda-*demo-test-{os.getpid()}*"):
            left.unlink()


# --- What is shown ---------------------------------------------------------------------------------------------

def configurations():
    for path in [*(SOURCE / "docs").glob("*.md"), SOURCE / "README.md"]:
        for block in blocks(path.relative_to(SOURCE), "ini"):
            yield f"{path.name}", block
    for page in sorted((SOURCE / "docs/man").glob("*.in")):
        for literal in re.findall(r"^\.Bd -literal.*?\n(\[.*?)^\.Ed", page.read_text(), re.MULTILINE | re.DOTALL):
            yield page.name, literal
    text = (SOURCE / "docs/configuration.md").read_text()
    yield "configuration.md (Gemini)", "\n".join(re.findall(r"^    ((?:client\d .*|2))$", text, re.MULTILINE)) + "\n"


def test_the_examples_of_configuration_files_are_good(make_daemon, tmp_path):
    daemon = make_daemon()
    me = pwd.getpwuid(os.geteuid()).pw_name
    shown = list(configurations())
    assert len(shown) >= 6
    for name, text in shown:
        is_settings = re.search(r"^\[(daemon|defaults|user:|group:)", text, re.MULTILINE)
        file = tmp_path / ("gpuslice.conf" if is_settings else "sessions.conf")
        file.write_text(re.sub(r"\balice\b", me, text).replace("students", "root"))
        done = daemon.cli("config", "check", file, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr}\n{text}"


def test_json_in_documents_is_json():
    found = 0
    for path in (SOURCE / "docs").glob("*.md"):
        for block in blocks(path.relative_to(SOURCE), "json"):
            json.loads(block)
            found += 1
    assert found >= 5


@pytest.mark.skipif(not shutil.which("mandoc"), reason="no mandoc here")
def test_limits_in_the_manual_can_be_pasted(product, gpu):
    """As a person sees the page: the JSON of a limit has its quotes, and limits."""
    page = subprocess.run(["mandoc", "-T", "utf8", "-O", "width=1000", product.prefix / "share/man/man7/libgpuslice.7"],
                          capture_output=True, text=True, check=True).stdout
    shown, = re.findall(r"\{[^{}]*\}", re.sub(".\b", "", page))
    assert json.loads(shown) == {"0": "2GiB"}
    small = shown.replace("2GiB", "8MiB")
    done = subprocess.run([product.prefix / "share/gpuslice/examples/bin/target_app"], capture_output=True, text=True,
                          env=gpu.standalone(small, ALLOC_BYTES=4 << 20, ITERATIONS=3))
    assert done.stdout.splitlines()[:3] == ["ALLOC_OK iteration 0", "ALLOC_OK iteration 1", "ALLOC_FAIL at iteration 2 code=2"]


# --- Installing -----------------------------------------------------------------------------------------------

SUDO = '#!/bin/sh\nexec "$@"\n'
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    subprocess.run(made.command("tee", "/usr/local/bin/sudo"), input=SUDO, text=True, stdout=subprocess.DEVNULL, check=True)
    made.run("chmod", "755", "/usr/local/bin/sudo")
    made.run("useradd", "--create-home", "newcomer")
    yield made
    made.end()


def follow(machine, block, replaced):
    """Run the commands of README.md's block `block` as `newcomer` would; `replaced` are those that something else stands for."""
    (text,) = blocks("README.md", f"sh {block}")
    for command in commands_of(text):
        act = next((act for begin, act in replaced.items() if command.startswith(begin)), None)
        if act:
            act(command)
        else:
            machine.run("bash", "-euc", command, environment=("USER=newcomer", "HOME=/home/newcomer"))


def check_that_newcomer_can_use_it(machine, gpuslice, examples):
    """A system daemon runs, and the new member of its group makes sessions. systemd itself does not run in the copy."""
    wanted = "/etc/systemd/system/sockets.target.wants"
    for unit in ("gpusliced.socket", "gpusliced-attach.socket"):
        assert machine.exists(f"{wanted}/{unit}"), "the socket is not enabled"
        machine.run("systemd-analyze", "verify", unit)
    daemon = subprocess.Popen(machine.command(f"{gpuslice}d", "--system", "--simulated", environment=("FAKECUDA_CONTEXT_BYTES=0",)),
                              stderr=subprocess.PIPE)
    wait_for(lambda: machine.exists("/run/gpuslice/simulated/control.sock"), "the daemon to be ready")
    number = machine.run("id", "-u", "newcomer").stdout.strip()
    said = machine.run("setpriv", f"--reuid={number}", f"--regid={number}", "--init-groups", gpuslice, "run", "--simulated",
                       "--memory", "64MiB", "--", f"{examples}/saxpy").stdout
    assert "64 MiB of memory" in said and said.endswith("PASS\n")
    machine.run("sh", "-c", 'kill "$(cat /run/gpuslice/simulated/lock)"')
    assert daemon.wait(20) == 0
    daemon.stderr.close()


@needs_root
def test_an_installation_as_in_the_readme(machine, product):
    def make_install(command):
        assert command == "sudo make install PREFIX=/usr/local"
        packed = subprocess.run(["tar", "c", "-C", product.prefix, "."], capture_output=True, check=True).stdout
        subprocess.run(machine.command("tar", "x", "-C", "/usr/local"), input=packed, check=True)

    def enable(command):
        """There is no systemd in the copy that could start them."""
        machine.run("bash", "-euc", command.replace(" --now", ""))

    follow(machine, "source", {"sudo make install": make_install, "sudo systemctl enable": enable})
    check_that_newcomer_can_use_it(machine, "/usr/local/bin/gpuslice", "/usr/local/share/gpuslice/examples/bin")


@needs_root
def test_the_package_as_in_the_readme(machine):
    given = os.environ.get("GPUSLICE_TEST_DEB")
    if not given:
        pytest.skip("set GPUSLICE_TEST_DEB to what scripts/deb made; ./run-tests --all does both")

    def install(command):
        assert command == f"sudo apt install ./build/{pathlib.Path(given).name}"
        with open(given, "rb") as content:
            subprocess.run(machine.command("tee", f"/tmp/{pathlib.Path(given).name}"), stdin=content, stdout=subprocess.DEVNULL, check=True)
        machine.run("dpkg", "--install", f"/tmp/{pathlib.Path(given).name}")

    follow(machine, "deb", {"sudo apt install": install})
    check_that_newcomer_can_use_it(machine, "/usr/bin/gpuslice", "/usr/share/gpuslice/examples/bin")


def test_the_bundle_as_in_the_readme(make_daemon, tmp_path):
    archive = os.environ.get("GPUSLICE_TEST_BUNDLE")
    if not archive:
        pytest.skip("set GPUSLICE_TEST_BUNDLE to what scripts/bundle made; ./run-tests does")
    shutil.copy(archive, tmp_path)
    daemon = make_daemon().start()
    (text,) = blocks("README.md", "sh bundle")
    text = text.replace("x86_64", platform.machine())
    done = subprocess.run(["bash", "-euc", text], cwd=tmp_path, env=daemon.environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.endswith("PASS\n"), done
