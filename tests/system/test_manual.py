"""The manual pages: there, well-formed, and complete."""
import re
import shutil
import subprocess

import pytest

from conftest import SOURCE

PAGES = ["man1/gpuslice.1", "man1/gpu-check.1", "man5/gpuslice.conf.5", "man5/sessions.conf.5",
         "man7/libfakecuda.7", "man7/libgpuslice.7", "man8/gpusliced.8", "man8/gpuslice-kubelet.8"]


def path(product, page):
    return product.prefix / "share/man" / page


def shown(product, page):
    """The page as a person sees it, without marks, on lines wide enough to break nothing."""
    formatted = subprocess.run(["mandoc", "-T", "ascii", "-O", "width=1000", path(product, page)], capture_output=True,
                               text=True, check=True)
    return re.sub(".\b", "", formatted.stdout)  # a letter struck twice is bold


needs_mandoc = pytest.mark.skipif(not shutil.which("mandoc"), reason="no mandoc here")


@needs_mandoc
@pytest.mark.parametrize("page", PAGES)
def test_mandoc_finds_nothing_wrong(product, page):
    found = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", path(product, page)], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.skipif(not shutil.which("man"), reason="no man here")
@pytest.mark.parametrize("page", PAGES)
def test_man_finds_nothing_wrong(product, page):
    found = subprocess.run(["man", "--warnings=w", "--local-file", "-Tutf8", path(product, page)],
                           capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
    assert len(found.stdout) > 1000


def words_of_help(*command):
    help_text = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  (--[\w-]+)", help_text, re.MULTILINE)


@needs_mandoc
def test_the_page_of_gpuslice_has_every_verb_and_option(product):
    page = shown(product, "man1/gpuslice.1")
    listed = subprocess.run([product.gpuslice, "help"], capture_output=True, text=True).stdout
    verbs = re.findall(r"^  (\w+) {2,}", listed, re.MULTILINE)
    assert {"run", "create", "release", "help"} <= set(verbs)
    for verb in verbs:
        (section,) = re.findall(rf"^   gpuslice {verb} .*?(?=^   gpuslice |^[A-Z])", page, re.MULTILINE | re.DOTALL)
        for option in words_of_help(product.gpuslice, verb):
            assert re.search(rf"^ +{option}\b", section, re.MULTILINE), (verb, option)


@needs_mandoc
@pytest.mark.parametrize("program,page", [("gpusliced", "man8/gpusliced.8"), ("gpu-check", "man1/gpu-check.1"),
                                          ("gpuslice-kubelet", "man8/gpuslice-kubelet.8")])
def test_the_page_of_a_program_has_every_option(product, program, page):
    text = shown(product, page)
    options = words_of_help(product.prefix / "bin" / program)
    assert "--simulated" in options
    for option in options:
        assert re.search(rf"^ +{option}\b", text, re.MULTILINE), option


@needs_mandoc
def test_every_environment_variable_is_in_a_page(product):
    pages = "".join(shown(product, page) for page in PAGES)
    read = set()
    for source in (SOURCE / "src").rglob("*.[ch]"):
        if "gpucheck" not in source.parts:
            read |= set(re.findall(r'"((?:GPUSLICE|FAKECUDA|TENSOR_FUSION)_[A-Z_]+)"', source.read_text()))
    assert {"GPUSLICE_SESSION", "FAKECUDA_GPUS"} <= read
    assert {name for name in read if not re.search(rf"\b{name}" + ("" if name.endswith("_") else r"\b"), pages)} == set()


@needs_mandoc
@pytest.mark.parametrize("page,sections", [("man5/gpuslice.conf.5", "DAEMON|DEFAULTS|CEILING"),
                                           ("man5/sessions.conf.5", "SESSION")])
def test_the_page_of_a_file_has_every_key(product, page, sections):
    text = shown(product, page)
    table = (SOURCE / "src/config/keys.def").read_text()
    keys = re.findall(rf'^CONFIG_KEY\((?:{sections}), "([\w-]+)"', table, re.MULTILINE)
    assert "memory" in keys
    of = dict(zip(("DEFAULTS", "CEILING", "SESSION"), (-5, -4, -3)))
    rows = (SOURCE / "src/config/session_properties.def").read_text().split("SESSION_PROPERTY(")[2:]
    for row in rows:
        cells = re.findall(r'"[^"]*"|\w+(?: \| \w+)*', row[:row.rindex(")")])
        keys += [cells[5].strip('"') for section in sections.split("|") if section in of and cells[of[section]] != "NULL"]
    assert "compute" in keys
    for key in keys:
        assert len(re.findall(rf"^ {{5}}{key}\b", text, re.MULTILINE)) >= keys.count(key), key


def test_help_keeps_options_and_what_they_do_apart(product):
    listed = subprocess.run([product.gpuslice, "help"], capture_output=True, text=True).stdout
    for verb in re.findall(r"^  (\w+) {2,}", listed, re.MULTILINE):
        text = subprocess.run([product.gpuslice, verb, "--help"], capture_output=True, text=True, check=True).stdout
        for line in re.findall("^  --.*", text, re.MULTILINE):
            assert re.fullmatch(r"  --\S+( \S+)?", line) or (line[21] == " " and line[22] != " "), line
