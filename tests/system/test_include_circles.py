"""scripts/include-circles on small trees of its own: what it takes for a circle, and what it says of the list of those known."""
import json
import subprocess

import pytest

from conftest import SOURCE


class Tree:
    def __init__(self, folder):
        self.folder = folder
        (folder / "scripts").mkdir()
        (folder / "build/src").mkdir(parents=True)
        self.know()

    def write(self, **files):
        for name, text in files.items():
            path = self.folder / "src/room" / name.replace("__", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def know(self, *rows):
        (self.folder / "scripts/include-circles.known").write_text("# ROOM MODULES REASON\n" + "".join(f"{row}\n" for row in rows))

    def check(self):
        """What the script prints of the tree, compiled as it is now; "": all is well."""
        commands = []
        for source in sorted(self.folder.glob("src/room/*.[cS]")):
            output = f"src/{source.name}.o"
            subprocess.run(["cc", "-O2", "-I", self.folder / "src", "-c", source, "-o", self.folder / "build" / output], check=True)
            commands.append({"directory": str(self.folder / "build"), "file": str(source), "output": output})
        (self.folder / "build/compile_commands.json").write_text(json.dumps(commands))
        answer = subprocess.run([SOURCE / "scripts/include-circles", "--root", self.folder, "--check", self.folder / "build"],
                                capture_output=True, text=True, timeout=60)
        assert answer.stderr == ""
        assert (answer.returncode != 0) == (answer.stdout != "")
        return answer.stdout


@pytest.fixture
def tree(tmp_path):
    tree = Tree(tmp_path)
    tree.write(shared__h="int up(int); int down(int);\n",
               up__c='#include "room/shared.h"\nint up(int i) { return i ? down(i) : 0; }\n',
               down__c='#include "room/shared.h"\nint down(int i) { return i - 1; }\n')
    return tree


def test_calls_one_way_are_not_a_circle(tree):
    assert tree.check() == ""


def test_files_that_call_each_other_are_a_circle_although_they_share_a_header(tree):
    tree.write(down__c='#include "room/shared.h"\nint down(int i) { return up(i - 1); }\n')
    answer = tree.check()
    assert "circle of 2: room/down room/up\n" in answer
    assert "  room/down -> room/up (up)\n    room/up -> room/down (down)\n" in answer
    assert "a circle that include-circles.known does not list: room/down room/up" in answer


def test_a_variable_of_another_file_counts_as_a_call(tree):
    tree.write(up__c='#include "room/shared.h"\nint state; int up(int i) { return down(i); }\n',
               down__c="extern int state; int down(int i) { return state + i; }\n")
    assert "  room/down -> room/up (state)\n" in tree.check()


def test_a_function_in_a_table_of_data_is_a_row_and_not_a_call(tree):
    tree.write(down__c='#include "room/shared.h"\nint (*const table[])(int) = {up, down};\nint down(int i) { return i - 1; }\n')
    assert tree.check() == ""


def test_what_a_headers_inline_function_calls_is_known_by_all_that_include_it(tree):
    tree.write(tools__h='#pragma once\nint down(int);\n')
    tree.write(inline__h='#include "room/tools.h"\nint up(int);\nint more(int);\nstatic inline int twice(int i)\n{\n    return up(up(i));\n}\n',
               shared__h='#include "room/tools.h"\nint up(int);\n',
               inline__c='#include "room/inline.h"\nint more(int i) { return i + 1; }\n',
               up__c='#include "room/shared.h"\nint more(int); int up(int i) { return more(i); }\n')
    assert tree.check() == ""
    tree.write(inline__h='#include "room/tools.h"\nint more(int);\nint (*other)(int);\nstatic inline int twice(int i)\n{\n    return up(up(i));\n}\n',
               inline__c='int up(int);\n#include "room/inline.h"\nint more(int i) { return i + 1; }\n')
    assert "  room/inline -> room/up (up)\n    room/up -> room/inline (more)\n" in tree.check()


def test_a_header_without_a_file_of_its_own_is_not_a_part_of_another(tree):
    tree.write(up_state__h='#pragma once\n#include "room/down.h"\nstruct state { struct own own; };\n',
               up__c='#include "room/up_state.h"\nint up(int i) { return i; }\n',
               down__h='#pragma once\nstruct own { int i; };\nint down(int);\n',
               down__c='#include "room/up_state.h"\nint down(int i) { return i - 1; }\n')
    assert "  room/down -> room/up_state.h (includes it)\n    room/up_state.h -> room/down (includes it)\n" in tree.check()


def test_a_known_circle_passes_until_it_grows_or_goes(tree):
    tree.write(down__c='#include "room/shared.h"\nint down(int i) { return up(i - 1); }\n')
    tree.know("room 2 for this test")
    assert tree.check() == ""
    tree.write(more__c='int down(int); int more(int i) { return down(i); }\n',
               down__c='#include "room/shared.h"\nint more(int); int down(int i) { return up(i - 1) + more(i); }\n')
    assert "room has 3 modules in circles, and may have 2 (include-circles.known)" in tree.check()
    tree.write(down__c='#include "room/shared.h"\nint down(int i) { return i - 1; }\n')
    assert tree.check() == "include-circles.known: the row of room says 2 modules in circles, and there are 0: remove it\n"


def test_a_call_of_a_room_that_stands_above_is_an_arrow_up(tree):
    tree.write(down__c='#include "room/shared.h"\n#include "cellar/deep.h"\nint down(int i) { return deep(i); }\n')
    (tree.folder / "src/cellar").mkdir()
    (tree.folder / "src/cellar/deep.h").write_text("int deep(int);\n")
    (tree.folder / "docs").mkdir()
    (tree.folder / "docs/architecture.md").write_text("| `src/room` | above |\n| `src/cellar` | below |\n")
    assert tree.check() == ""
    (tree.folder / "docs/architecture.md").write_text("| `src/cellar` | above |\n| `src/room` | below |\n")
    assert tree.check() == "upward: room/down -> cellar/deep.h (includes it)\n"
