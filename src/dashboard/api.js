// api.js - what speaks to the daemon. The token comes in the address' fragment, which is never sent, and stays
// with this tab alone.
const KEY = "gpuslice-token";
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

async function request(method, path, body, more = {}) {
  const headers = { Authorization: `Bearer ${token}`, ...more.headers };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method, headers, body: body === undefined ? undefined : JSON.stringify(body),
    credentials: "omit", cache: "no-store", signal: more.signal,
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

// Call `take` for each event, for ever; `last` is the id of the last one that came.
export async function follow(take, onLost) {
  let last = null;
  for (;;) {
    try {
      const headers = last ? { "Last-Event-ID": last } : {};
      const reader = (await request("GET", "/v1/events", undefined, { headers })).body
        .pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const blocks = (text + value).split("\n\n");
        text = blocks.pop();
        const events = blocks.flatMap((block) => block.split("\n"))
          .filter((line) => line.startsWith("data: ")).map((line) => JSON.parse(line.slice(6)));
        if (events.length) {
          last = events[events.length - 1].id;
          take(events);
        }
      }
    } catch (problem) {
      onLost(problem);
      if (problem.status === 401) return;
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}
