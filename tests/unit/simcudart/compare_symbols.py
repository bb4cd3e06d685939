#!/usr/bin/python3
"""Fail unless a shared runtime exports just what symbols.def says, each under its version node.

usage: compare_symbols.py VERSION symbols.def LIBRARY
"""
import re
import subprocess
import sys

version, table, library = sys.argv[1:]
rows = re.findall(r"^CUDART_SYMBOL\((\w+), (\w+), (\w+)\)$", open(table).read(), re.M)
wanted = {f"{name}@@libcudart.so.{version}" for name, versions, _ in rows if versions in ("BOTH", f"ONLY_{version}")}
lines = subprocess.check_output(["nm", "--dynamic", "--defined-only", library], text=True).splitlines()
found = {line.split()[-1] for line in lines} - {f"libcudart.so.{version}", f"libcudart.so.{version}@@libcudart.so.{version}"}
for name in sorted(wanted - found):
    print(f"{library} lacks {name}")
for name in sorted(found - wanted):
    print(f"{library} also has {name}: not in symbols.def")
names = [name for name, _, _ in rows]
if names != sorted(set(names)):
    print("symbols.def: rows are not sorted, or one is there twice")
    sys.exit(1)
print(f"{len(wanted & found)} symbols agree")
sys.exit(wanted != found or len(found) < 400)
