// api.js - what speaks to the daemon. The token comes in the address' fragment, which is never sent, and stays
// with this tab alone.
const KEY = "gpuslice-token";
const ANSWER_MS = 30000; // how long a request may take; a release that kills programs takes more than 10 s
const SILENCE_MS = 40000; // how long the stream of events may be silent; the daemon sends something every 15 s
let token = "";

export class Refusal extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// Take the token out of the address, where others could read it over a shoulder.
export function findToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    setToken(given);
    history.replaceState(null, "", location.pathname);
  }
  token = token || sessionStorage.getItem(KEY) || "";
  return token !== "";
}

export function setToken(text) {
  token = text.trim();
  sessionStorage.setItem(KEY, token);
}

export function forgetToken() {
  token = "";
  sessionStorage.removeItem(KEY);
}

// Gives up after ANSWER_MS, or when `more.signal` says so.
async function request(method, path, body, more = {}) {
  const headers = { Authorization: `Bearer ${token}`, ...more.headers };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method, headers, body: body === undefined ? undefined : JSON.stringify(body),
    credentials: "omit", cache: "no-store", signal: more.signal ?? AbortSignal.timeout(ANSWER_MS),
  }).catch(() => {
    throw new Error("the daemon does not answer");
  });
  if (answer.ok) return answer;
  let said;
  try {
    said = (await answer.json()).error;
  } catch {
    said = {};
  }
  throw new Refusal(answer.status, said.code, said.message || `the daemon answered ${answer.status}`);
}

export async function ask(method, path, body) {
  const answer = await request(method, path, body);
  return answer.status === 204 ? null : answer.json();
}

export const get = (path) => ask("GET", path);
export const sessionPath = (id) => `/v1/sessions/${encodeURIComponent(id)}`;

// Hand the events after the one with the ID `last` to `take`, until their stream ends, is silent or is aborted.
async function listen(last, take, stream) {
  let timer;
  const expectMore = () => {
    clearTimeout(timer);
    timer = setTimeout(() => stream.abort(), SILENCE_MS);
  };
  try {
    expectMore();
    const headers = last ? { "Last-Event-ID": last } : {};
    const reader = (await request("GET", "/v1/events", undefined, { headers, signal: stream.signal })).body
      .pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      expectMore();
      const blocks = (text + value).split("\n\n");
      text = blocks.pop();
      const events = blocks.flatMap((block) => block.split("\n"))
        .filter((line) => line.startsWith("data: ")).map((line) => JSON.parse(line.slice(6)));
      if (events.length) take(events);
    }
  } finally {
    clearTimeout(timer);
  }
}

// Call `take` for each event, for ever. While the page is hidden nothing is asked, and what happened meanwhile comes
// later: all tabs of a browser share six connections to the daemon, and each stream occupies one.
export async function follow(take, onLost) {
  let last = null; // the ID of the last event that came
  let stream = new AbortController();
  document.addEventListener("visibilitychange", () => document.hidden && stream.abort());
  for (;;) {
    if (token && !document.hidden) {
      stream = new AbortController();
      try {
        await listen(last, (events) => {
          last = events[events.length - 1].id;
          take(events);
        }, stream);
      } catch (problem) {
        if (!document.hidden) onLost(problem);
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}
