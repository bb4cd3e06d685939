// app.js - the page: asks the daemon again and again, and hands each part what it shows.
import { Refusal, findToken, follow, forgetToken, get, setToken } from "./api.js";
import * as dialogs from "./dialogs.js";
import * as plots from "./plots.js";
import * as sessions from "./sessions.js";
import * as turns from "./turns.js";
import { bytes, clock, colour, element, gpuLabel, gpuName, percent, renewChildren, setText } from "./words.js";

const EVENTS_SHOWN = 200;
const NAMED = 5; // holders of a card's memory
const MODES = { free: "free to all", open: "open to all", shares: "by shares", turns: "in turns" };
const byId = (id) => document.getElementById(id);
let list = [];
let cards = [];
let modes = new Map(); // by UUID: how its time is shared
let sparks = new Map(); // by UUID: what NVML showed in the last ten minutes
let isStarted = false;
let wake = () => {};

/* --- GPUs --- */

function fact(what, value) {
  return element("div", {}, element("dt", { textContent: what }), element("dd", { textContent: value }));
}

// What of a session's memory on a GPU is there: the rest is in host memory, told for all of its GPUs together.
function onCard(session, part) {
  const away = session.used_bytes ? Math.min(1, (session.evicted_bytes || 0) / session.used_bytes) : 0;
  return part.used_bytes * (1 - away);
}

// Who holds the card's memory: sessions, most first; programs outside of sessions; the rest by nobody we know.
function stackOf(gpu) {
  const held = list.flatMap((session) => session.gpus.filter((part) => part.uuid === gpu.uuid)
    .map((part) => ({ session, bytes: onCard(session, part) }))).filter((part) => part.bytes > 0).sort((a, b) => b.bytes - a.bytes).slice(0, 24);
  const parts = held.map(({ session, bytes: count }) => {
    const part = element("i", { title: `${session.name}: ${bytes(count)}` });
    part.style.background = colour(session.session_id);
    part.style.width = `${(100 * count) / gpu.total_bytes}%`;
    return part;
  });
  if (gpu.uncovered_bytes) {
    const part = element("i", { className: "outside", title: `outside of sessions: ${bytes(gpu.uncovered_bytes)}` });
    part.style.width = `${(100 * gpu.uncovered_bytes) / gpu.total_bytes}%`;
    parts.push(part);
  }
  const bar = element("div", { className: "stack", role: "img", ariaLabel: `${bytes(gpu.used_bytes)} of ${bytes(gpu.total_bytes)} in use` }, ...parts);
  const names = held.slice(0, NAMED).map(({ session }) => {
    const swatch = element("i", { className: "swatch" });
    swatch.style.background = colour(session.session_id);
    return element("span", {}, swatch, session.name);
  });
  if (held.length > NAMED) names.push(element("span", { textContent: `and ${held.length - NAMED} more` }));
  return [bar, element("p", { className: "holders" }, ...(names.length ? names : ["no session holds memory"]))];
}

function outside(gpu) {
  const processes = gpu.processes.filter((process) => !process.session_id && process.used_bytes);
  if (!processes.length) return null;
  return element("ul", { className: "outside-list" }, ...processes.slice(0, 5).map((process) =>
    element("li", {}, element("b", { textContent: "Outside of sessions: " }),
      `${process.command || "process"} ${process.pid}${process.user ? `, ${process.user}` : ""}, ${bytes(process.used_bytes)}`)));
}

function card(gpu) {
  const values = sparks.get(gpu.uuid) || [];
  return element("article", { className: "panel gpu" },
    element("header", {}, element("span", { className: "index", textContent: gpuLabel(gpu) }), element("h3", { textContent: gpuName(gpu.name), title: gpu.uuid }),
      gpu.healthy ? element("span", { className: "badge", textContent: `${gpu.sessions} ${gpu.sessions === 1 ? "session" : "sessions"}` }) : element("span", { className: "badge bad", textContent: "does not answer" })),
    ...stackOf(gpu),
    element("dl", {}, fact("In use", `${bytes(gpu.used_bytes)} of ${bytes(gpu.total_bytes)}`), fact("Reserved", bytes(gpu.reserved_bytes)),
      gpu.kept_bytes ? fact("Kept by the driver", bytes(gpu.kept_bytes)) : null,
      fact("Time", MODES[modes.get(gpu.uuid)] || modes.get(gpu.uuid) || "–"),
      fact("Busy", gpu.busy_ratio === null ? "–" : percent(gpu.busy_ratio)),
      gpu.temperature_celsius === null ? null : fact("Heat", [`${gpu.temperature_celsius} °C`, gpu.power_watts === null ? "" : `${Math.round(gpu.power_watts)} W`].filter(Boolean).join(", "))),
    values.length ? plots.spark(values, 1) : null, outside(gpu));
}

const drawGpus = () => renewChildren(byId("gpu-list"), cards.map(card));

/* --- Events --- */

const BAD = /denied|broken|overrun|undrain|unhealthy|refused/;

function addEvents(events) {
  const place = byId("event-list");
  const made = events.slice(-EVENTS_SHOWN).reverse().map((event) => element("li", {},
    element("time", { textContent: clock(event.time), dateTime: event.time, title: new Date(event.time).toLocaleString([], { hour12: false }) }),
    element("span", { className: `kind ${BAD.test(event.kind) ? "bad" : ""}`, textContent: event.kind }),
    element("span", { className: "who", textContent: event.name || "" }), element("span", { className: "what", textContent: event.message })));
  place.prepend(...made);
  while (place.children.length > EVENTS_SHOWN) place.lastChild.remove();
  wake();
}

/* --- Asking again and again --- */

function setLink(isOn, text) {
  byId("link").className = `link ${isOn ? "on" : "off"}`;
  setText(byId("link-text"), text);
}

function lost(problem) {
  if (problem instanceof Refusal && problem.status === 401) {
    forgetToken();
    showDoor("The daemon has a new token, as it does with each start: ‘gpuslice dashboard’ prints the address with it.");
  } else if (problem instanceof Refusal) setLink(false, problem.message);
  else setLink(false, "the daemon does not answer; after its start, ‘gpuslice dashboard’ prints a new address");
}

// Do `work` every `interval()` ms, at least five times as long apart as it takes, and not while nobody looks.
function repeat(work, interval, onWake) {
  let timer = null;
  let due = 0; // when the next round begins; 0 while one goes on
  let took = 0; // by the last round that succeeded; to wait in vain is no reason to ask less often
  const plan = (rest) => {
    clearTimeout(timer);
    due = performance.now() + rest;
    timer = setTimeout(round, rest);
  };
  const round = async () => {
    due = 0;
    if (!document.hidden && !byId("page").hidden) {
      const begin = performance.now();
      try {
        await work();
        took = performance.now() - begin;
        setLink(true, "live");
      } catch (problem) {
        lost(problem);
      }
    }
    plan(Math.max(interval(), 5 * took));
  };
  round();
  // Being woken makes the next round earlier and never later: events may come faster than a round takes.
  if (onWake)
    onWake(() => {
      const rest = Math.max(50, took);
      if (performance.now() + rest < due) plan(rest);
    });
}

let firstShown; // called once the first list of sessions is seen
const isShown = new Promise((resolve) => (firstShown = resolve));

async function refreshSessions() {
  list = await get("/v1/sessions");
  sessions.show(list, cards);
  firstShown();
  const shown = sessions.find(dialogs.shownId());
  if (shown) dialogs.fillDetail(shown, sessions.ownerName);
  if (cards.length) {
    drawGpus();
    const scheduler = await get("/v1/scheduler");
    modes = new Map(scheduler.gpus.map((gpu) => [gpu.uuid, gpu.mode]));
    await turns.refresh(list, cards, scheduler);
  }
}

async function refreshGpus() {
  const isFirst = !cards.length;
  if (isFirst) setText(byId("host"), (await get("/v1/version")).host);
  cards = await get("/v1/gpus");
  drawGpus();
  if (isFirst) wake();
}

async function refreshSparks() {
  try {
    const past = await get("/v1/history?since=10m&points=120&sessions=1");
    sparks = new Map(past.gpus.map((line) => [line.gpu_uuid, line.gpu_ratio]));
    drawGpus();
  } catch (problem) {
    if (problem.code !== "ERR_NOT_FOUND") throw problem;
  }
}

/* --- The page --- */

const THEMES = { auto: ["◐", "as the system"], light: ["☀", "light"], dark: ["☾", "dark"] };

function setTheme(theme) {
  const [sign, words] = THEMES[theme] || THEMES.auto;
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = sign;
  byId("theme").setAttribute("aria-label", `Colours: ${words}`);
  byId("theme").dataset.now = theme;
}

function startTheme() {
  setTheme(localStorage.getItem("gpuslice-theme") || "auto");
  byId("theme").addEventListener("click", () => {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(byId("theme").dataset.now) + 1) % names.length];
    localStorage.setItem("gpuslice-theme", next);
    setTheme(next);
    if (isStarted) plots.refresh().catch(lost);
    turns.draw();
  });
}

function showDoor(text) {
  byId("page").hidden = true;
  byId("door").hidden = false;
  byId("token-error").textContent = text;
  setLink(false, "not signed in");
}

async function start() {
  byId("door").hidden = true;
  byId("page").hidden = false;
  if (isStarted) return;
  isStarted = true;
  turns.start();
  repeat(refreshGpus, () => 5000);
  repeat(refreshSessions, () => 1000, (now) => (wake = now));
  isShown.then(() => {
    repeat(refreshSparks, () => 5000);
    repeat(plots.refresh, plots.interval);
  });
  follow(addEvents, lost);
}

addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.matches("input, select, textarea") || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  byId("filter").focus();
});
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => {
    if (isStarted) plots.refresh().catch(lost);
    turns.draw();
  }, 150);
});
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value);
  byId("token").value = "";
  start();
});
startTheme();
sessions.start();
dialogs.start(() => wake());
plots.start();
if (findToken()) start();
else showDoor("");
