"""More programs, by the rules of programs.py, for which something has to be made first."""
import pathlib
import shutil
import signal
import subprocess

import zeros_whisper
from programs import Frames

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(__file__).resolve().parents[2]
MADE = SOURCE / "build" / "programs"


def make_stand_in(folder, library, functions, result, text="", version=""):
    """A shared library whose functions do nothing but return `result`, in place of one that a program looks for and never uses here,
    or that refuses a simulated driver; `text` are functions as C, `version` the name of their version."""
    folder.mkdir(parents=True, exist_ok=True)
    text += "".join(f"int {name}(void) {{ return {result}; }}\n" for name in functions)
    names = folder / f"{library}.map"
    names.write_text(f"{version or library} {{ global: *; }};\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-x", "c", "-", "-o", folder / library, f"-Wl,-soname,{library}",
                    *([f"-Wl,--version-script={names}"] if version else [])], input=text, text=True, check=True)


def wanted(library, prefix):
    """The functions of that prefix that a shared library takes from others."""
    told = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1].partition("@")[0] for line in told.splitlines()}
    return sorted(name for name in names if name.startswith(prefix))


def in_front(folder, given):
    return f"{folder}:{given.get('LD_LIBRARY_PATH', '')}".rstrip(":")


class GStreamer(Frames):
    """Debian's GStreamer, which reaches the driver by GModule. A queue keeps 40 frames on the card, so each is there for a while
    before it comes down; its checksum must be that of the same frame without a card. Rows of 4096 bytes have no padding on a card, which
    the checksum would count. The plug-in registers its elements only where there is NVIDIA's decoder."""
    name = "gstreamer"
    libraries = MADE / "gstreamer"
    status = 0
    card = {}
    slow = {"FAKECUDA_LINK_GBPS": "0.2"}
    session, small, card_for_one = 120, 30, 140
    few, settled, many, endless = 100, 60, 600, 1000000
    decoder = ["CtxLockCreate", "CtxLockDestroy", "CtxLock", "CtxUnlock", "CreateDecoder", "ReconfigureDecoder", "DestroyDecoder",
               "DecodePicture", "MapVideoFrame", "UnmapVideoFrame", "MapVideoFrame64", "UnmapVideoFrame64", "CreateVideoParser",
               "ParseVideoData", "DestroyVideoParser", "GetDecoderCaps"]

    def missing(self):
        plugins = list(pathlib.Path("/usr/lib").glob("*/gstreamer-1.0/libgstnvcodec.so"))
        if not shutil.which("gst-launch-1.0") or not plugins:
            return "GStreamer is missing; see scripts/install-deps programs"
        make_stand_in(self.libraries, "libnvcuvid.so.1", [f"cuvid{name}" for name in self.decoder], 801)
        return None

    def environment(self, given):
        registry = self.libraries / "registry"  # what it has found out about its plug-ins
        return {"LD_LIBRARY_PATH": in_front(self.libraries, given), "GST_REGISTRY": str(registry)}

    @staticmethod
    def _words(steps, middle):
        return ["stdbuf", "-oL", "gst-launch-1.0", "-q", "videotestsrc", f"num-buffers={steps}", "pattern=ball",
                "animation-mode=frames", "!", "video/x-raw,format=RGBA,width=1024,height=512,framerate=25/1", *middle, "!",
                "checksumsink", "sync=false"]

    def words(self, steps):
        queue = ["queue", "max-size-buffers=40", "max-size-bytes=0", "max-size-time=0", "min-threshold-buffers=39"]
        return self._words(steps, ["!", "cudaupload", "!", "video/x-raw(memory:CUDAMemory)", "!", *queue, "!", "cudadownload"])

    @staticmethod
    def is_step(line):
        return line.startswith("0:")

    def words_without_card(self, steps):
        return self._words(steps, [])

    @staticmethod
    def check_small(running, status, steps):
        """It says that it gets no memory, and no signal ends it."""
        assert status > 0 and "memory" in running.told(), (status, running.told())


class Whisper:
    """whisper.cpp as npm has it, built for CUDA 12, with a model of zeros that takes some 270 MiB with what it computes in, part of
    it by cuMemCreate. A step is one run of its own benchmark. The simulated GPU does not compute what its kernels do."""
    name = "whisper"
    status = 0
    card = {"FAKECUDA_DEVICE": "l4", "FAKECUDA_MODULE_BYTES": "0"}  # what moves it loads a module at the first move
    slow = None  # a step takes half a second of the CPU
    session, small, card_for_one = 480, 64, 480
    few, settled, many = 2, 1, 12
    folder = MADE / "whisper"
    packages = ["@fugood/whisper.node@1.1.3", "@fugood/node-whisper-linux-x64-cuda@1.1.3"]

    def missing(self):
        if not shutil.which("npm"):
            return "npm is missing"
        if not (self.folder / "complete").exists():
            self._fetch()
        return None

    def _fetch(self):
        """Some 190 MiB. No script of a package is run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        subprocess.run(["npm", "install", "--prefix", self.folder, "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund",
                        "--loglevel=error", *self.packages], check=True)
        built = self.folder / "node_modules/@fugood/node-whisper-linux-x64-cuda/index.node"
        blas = [name for name in wanted(built, "cublas") if name not in ("cublasCreate_v2", "cublasGetStatusString")]
        make_stand_in(self.folder / "libraries", "libcublas.so.12", blas, 0, version="libcublas.so.12", text="""
            int cublasCreate_v2(void **handle) { static int only; *handle = &only; return 0; }
            const char *cublasGetStatusString(int status) { return status ? "failed" : "success"; }
            """)
        make_stand_in(self.folder / "libraries", "libnccl.so.2", wanted(built, "nccl"), 3)
        shutil.copy(HERE / "hear.mjs", self.folder)
        zeros_whisper.write(self.folder / "zeros.bin", width=384, heads=6, layers=4)
        (self.folder / "complete").touch()

    def environment(self, given):
        return {"LD_LIBRARY_PATH": in_front(self.folder / "libraries", given)}

    def words(self, steps):
        return ["node", self.folder / "hear.mjs", self.folder / "zeros.bin", steps]

    @staticmethod
    def is_step(line):
        return line.startswith("heard ")

    def check(self, lines, steps):
        assert [line for line in lines if self.is_step(line)] == [f"heard {number}" for number in range(steps)]

    @staticmethod
    def check_small(running, status, steps):
        """It says that it gets no memory, and ends itself by abort(), as it does on a small card."""
        assert status == -signal.SIGABRT and "out of memory" in running.told(), (status, running.told())


MORE = [GStreamer(), Whisper()]
