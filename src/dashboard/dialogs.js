// dialogs.js - a session in full; making, changing and releasing one.
import { ask, get, sessionPath } from "./api.js";
import { COLUMNS } from "./columns.js";
import { bytes, colour, element, gpuLabel, gpuName, parseBytes, parseSeconds, percent, renewChildren, seconds, setText, share } from "./words.js";

const find = (id) => document.getElementById(id);
let shown = null; // the session in the detail dialog, as it was last told
let edited = null; // NULL: a new one
let onDone = () => {};

export const shownId = () => (find("detail").open ? shown.session_id : null);

function facts(pairs) {
  return element("dl", { className: "facts" }, ...pairs.map(([what, value]) =>
    element("div", {}, element("dt", { textContent: what }), element("dd", { textContent: value }))));
}

function table(heads, rows, empty) {
  if (!rows.length) return element("p", { className: "muted", textContent: empty });
  return element("table", {},
    element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col", textContent: head })))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", { textContent: cell }))))));
}

const isAway = (session) => ["away", "partly_away", "leaving"].includes(session.residency);
const stays = (session) => session.stays.map(({ bytes: size, text }) => `${bytes(size)} ${text}`).join(", ");
const canLeave = (session) => !!session.oversubscribe && session.oversubscribe !== "none";

// Show those of the buttons that the daemon would not refuse.
export function fitButtons({ suspend, change, release }, session) {
  suspend.hidden = !canLeave(session) || session.state !== "active";
  setText(suspend, isAway(session) ? "Resume" : "Suspend");
  change.hidden = session.declared || session.state === "queued";
  release.hidden = session.declared;
}

// Its memory leaves the card, or comes back. A refusal is told where the session is shown.
export async function suspendOrResume(session) {
  try {
    await ask("POST", `${sessionPath(session.session_id)}/${isAway(session) ? "resume" : "suspend"}`);
  } catch (problem) {
    tell(`${session.name} stays where it is`, problem.message);
  }
  onDone();
}

function tell(title, text) {
  find("question-title").textContent = title;
  find("question-text").textContent = text;
  find("question-error").textContent = "";
  find("question-yes").hidden = true;
  find("question").showModal();
}

const milliseconds = (seconds) => `${+(1000 * seconds).toPrecision(3)} ms`;

export function fillDetail(session, ownerName) {
  shown = session;
  setText(find("detail-title"), session.name);
  renewChildren(find("detail-body"), [
    facts([
      ["ID", session.session_id], ["Owner", ownerName(session)], ["Status", `${session.status}: ${session.status_text}${session.declared ? "; declared in sessions.conf" : ""}`],
      ["Least speed", session.compute_min_ratio ? percent(session.compute_min_ratio) : "none promised"],
      ["Most GPU time", percent(session.compute_max_ratio)], ["Priority", session.priority], ["Lease", session.waiting ? "waits" : session.lease],
      ["Threads waited", seconds(session.gate_wait_seconds)],
      ...(session.gate_waits && session.gate_waits.count ? [["Half of the waits, at most", milliseconds(session.gate_waits.p50_seconds)],
        ["99 of 100 waits, at most", milliseconds(session.gate_waits.p99_seconds)]] : []),
      ["Overruns", String(session.overruns)],
      ...(canLeave(session) ? [
        ["In host memory", bytes(session.evicted_bytes)],
        ["Cannot move", stays(session) || bytes(session.unmovable_bytes)],
        ["Leaves when idle", session.idle_suspend_seconds ? `after ${seconds(session.idle_suspend_seconds)}` : "never"],
      ] : []),
      ...(session.compute_progress_ratio === null || session.compute_progress_ratio === undefined ? [] : [["Speed, as part of its speed alone", percent(Math.min(1, session.compute_progress_ratio))]]),
      ["Created", new Date(session.created_at).toLocaleString([], { hour12: false })],
      ["Expires", session.expires_at ? new Date(session.expires_at).toLocaleString([], { hour12: false }) + (session.ttl_action === "kill" ? ", with its programs" : "") : "when released"],
    ]),
    element("h3", { textContent: "GPUs" }),
    table(["GPU", "Name", "Used", "Limit", "Driver's", COLUMNS.time.title, COLUMNS["gpu-time"].title, COLUMNS.held.title], session.gpus.map((gpu) =>
      [gpuLabel(gpu), gpuName(gpu.name) || "gone", bytes(gpu.used_bytes), bytes(gpu.limit_bytes), bytes(gpu.driver_bytes + gpu.orphan_bytes),
        session.lease === "free" ? "–" : percent(gpu.compute_achieved_ratio), seconds(gpu.gpu_seconds), seconds(gpu.gpu_held_seconds)]), "It has no GPU yet."),
    session.move_failure ? element("p", { className: "error", textContent: session.move_failure }) : null,
    element("h3", { textContent: "Processes" }),
    table(["PID", "Command", "Used", COLUMNS.denied.title, "Since"], session.processes.map((process) =>
      [String(process.pid), process.command, bytes(process.used_bytes),
        String(process.denied_allocations), new Date(process.attached_at).toLocaleString([], { hour12: false })]), "No process is attached."),
  ].filter(Boolean));
  find("detail-declared").hidden = !session.declared;
  fitButtons({ suspend: find("detail-suspend"), change: find("detail-change"), release: find("detail-release") }, session);
}

export function openDetail(session, ownerName) {
  fillDetail(session, ownerName);
  if (!find("detail").open) find("detail").showModal();
}

export function openEditor(session) {
  edited = session;
  const form = find("editor-form");
  form.reset();
  find("editor-error").textContent = "";
  find("editor-title").textContent = session ? `Change ${session.name}` : "New session";
  find("editor-send").textContent = session ? "Change" : "Create";
  for (const part of ["gpu", "oversubscribe", "when-full"]) find(`editor-${part}`).hidden = !!session;
  form.elements.ttl.placeholder = session?.expires_at ? "as it is; never, 90s, 2h from now" : "never; 90s, 2h";
  if (session) {
    form.elements.name.value = session.name;
    form.elements.memory.value = session.gpus.length && session.gpus.every((gpu) => gpu.limit_bytes === session.gpus[0].limit_bytes)
      ? bytes(session.gpus[0].limit_bytes).replace(" ", "") : "";
    form.elements.compute.value = share(session);
    form.elements.priority.value = session.priority;
  } else {
    get("/v1/gpus").then((gpus) => form.elements.gpu.replaceChildren(
      element("option", { value: "", textContent: "chosen by the daemon" }),
      ...gpus.map((gpu) => element("option", { value: gpu.uuid, textContent: `${gpuLabel(gpu)}: ${bytes(gpu.unreserved_bytes)} unreserved` })))).catch(() => {});
  }
  form.dataset.memory = form.elements.memory.value;
  find("editor").showModal();
}

// What the form says and a session that is changed does not have yet.
function wish(form) {
  const body = {};
  const text = (name) => form.elements[name].value.trim();
  if (text("name") && text("name") !== edited?.name) body.name = text("name");
  if (text("memory") && text("memory") !== (edited ? form.dataset.memory : "")) {
    const part = /^(\d+(?:\.\d+)?)\s*%$/.exec(text("memory"));
    if (part) body.memory_ratio = Number(part[1]) / 100;
    else body.memory_bytes = parseBytes(text("memory"));
    if (!(body.memory_ratio > 0 || body.memory_bytes > 0)) throw new Error(`'${text("memory")}' is not a size; expected one like 4GiB, 512M or 50%`);
  }
  if (text("compute") && text("compute") !== (edited ? share(edited) : "")) body.compute = text("compute");
  if (text("priority") !== (edited?.priority ?? "normal")) body.priority = text("priority");
  if (text("ttl")) {
    body.ttl_seconds = text("ttl") === "never" ? null : parseSeconds(text("ttl"));
    if (body.ttl_seconds !== null && !(body.ttl_seconds > 0)) throw new Error(`'${text("ttl")}' is not a duration; expected one like 90s or 2h, or never`);
  }
  for (const name of ["oversubscribe", "when_full"]) if (!edited && text(name)) body[name] = text(name);
  if (!edited && text("gpu")) body.gpus = [{ gpu: text("gpu") }];
  return body;
}

async function send(event) {
  event.preventDefault();
  try {
    const body = wish(find("editor-form"));
    if (edited && Object.keys(body).length === 0) throw new Error("nothing is different from what it has");
    await ask(edited ? "PATCH" : "POST", edited ? sessionPath(edited.session_id) : "/v1/sessions", body);
    find("editor").close();
    onDone();
  } catch (problem) {
    find("editor-error").textContent = problem.message;
  }
}

export function openRelease(session) {
  const count = session.processes.length;
  find("question-title").textContent = `Release ${session.name}?`;
  find("question-text").textContent = count
    ? `${count === 1 ? "One process runs" : `${count} processes run`} in it (${session.processes.slice(0, 3).map((process) => process.command).join(", ")}${count > 3 ? ", …" : ""}). SIGTERM ends ${count === 1 ? "it" : "them"} now, SIGKILL after 10 seconds.`
    : "No process runs in it.";
  find("question-error").textContent = "";
  const yes = find("question-yes");
  yes.hidden = false;
  yes.textContent = count ? "End and release" : "Release";
  yes.onclick = async () => {
    yes.disabled = true;
    try {
      await ask("DELETE", sessionPath(session.session_id) + (count ? "?kill=true" : ""));
      find("question").close();
      find("detail").close();
      onDone();
    } catch (problem) {
      find("question-error").textContent = problem.message;
    }
    yes.disabled = false;
  };
  find("question").showModal();
}

export function start(done) {
  onDone = done;
  find("editor-form").addEventListener("submit", send);
  find("detail-suspend").addEventListener("click", () => suspendOrResume(shown));
  find("detail-change").addEventListener("click", () => openEditor(shown));
  find("detail-release").addEventListener("click", () => openRelease(shown));
  for (const button of document.querySelectorAll("dialog [data-close]"))
    button.addEventListener("click", () => button.closest("dialog").close());
}

export { colour };
