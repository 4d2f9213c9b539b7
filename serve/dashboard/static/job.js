// One job: what is new comes once a second, is added to what is known, and shown.

import { get, patch, jobPath, watch, Problem } from "./api.js";
import { $, el, set, count, whole, rate, seconds, percent, times, ago, clock, few, isDark } from "./text.js";
import { Lines, means } from "./lines.js";
import { drawLanes, readLanes } from "./lanes.js";
import { Nodes } from "./nodes.js";
import { openWeights } from "./weights.js";

const most = { rounds: 300, lanes: 12, log: 200 };
const wholeEvery = 10_000; // ms between two looks at a job's whole life

// openJob shows a job until the function that it returns is called.
export function openJob(name, page) {
  const job = { state: null, names: null, nodes: null, rounds: empty(), whole: null, lanes: [], log: [], created: 0, ahead: 0, last: 0 };
  let said = 0, frame = 0, wholeAt = 0, gone = false;
  set($("job-title"), name);
  set($("job-sub"), "");
  const known = (is) => { $("job-known").hidden = is !== true; $("job-none").hidden = is !== false; };
  known(); // not yet
  $("facts").replaceChildren();
  $("log").replaceChildren();
  const lines = new Lines(job);
  const nodes = new Nodes(job, (rank) => explain(name, rank));
  const weights = openWeights((body) => patch(jobPath(name), body), () => job.state, (e) => e instanceof Problem && e.status === 401 && page.ask(e.message));

  const stop = watch(name, {
    state(kind, text, status) {
      if (kind === "token") return page.ask(text);
      page.contact(kind === "open" ? "good" : "bad", kind === "open" ? "connected" : "no contact; trying again");
      if (kind !== "open" && status === 404) return unknown();
      if (kind !== "open" && status > 0) page.banner(text, true);
    },
    event(e) {
      take(job, e);
      known(true);
      said = Date.now();
      if (!frame) frame = requestAnimationFrame(() => { frame = 0; show(); });
    },
  });

  function unknown() {
    job.state = null;
    set($("job-sub"), "");
    page.banner("", false);
    page.contact("good", "connected");
    known(false);
  }

  const span = () => chosen("span");
  async function look() {
    if (span() !== "whole" || Date.now() - wholeAt < wholeEvery) return;
    wholeAt = Date.now();
    try {
      job.whole = await get(jobPath(name) + "/history");
      if (!gone) lines.show(span());
    } catch { /* the stream says why there is no contact */ }
  }

  function show() {
    const j = job.state, now = Date.now() + job.ahead;
    if (gone || !j) return;
    showHead(job, j, now);
    page.banner(...trouble(job, j, now));
    look();
    lines.show(span());
    drawLanes(job);
    nodes.show();
    weights.show();
    showLog(job);
  }

  const redraw = () => { lines.renew(); show(); };
  const spans = () => { wholeAt = 0; look(); lines.show(span()); };
  const sized = new ResizeObserver(() => { if (job.state) { lines.resize(); drawLanes(job); } });
  const point = (e) => readLanes(job, e);
  const clockwork = setInterval(() => { if (job.state && Date.now() - said > 1500) showHead(job, job.state, Date.now() + job.ahead); }, 1000);
  isDark.addEventListener("change", redraw);
  $("span").addEventListener("change", spans);
  $("lanes").addEventListener("pointermove", point);
  $("lanes").addEventListener("pointerleave", point);
  sized.observe($("goodput"));
  return () => {
    gone = true;
    stop();
    clearInterval(clockwork);
    cancelAnimationFrame(frame);
    isDark.removeEventListener("change", redraw);
    $("span").removeEventListener("change", spans);
    $("lanes").removeEventListener("pointermove", point);
    $("lanes").removeEventListener("pointerleave", point);
    sized.disconnect();
    lines.close();
    nodes.close();
    weights.close();
    if ($("node").open) $("node").close();
  };
}

const chosen = (name) => document.querySelector(`input[name=${name}]:checked`).value;

const empty = () => ({ number: [], at: [], seconds: [], goodput: [], even: [], idle: [], shares: [] });

// take adds an event to what is known of a job.
export function take(job, e) {
  if (e.complete) Object.assign(job, { rounds: empty(), lanes: [], log: [], whole: null });
  if (e.names) {
    job.names = e.names;
    job.lanes = []; // of other nodes, perhaps
    job.rounds.shares = job.rounds.shares.map(() => null);
  }
  job.state = e.job;
  job.nodes = e.nodes;
  job.last = e.last;
  job.created = Date.parse(e.job.created);
  job.ahead = Date.parse(e.now) - Date.now(); // the service's clock over ours
  for (const k of Object.keys(job.rounds)) {
    job.rounds[k].push(...e.rounds[k]);
    job.rounds[k].splice(0, job.rounds[k].length - most.rounds);
  }
  job.lanes = [...job.lanes, ...e.lanes].slice(-most.lanes);
  job.log = [...job.log, ...e.log].slice(-most.log);
  job.fresh ||= e.complete || e.log.length > 0;
}

// newest is the mean of a column's newest rounds, each weighed by its time.
const newest = (r, column, times = r.seconds) => means(r[column], times, 20).at(-1) ?? 0;

const usual = (r) => r.seconds.slice(-20).reduce((s, x) => s + x, 0) / Math.max(1, Math.min(20, r.seconds.length));

function showHead(job, j, now) {
  const said = [j.workload || "no workload named", "global batch " + whole(j.global_batch), "start " + j.generation + " of its process group", "plan " + whole(j.plan)];
  if (j.deadline) said.push("rounds end at " + j.deadline);
  set($("job-sub"), said.join(" · "));
  const r = job.rounds, n = Math.min(20, r.number.length);
  const own = newest(r, "goodput"), even = newest(r, "even", r.even.map((x) => (x > 0 ? 1 / x : 0)));
  const refused = Object.entries(j.reports ?? {}).filter(([k, v]) => k !== "accepted" && v > 0).map(([k, v]) => whole(v) + " " + k);
  fact("Goodput, samples/s", n ? rate(own) : "–", n && even > 0 ? times(own / even) + " what equal shares would give (" + rate(even) + ", a prediction)" : "no prediction of equal shares yet");
  fact("Nodes waiting", n ? percent(newest(r, "idle")) : "–", "of their time, in the newest " + (n || "") + " rounds");
  fact("Round", n ? seconds(usual(r)) : "–", count(j.rounds, "round") + ", " + whole(j.samples) + " samples");
  fact("Taking part", whole(j.rank_count - j.left_out), j.left_out ? "of " + whole(j.rank_count) + "; " + whole(j.left_out) + " left out" : "all nodes");
  fact("Last report", job.last > 0 ? ago((now - job.created) / 1000 - job.last) : "–", job.last > 0 ? clock(job.created + 1000 * job.last) : "no round was reported yet");
  fact("Reports ignored", whole(j.absurd + (j.reports.malformed ?? 0)), [j.absurd ? whole(j.absurd) + " impossible" : "", ...refused].filter(Boolean).join(", ") || "none was impossible or refused");
}

function fact(name, value, more) {
  const id = "fact-" + name.split(/[ ,]/)[0];
  let box = $(id);
  if (!box) $("facts").append((box = el("div", { id }, el("dt", {}, name), el("dd", {}, el("span", {}), el("small", {})))));
  set(box.querySelector("span"), value);
  set(box.querySelector("small"), more);
}

// trouble is what an operator should look at first, and whether it is bad.
function trouble(job, j, now) {
  if (j.problem) return ["No new sizes: " + j.problem, true];
  if (j.generation === 0) return ["No process group has registered. The job's ranks do so when they start.", false];
  const quiet = (now - job.created) / 1000 - job.last;
  if (job.last > 0 && quiet > Math.max(30, 10 * usual(job.rounds))) return ["No round was reported since " + clock(job.created + 1000 * job.last) + ". The job may have ended, or it hangs.", false];
  if (j.paused) return ["Paused: sizes stay as they are.", false];
  return ["", false];
}

const routine = { out: "left out", back: "back", pace: "of pace" };

// showLog shows what happened, the newest on top. Of many nodes, what happens to one or another all the time is folded by the minute.
function showLog(job) {
  if (!job.fresh) return;
  job.fresh = false;
  const runs = [];
  for (const l of job.log) {
    const run = runs.at(-1);
    if (run && routine[l.kind] && routine[run[0].kind] && l.at - run[0].at < 60) run.push(l);
    else runs.push([l]);
  }
  const time = (l) => el("time", { dateTime: new Date(job.created + 1000 * l.at).toISOString() }, clock(job.created + 1000 * l.at));
  const item = (l) => el("li", { class: l.kind }, time(l), l.text);
  const open = new Set([...$("log").querySelectorAll("details[open]")].map((d) => d.id));
  $("log").replaceChildren(...runs.reverse().flatMap((run) => {
    const lines = run.toReversed().map(item);
    if (run.length < 4 || job.names?.nodes.length <= few) return lines;
    const id = "log-" + run[0].at, kinds = Object.entries(routine).map(([kind, words]) => [run.filter((l) => l.kind === kind).length, words]);
    const said = count(run.length, "change") + ": " + kinds.filter(([n]) => n).map(([n, words]) => n + " " + words).join(", ");
    return [el("li", { class: "pace" }, time(run.at(-1)), el("details", { id, open: open.has(id) }, el("summary", {}, said), el("ol", {}, ...lines)))];
  }));
}

// explain shows why a node has its share.
async function explain(name, rank) {
  let why;
  try {
    why = await get(jobPath(name) + "/ranks/" + rank);
  } catch (e) {
    why = { name: "Rank " + rank, device: "", why: e.message, details: [] };
  }
  set($("node-title"), why.device ? why.name + " (" + why.device + ")" : why.name);
  set($("node-why"), why.why ? "Last change: " + why.why + "." : "Its share has not changed yet.");
  $("node-details").replaceChildren(...why.details.map((d) => el("li", {}, d)));
  if (!$("node").open) $("node").showModal();
}
