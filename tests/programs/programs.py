"""The programs: how each is started, what its steps are, and how one knows that its answers are right.

name        of the test
card        settings of the simulated GPU that it runs on
slow        settings with which the GPU, not the CPU, decides how fast it is, for shares; None: it ends too soon
session     the memory that a session gives it, in MiB; `card_for_one`: of a card that holds what one of them takes, not two; None:
            it ends too soon to move
few, many   steps of a short and of a longer run; after `settled` of them it allocates no more
status      how it ends when all is well
small       memory with which it cannot work as it likes, in MiB
"""
import functools
import os
import pathlib
import shutil
import subprocess

import zeros_model

SOURCE = pathlib.Path(__file__).resolve().parents[2]


class Frames:
    """A program whose steps are frames: they must be those that it makes without a card, by words_without_card()."""

    @functools.lru_cache(maxsize=None)
    def _expected(self, steps):
        told = subprocess.run([str(word) for word in self.words_without_card(steps)], capture_output=True, text=True, check=True,
                              stdin=subprocess.DEVNULL)
        return [line for line in told.stdout.splitlines() if self.is_step(line)]

    def check(self, lines, steps):
        frames = [line for line in lines if self.is_step(line)]
        assert len(frames) == steps
        assert frames == self._expected(steps)


class FFmpeg(Frames):
    """Debian's FFmpeg, which reaches the driver by dlopen. The first 40 frames go up to the card, stay there, and come down again and
    again; the MD5 of each that comes down must be that of the same frame without a card."""
    name = "ffmpeg"
    card = {}
    slow = {"FAKECUDA_LINK_GBPS": "0.2"}
    status = 0
    session, small, card_for_one = 192, 30, 224
    few, settled, endless = 100, 60, 1000000
    many = 4000 if os.environ.get("GPUSLICE_TEST_PROGRAMS") else 2000
    size = "1280x720"

    def missing(self):
        return None if shutil.which("ffmpeg") else "ffmpeg is missing; see scripts/install-deps"

    def environment(self, given):
        return {}

    def _words(self, steps, filters):
        return ["ffmpeg", "-v", "error", "-nostdin", "-f", "lavfi", "-i", f"testsrc2=s={self.size}:r=25", "-frames:v", steps,
                "-vf", filters, "-flush_packets", "1", "-f", "framemd5", "-"]

    def words(self, steps):
        first, *rest = self._words(steps, "format=yuv420p,hwupload_cuda,loop=loop=-1:size=40,hwdownload,format=yuv420p")
        return [first, "-init_hw_device", "cuda", *rest]

    @staticmethod
    def is_step(line):
        return line.startswith("0,")

    def words_without_card(self, steps):
        return self._words(steps, "format=yuv420p,loop=loop=-1:size=40")

    @staticmethod
    def check_small(running, status, steps):
        """It is refused, and says so in its own words."""
        assert status != 0 and "CUDA_ERROR_OUT_OF_MEMORY" in running.told()


class Llama:
    """llama.cpp as npm has it, on the CUDA runtime, with a model of zeros. A step is a token. The simulated GPU does not compute what
    the kernels do, so which token it is says nothing."""
    session, small, card_for_one = 340, 96, 420
    few, settled, many, endless = 20, 5, 800, 1000000
    slow = {"FAKECUDA_KERNEL_NS": "50000"}
    status = 0

    def __init__(self, cuda, card):
        self.name, self.card = f"llama-cuda{cuda}", card
        self.folder = SOURCE / "build" / "programs" / "llama"
        self.home = self.folder / str(cuda)

    def missing(self):
        if not shutil.which("npm"):
            return "npm is missing"
        subprocess.run([SOURCE / "tests" / "programs" / "fetch-llama", self.folder], check=True)
        return None

    def environment(self, given):
        return {"LD_LIBRARY_PATH": f"{self.home}/libraries:{given.get('LD_LIBRARY_PATH', '')}".rstrip(":")}

    @functools.cached_property
    def _model(self):
        path = self.folder / "zeros.gguf"
        zeros_model.write(path, layers=12, width=1024, inner=2816, heads=8)
        return path

    def words(self, steps):
        return ["node", self.home / "generate.mjs", self._model, steps]

    @staticmethod
    def is_step(line):
        return line.startswith("token ")

    def check(self, lines, steps):
        assert sum(map(self.is_step, lines)) == steps

    @staticmethod
    def check_small(running, status, steps):
        """It says that it cannot load the model, and no signal ends it."""
        assert status > 0 and "load" in running.told(), (status, running.told())


class Hashcat:
    """Debian's hashcat, which compiles its kernels by NVRTC when it starts and sizes its buffers by what is free. The simulated GPU
    does not compute what they do, so it finds nothing; a step is a word of its reports."""
    name = "hashcat"
    card = {}
    slow = None
    session, small, card_for_one = 1024, 64, None
    few = settled = many = 1
    status = 1  # it has tried all words

    @staticmethod
    def _nvrtc():
        """The toolkit's compiler; None where there is none."""
        found = sorted(pathlib.Path("/usr/local").glob("cuda*/lib64/libnvrtc.so")) + sorted(pathlib.Path("/usr/lib").glob("*/libnvrtc.so"))
        return found[0].resolve().parent if found else None

    def missing(self):
        if not shutil.which("hashcat"):
            return "hashcat is missing"
        return None if self._nvrtc() else "libnvrtc is missing"

    def environment(self, given):
        return {"LD_LIBRARY_PATH": f"{self._nvrtc()}:{given.get('LD_LIBRARY_PATH', '')}".rstrip(":")}

    def words(self, steps):
        return ["hashcat", "--self-test-disable", "-D", "2", "-m", "0", "-a", "3", "--potfile-disable", "--force", "--runtime", "5",
                "d41d8cd98f00b204e9800998ecf8427f", "?l?l?l?l"]

    @staticmethod
    def is_step(line):
        return line.startswith("Recovered")

    @staticmethod
    def check(lines, steps):
        assert any(line.startswith("Status") and "Exhausted" in line for line in lines), lines

    @staticmethod
    def check_small(running, status, steps):
        """It is refused memory, says so, and no signal ends it."""
        assert status > 0 and "Not enough allocatable device memory" in running.told() + "".join(running.lines), running.told()


PROGRAMS = [FFmpeg(), Llama(12, {}), Llama(13, {"FAKECUDA_DEVICE": "a10", "FAKECUDA_CUDA_VERSION": "13.2"}), Hashcat()]
