// What speaks to the service. The token stands in the session storage of the tab and in a header, in no URL.

const key = "evenkeel-token";

export const token = {
  get: () => sessionStorage.getItem(key) ?? "",
  set: (text) => sessionStorage.setItem(key, text),
  forget: () => sessionStorage.removeItem(key),
};

// Problem is an answer that is none: its status, 0 without any answer, and what the service said.
export class Problem extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

function request(path, options = {}) {
  const headers = { ...options.headers };
  if (token.get()) headers.Authorization = "Bearer " + token.get();
  return fetch(path, { ...options, headers, credentials: "omit", redirect: "error", cache: "no-store" }).catch((e) => {
    if (e.name === "AbortError") throw e;
    throw new Problem(0, "The service does not answer.");
  });
}

async function checked(answer) {
  if (answer.ok) return answer;
  let said = "";
  try {
    const p = await answer.json();
    said = [p.detail, ...(p.errors ?? []).map((e) => e.message)].filter(Boolean).join(": ");
  } catch { /* not the service's own words */ }
  throw new Problem(answer.status, said || "The service answered " + answer.status + ".");
}

export const jobPath = (name) => "/v1/jobs/" + encodeURIComponent(name);

export async function get(path, signal) {
  return (await checked(await request(path, { signal }))).json();
}

export async function patch(path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await checked(await request(path, { method: "PATCH", headers, body: JSON.stringify(body) }))).json();
}

const silence = 25_000; // ms: the service sends an event every 10 s at least

// watch follows a job until it is stopped. What comes goes to on.event; on.state is told "open", or why there is no contact. A connection
// that is lost goes on where it was: with the id and the epoch of the last event.
export function watch(name, on) {
  const stop = new AbortController();
  let last = 0, epoch = 0, wait = 500;
  const pause = (ms) => new Promise((r) => { setTimeout(r, ms); stop.signal.addEventListener("abort", r, { once: true }); });
  const visible = () => new Promise((r) => {
    if (!document.hidden) return r();
    const look = () => { if (!document.hidden) { document.removeEventListener("visibilitychange", look); r(); } };
    document.addEventListener("visibilitychange", look);
    stop.signal.addEventListener("abort", () => { document.removeEventListener("visibilitychange", look); r(); }, { once: true });
  });

  async function once() {
    const one = new AbortController();
    const end = () => one.abort();
    const hide = () => { if (document.hidden) end(); }; // a browser opens few connections to a host
    stop.signal.addEventListener("abort", end);
    document.addEventListener("visibilitychange", hide);
    let timer = setTimeout(end, silence);
    try {
      const headers = { Accept: "text/event-stream" };
      if (last > 0) headers["Last-Event-ID"] = String(last);
      const answer = await checked(await request(jobPath(name) + "/events?epoch=" + epoch, { headers, signal: one.signal }));
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        text += value;
        for (let cut; (cut = text.indexOf("\n\n")) >= 0; text = text.slice(cut + 2)) {
          const e = parse(text.slice(0, cut));
          if (!e.data) continue;
          clearTimeout(timer);
          timer = setTimeout(end, silence);
          const body = JSON.parse(e.data);
          last = e.id || last;
          epoch = body.epoch;
          wait = 500;
          on.state("open", "");
          on.event(body);
        }
      }
    } finally {
      clearTimeout(timer);
      stop.signal.removeEventListener("abort", end);
      document.removeEventListener("visibilitychange", hide);
    }
  }

  (async () => {
    while (!stop.signal.aborted) {
      await visible();
      try {
        if (!stop.signal.aborted) await once();
      } catch (e) {
        if (stop.signal.aborted) return;
        if (e instanceof Problem && e.status === 401) {
          on.state("token", e.message);
          return;
        }
        const lost = e instanceof Problem ? e : new Problem(0, "The connection was lost.");
        if (!document.hidden) on.state("lost", lost.message, lost.status);
      }
      await pause(wait);
      wait = Math.min(2 * wait, 5000);
    }
  })();
  return () => stop.abort();
}

function parse(block) {
  const e = { id: 0, data: "" };
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) e.id = Number(line.slice(4));
    else if (line.startsWith("data: ")) e.data += line.slice(6);
  }
  return e;
}
