"""How this machine's CPUs spend their time."""
import os


def cpu_ticks():
    """The time of all CPUs since the machine started, in clock ticks: (in all, idle, given to others by a virtual machine's host).
    See proc(5), /proc/stat."""
    with open("/proc/stat") as file:
        numbers = [int(n) for n in file.readline().split()[1:9]]
    return sum(numbers), numbers[3] + numbers[4], numbers[7]


def stolen_ms():
    """How long a virtual machine's host has given our CPUs to others (steal). To a thread that was running then, the kernel counts
    it as computing."""
    return cpu_ticks()[2] * 1000 / os.sysconf("SC_CLK_TCK")
