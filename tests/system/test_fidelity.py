"""What the simulated GPU claims about the driver: tests/fidelity, run on the simulation as it would be on a card."""
import json
import subprocess

# So that a context takes memory.
CONTEXT_COST = {"FAKECUDA_CONTEXT_BYTES": 1 << 20}


def run(product, environment, *options):
    done = subprocess.run([product.build / "tests" / "fidelity" / "fidelity", *options], env=environment,
                          capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout


def failed(text):
    return [row for row in json.loads(text) if not row["ok"]]


def test_every_claim_holds_on_the_simulation(product, make_gpu):
    status, text = run(product, make_gpu(**CONTEXT_COST).environment(), "--json")
    assert failed(text) == []
    assert status == 0
    rows = json.loads(text)
    assert len(rows) > 200
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names), "verified.def finds a claim by its name"


def test_the_driver_is_the_same_under_the_interceptor(product, make_gpu):
    """A limit far away changes no answer of the driver."""
    gpu = make_gpu(FAKECUDA_TOTAL_MEM=1 << 32, **CONTEXT_COST)
    status, text = run(product, gpu.standalone("4GiB"), "--json")
    assert failed(text) == []
    assert status == 0


def test_a_claim_that_does_not_hold_is_shown_and_fails(product, make_gpu):
    """On a card of 32 MiB the claims that need 64 cannot hold."""
    status, text = run(product, make_gpu(FAKECUDA_TOTAL_MEM=32 << 20).environment(), "--group", "linear")
    assert status == 1
    assert " NO " in text
    assert "unverified" in text


def test_what_an_older_driver_lacks_is_not_claimed(product, gpu):
    status, text = run(product, gpu.environment(LD_PRELOAD=product.program("older_driver.so")), "--json", "--group", "captured")
    assert failed(text) == []
    assert status == 0 and len(json.loads(text)) > 5


def test_an_unknown_group_is_refused(product, gpu):
    assert run(product, gpu.environment(), "--group", "nonsense")[0] == 2
