// The table of nodes: each, or of many the devices, which open.

import { $, el, set, whole, seconds, ago, quantile, count, few } from "./text.js";
import { groups } from "./lanes.js";

const listed = 50; // nodes of a device that is open, or that were found
const good = new Set(["in", "new"]), warn = new Set(["late", "refused", "tried", "too slow", "away", "absent"]);
const words = { in: "takes part", late: "late", refused: "too late to count", lost: "handed in nothing", absent: "no share", new: "begins", tried: "being tried",
  silent: "left out: silent", "too slow": "left out: too slow", away: "away", "out of memory": "left out: memory" };

export class Nodes {
  constructor(job, explain) {
    this.job = job;
    this.explain = explain;
    this.open = new Set();
    this.rows = new Map();
    this.find = () => this.show();
    $("find").value = "";
    $("find").addEventListener("input", this.find);
    $("nodes").tHead.replaceChildren();
    $("nodes").tBodies[0].replaceChildren();
  }

  close() { $("find").removeEventListener("input", this.find); }

  show() {
    const { names, nodes } = this.job;
    if (!names || !nodes) return set($("nodes-more"), "No process group has registered yet.");
    const single = names.nodes.length <= few;
    $("find-label").hidden = single && names.nodes.length < 12;
    if (this.single !== single || this.names !== names) this.head(single);
    this.names = names;
    this.top = Math.max(...nodes.share, 1);
    const sought = $("find").value.trim().toLowerCase(), wanted = [];
    let left = 0;
    if (sought || single) {
      const found = names.nodes.map((name, i) => i).filter((i) => !sought || names.nodes[i].toLowerCase().includes(sought) || names.devices[i].toLowerCase().includes(sought));
      left = single ? 0 : Math.max(0, found.length - listed);
      for (const i of single ? found : found.slice(0, listed)) wanted.push(this.node(i, single));
    } else {
      for (const g of groups(names.devices)) {
        wanted.push(this.group(g));
        if (!this.open.has(g.name)) continue;
        const worst = [...g.nodes].sort((a, b) => rank(nodes.state[b]) - rank(nodes.state[a]) || nodes.seconds[b] - nodes.seconds[a] || a - b);
        for (const i of worst.slice(0, listed)) wanted.push(this.node(i, single));
        if (worst.length > listed) wanted.push(this.rest(g.name, worst.length - listed));
      }
    }
    set($("nodes-more"), left ? "And " + count(left, "more node") + "; write more of the name." : "");
    const body = $("nodes").tBodies[0];
    wanted.forEach((row, k) => { if (body.rows[k] !== row) body.insertBefore(row, body.rows[k] ?? null); });
    while (body.rows.length > wanted.length) body.lastElementChild.remove();
  }

  head(single) {
    this.single = single;
    this.rows.clear();
    const columns = [single ? "Node" : "Device, node", single ? "Device" : "", "State", "Share", "Micro-batch", "Computed", "Waited", single ? "Why its share last changed" : "Share last changed"];
    $("nodes").tHead.replaceChildren(el("tr", {}, ...columns.map((c, k) => (c ? el("th", { scope: "col", class: k > 2 && k < 7 ? "n" : "" }, c) : el("td", {})))));
    $("nodes").tBodies[0].replaceChildren();
  }

  row(key, make) {
    let row = this.rows.get(key);
    if (!row) this.rows.set(key, (row = make()));
    return row;
  }

  node(i, single) {
    const { names, nodes, created, last } = this.job;
    const row = this.row("node " + i, () => {
      const button = el("button", { type: "button", class: "plain", title: "Why has this node its share?" }, names.nodes[i]);
      button.addEventListener("click", () => this.explain(i));
      const bars = el("span", { class: "bars", "aria-hidden": "true" }, el("span", { class: "bar" }));
      return el("tr", { class: single ? "" : "group inner" }, el("td", { class: "name" }, button), el("td", { class: "name" }, single ? names.devices[i] : ""), el("td", {}, el("span", {})),
        el("td", { class: "n" }, single ? bars : null, el("span", {})), ...Array.from({ length: 3 }, () => el("td", { class: "n" })), el("td", { class: "text" }));
    });
    const c = row.cells, state = nodes.state[i];
    c[2].firstChild.className = "tag " + (good.has(state) ? "good" : warn.has(state) ? "warn" : "bad");
    set(c[2].firstChild, (words[state] ?? state) + (nodes.cause[i] ? "; slow: " + nodes.cause[i] : ""));
    set(c[3].lastChild, whole(nodes.share[i]));
    if (single) c[3].querySelector(".bar").style.width = Math.round((80 * nodes.share[i]) / this.top) + "px";
    set(c[4], nodes.micro_batch[i] ? whole(nodes.micro_batch[i]) : "–");
    set(c[5], seconds(nodes.seconds[i]) + (nodes.input[i] > nodes.seconds[i] / 10 ? " + " + seconds(nodes.input[i]) + " data" : ""));
    set(c[6], seconds(nodes.wait[i]));
    const since = (Date.now() + this.job.ahead - created) / 1000 - nodes.changed[i];
    set(c[7], single && nodes.why?.[i] ? nodes.why[i] + " (" + ago(since) + ")" : ago(since));
    return row;
  }

  group(g) {
    const { nodes } = this.job, open = this.open.has(g.name);
    const row = this.row("device " + g.name, () => {
      const button = el("button", { type: "button", class: "fold" });
      button.addEventListener("click", () => {
        if (!this.open.delete(g.name)) this.open.add(g.name);
        this.show();
      });
      return el("tr", { class: "group" }, el("td", { class: "name" }, button), el("td", {}), el("td", { class: "text" }), ...Array.from({ length: 4 }, () => el("td", { class: "n" })), el("td", { class: "text" }));
    });
    const c = row.cells, of = (list) => g.nodes.map((i) => list[i]).sort((a, b) => a - b);
    c[0].firstChild.setAttribute("aria-expanded", String(open));
    set(c[0].firstChild, (open ? "▾ " : "▸ ") + g.name + ": " + count(g.nodes.length, "node"));
    const states = new Map();
    for (const i of g.nodes) states.set(nodes.state[i], (states.get(nodes.state[i]) ?? 0) + 1);
    set(c[2], [...states].sort((a, b) => rank(b[0]) - rank(a[0])).map(([s, n]) => (states.size > 1 ? whole(n) + " " : "") + (words[s] ?? s)).join(", "));
    const share = of(nodes.share), micro = of(nodes.micro_batch), taken = of(nodes.seconds).filter((s) => s > 0), wait = of(nodes.wait);
    set(c[3], range(share, whole));
    set(c[4], range(micro, whole));
    set(c[5], taken.length ? range(taken, seconds) : "–");
    set(c[6], seconds(quantile(wait, 0.5)));
    set(c[7], "");
    return row;
  }

  rest(device, n) {
    const row = this.row("rest " + device, () => el("tr", { class: "group inner" }, el("td", { colSpan: 8, class: "read" })));
    set(row.cells[0], "And " + count(n, "node") + " that computed for less time; find them by name above.");
    return row;
  }
}

const rank = (state) => (good.has(state) ? 0 : warn.has(state) ? 1 : 2);

// range is the least and the most of what is sorted.
const range = (list, write) => (list[0] === list[list.length - 1] ? write(list[0]) : write(list[0]) + " to " + write(list[list.length - 1]));
