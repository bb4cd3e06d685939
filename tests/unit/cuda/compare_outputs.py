#!/usr/bin/python3
"""Run two programs and fail on the first lines in which their outputs differ."""
import difflib
import subprocess
import sys

ours, theirs = (subprocess.check_output([program], text=True).splitlines() for program in sys.argv[1:3])
difference = list(difflib.unified_diff(theirs, ours, "toolkit", "ours", n=0, lineterm=""))
print("\n".join(difference[:40]) or f"{len(ours)} facts agree")
sys.exit(1 if difference or len(ours) < 100 else 0)
