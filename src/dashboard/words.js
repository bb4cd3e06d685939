// words.js - numbers as people read them, and back; elements made and changed.
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(count) {
  let unit = 0;
  let value = count || 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${value < 100 && unit > 0 ? +value.toFixed(1) : Math.floor(value)} ${UNITS[unit]}`;
}

// "4GiB", "512M", "1.5g", "17B", or bytes from 1 MiB on; NaN where it is none of these.
export function parseBytes(text) {
  const match = /^(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?b)?$/i.exec(text.trim());
  if (!match || (!match[2] && !match[3] && Number(match[1]) < 1024 ** 2)) return NaN;
  return Math.round(Number(match[1]) * 1024 ** (" kmgtp".indexOf((match[2] || " ").toLowerCase())));
}

const SECONDS = { s: 1, m: 60, h: 3600, d: 86400 };
export function parseSeconds(text) {
  const match = /^(\d+)\s*([smhd])$/.exec(text.trim());
  return match ? Number(match[1]) * SECONDS[match[2]] : NaN;
}

export const percent = (ratio) => `${+(100 * (ratio || 0)).toFixed(ratio < 0.1 ? 1 : 0)}%`;

export function share(session) {
  const [min, max] = [session.compute_min_ratio, session.compute_max_ratio].map((ratio) => `${+(100 * ratio).toFixed(2)}%`);
  return min === max ? min : `${min}..${max}`;
}

export function seconds(count) {
  if (count < 60) return `${+count.toFixed(1)} s`;
  if (count < 3600) return `${Math.floor(count / 60)} min ${Math.floor(count % 60)} s`;
  if (count < 86400) return `${Math.floor(count / 3600)} h ${Math.floor((count % 3600) / 60)} min`;
  return `${Math.floor(count / 86400)} d ${Math.floor((count % 86400) / 3600)} h`;
}

export const clock = (time) => new Date(time).toLocaleTimeString([], { hour12: false });
export const gpuLabel = (gpu) => gpu.index === null ? "gone" : gpu.mig_index === null ? `${gpu.index}` : `${gpu.index}:${gpu.mig_index}`;
export const gpuName = (name) => (name || "").replace(/^NVIDIA /, "");

// A colour a session, the same wherever it is shown, and as far from its neighbours' as there are colours.
const COLOURS = ["#3987e5", "#e5803a", "#2fa876", "#c25bd0", "#d2a019", "#e5566a", "#1fa7b8", "#8a78e6", "#7da52b", "#b5765a"];
const coloured = new Map();
export function colour(id) {
  if (!coloured.has(id)) coloured.set(id, COLOURS[coloured.size % COLOURS.length]);
  return coloured.get(id);
}

export function setText(part, text) {
  if (part.textContent !== text) part.textContent = text;
}

// Like place.replaceChildren(...fresh), but what is the same stays, and with it the focus, a press under way and what is
// marked. What handles events is not compared, so these children have none.
export function renewChildren(place, fresh) {
  const old = [...place.childNodes];
  for (const gone of old.slice(fresh.length)) gone.remove();
  fresh.forEach((made, i) => {
    if (!old[i]) place.append(made);
    else if (old[i].cloneNode().isEqualNode(made.cloneNode())) renewChildren(old[i], [...made.childNodes]);
    else old[i].replaceWith(made);
  });
}

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
