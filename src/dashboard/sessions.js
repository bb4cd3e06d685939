// sessions.js - the table of sessions: sorted, filtered, a part of it at a time, and changed in place.
import { COLUMNS } from "./columns.js";
import { bytes, colour, element, gpuLabel, percent, seconds, setText } from "./words.js";
import { fitButtons, openDetail, openEditor, openRelease, suspendOrResume } from "./dialogs.js";

const PART = 100;
const rows = new Map(); // by ID: the row and its parts
let sessions = [];
let limit = PART;
let sortBy = "memory";
let isDown = true;
let filter = "";

export const ownerName = (session) => session.owner || `uid ${session.owner_uid}`;
const isFree = (session) => session.lease === "free" || (session.lease === "none" && !session.waiting && !session.gpus.some((gpu) => gpu.compute_achieved_ratio));
// Where no share counts nobody measures: what NVML shows of the session's processes stands in.
let busy = new Map(); // by ID
const time = (session) => isFree(session) ? busy.get(session.session_id) || 0 : Math.max(0, ...session.gpus.map((gpu) => gpu.compute_achieved_ratio));
const KEYS = {
  name: (session) => session.name.toLowerCase(), owner: ownerName, status: (session) => session.status, memory: (session) => session.used_bytes,
  time, speed: (session) => session.compute_progress_ratio ?? -1, processes: (session) => session.processes.length,
};

function meter(label) {
  const fill = element("i", { className: "fill" });
  const text = element("span", { className: "text" });
  const track = element("div", { className: "track" }, fill);
  return { root: element("div", { className: "meter", title: label }, text, track), fill, text, track };
}

function setMeter(part, ratio, text) {
  const shown = Math.max(0, Math.min(1, ratio || 0));
  part.fill.style.width = `${(100 * shown).toFixed(1)}%`;
  setText(part.text, text);
}

function makeRow(session) {
  const parts = {
    swatch: element("i", { className: "swatch" }), title: element("span"), id: element("span", { className: "id" }),
    owner: element("span"), status: element("span", { className: "badge" }), gpu: element("span"),
    memory: meter(COLUMNS.memory.help), time: meter(COLUMNS.time.help), speed: meter(COLUMNS.speed.help),
    processes: element("span"), expires: element("span", { className: "id" }),
    max: element("b", { className: "mark", title: "its maximum" }), min: element("b", { className: "mark", title: "its minimum" }), away: element("i", { className: "away" }),
    suspend: element("button", { type: "button" }),
    change: element("button", { type: "button", textContent: "Change" }), release: element("button", { type: "button", textContent: "Release" }),
  };
  parts.time.track.append(parts.max);
  parts.speed.track.append(parts.min);
  parts.memory.track.append(parts.away);
  parts.swatch.style.background = colour(session.session_id);
  const current = () => rows.get(session.session_id).session;
  const name = element("button", { type: "button", className: "name", onclick: () => openDetail(current(), ownerName) }, parts.swatch, parts.title, parts.id, parts.expires);
  parts.change.onclick = () => openEditor(current());
  parts.release.onclick = () => openRelease(current());
  parts.suspend.onclick = () => suspendOrResume(current());
  const cell = (column, className, ...children) => {
    const made = element("td", { className }, ...children);
    made.dataset.label = COLUMNS[column]?.title ?? "";
    return made;
  };
  const row = element("tr", {}, cell("session", "", name), cell("owner", "owner", parts.owner), cell("status", "", parts.status), cell("gpu", "", parts.gpu),
    cell("memory", "", parts.memory.root), cell("time", "", parts.time.root), cell("speed", "", parts.speed.root),
    cell("processes", "number", parts.processes), cell("", "", element("div", { className: "actions" }, parts.suspend, parts.change, parts.release)));
  row.dataset.session = session.session_id;
  return { row, parts, session };
}

// The daemon's word, with what is known beside it: a place in the queue, how far a move is.
function statusOf(session) {
  if (session.queue_position) return `${session.status}, ${session.queue_position}.`;
  return session.move?.total_bytes ? `${session.status} ${percent(session.move.done_bytes / session.move.total_bytes)}` : session.status;
}

// What it used of the GPU's time, with a mark at the most that it may take.
function fillTime(parts, session) {
  const used = time(session);
  const most = session.compute_max_ratio < 1 ? `, at most ${percent(session.compute_max_ratio)}` : "";
  setMeter(parts.time, used, isFree(session) ? (used ? `~${percent(used)} by NVML${most}` : `–${most}`) : `${percent(used)}${most}`);
  parts.max.hidden = session.compute_max_ratio >= 1;
  parts.max.style.left = `calc(${100 * session.compute_max_ratio}% - 1px)`;
}

// How fast it is, as part of its speed alone, with a mark at the least that it was promised.
function fillSpeed(parts, session) {
  const least = session.compute_min_ratio ? `, at least ${percent(session.compute_min_ratio)}` : "";
  const speed = session.compute_progress_ratio;
  setMeter(parts.speed, speed, `${speed === null ? "–" : percent(Math.min(1, speed))}${least}`);
  parts.speed.root.className = `meter ${speed !== null && speed < 0.9 * session.compute_min_ratio ? "high" : ""}`;
  parts.min.hidden = !least;
  parts.min.style.left = `calc(${100 * session.compute_min_ratio}% - 1px)`;
}

function fillRow({ row, parts, session }) {
  const used = session.used_bytes;
  const max = session.vram_limit_bytes;
  setText(parts.title, session.name);
  setText(parts.id, session.name === session.session_id ? "" : session.session_id);
  setText(parts.owner, ownerName(session));
  setText(parts.status, statusOf(session));
  parts.status.className = `badge ${session.status_tone}`;
  parts.status.title = session.status_text;
  setText(parts.gpu, session.gpus.map(gpuLabel).join(", ") || "–");
  const ratio = max ? used / max : 0;
  parts.memory.root.className = `meter ${ratio >= 0.95 ? "full" : ratio >= 0.8 ? "high" : ""}`;
  const evicted = session.evicted_bytes || 0;
  setMeter(parts.memory, ratio, `${bytes(used)} / ${bytes(max)}`);
  parts.memory.root.title = evicted ? `${bytes(evicted)} of it in host memory` : "what it holds of what it may hold";
  parts.away.hidden = !evicted;
  parts.away.style.left = `${max ? (100 * Math.max(0, used - evicted)) / max : 0}%`;
  parts.away.style.width = `${max ? Math.min(100, (100 * evicted) / max) : 0}%`;
  fillTime(parts, session);
  fillSpeed(parts, session);
  setText(parts.expires, session.expires_at ? `expires in ${seconds(Math.max(0, Math.floor((Date.parse(session.expires_at) - Date.now()) / 1000)))}` : "");
  setText(parts.processes, String(session.processes.length));
  fitButtons(parts, session);
  for (const button of [parts.suspend, parts.change, parts.release]) button.setAttribute("aria-label", `${button.textContent} ${session.name}`);
  return row;
}

function chosen() {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const key = KEYS[sortBy];
  const found = sessions.filter((session) => {
    const text = `${session.name} ${session.session_id} ${ownerName(session)} ${session.status} ${session.priority} ${session.processes.map((process) => `${process.command} ${process.pid}`).join(" ")}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  return found.map((session) => [key(session), session]).sort((a, b) => (isDown ? order(b[0], a[0]) : order(a[0], b[0])) || order(a[1].name, b[1].name)).map(([, session]) => session);
}

export function draw() {
  const body = document.getElementById("session-rows");
  const all = chosen();
  const shown = all.slice(0, limit);
  const ids = new Set(shown.map((session) => session.session_id));
  for (const [id, entry] of rows)
    if (!ids.has(id)) {
      entry.row.remove();
      rows.delete(id);
    }
  const focused = document.activeElement;
  let at = body.firstChild;
  for (const session of shown) {
    let entry = rows.get(session.session_id);
    if (!entry) rows.set(session.session_id, (entry = makeRow(session)));
    entry.session = session;
    fillRow(entry);
    if (entry.row === at) at = at.nextSibling;
    else body.insertBefore(entry.row, at);
  }
  if (body.contains(focused)) focused.focus({ preventScroll: true }); // a row that moves loses it
  document.getElementById("session-count").textContent = sessions.length ? `${sessions.length}` : "";
  const none = document.getElementById("no-sessions");
  none.hidden = shown.length > 0;
  none.textContent = sessions.length ? "No session fits the filter." : "No sessions yet. ‘gpuslice run --memory 4GiB -- python train.py’ makes one, and so does the button above.";
  document.getElementById("more-line").hidden = all.length <= limit;
  document.getElementById("more-text").textContent = `${shown.length} of ${all.length} are shown.`;
  for (const button of document.querySelectorAll("th [data-sort]")) {
    const head = button.closest("th");
    if (button.dataset.sort === sortBy) head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
}

// On the GPU where it is highest, as for what is measured.
function addUpBusy(cards) {
  busy = new Map();
  for (const card of cards) {
    const here = new Map();
    for (const process of card.processes)
      if (process.session_id && process.busy_ratio) here.set(process.session_id, (here.get(process.session_id) || 0) + process.busy_ratio);
    for (const [id, ratio] of here) busy.set(id, Math.min(1, Math.max(ratio, busy.get(id) || 0)));
  }
}

export function show(list, cards) {
  sessions = list;
  addUpBusy(cards);
  draw();
}

export const find = (id) => sessions.find((session) => session.session_id === id);

export function start() {
  for (const head of document.querySelectorAll("th[data-column]")) {
    const column = COLUMNS[head.dataset.column];
    head.title = column.help;
    (head.querySelector("button") ?? head).textContent = column.title;
  }
  for (const button of document.querySelectorAll("th [data-sort]"))
    button.addEventListener("click", () => {
      isDown = sortBy === button.dataset.sort ? !isDown : !["name", "owner", "status"].includes(button.dataset.sort);
      sortBy = button.dataset.sort;
      draw();
    });
  document.getElementById("filter").addEventListener("input", (event) => {
    filter = event.target.value;
    limit = PART;
    draw();
  });
  document.getElementById("more").addEventListener("click", () => {
    limit += PART;
    draw();
  });
  document.getElementById("create").addEventListener("click", () => openEditor(null));
}
