"""The gallery of frameworks' allocators (tests/frameworks): what each of its programs is, and how it is led."""
import contextlib
import os
import re
import subprocess
from typing import NamedTuple

import pytest

from conftest import MIB, has_words

ANSWERS_S = 30
# What a pool keeps for later goes when the program's memory leaves, so it is no part of the program's answers.
KEPT = re.compile(r" kept=\d+")

ALL = bool(os.environ.get("GPUSLICE_TEST_ALL"))
WANTED_MIB = 64 if ALL else 48
# What a program says that it holds, by why that does not leave the card (src/wire/stays.def). "memory" leaves, "pinned" is the host's.
STAYS = {"exported": "exported", "pooled": "pool", "bound": "bound", "graph": "graph"}


class Row(NamedTuple):
    """A program: its argument after MIB and SEED, its environment, and how much memory it may have, as a part of what it wants."""
    program: str
    how: str = ""
    room: float = 1.75
    preload: str = ""
    injected: str = ""
    tool_bytes: int = 0  # of the injected tool's own
    stays: bool = False  # some of its memory does for a while
    fabric: bool = False  # it tries FABRIC, and goes on where that is refused
    like: str = ""  # another row, of which it is a variant: both run with GPUSLICE_TEST_ALL alone
    pools: bool = False  # of the driver's: where memory can leave they take whole blocks of 2 MiB, on the exact card not
    environment: dict = {}

    @property
    def limit_mib(self):
        return int(self.room * WANTED_MIB) // 2 * 2


ROWS = {
    "torch-native": Row("torch_native_12"),
    "torch-native-13": Row("torch_native_13", like="torch-under-a-tool"),
    "torch-expandable": Row("torch_expandable", like="torch-expandable-ipc", fabric=True),
    "torch-expandable-ipc": Row("torch_expandable", "share", stays=True, fabric=True),
    "torch-graphs": Row("torch_graphs_12", room=2.25),
    "torch-async": Row("torch_async", stays=True, pools=True),
    "torch-ipc": Row("torch_ipc_12", stays=True),
    "torch-pinned": Row("pinned", "torch"),
    "torch-pinned-registered": Row("pinned", "register", like="torch-pinned"),
    "torch-under-a-tool": Row("torch_native_13", injected="tool.so", tool_bytes=2 * MIB),
    "deepspeed-pinned": Row("pinned", "deepspeed"),
    "vllm-sleep-1": Row("vllm_sleep", "1", like="vllm-sleep-2", fabric=True),
    "vllm-sleep-2": Row("vllm_sleep", "2", fabric=True),
    "memory-saver": Row("memory_saver_12", like="memory-saver-backup", preload="memory_saver_preload.so"),
    "memory-saver-backup": Row("memory_saver_13", preload="memory_saver_preload.so", environment={"SAVER_BACKUP": "1"}),
    "pool-ipc": Row("pool_ipc", stays=True),
    "rmm-pool": Row("rmm_pool"),
    "rmm-arena": Row("rmm_arena", room=2.5),
    "rmm-async": Row("rmm_async", pools=True),
    "rmm-async-fd": Row("rmm_async", "fd", like="rmm-async", pools=True),
    "rmm-async-fabric": Row("rmm_async", "fabric", pools=True),
    "xla-bfc": Row("xla_bfc"),
    "xla-vmm": Row("xla_vmm"),
    "nccl": Row("nccl", stays=True, fabric=True),
    "ucx": Row("ucx", stays=True, fabric=True),
    "triton": Row("triton", room=2),
}


class Point(NamedTuple):
    """Where a program waits, and what it holds there, in bytes by kind."""
    name: str
    held: dict


class Program:
    """A process of the gallery."""

    def __init__(self, process):
        self.process = process
        self.lines = []
        self.unread = b""

    def read_line(self, deadline_s):
        while b"\n" not in self.unread:
            if not has_words(self.process.stdout, deadline_s):
                pytest.fail(f"no point was reached in {deadline_s} s after {self.lines}")
            more = os.read(self.process.stdout.fileno(), 4096)
            if not more:
                return ""
            self.unread += more
        line, _, self.unread = self.unread.partition(b"\n")
        return line.decode()

    def read(self, deadline_s=ANSWERS_S):
        """The next Point, or None at the end."""
        line = self.read_line(deadline_s)
        if line:
            self.lines.append(KEPT.sub("", line))
        if not line.startswith("at "):
            return None
        words = line.split()
        return Point(words[1], {kind: int(count) for kind, count in (word.split("=") for word in words[2:])})

    def go(self):
        with contextlib.suppress(BrokenPipeError):  # it is over
            os.write(self.process.stdin.fileno(), b"go\n")

    def end(self):
        """Without waiting anywhere: (all it said, its status, its errors)."""
        self.process.stdin.close()
        while self.read():
            pass
        status = self.process.wait(60)
        return self.lines, status, self.process.stderr.read()


def command(product, row, wanted_mib, seed):
    return [product.program(row.program), str(wanted_mib), str(seed), *([row.how] if row.how else [])]


def environment(product, row):
    """What its framework would have set."""
    return {**row.environment, **({"CUDA_INJECTION64_PATH": str(product.program(row.injected))} if row.injected else {}),
            **({"LD_PRELOAD": str(product.program(row.preload))} if row.preload else {})}


def start_plain(gpu, row, wanted_mib=WANTED_MIB, seed=1):
    """Without GPU Slice."""
    more = environment(gpu.product, row)
    return Program(subprocess.Popen(command(gpu.product, row, wanted_mib, seed), env=gpu.environment(**more), text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE))


def start(daemon, row, *options, wanted_mib=WANTED_MIB, seed=1):
    """With `gpuslice run OPTIONS`."""
    more = environment(daemon.product, row)
    return Program(daemon.spawn("run", *options, "--", *command(daemon.product, row, wanted_mib, seed),
                                env={**daemon.environment(), **more}))


def start_in(daemon, session, row, wanted_mib=WANTED_MIB, seed=1):
    return start(daemon, row, "--session", session, wanted_mib=wanted_mib, seed=seed)
