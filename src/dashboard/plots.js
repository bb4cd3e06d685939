// plots.js - what was used as time went by: /v1/history, stacked, by uPlot.
import { get } from "./api.js";
import { bytes, colour, element, percent } from "./words.js";

const SHOWN = 8; // sessions; what the others used is added up
let since = "1h";
let isChosen = false; // by a press; until then the page shows the shortest time that has all there is
let plots = [];
let shape = "";

const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function addUp(lines, field) {
  return lines[0][field].map((_, i) => lines.reduce((sum, line) => line[field][i] === null ? sum : sum + line[field][i], null));
}

// One line a session, over all its GPUs, most first; then all others'.
function linesOf(answer, field) {
  const sessions = new Map();
  for (const line of answer.sessions) sessions.set(line.session_id, [...(sessions.get(line.session_id) || []), line]);
  const lines = [...sessions.values()].map((parts) => ({
    id: parts[0].session_id, name: parts[0].name, values: addUp(parts, field), byNvml: parts.some((part) => part.by_nvml),
  })).filter((line) => line.values.some((value) => value > 0));
  const shown = lines.slice(0, SHOWN);
  const others = lines.slice(SHOWN);
  if (others.length)
    shown.push({ id: "", name: `${others.length} others`, values: addUp(others.map((line) => ({ v: line.values })), "v") });
  return shown;
}

function stack(lines, count) {
  const sums = new Array(count).fill(0);
  return lines.map((line) => line.values.map((value, i) => value === null ? null : (sums[i] += value)));
}

// The time of day, or the day where a plot is of many.
function writeTime(_, times) {
  const isLong = times.length > 1 && times[times.length - 1] - times[0] > 1.5 * 86400;
  return times.map((time) => isLong
    ? new Date(time * 1000).toLocaleDateString([], { day: "numeric", month: "short" })
    : new Date(time * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false }));
}

const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);

function axis(write, size) {
  return {
    stroke: variable("--muted"), grid: { stroke: variable("--line"), width: 1 }, ticks: { show: false },
    font: "12px system-ui, sans-serif", size, incrs: write === bytes ? POWERS : undefined,
    values: write ? (_, values) => values.map((value) => value === null ? "" : write(value)) : writeTime,
  };
}

// What the legend says: the value under the pointer, else the newest.
function valueAt(values, at, write) {
  const value = at === null || at === undefined ? values.findLast((one) => one !== null) : values[at];
  return value === null || value === undefined ? "–" : write(value);
}

function draw(id, times, lines, write, options) {
  const place = document.getElementById(id);
  const stacked = stack(lines, times.length);
  // The topmost first, so that each covers what is below it only from its own base on.
  const order = lines.map((_, i) => lines.length - 1 - i);
  const data = [times, ...order.map((i) => stacked[i])];
  const series = [{ label: "At", value: (_, time) => time === null ? "now" : new Date(time * 1000).toLocaleString([], { hour12: false }) }, ...order.map((i) => ({
    label: lines[i].name, stroke: lines[i].id ? colour(lines[i].id) : variable("--muted"), width: 1.5, points: { show: false },
    fill: `${lines[i].id ? colour(lines[i].id) : variable("--muted")}38`,
    value: (_, __, ___, at) => valueAt(lines[i].values, at, write),
  }))];
  const bands = order.slice(0, -1).map((_, i) => ({ series: [i + 1, i + 2] }));
  const plot = new uPlot({
    width: Math.max(place.clientWidth, 240), height: 230, series, bands, cursor: { y: false, points: { size: 6 } },
    legend: { live: true }, axes: [axis(null, 40), axis(write, 72)],
    scales: { y: { range: (_, low, high) => [0, options.top ? options.top(high) : Math.max(high * 1.08, 1)] } },
  }, data, place);
  return { plot, lines };
}

function update(drawn, times, lines) {
  const stacked = stack(lines, times.length);
  drawn.lines.splice(0, drawn.lines.length, ...lines);
  drawn.plot.setData([times, ...lines.map((_, i) => stacked[lines.length - 1 - i])]);
}

function clear() {
  for (const drawn of plots) drawn.plot.destroy();
  plots = [];
  shape = "";
}

export function show(answer) {
  const times = Array.from({ length: answer.points }, (_, i) => answer.from_seconds + i * answer.step_seconds);
  const memory = linesOf(answer, "used_bytes");
  const compute = linesOf(answer, "gpu_ratio");
  const next = JSON.stringify([since, document.documentElement.clientWidth, matchMedia("(prefers-color-scheme: dark)").matches,
    document.documentElement.dataset.theme, memory.map((line) => line.id + line.name), compute.map((line) => line.id + line.name)]);
  if (next !== shape) {
    clear();
    shape = next;
    plots = [draw("plot-memory", times, memory, bytes, {}), draw("plot-compute", times, compute, percent, { top: (high) => Math.max(1, high * 1.08) })];
  } else {
    update(plots[0], times, memory);
    update(plots[1], times, compute);
  }
}

// Whether all of the answer is of the last ten minutes.
function isYoung(answer) {
  const firsts = answer.gpus.map((line) => line.used_bytes.findIndex((value) => value !== null)).filter((at) => at >= 0);
  return (answer.points - Math.min(answer.points, ...firsts)) * answer.step_seconds < 600;
}

const buttons = () => [...document.querySelectorAll("#ranges button")];

function choose(range) {
  since = range;
  for (const button of buttons()) button.setAttribute("aria-pressed", String(button.dataset.since === since));
  refresh().catch(() => {});
}

export async function refresh() {
  const points = Math.min(400, Math.max(120, Math.floor(document.getElementById("plot-memory").clientWidth / 2)));
  const none = document.getElementById("no-history");
  const asked = since;
  try {
    const answer = await get(`/v1/history?since=${asked}&points=${points}&sessions=30`);
    if (asked !== since) return; // another button was pressed meanwhile
    if (!isChosen && isYoung(answer)) {
      isChosen = true;
      choose("10m");
      return;
    }
    isChosen = true;
    show(answer);
    none.hidden = true;
  } catch (problem) {
    if (problem.code !== "ERR_NOT_FOUND") throw problem;
    none.textContent = problem.message;
    none.hidden = false;
  }
}

// The last minutes of one GPU, small: its NVML figure.
export function spark(values, top) {
  const width = 300;
  const height = 34;
  const known = values.map((value) => value ?? 0);
  const points = known.map((value, i) => `${((i / Math.max(known.length - 1, 1)) * width).toFixed(1)},${(height - 1 - (Math.min(value, top) / top) * (height - 3)).toFixed(1)}`);
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("class", "spark");
  picture.setAttribute("aria-hidden", "true");
  for (const [tag, attributes] of [
    ["polygon", { points: `0,${height} ${points.join(" ")} ${width},${height}`, fill: "var(--accent)", "fill-opacity": ".15" }],
    ["polyline", { points: points.join(" "), fill: "none", stroke: "var(--accent)", "stroke-width": "1.5", "vector-effect": "non-scaling-stroke" }],
  ]) {
    const part = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(attributes)) part.setAttribute(name, value);
    picture.append(part);
  }
  return picture;
}

export function start() {
  for (const button of buttons()) {
    button.setAttribute("aria-pressed", String(button.dataset.since === since));
    button.addEventListener("click", () => {
      isChosen = true;
      choose(button.dataset.since);
    });
  }
}

export const interval = () => (since === "10m" ? 2000 : since === "1h" ? 5000 : 30000);
export { element };
