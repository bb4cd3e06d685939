"""Write a text file as a C string: embed.py INPUT OUTPUT NAME."""
import sys

source, target, name = sys.argv[1:]
with open(source, encoding="ascii") as text, open(target, "w", encoding="ascii") as out:
    out.write(f"/* Made from {source.rsplit('/', 1)[-1]}. */\n#pragma once\n\nstatic const char {name}[] =\n")
    for line in text.read().splitlines():
        escaped = line.replace("\\", "\\\\").replace('"', '\\"')
        out.write(f'    "{escaped}\\n"\n')
    out.write("    ;\n")
