"""The files of a simulated machine go with the last process that is on it."""
import pathlib
import subprocess

from conftest import MIB, wait_for


def files(gpu):
    return sorted(path.name for path in pathlib.Path("/dev/shm").glob(f"fakecuda-*-{gpu.name}*"))


def holder(product, gpu, reap):
    """A program that holds memory until its input ends."""
    program = reap(subprocess.Popen([product.program("target_app")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                    env=gpu.environment(ALLOC_BYTES=MIB, ITERATIONS=1, HOLD="stdin")))
    assert program.stdout.readline() == "ALLOC_OK iteration 0\n"
    return program


def end(program):
    program.stdin.close()
    assert program.wait(20) == 0


def test_one_program_leaves_nothing(product, gpu):
    subprocess.run([product.program("target_app")], env=gpu.environment(ITERATIONS=1), check=True, stdout=subprocess.DEVNULL)
    assert files(gpu) == []


def test_the_last_of_several_takes_them_along(product, gpu, reap):
    first, second = holder(product, gpu, reap), holder(product, gpu, reap)
    end(first)
    assert files(gpu)
    third = holder(product, gpu, reap)  # on the same machine as the second
    end(second)
    assert files(gpu)
    end(third)
    assert files(gpu) == []


def test_what_a_killed_program_left_goes_with_the_next(product, gpu, reap):
    program = holder(product, gpu, reap)
    program.kill()
    program.wait()
    assert files(gpu)
    end(holder(product, gpu, reap))
    assert files(gpu) == []


def test_a_daemon_and_its_programs_leave_nothing(make_daemon, gpu):
    daemon = make_daemon(gpu).start()
    daemon.cli("run", "--memory", "8MiB", daemon.product.program("target_app"), env=daemon.environment(ALLOC_BYTES=MIB, ITERATIONS=1))
    assert files(gpu)
    daemon.stop()
    wait_for(lambda: files(gpu) == [], "the files to go")


def test_many_at_once_are_on_one_machine(product, gpu, reap):
    """Programs that come while another takes the files along neither fail nor end up on a machine of their own."""
    for _ in range(5):
        programs = [subprocess.Popen([product.program("target_app")], stdout=subprocess.PIPE, text=True,
                                     env=gpu.environment(ALLOC_BYTES=MIB, ITERATIONS=2)) for _ in range(8)]
        for program in programs:
            said, _ = program.communicate(timeout=60)
            assert program.returncode == 0 and said.count("ALLOC_OK") == 2, said
    # Two that end in the same moment may each leave the files to the other: who comes next takes them along.
    subprocess.run([product.program("target_app")], env=gpu.environment(ITERATIONS=1), check=True, stdout=subprocess.DEVNULL)
    assert files(gpu) == []
