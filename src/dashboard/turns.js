// turns.js - who had which GPU's turn from when to when, as a timeline that can be zoomed and moved.
import { get } from "./api.js";
import { colour, gpuLabel } from "./words.js";

const KEPT_SECONDS = 240;
const SPANS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 240];
const ROW = 44;
const GAP = 10;
const LABEL = 11; // the least height of a bar that has a name
const LEFT = 44;
const BELOW = 20;
let turns = new Map();
let gpus = [];
let names = new Map();
let now = 0;
let nowAt = 0;
let span = 3;
let heldEnd = null; // where the shown part ends while it is held still
let canvas;

const spanSeconds = () => SPANS[span];
const current = () => now + (performance.now() - nowAt) / 1000;
const end = () => heldEnd ?? current();

export async function refresh(sessions, cards, scheduler) {
  names = new Map(sessions.map((session) => [session.session_id, session.name]));
  gpus = cards;
  const shares = scheduler.gpus.filter((gpu) => gpu.mode !== "free").length;
  document.getElementById("turns-mode").textContent = shares
    ? `quantum ${Math.round(1000 * scheduler.quantum_seconds)} ms${scheduler.quantum_auto ? ", automatic" : ""}` : "every GPU is free to all";
  const before = Math.max(0, now - 1);
  const answer = await get(`/v1/scheduler/turns${now ? `?since_seconds=${before}` : ""}`);
  now = answer.now_seconds;
  nowAt = performance.now();
  // Turns that go on are all in the answer, so one that is not has ended. Ends yet to come are of before the machine's start.
  for (const [key, turn] of turns)
    if (turn.end_seconds === null || turn.end_seconds > now) turns.delete(key);
  for (const turn of answer.turns) turns.set(`${turn.uuid} ${turn.session_id} ${turn.begin_seconds}`, turn);
  for (const [key, turn] of turns)
    if ((turn.end_seconds ?? now) < now - KEPT_SECONDS) turns.delete(key);
  draw();
}

function ticks(width) {
  const rough = spanSeconds() / Math.max(2, Math.floor(width / 110));
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= rough);
}

function writeTime(seconds) {
  if (seconds === 0) return "now";
  return seconds < 1 ? `−${Math.round(1000 * seconds)} ms` : `−${+seconds.toFixed(2)} s`;
}

// Turns alone on the GPU share one lane, as they follow each other. Each session that runs beside others has one of its own.
const laneOf = (turn) => turn.lease === "exclusive" ? "alone" : turn.session_id ?? "";

// The lanes of a GPU's row in the part of time from `begin` to `until`: by name, from where on and how high.
function lanesOf(uuid, begin, until) {
  const shown = [...turns.values()].filter((turn) => turn.uuid === uuid && turn.begin_seconds <= until && (turn.end_seconds ?? until) >= begin);
  const found = [...new Set(shown.map(laneOf))].sort((a, b) => (b === "alone") - (a === "alone") || (a < b ? -1 : 1));
  const height = ROW / Math.max(found.length, 1);
  return new Map(found.map((name, i) => [name, { top: i * height, height }]));
}

export function draw() {
  if (!canvas) return;
  const style = getComputedStyle(document.documentElement);
  const width = canvas.clientWidth;
  const height = Math.max(gpus.length, 1) * (ROW + GAP) + BELOW;
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const right = end();
  const perSecond = (width - LEFT) / spanSeconds();
  const place = (seconds) => LEFT + (seconds - (right - spanSeconds())) * perSecond;
  gpus.forEach((gpu, i) => {
    const y = i * (ROW + GAP);
    pen.fillStyle = style.getPropertyValue("--muted");
    pen.fillText(`GPU ${gpuLabel(gpu)}`, 0, y + ROW / 2);
    pen.fillStyle = style.getPropertyValue("--track");
    pen.fillRect(LEFT, y, width - LEFT, ROW);
  });
  const rows = new Map(gpus.map((gpu, i) => [gpu.uuid, i]));
  const lanes = new Map(gpus.map((gpu) => [gpu.uuid, lanesOf(gpu.uuid, right - spanSeconds(), right)]));
  for (const turn of turns.values()) {
    const row = rows.get(turn.uuid);
    const from = Math.max(place(turn.begin_seconds), LEFT);
    const to = Math.min(place(turn.end_seconds ?? current()), width);
    if (row === undefined || to <= from) continue;
    const lane = lanes.get(turn.uuid).get(laneOf(turn));
    const y = row * (ROW + GAP) + lane.top;
    pen.fillStyle = turn.session_id ? colour(turn.session_id) : style.getPropertyValue("--muted");
    pen.fillRect(from, y, Math.max(to - from - 0.5, 0.5), lane.height - 1);
    const name = names.get(turn.session_id) || "";
    if (name && lane.height >= LABEL && to - from > pen.measureText(name).width + 10) {
      pen.fillStyle = "#0b1320";
      pen.fillText(name, from + 5, y + lane.height / 2);
    }
  }
  pen.fillStyle = style.getPropertyValue("--muted");
  pen.textAlign = "center";
  const step = ticks(width);
  for (let back = 0; back <= spanSeconds(); back += step) {
    const x = place(right - back);
    if (x < LEFT + 20 || x > width - 20) continue;
    pen.fillText(writeTime(back + (current() - right > 0.5 ? Math.round(current() - right) : 0)), x, height - BELOW / 2 + 2);
  }
  pen.textAlign = "left";
  document.getElementById("turns-note").textContent = turns.size
    ? "In the first line of a GPU, sessions that have it alone; below, those beside others. Wheel or + and − zoom, drag or the arrow keys move, Space holds."
    : "Sessions take turns where one on the GPU has a share or a priority. None has been taken in the last minutes.";
}

function setSpan(next) {
  span = Math.max(0, Math.min(SPANS.length - 1, next));
  const seconds = spanSeconds();
  document.getElementById("turns-span").textContent = seconds < 1 ? `${1000 * seconds} ms` : `${seconds} s`;
  draw();
}

function hold(at) {
  const newest = current();
  heldEnd = at === null || at >= newest ? null : Math.max(at, newest - KEPT_SECONDS + spanSeconds());
  document.getElementById("turns-hold").setAttribute("aria-pressed", String(heldEnd !== null));
  draw();
}

const KEYS = {
  "+": () => setSpan(span - 1), "=": () => setSpan(span - 1), "-": () => setSpan(span + 1),
  ArrowLeft: () => hold(end() - spanSeconds() / 4), ArrowRight: () => hold(end() + spanSeconds() / 4),
  " ": () => hold(heldEnd === null ? current() - 0.001 : null), End: () => hold(null),
};

export function start() {
  canvas = document.getElementById("turns-canvas");
  document.getElementById("turns-in").addEventListener("click", () => setSpan(span - 1));
  document.getElementById("turns-out").addEventListener("click", () => setSpan(span + 1));
  document.getElementById("turns-hold").addEventListener("click", KEYS[" "]);
  canvas.addEventListener("keydown", (event) => {
    if (!KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    setSpan(span + Math.sign(event.deltaY));
  }, { passive: false });
  let from = null;
  canvas.addEventListener("pointerdown", (event) => {
    from = { x: event.clientX, end: end() };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (from) hold(from.end - ((event.clientX - from.x) / (canvas.clientWidth - LEFT)) * spanSeconds());
  });
  canvas.addEventListener("pointerup", () => (from = null));
  setSpan(span);
  const beat = () => {
    if (heldEnd === null && !document.hidden && canvas.getBoundingClientRect().top < innerHeight && turns.size) draw();
    setTimeout(beat, 200);
  };
  beat();
}
