"""The dashboard in a real browser, over a live daemon with simulated sessions (docs/dashboard.md)."""
import ctypes
import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import threading

import pytest

from attach_client import Child
from browser import Browser, BrowserMissing
from conftest import GIB, MIB, wait_for
from test_http_tcp import Tcp
from test_quota import in_session, start  # noqa: F401 - a fixture
from test_shares import Worker


@pytest.fixture
def open_daemon(make_daemon, make_gpu):
    """A daemon whose dashboard has been asked for."""
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_TOTAL_MEM=8 * GIB)).start()
    answer = daemon.request("POST", "/v1/dashboard")[1]
    if not answer["has_pages"]:
        pytest.skip("built without the dashboard")
    daemon.port = int(answer["address"].rpartition(":")[2])
    return daemon


@pytest.fixture
def url(open_daemon):
    return open_daemon.cli("dashboard").stdout.strip()


@pytest.fixture(scope="module")
def chromium():
    """To start it takes longer than most tests."""
    try:
        browser = Browser()
    except BrowserMissing as missing:
        pytest.skip(str(missing))
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium):
    """With an empty page, and nothing of other tests."""
    chromium.run("await tools.forget();")
    return chromium


@pytest.fixture
def page(browser, url):
    """The browser with the page open. It may have no problem until the test ends."""
    go(browser, url)
    yield browser
    assert browser.run("return tools.problems;") == []


def go(browser, url):
    browser.run(f"await page.goto({json.dumps(url)}); await page.waitForSelector('#link.on');")


def create(daemon, name, **body):
    status, session = daemon.request("POST", "/v1/sessions", {"name": name, "memory_bytes": GIB, **body})
    assert status == 201, session
    return session


def cell(name, number):
    return f"#session-rows tr:has(.name:has-text('{name}')) td:nth-child({number})"


def text(page, selector):
    return page.run(f"return await page.locator({json.dumps(selector)}).innerText();")


def says(page, selector, what):
    page.run(f"await page.locator({json.dumps(selector)}).filter({{hasText: {json.dumps(what)}}}).waitFor();")


def test_the_command_prints_an_address_with_the_token(open_daemon, url):
    token = (open_daemon.runtime / "simulated" / "http-token").read_text().strip()
    assert url == f"http://127.0.0.1:{open_daemon.port}/#token={token}"
    assert open_daemon.cli("dashboard").stdout.strip() == url  # the same one again
    assert json.loads(open_daemon.cli("dashboard", "--json").stdout)["url"] == url


def test_a_browser_is_opened_without_the_token_among_its_words(open_daemon, url, tmp_path):
    said = tmp_path / "said"
    opener = tmp_path / "xdg-open"
    opener.write_text(f'#!/bin/sh\necho "$@" > {said}\n')
    opener.chmod(0o755)
    environment = open_daemon.environment(PATH=f"{tmp_path}:{os.environ['PATH']}")
    open_daemon.cli("dashboard", "--open", env=environment)
    file = pathlib.Path(said.read_text().strip())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert url in file.read_text() and url.rpartition("=")[2] not in said.read_text()


def test_pages_may_run_nothing_else_and_be_shown_in_nothing(open_daemon, url):
    with socket.create_connection(("127.0.0.1", open_daemon.port), 20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(4096)
    head = head.decode("latin1").lower()
    assert " 200 " in head and "set-cookie" not in head
    assert "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self';" in head
    assert "unsafe" not in head and "frame-ancestors 'none'" in head and "x-content-type-options: nosniff" in head
    page = (pathlib.Path(__file__).resolve().parents[2] / "src" / "dashboard" / "index.html").read_text()
    assert "style=" not in page and "onclick" not in page and "<script>" not in page
    tcp = Tcp(open_daemon, open_daemon.port)
    assert tcp.ask("GET", "/", host="evil.example")[0] == 403
    assert tcp.ask("GET", "/v1/sessions")[0] == 401
    assert tcp.ask("POST", "/")[0] == 404


def test_a_page_without_the_token_asks_for_it(open_daemon, url, browser):
    address, _, token = url.partition("#token=")
    browser.run(f"""await page.goto({json.dumps(address)}); await page.locator('#token-form').waitFor();
                    await page.locator('#token').fill('wrong'); await page.keyboard.press('Enter');
                    await page.locator('#token-error', {{hasText: 'new token, as it does with each start'}}).waitFor();
                    await page.locator('#token').fill({json.dumps(token)}); await page.keyboard.press('Enter');
                    await page.waitForSelector('#link.on'); await page.waitForSelector('#gpu-list article');""")
    assert browser.run("return page.url();") == address
    browser.run("await page.reload(); await page.waitForSelector('#link.on');")  # it is kept for the tab


def test_the_token_leaves_the_address_and_no_cookie_is_set(page):
    assert "token" not in page.run("return page.url();")
    assert page.run("return [document.cookie, (await page.context().cookies()).length];"
                    .replace("document.cookie", "await page.evaluate(() => document.cookie)")) == ["", 0]


def test_numbers_are_the_apis(open_daemon, page, start):
    session = create(open_daemon, "train", compute="25%..50%", priority="high")
    puppet = start(in_session(open_daemon, session))
    puppet.get("alloc", 768 * MIB)
    says(page, cell("train", 5), "768 MiB / 1 GiB")
    assert open_daemon.session("train")["used_bytes"] == 768 * MIB
    assert "at most 50%" in text(page, cell("train", 6)) and "at least 25%" in text(page, cell("train", 7))
    assert text(page, "#host") == os.uname().nodename and text(page, cell("train", 2)) == session["owner"]
    assert text(page, cell("train", 8)) == "1"
    (card,) = open_daemon.request("GET", "/v1/gpus")[1]
    says(page, "#gpu-list article", "1 session")
    assert card["reserved_bytes"] == GIB
    shown = page.run("return await page.locator('#gpu-list dd').allInnerTexts();")
    assert shown[0].endswith(" of 8 GiB") and shown[1] == "1 GiB"
    width = page.run("return await page.evaluate(() => document.querySelector('.stack i').style.width);")
    assert float(width.rstrip("%")) == pytest.approx(100 * 768 / 8192)
    page.run(f"await page.locator({json.dumps(cell('train', 1))}).locator('.name').click();")
    detail = text(page, "#detail-body")
    assert session["session_id"] in detail and "high" in detail and str(puppet.process.pid) in detail


def test_a_load_that_nobody_measures_is_that_of_the_busiest_gpu(open_daemon, browser, url):
    wide = create(open_daemon, "wide")["session_id"]
    browser.run(f"""await page.route('**/v1/gpus', async (route) => {{
                        const answer = await route.fetch();
                        const [card] = await answer.json();
                        const busy = (...ratios) => ({{...card, processes: ratios.map((busy_ratio) => ({{session_id: '{wide}', busy_ratio}}))}});
                        await route.fulfill({{response: answer, json: [busy(0.4), busy(0.25, 0.5)]}}); }});""")
    go(browser, url)
    says(browser, cell("wide", 6), "~75% by NVML")


def test_a_session_is_made_changed_and_released_from_the_page(open_daemon, page):
    page.run("""await page.locator('#create').click();
                await page.locator('#editor [name=name]').fill('made'); await page.locator('#editor [name=memory]').fill('512M');
                await page.locator('#editor [name=compute]').fill('10%..90%');
                await page.locator('#editor [name=when_full]').selectOption('refuse'); await page.locator('#editor-send').click();""")
    says(page, "#session-rows", "made")
    made = open_daemon.session("made")
    assert (made["vram_limit_bytes"], made["compute_min_ratio"]) == (512 * MIB, 0.1)
    assert (made["oversubscribe"], made["when_full"]) == ("none", "refuse")
    page.run("""await page.getByRole('button', {name: 'Change made'}).click();
                await page.locator('#editor [name=memory]').fill('2GiB'); await page.locator('#editor [name=priority]').selectOption('low');
                await page.locator('#editor [name=ttl]').fill('2h'); await page.keyboard.press('Tab'); await page.locator('#editor-send').click();""")
    says(page, cell("made", 5), "/ 2 GiB")
    changed = open_daemon.session("made")
    assert (changed["vram_limit_bytes"], changed["priority"], changed["compute_min_ratio"]) == (2 * GIB, "low", 0.1)
    assert changed["expires_at"]
    says(page, cell("made", 1), "expires in 1 h 59 min")
    says(page, "#ranges [aria-pressed=true]", "10 min")  # the daemon has no more past than that
    page.run("await page.getByRole('button', {name: 'Release made'}).click(); await page.locator('#question-yes').click();"
             "await page.locator('#no-sessions').waitFor();")
    assert open_daemon.request("GET", "/v1/sessions") == (200, [])
    page.run("""await page.locator('#create').click(); await page.locator('#editor [name=name]').fill('paged');
                await page.locator('#editor [name=oversubscribe]').selectOption('managed'); await page.locator('#editor-send').click();""")
    says(page, "#session-rows", "paged")
    assert open_daemon.session("paged")["oversubscribe"] == "managed"


def test_a_session_leaves_the_card_and_comes_back_from_the_page(open_daemon, page, start):
    puppet = start(in_session(open_daemon, create(open_daemon, "lends", oversubscribe="swap")))
    puppet.get("alloc", 64 * MIB)
    says(page, cell("lends", 5), "64 MiB / 1 GiB")
    page.run("await page.getByRole('button', {name: 'Suspend lends'}).click();")
    says(page, cell("lends", 3), "suspended")
    assert open_daemon.session("lends")["residency"] == "away"
    page.run("await page.locator('#session-rows .name').click(); await page.locator('#detail-body', {hasText: 'in host memory'}).waitFor();"
             "await page.locator('#detail-suspend', {hasText: 'Resume'}).click(); await page.locator('#detail [data-close]').click();")
    wait_for(lambda: open_daemon.session("lends")["residency"] == "resident", "it to be back")
    says(page, cell("lends", 3), "active")
    stays = create(open_daemon, "stays")
    says(page, "#session-rows", "stays")
    assert page.run("return await page.getByRole('button', {name: 'Suspend stays'}).count();") == 0 and stays["oversubscribe"] == "none"


def test_a_session_of_which_some_stays_is_partly_away(open_daemon, page, start):
    puppet = start(in_session(open_daemon, create(open_daemon, "lends", oversubscribe="swap")))
    puppet.get("alloc", 64 * MIB)
    puppet.get("ipcget", puppet.get("alloc", 32 * MIB))
    says(page, cell("lends", 5), "96 MiB / 1 GiB")
    page.run("await page.getByRole('button', {name: 'Suspend lends'}).click();")
    says(page, cell("lends", 3), "partly away")
    page.run("await page.locator('#session-rows .name').click();"
             "await page.locator('#detail-body', {hasText: '32 MiB exported to other processes'}).waitFor();"
             "await page.locator('#detail-suspend', {hasText: 'Resume'}).click(); await page.locator('#detail [data-close]').click();")
    wait_for(lambda: open_daemon.session("lends")["residency"] == "resident", "it to be back")


def test_what_the_daemon_refuses_is_said_in_the_dialog(open_daemon, browser, url):
    go(browser, url)
    browser.run("""await page.locator('#create').click(); await page.locator('#editor [name=memory]').fill('80GiB');
                   await page.locator('#editor-send').click();
                   await page.locator('#editor-error', {hasText: 'GPU 0'}).waitFor();
                   await page.locator('#editor [name=memory]').fill('lots'); await page.locator('#editor-send').click();
                   await page.locator('#editor-error', {hasText: "'lots' is not a size"}).waitFor();""")
    assert open_daemon.request("GET", "/v1/sessions")[1] == []


def test_programs_are_ended_only_when_that_was_said(open_daemon, page, start):
    puppet = start(in_session(open_daemon, create(open_daemon, "busy")))
    says(page, cell("busy", 8), "1")
    page.run("await page.getByRole('button', {name: 'Release busy'}).click();")
    assert "One process runs in it" in text(page, "#question-text")
    page.run("await page.locator('#question [data-close]').click();")
    assert puppet.process.poll() is None and open_daemon.session("busy")["state"] == "active"
    page.run("await page.getByRole('button', {name: 'Release busy'}).click(); await page.locator('#question-yes').click();"
             "await page.locator('#no-sessions').waitFor();")
    assert puppet.process.wait(20) != 0


def test_events_come_as_they_happen(open_daemon, page):
    create(open_daemon, "late")
    says(page, "#event-list li >> nth=0", "session.created")
    assert "late" in text(page, "#event-list li >> nth=0")
    open_daemon.cli("release", "late")
    page.run("await page.locator('#event-list li', {hasText: 'session.ended'}).first().waitFor();")


@pytest.mark.parametrize("name, shown", [
    (b"<b id=owned>x", "<b id=owned>x"), (b"</td><script>", "</td><script>"), (b"<img src=/own>", "<img src=/own>"),
    (b"\"'&lt;${1}{{1}}", "\"'&lt;${1}{{1}}"), ("a\u202eb\u2028c".encode(), "a???b???c"), (b"\x1b[2J\xff", "?[2J?"),
], ids=range(6))
def test_what_programs_call_themselves_is_text_wherever_it_is_shown(open_daemon, page, name, shown):
    """A process names itself; where a cluster names a session, the daemon takes no character that means anything to a page."""
    session = create(open_daemon, "train")
    status, answer = open_daemon.request("PATCH", "/v1/sessions/train", {"pod": "<b id=owned>", "namespace": "a", "container": "c"})
    assert status == 400 and "pod" in answer["error"]["message"]
    ctypes.CDLL(None).prctl(15, name)
    try:
        child = Child(open_daemon.attach_socket, session["session_id"])
    finally:
        ctypes.CDLL(None).prctl(15, b"pytest")
    says(page, cell("train", 8), "1")
    page.run("await page.locator('#session-rows .name').click(); await page.locator('#detail[open]').waitFor();")
    says(page, "#detail-body", str(child.pid))
    assert shown in text(page, "#detail-body")
    child.kill()
    page.run("await page.keyboard.press('Escape');")
    page.run("await page.locator('#event-list li', {hasText: 'process'}).first().waitFor();")
    assert page.run("return await page.evaluate(() => document.querySelectorAll('#owned, td script, #event-list script, "
                    "td img, #event-list img, #detail-body img, #detail-body b').length);") == 0


def test_events_in_quick_succession_do_not_keep_news_from_the_page(open_daemon, page, start):
    """Each event makes the page look soon, and here the next event comes before a look is over."""
    puppet = start(in_session(open_daemon, create(open_daemon, "train")))
    page.run("""await page.route('**/v1/sessions', async (route) => {
                    await new Promise((resolve) => setTimeout(resolve, 300)); await route.continue(); });
                for (let i = 0; i < 2; i++) await page.waitForResponse((answer) => answer.url().endsWith('/v1/sessions'));""")
    is_over = threading.Event()

    def make_and_release():
        while not is_over.wait(0.03):
            create(open_daemon, "brief")
            open_daemon.request("DELETE", "/v1/sessions/brief")

    thread = threading.Thread(target=make_and_release)
    thread.start()
    try:
        page.run("await page.locator('#event-list li', {hasText: 'brief'}).nth(10).waitFor();")
        puppet.get("alloc", 64 * MIB)
        says(page, cell("train", 5), "64 MiB")
    finally:
        is_over.set()
        thread.join()
        page.run("await page.unrouteAll({behavior: 'wait'});")


def test_plots_show_what_was_held_and_change(open_daemon, page, start):
    puppet = start(in_session(open_daemon, create(open_daemon, "train")))
    puppet.get("alloc", 512 * MIB)
    page.run("await page.locator('#ranges [data-since=\"10m\"]').click();"
             "await page.locator('#plot-memory .u-legend', {hasText: 'train'}).waitFor();")
    picture = "return await page.evaluate(() => document.querySelector('#plot-memory canvas').toDataURL());"
    before = page.run(picture)
    wait_for(lambda: page.run(picture) != before, "the plot to change")


def test_an_answer_that_comes_after_another_button_was_pressed_is_not_shown(open_daemon, page, start):
    start(in_session(open_daemon, create(open_daemon, "train"))).get("alloc", 512 * MIB)
    page.run("await page.locator('#ranges [data-since=\"10m\"]').click();"
             "await page.locator('#plot-memory .u-legend', {hasText: 'train'}).waitFor();")
    said = page.run("""
        const is = (range) => (answer) => answer.url().includes(`since=${range}&`) && answer.url().endsWith("sessions=30");
        let release;
        const isReleased = new Promise((resolve) => (release = resolve));
        await page.route(/since=31d&/, async (route) => {
          await isReleased;
          const answer = await (await route.fetch()).text();
          await route.fulfill({ contentType: "application/json", body: answer.replaceAll('"train"', '"a month"') });
        });
        await page.evaluate(() => {
          window.said = "";
          new MutationObserver(() => (window.said += document.getElementById("plot-memory").innerText))
            .observe(document.getElementById("plot-memory"), { childList: true, subtree: true, characterData: true });
        });
        const press = (range) => page.locator(`#ranges [data-since="${range}"]`).click();
        const asked = page.waitForRequest(is("31d"));
        await press("31d");
        await asked;
        const short = page.waitForResponse(is("10m"));
        await press("10m");
        await short;
        const month = page.waitForResponse(is("31d"));
        release();
        await (await month).finished();
        const next = page.waitForResponse(is("10m"));
        await press("10m");
        await (await next).finished();
        await page.unrouteAll({ behavior: "wait" });
        return await page.evaluate(() => window.said);""")
    assert "train" in said and "a month" not in said


def test_turns_are_drawn(open_daemon, page, reap):
    for name in "one", "two":
        create(open_daemon, name, compute="20%..100%")
        Worker(open_daemon, reap, None, "500", session=name).begin(60000)
    page.run("await page.locator('#turns-note', {hasText: 'have it alone'}).waitFor();")
    ids = {open_daemon.session(name)["session_id"] for name in ("one", "two")}

    def turns_of_both():
        turns = open_daemon.request("GET", "/v1/scheduler/turns")[1]["turns"]
        return {turn["session_id"] for turn in turns if turn["end_seconds"]} == ids and turns

    turns = wait_for(turns_of_both, "turns of both")
    closed = [turn for turn in turns if turn["end_seconds"] and turn["lease"] == "exclusive"]
    assert closed and all(0 < turn["end_seconds"] - turn["begin_seconds"] < 10 for turn in closed)
    pixels = """return await page.evaluate(() => {
        const canvas = document.getElementById('turns-canvas'), pen = canvas.getContext('2d'), found = new Set();
        for (let x = 60; x < canvas.width; x++) found.add(pen.getImageData(x, 3, 1, 1).data.slice(0, 3).join());
        return [...found]; });"""
    wait_for(lambda: {"57,135,229", "229,128,58"} <= set(page.run(pixels)), "the first two sessions' colours")
    page.run("await page.locator('#turns-canvas').focus(); await page.keyboard.press('-'); await page.keyboard.press(' ');")
    assert text(page, "#turns-span") == "2 s"
    assert page.run("return await page.locator('#turns-hold').getAttribute('aria-pressed');") == "true"


def test_a_turn_whose_end_nobody_told_is_over(open_daemon, page):
    """The page missed the end: it was hidden for long, or another daemon answers; or the machine's clock began anew."""
    (gpu,) = open_daemon.request("GET", "/v1/gpus")[1]
    turn = {"uuid": gpu["uuid"], "session_id": None, "lease": "exclusive", "asked_seconds": None, "steps": 0}
    earlier = {"now_seconds": 9e8, "turns": [{**turn, "begin_seconds": 9e8 - 3, "end_seconds": 9e8 - 2},
                                             {**turn, "begin_seconds": 9e8 - 1, "end_seconds": None}]}
    page.run(f"await page.route('**/v1/scheduler/turns*', (route) => route.fulfill({{json: {json.dumps(earlier)}}}));"
             "await page.locator('#turns-note', {hasText: 'have it alone'}).waitFor();"
             "await page.unrouteAll({behavior: 'wait'});"
             "await page.locator('#turns-note', {hasText: 'None has been taken'}).waitFor();")


def test_the_keyboard_is_enough(open_daemon, page):
    create(open_daemon, "alpha")
    create(open_daemon, "beta")
    says(page, "#session-rows", "beta")
    page.run("await page.keyboard.press('/'); await page.keyboard.type('alph');"
             "await page.locator('#session-rows tr', {hasText: 'beta'}).waitFor({state: 'detached'});")
    page.run("await page.keyboard.press('Tab'); await page.keyboard.press('Shift+Tab');"
             "await page.locator('#session-rows .name').focus(); await page.keyboard.press('Enter');"
             "await page.locator('#detail[open]').waitFor();")
    assert text(page, "#detail-title") == "alpha"
    page.run("await page.keyboard.press('Escape'); await page.locator('#detail[open]').waitFor({state: 'detached'});")
    assert "name" in page.run("return await page.evaluate(() => document.activeElement.className);")


LOOKS = "for (let i = 0; i < 2; i++) await page.waitForResponse((answer) => answer.url().endsWith('/v1/scheduler'));"
FOCUSED = "await page.evaluate(() => document.activeElement.ariaLabel || document.activeElement.textContent)"


def test_news_take_neither_the_focus_nor_a_press_nor_what_is_marked(open_daemon, page, start):
    puppet = start(in_session(open_daemon, create(open_daemon, "train")))
    says(page, cell("train", 8), "1")
    page.run("await page.locator('#session-rows .name').click(); await page.locator('#detail-release').focus();")
    assert page.run(LOOKS + f"return {FOCUSED};") == "Release"
    page.run("await page.keyboard.press('Enter'); await page.locator('#question[open]').waitFor(); await page.keyboard.press('Escape');")
    pid = str(puppet.process.pid)
    cell_of_pid = json.dumps(f"#detail-body td:text-is('{pid}')")
    marked = "return await page.evaluate(() => getSelection().toString().trim());"
    # Once the page has measured where the number stands, a new line above may move it away from the pointer.
    wait_for(lambda: page.run(f"await page.locator({cell_of_pid}).dblclick();" + marked) == pid, "the number to be marked")
    puppet.get("alloc", 64 * MIB)
    says(page, "#detail-body", "64 MiB")
    assert page.run(marked) == pid
    page.run("await page.locator('#detail-change').hover(); await page.mouse.down();" + LOOKS +
             "await page.mouse.up(); await page.locator('#editor[open]').waitFor();")


def test_a_row_that_moves_keeps_the_focus(open_daemon, page, start):
    puppets = {name: start(in_session(open_daemon, create(open_daemon, name))) for name in ("alpha", "beta")}
    puppets["alpha"].get("alloc", 64 * MIB)
    says(page, cell("alpha", 5), "64 MiB")
    page.run("await page.getByRole('button', {name: 'Change beta'}).focus();")
    puppets["beta"].get("alloc", 128 * MIB)
    says(page, "#session-rows tr >> nth=0", "128 MiB")
    assert page.run(f"return {FOCUSED};") == "Change beta"


def test_the_buttons_are_those_that_the_session_can_do(open_daemon, page, start):
    create(open_daemon, "stays")
    start(in_session(open_daemon, create(open_daemon, "lends", oversubscribe="swap")))
    says(page, cell("lends", 8), "1")

    def buttons(name):
        return page.run(f"""await page.locator({json.dumps(cell(name, 1))}).locator('.name').click();
                            const words = await page.locator('#detail footer :visible').allInnerTexts();
                            await page.keyboard.press('Escape'); return words;""")

    assert buttons("stays") == ["Change", "Release"]
    assert buttons("lends") == ["Suspend", "Change", "Release"]



@pytest.mark.parametrize("scheme, width", [("light", 1440), ("dark", 1440), ("dark", 390)])
def test_nothing_keeps_people_from_using_it(open_daemon, url, browser, start, scheme, width):
    puppet = start(in_session(open_daemon, create(open_daemon, "train", compute="20%..60%")))
    puppet.get("alloc", 1000 * MIB)
    create(open_daemon, "rest")
    browser.run(f"page = await tools.newPage({{viewport: {{width: {width}, height: 900}}, colorScheme: '{scheme}'}});")
    go(browser, url)
    says(browser, cell("train", 5), "1000 MiB")

    def faults():
        return [fault for fault in browser.run("return await tools.axe();") if fault["impact"] in ("serious", "critical")]

    assert faults() == []
    overflow = browser.run("return await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);")
    assert overflow <= 0
    browser.run("await page.locator('#session-rows .name').first().click();")
    assert faults() == []
    browser.run("await page.locator('#detail-change').click();")
    assert faults() == []
    assert browser.run("return tools.problems;") == []


def test_the_page_says_when_the_daemon_has_gone_and_comes_back(open_daemon, browser, url):
    go(browser, url)
    open_daemon.kill()
    browser.run("await page.waitForSelector('#link.off');")
    assert "does not answer" in text(browser, "#link-text")


def test_the_page_says_when_the_daemon_hangs_and_asks_on(open_daemon, browser, url):
    """The page's half a minute is 3 s here."""
    browser.run("""await page.addInitScript(() => {
        const timeout = AbortSignal.timeout.bind(AbortSignal);
        AbortSignal.timeout = (ms) => timeout(ms / 10); });""")
    go(browser, url)
    open_daemon.process.send_signal(signal.SIGSTOP)
    try:
        browser.run("await page.waitForSelector('#link.off');")
        assert "does not answer" in text(browser, "#link-text")
    finally:
        open_daemon.process.send_signal(signal.SIGCONT)
    # Not five times as long as it has waited in vain.
    browser.run("await page.waitForResponse((answer) => answer.url().endsWith('/v1/sessions'), {timeout: 8000});"
                "await page.waitForSelector('#link.on');")


IS_EVENTS = "(request) => request.url().endsWith('/v1/events')"


def is_told(page, name):
    page.run(f"await page.locator('#event-list li', {{hasText: '{name}'}}).waitFor();")


def newest_event(daemon):
    lines = daemon.request("GET", "/v1/events?follow=false")[1].splitlines()
    return [line for line in lines if line.startswith("id: ")][-1].removeprefix("id: ")


def test_events_are_asked_for_again_when_nothing_came_for_long(open_daemon, browser, url):
    browser.run(f"await page.clock.install(); page.asked = []; const isEvents = {IS_EVENTS};"
                "page.on('request', (request) => isEvents(request) && page.asked.push(request.headers()['last-event-id']));")
    go(browser, url)
    for name in "first", "second":  # together longer than the page waits, but each is heard
        browser.run("await page.clock.fastForward(30000);")
        create(open_daemon, name)
        is_told(browser, name)
    assert browser.run("return page.asked.length;") == 1
    newest = newest_event(open_daemon)
    asked = browser.run(f"const again = page.waitForRequest({IS_EVENTS}); await page.clock.fastForward(41000);"
                        "return (await again).headers()['last-event-id'];")
    assert asked == newest
    create(open_daemon, "third")
    is_told(browser, "third")
    is_told(browser, "second")  # once: strict locators see one element


def test_a_page_that_nobody_looks_at_keeps_no_connection_for_events(open_daemon, page):
    def look(is_hidden):
        return (f"await page.evaluate(() => {{ Object.defineProperty(document, 'hidden', {{configurable: true, get: () => {is_hidden}}});"
                "document.dispatchEvent(new Event('visibilitychange')); });")

    create(open_daemon, "before")
    is_told(page, "before")
    newest = newest_event(open_daemon)
    page.run(f"const ended = page.waitForEvent('requestfailed', {IS_EVENTS}); {look('true')} await ended;")
    create(open_daemon, "meanwhile")
    asked = page.run(f"const again = page.waitForRequest({IS_EVENTS}); {look('false')} return (await again).headers()['last-event-id'];")
    assert asked == newest
    is_told(page, "meanwhile")
    is_told(page, "before")


def test_a_thousand_sessions_are_listed_a_part_at_a_time(open_daemon, page):
    for number in range(1000):
        open_daemon.request("POST", "/v1/sessions", {"name": f"s{number:04}"})
    says(page, "#more-line", "100 of 1000")
    assert page.run("return await page.locator('#session-rows tr').count();") == 100
    page.run("await page.locator('#filter').fill('s0777'); await page.locator('#session-rows tr', {hasText: 's0777'}).waitFor();")
    assert page.run("return await page.locator('#session-rows tr').count();") == 1
    page.run("await page.locator('#filter').fill(''); await page.locator('#more').click();")
    assert page.run("return await page.locator('#session-rows tr').count();") == 200


def test_no_other_user_opens_the_dashboard(open_daemon):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    client = subprocess.run(["setpriv", "--reuid=65533", "--clear-groups", open_daemon.product.gpuslice, "dashboard"],
                            env=open_daemon.environment(), capture_output=True, text=True)
    assert client.returncode == 1 and "token" not in client.stdout
