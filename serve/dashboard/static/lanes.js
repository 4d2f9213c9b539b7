// The newest rounds as a Gantt chart on a canvas: a lane for each node, or of many for each device.

import { $, el, set, seconds, whole, css, quantile, quartiles, table, count, few } from "./text.js";
import { fill } from "./lines.js";

const rounds = 8;
export const statuses = ["absent", "in", "late", "refused", "lost"];

let drawn = null; // where what stands, for the pointer

// drawLanes draws a job's newest rounds.
export function drawLanes(job) {
  const canvas = $("lanes"), lanes = job.lanes.slice(-rounds), names = job.names;
  if (!names || lanes.length === 0) {
    canvas.height = 0;
    drawn = null;
    set($("lanes-read"), "No round was reported yet.");
    return;
  }
  const rows = names.nodes.length <= few ? names.nodes.map((name, i) => ({ name, nodes: [i] })) : groups(names.devices);
  const single = names.nodes.length <= few;
  const tall = single ? Math.max(9, Math.min(22, Math.floor(400 / rows.length))) : Math.max(16, Math.min(160, Math.floor(320 / rows.length)));
  const width = canvas.clientWidth, top = 18, left = tall >= 11 ? Math.min(170, width / 4) : 8, height = top + rows.length * tall + 2;
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = height + "px";
  }
  const c = canvas.getContext("2d");
  c.setTransform(scale, 0, 0, scale, 0, 0);
  c.clearRect(0, 0, width, height);
  const total = lanes.reduce((s, l) => s + l.wait, 0), unit = (width - left) / total;
  const paint = Object.fromEntries(["compute", "wait", "late", "lost", "soft", "text"].map((k) => [k, css("--" + k)]));
  c.font = "12px system-ui, sans-serif";
  c.textBaseline = "middle";
  if (tall >= 11) {
    c.fillStyle = paint.text;
    rows.forEach((r, k) => c.fillText(short(c, r.name, left - 10), 0, top + (k + 0.5) * tall));
  }
  const starts = [];
  let x = left;
  for (const l of lanes) {
    starts.push(x);
    const w = Math.max(l.wait * unit - 2, 1), at = (s) => Math.min(s / l.wait, 1) * w;
    c.fillStyle = paint.soft;
    if (w > 44) c.fillText(short(c, whole(l.number), w), x, 8);
    rows.forEach((r, k) => {
      const y = top + k * tall + 1, h = tall - (tall > 10 ? 3 : 2);
      if (single) drawNode(c, paint, l, r.nodes[0], x, y, w, h, at);
      else drawGroup(c, paint, l, r.nodes, x, y, w, h, at);
    });
    x += l.wait * unit;
  }
  drawn = { job, rows, lanes, starts, unit, top, tall, left };
  showKey(single);
  newest(job);
}

function drawNode(c, paint, l, i, x, y, w, h, at) {
  switch (Number(l.status[i])) {
    case 0:
      c.fillStyle = paint.wait;
      c.fillRect(x, y + h / 2 - 0.5, w, 1);
      return;
    case 2:
      c.fillStyle = paint.late;
      c.fillRect(x, y, w, h);
      return;
    case 4:
      hatch(c, paint.lost, x, y, w, h);
      return;
  }
  c.fillStyle = paint.wait;
  c.fillRect(x, y, w, h);
  c.fillStyle = paint.compute;
  c.fillRect(x, y, Math.max(at(l.seconds[i]), 1), h);
}

// drawGroup shows many nodes as thin lanes, one below the other: the quickest on top, then those that are late, and those that handed in nothing.
function drawGroup(c, paint, l, nodes, x, y, w, h, at) {
  const g = gather(l, nodes), n = nodes.length - g.absent, part = (k) => (k > 0 ? Math.max(2, Math.round((h * k) / n)) : 0);
  const late = part(g.late), lost = part(g.lost), fine = Math.max(h - late - lost, 0);
  c.fillStyle = paint.wait;
  c.fillRect(x, y, w, h);
  c.fillStyle = paint.compute;
  for (let k = 0; k < fine; k++) c.fillRect(x, y + k, at(quantile(g.times, (k + 0.5) / fine)), 1);
  c.fillStyle = paint.late;
  c.fillRect(x, y + fine, w, late);
  if (lost) hatch(c, paint.lost, x, y + fine + late, w, lost);
}

function hatch(c, colour, x, y, w, h) {
  c.save();
  c.beginPath();
  c.rect(x, y, w, h);
  c.clip();
  c.strokeStyle = colour;
  c.lineWidth = 2;
  c.beginPath();
  for (let k = x - h; k < x + w; k += 6) {
    c.moveTo(k, y + h);
    c.lineTo(k + h, y);
  }
  c.stroke();
  c.restore();
}

// gather sums up nodes in a round.
export function gather(l, nodes) {
  const times = [];
  let late = 0, lost = 0, absent = 0;
  for (const i of nodes) {
    const s = l.status[i];
    if (s === "2") late++;
    else if (s === "4") lost++;
    else if (s === "0") absent++;
    else times.push(l.seconds[i]);
  }
  times.sort((a, b) => a - b);
  return { times, late, lost, absent };
}

// groups are the nodes of each device.
export function groups(devices) {
  const all = new Map();
  devices.forEach((d, i) => (all.get(d) ?? all.set(d, []).get(d)).push(i));
  return [...all].map(([name, nodes]) => ({ name, nodes }));
}

function short(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let n = text.length;
  while (n > 1 && c.measureText(text.slice(0, n) + "…").width > width) n--;
  return text.slice(0, n) + "…";
}

let keyed = null;
function showKey(single) {
  if (keyed === single) return;
  keyed = single;
  const kinds = [["compute", "computes"], ["wait", "waits for the others"], ["late", "late"], ["lost", "handed in nothing"]];
  $("lanes-key").replaceChildren(...kinds.flatMap(([k, text]) => {
    const mark = el("span", { class: "swatch" });
    mark.style.background = k === "lost" ? "repeating-linear-gradient(135deg, var(--lost) 0 2px, transparent 2px 5px)" : "var(--" + k + ")";
    return [mark, text];
  }), el("span", { class: "note" }, single ? "" : "the nodes of each device from the quickest, on top, to the slowest"));
}

// spread says how times lie.
function spread(times) {
  if (!times.length) return seconds(0);
  const [least, low, , high, most] = quartiles(times).map(seconds);
  return least + " to " + most + (times.length > 4 ? ", half of them " + low + " to " + high : "");
}

// describe says what a lane shows in a round.
function describe(l, row) {
  if (row.nodes.length > 1) {
    const g = gather(l, row.nodes);
    const odd = [g.late ? whole(g.late) + " late" : "", g.lost ? whole(g.lost) + " handed in nothing" : "", g.absent ? whole(g.absent) + " without a share" : ""].filter(Boolean);
    return row.name + ", " + count(row.nodes.length, "node") + ": " + spread(g.times) + (odd.length ? "; " + odd.join(", ") : "");
  }
  const i = row.nodes[0], s = Number(l.status[i]);
  if (s === 1 || s === 3) return row.name + ": computed " + seconds(l.seconds[i]) + ", waited " + seconds(Math.max(l.wait - l.seconds[i], 0));
  return row.name + ": " + ["without a share", "", "late, after " + seconds(l.seconds[i]), "", "handed in nothing"][s];
}

// newest tells of the newest round, and in full where the table is open.
function newest(job) {
  const l = job.lanes[job.lanes.length - 1], all = gather(l, job.names.nodes.map((_, i) => i));
  const odd = (all.late ? ", " + whole(all.late) + " late" : "") + (all.lost ? ", " + whole(all.lost) + " handed in nothing" : "");
  set($("lanes-read"), "Newest: round " + whole(l.number) + " took " + seconds(l.wait) + "; nodes computed " + spread(all.times) + odd + ".");
  const data = $("lanes-data");
  data.ontoggle = () => newest(job);
  if (!data.open) return;
  const columns = [{ name: drawn.rows.length === job.names.nodes.length ? "Node" : "Device" }, { name: "Nodes", number: true }, ...["Quickest", "Lower quartile", "Median", "Upper quartile", "Slowest"].map((name) => ({ name, number: true })),
    { name: "Late", number: true }, { name: "Handed in nothing", number: true }, { name: "Without a share", number: true }];
  fill("lanes-data", table(columns, drawn.rows.map((r) => {
    const g = gather(l, r.nodes);
    return [r.name, r.nodes.length, ...quartiles(g.times).map(seconds), g.late, g.lost, g.absent];
  })));
}

// readLanes says what stands under the pointer.
export function readLanes(job, event) {
  if (!drawn || drawn.job !== job) return;
  const x = event.offsetX, k = Math.floor((event.offsetY - drawn.top) / drawn.tall), row = drawn.rows[k];
  let n = drawn.starts.length - 1;
  while (n >= 0 && drawn.starts[n] > x) n--;
  if (event.type === "pointerleave" || n < 0 || !row) return newest(job);
  set($("lanes-read"), "Round " + whole(drawn.lanes[n].number) + ", " + describe(drawn.lanes[n], row) + ".");
}
