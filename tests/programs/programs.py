"""The programs: how each is started, what its steps are, and how one knows that its answers are right.

name        of the test
card        settings of the simulated GPU that it runs on
slow        settings with which the GPU, not the CPU, decides how fast it is; for shares
session     the memory that a session gives it, in MiB; a card that holds one session has half as much again
small       memory with which it cannot work as it likes, in MiB
"""
import functools
import os
import pathlib
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]


class FFmpeg:
    """Debian's FFmpeg, which reaches the driver by dlopen. The first 40 frames go up to the card, stay there, and come down again and
    again; the MD5 of each that comes down must be that of the same frame without a card."""
    name = "ffmpeg"
    card = {}
    slow = {"FAKECUDA_LINK_GBPS": "0.2"}
    session, small, card_for_one = 128, 30, 150
    few, many, endless = 100, 2000, 1000000
    size = "1280x720"

    def missing(self):
        return None if shutil.which("ffmpeg") else "ffmpeg is missing; see scripts/install-deps"

    def environment(self, folder):
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

    @functools.lru_cache(maxsize=None)
    def _expected(self, steps):
        words = self._words(steps, "format=yuv420p,loop=loop=-1:size=40")
        told = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
        return [line for line in told.stdout.splitlines() if self.is_step(line)]

    def check(self, lines, steps):
        frames = [line for line in lines if self.is_step(line)]
        assert len(frames) == steps
        assert frames == self._expected(steps)

    @staticmethod
    def check_small(running, status, steps):
        """It is refused, and says so in its own words."""
        assert status != 0 and "CUDA_ERROR_OUT_OF_MEMORY" in running.told()


PROGRAMS = [FFmpeg()]
