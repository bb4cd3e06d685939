"""The kernel of digests, its PTX executed instruction by instruction: no test here has a GPU, and the simulated one does
not execute PTX. What it does not know of PTX fails."""
import random
import re
import shutil
import subprocess

import pytest

from conftest import SOURCE

PRINTS = r"""
#include <stdio.h>
#include "intercept/memory/engine/swap/move/digest_ptx.h"
int main(void)
{
    fputs(digest_ptx, stdout);
}
"""
WORD = (1 << 64) - 1
THREADS, WARP = 256, 32


@pytest.fixture(scope="module")
def ptx(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ptx")
    (folder / "print.c").write_text(PRINTS)
    subprocess.run(["cc", f"-I{SOURCE}/src", "-o", folder / "print", folder / "print.c"], check=True)
    return subprocess.run([folder / "print"], capture_output=True, text=True, check=True).stdout


class Thread:
    def __init__(self, block, number, arguments):
        self.registers, self.at = {}, 0
        self.special = {"%ctaid.x": block, "%tid.x": number}
        self.arguments = arguments

    def value(self, operand):
        if operand in self.special:
            return self.special[operand]
        if operand.startswith("%"):
            return self.registers[operand]
        return 0 if operand == "of_warps" else int(operand, 0)


class Kernel:
    """What is known of the kernel's PTX; and of memory, 64-bit words by address."""
    def __init__(self, ptx, memory):
        self.code, self.labels, self.memory, self.touched = [], {}, memory, set()
        for line in ptx[ptx.index("{") + 1:].splitlines():
            line = line.strip()
            if line.endswith(":"):
                self.labels[line[:-1]] = len(self.code)
            elif line.endswith(";") and not line.startswith("."):
                guard, text = re.fullmatch(r"(?:@(%\w+) )?(.*);", line).groups()
                name, _, rest = text.partition(" ")
                self.code.append((guard, name, re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)))

    def address(self, thread, operand):
        base, _, offset = operand[1:-1].partition("+")
        return thread.value(base) + int(offset or 0)

    def word(self, space, address):
        assert address % 8 == 0
        if space is self.memory:
            self.touched.add(address)
        return space[address]

    def step(self, thread, shared):
        """Execute one instruction. Returns what the thread waits for, if it has to: a shuffle or a barrier, or its end."""
        guard, name, operands = self.code[thread.at]
        thread.at += 1
        if guard and not thread.registers[guard]:
            return None
        kind, *of = name.split(".")
        if name in ("ret", "bar.sync") or kind == "shfl":
            return name, operands
        if kind == "bra":
            thread.at = self.labels[operands[0]]
            return None
        if kind == "ld" and of[0] == "param":
            thread.registers[operands[0]] = thread.arguments[operands[1][1:-1]]
            return None
        if kind in ("ld", "st"):
            to, place = operands if kind == "ld" else reversed(operands)
            space, address = (shared if of[0] == "shared" else self.memory), self.address(thread, place)
            names = re.findall(r"%\w+", to)
            assert of[-1] == "u64" and len(names) == (2 if of[1] == "v2" else 1)
            assert address % (8 * len(names)) == 0, "an address that a card refuses"
            for i, register in enumerate(names):
                if kind == "ld":
                    thread.registers[register] = self.word(space, address + 8 * i)
                else:
                    space[address + 8 * i] = thread.value(register)
            return None
        if name == "mov.b64" and operands[0].startswith("{"):
            low, high = re.findall(r"%\w+", operands[0])
            both = thread.value(operands[1])
            thread.registers[low], thread.registers[high] = both & 0xffffffff, both >> 32
            return None
        if name == "mov.b64":
            low, high = re.findall(r"%\w+", operands[1])
            thread.registers[operands[0]] = thread.value(low) | thread.value(high) << 32
            return None
        values = [thread.value(operand) for operand in operands[1:]]
        bits = 64 if name.startswith(("mul.wide", "cvta")) or of[-1].endswith("64") and kind != "cvt" else 32
        result = {"mov": lambda a: a, "cvt": lambda a: a, "cvta": lambda a: a, "add": lambda a, b: a + b,
                  "mul": lambda a, b: a * b, "shl": lambda a, b: a << b, "shr": lambda a, b: a >> b,
                  "xor": lambda a, b: a ^ b, "and": lambda a, b: a & b,
                  "setp": {"ge": lambda a, b: a >= b, "eq": lambda a, b: a == b}.get(of[0])}[kind](*values)
        thread.registers[operands[0]] = result & ((1 << bits) - 1)
        return None

    def run_block(self, block, arguments):
        threads = [Thread(block, number, arguments) for number in range(THREADS)]
        shared, running = {}, list(range(THREADS))
        while running:
            waits = {}
            for number in running:
                wait = None
                while wait is None:
                    wait = self.step(threads[number], shared)
                waits[number] = wait
            running = [number for number in running if waits[number][0] != "ret"]
            ended = set(waits) - set(running)
            kinds = {waits[number][0] for number in running}
            assert len(kinds) <= 1, "some threads wait at a barrier, and others in a shuffle"
            if kinds and "shfl" in kinds.copy().pop():
                assert not ended
                self.shuffle(threads, running, waits)

    @staticmethod
    def shuffle(threads, running, waits):
        assert len(running) == THREADS, "a thread that the mask names is not there"
        given = {}
        for number in running:
            name, (_, source, places, clamp, mask) = waits[number]
            assert (name, clamp, mask) == ("shfl.sync.down.b32", "31", "0xffffffff")
            other = number + int(places)
            same_warp = other // WARP == number // WARP
            given[number] = threads[other if same_warp else number].value(source)
        for number in running:
            threads[number].registers[waits[number][1][0]] = given[number]


def mix(x):
    x = ((x ^ x >> 32) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ x >> 29) * 0x94D049BB133111EB) & WORD
    return x ^ x >> 32


def digest(words, first):
    return [sum(mix(word ^ (first + i) * 0x9E3779B97F4A7C15 & WORD) for i, word in enumerate(words)) & WORD,
            sum(mix((word + (first + i) * 0xD1342543DE82EF95 + 0x2545F4914F6CDD1D) & WORD)
                for i, word in enumerate(words)) & WORD]


@pytest.mark.parametrize("pairs", [0, 1, 255, 256, 257, 768, 1024, 1025, 2047, 4096])
def test_each_word_of_a_part_is_in_its_digest_once(ptx, pairs):
    numbers = random.Random(pairs)
    parts, sums, data, first = 0x1000, 0x2000, 0x7f0000000000, numbers.randrange(1 << 34)
    words = [numbers.getrandbits(64) for _ in range(2 * pairs)]
    memory = {data + 8 * i: word for i, word in enumerate(words)}
    block = 3
    memory.update({parts + 32 * block: data, parts + 32 * block + 8: first, parts + 32 * block + 16: pairs})
    kernel = Kernel(ptx, dict(memory))
    kernel.run_block(block, {"parts": parts, "sums": sums})
    written = {address: word for address, word in kernel.memory.items() if memory.get(address) != word or
               address not in memory}
    assert written == dict(zip((sums + 16 * block, sums + 16 * block + 8), digest(words, first)))
    assert kernel.touched >= set(memory)


def test_a_block_is_as_large_as_the_ptx_says(ptx):
    assert f".reqntid {THREADS}, 1, 1\n" in ptx


def test_an_assembler_takes_it_for_every_card(ptx, tmp_path):
    assembler = shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"
    if not shutil.which(assembler):
        pytest.skip("there is no ptxas here")
    (tmp_path / "digest.ptx").write_text(ptx)
    for card in ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"):
        subprocess.run([assembler, f"-arch={card}", "-o", "/dev/null", tmp_path / "digest.ptx"], check=True)
