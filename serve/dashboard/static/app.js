// The list of jobs, which page is shown, and the token.

import { get, token, Problem } from "./api.js";
import { $, el, set, whole, rate, percent, times, ago } from "./text.js";
import { openJob } from "./job.js";

let leave = () => {};

function contact(state, text) {
  $("contact").className = state;
  set($("contact"), text);
}

export function banner(text, bad) {
  $("banner").hidden = !text;
  $("banner").className = bad ? "banner bad" : "banner";
  set($("banner"), text);
}

function route() {
  leave();
  banner("", false);
  $("forget").hidden = !token.get();
  const [, page, coded] = location.hash.split("/");
  let name = "";
  try {
    name = page === "jobs" ? decodeURIComponent(coded ?? "") : "";
  } catch { /* no name that we made */ }
  $("jobs").hidden = name !== "";
  $("job").hidden = name === "";
  set($("crumb"), name ? " / " + name : "");
  document.title = name ? name + " – Evenkeel" : "Jobs – Evenkeel";
  leave = name ? openJob(name, { contact, banner, ask }) : openJobs();
}

// openJobs shows the jobs and asks for them anew now and then.
function openJobs() {
  const stop = new AbortController();
  let timer = 0;
  const again = async () => {
    try {
      if (!document.hidden) {
        showJobs((await get("/v1/jobs?ranks=false", stop.signal)).jobs);
        contact("good", "connected");
        banner("", false);
      }
    } catch (e) {
      if (stop.signal.aborted) return;
      if (e instanceof Problem && e.status === 401) return ask(e.message);
      contact("bad", "no contact; trying again");
      if (e instanceof Problem && e.status > 0) banner(e.message, true);
    }
    timer = setTimeout(again, 2000);
  };
  again();
  return () => { stop.abort(); clearTimeout(timer); };
}

const rows = new Map();

function showJobs(jobs) {
  $("jobs-none").hidden = jobs.length > 0;
  $("jobs-table").hidden = jobs.length === 0;
  const body = $("jobs-table").tBodies[0];
  const named = new Set(jobs.map((j) => j.name));
  for (const [name, row] of rows) {
    if (!named.has(name)) {
      row.remove();
      rows.delete(name);
    }
  }
  for (const [k, j] of jobs.entries()) {
    let row = rows.get(j.name);
    if (!row) {
      const link = el("a", { href: "#/jobs/" + encodeURIComponent(j.name) }, j.name);
      row = el("tr", {}, el("th", { scope: "row" }, link), el("td", {}, el("span", {})), ...Array.from({ length: 6 }, () => el("td", { class: "n" })));
      rows.set(j.name, row);
    }
    if (body.rows[k] !== row) body.insertBefore(row, body.rows[k] ?? null);
    const c = row.cells, [kind, text] = jobState(j, Date.now());
    c[1].firstChild.className = "tag " + kind;
    set(c[1].firstChild, text);
    set(c[2], j.rank_count ? (j.left_out ? whole(j.rank_count - j.left_out) + " of " : "") + whole(j.rank_count) : "–");
    set(c[3], whole(j.rounds));
    set(c[4], rate(j.recent.samples_per_second));
    set(c[5], j.recent.rounds ? times(j.recent.samples_per_second / j.first.samples_per_second) : "–");
    set(c[6], j.recent.rounds ? percent(j.recent.idle) : "–");
    set(c[7], j.last_report ? ago((Date.now() - Date.parse(j.last_report)) / 1000) : "–");
  }
}

// jobState is how a job stands, as a kind and in words.
export function jobState(j, now) {
  const quiet = j.last_report ? (now - Date.parse(j.last_report)) / 1000 : 0;
  if (j.problem) return ["bad", "no new sizes"];
  if (j.generation === 0) return ["", "not started"];
  if (j.paused) return ["warn", "paused"];
  if (quiet > 60) return ["warn", "quiet"];
  if (j.rounds === 0) return ["", "no round yet"];
  return ["good", "running"];
}

// ask asks for a token, and goes on with it.
function ask(why) {
  leave();
  contact("bad", "no token");
  const had = token.get() !== "";
  set($("token-said"), had ? "The service refused this token. " + why : "This service asks for a token. It stays in this tab until you close it.");
  if (had && $("job").hidden) set($("token-said"), "The service refused this token for the list of jobs. If it is a job's own, name the job.");
  $("token-text").value = "";
  $("token-job").value = $("job").hidden ? "" : decodeURIComponent(location.hash.split("/")[2] ?? "");
  if (!$("token").open) $("token").showModal();
  $("token-text").focus();
}

$("token").addEventListener("submit", () => {
  token.set($("token-text").value.trim());
  $("token-text").value = "";
  const to = $("token-job").value ? "#/jobs/" + encodeURIComponent($("token-job").value) : "#/";
  if (location.hash === to) route();
  else location.hash = to;
});
$("token").addEventListener("cancel", (e) => e.preventDefault()); // without a token there is nothing to see
$("forget").addEventListener("click", () => { token.forget(); route(); });
addEventListener("hashchange", () => { route(); $("main").focus(); });
document.querySelector(".skip").addEventListener("click", (e) => { e.preventDefault(); $("main").focus(); });
route();
