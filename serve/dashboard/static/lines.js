// Lines over time, drawn by uPlot: goodput against equal shares, and shares.

import { $, el, set, rate, whole, clock, colour, dash, css, table, few } from "./text.js";

const smooth = 10; // rounds
const marks = [0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000, 300000, 1000000];
const bent = { splits: (_, __, ___, top) => marks.map(Math.log1p).filter((x) => x <= top), values: (_, ticks) => ticks.map((t) => whole(Math.round(Math.expm1(t)))) }; // an axis of log1p

// Lines draws what a job knows into the page's two charts.
export class Lines {
  constructor(job) {
    this.job = job;
    this.plots = {};
    this.shape = "";
    for (const id of ["goodput", "sizes"]) {
      $(id + "-data").ontoggle = () => this.tables();
    }
  }

  close() {
    for (const p of Object.values(this.plots)) p.destroy();
    this.plots = {};
  }

  // renew begins anew, where colours or lines are others.
  renew() {
    this.close();
    this.shape = "";
  }

  resize() {
    for (const [id, p] of Object.entries(this.plots)) p.setSize({ width: $(id).clientWidth, height: 220 });
  }

  show(span) {
    const r = (span === "whole" && this.job.whole) || this.job.rounds;
    this.shown = r;
    this.span = span;
    const names = this.job.names ?? { lines: [], of: [] };
    const shape = JSON.stringify([names.lines, names.of]);
    if (shape !== this.shape) {
      this.renew();
      this.shape = shape;
      this.devices = [...new Set(names.of)];
      this.make(names);
    }
    if (!this.plots.goodput) return;
    const t0 = this.job.created / 1000, at = r.at.map((x) => t0 + x);
    const n = span === "whole" ? 1 : smooth;
    this.plots.goodput.setData([at, r.goodput, r.even.map((x) => x || null), means(r.goodput, r.seconds, n), means(r.even, r.even.map((x) => (x > 0 ? 1 / x : 0)), n)]);
    this.plots.sizes.setData([at, ...names.lines.map((_, k) => r.shares.map((s) => (s ? (this.many ? Math.log1p(s[k]) : s[k]) : null)))]);
    this.read("goodput", null);
    this.read("sizes", null);
    this.tables();
  }

  make(names) {
    const own = css("--compute"), even = css("--even"), faint = css("--compute-light");
    this.plot("goodput", [
      { stroke: faint, width: 1, points: { show: false } }, { stroke: css("--edge"), width: 1, points: { show: false } },
      { stroke: own, width: 2.5, points: { show: false } }, { stroke: even, width: 2, dash: [7, 5], points: { show: false } },
    ]);
    const many = (this.many = names.nodes?.length > few); // then there are five lines for each device: the least, the quartiles, the most
    this.plot("sizes", names.lines.map((_, k) => {
      const d = this.devices.indexOf(names.of[k]);
      return { stroke: colour(d), dash: dash(d), width: many ? [0.5, 0, 2.5, 0, 0.5][k % 5] : names.lines.length > 24 ? 1 : 1.6, points: { show: false } };
    }), many && this.devices.flatMap((_, d) => [[5, 1, "1f"], [4, 2, "40"]].map(([top, bottom, alpha]) => ({ series: [5 * d + top, 5 * d + bottom], fill: colour(d) + alpha }))));
    const keys = this.devices.map((d, k) => {
      const mark = el("span", { class: "swatch" });
      mark.style.background = colour(k);
      return [mark, d];
    });
    $("sizes-key").replaceChildren(...keys.flat(), el("span", { class: "note" }, many ? "samples a round, logarithmic: median, half and all of a device's nodes" : "samples a round, a line for each node"));
  }

  plot(id, series, bands) {
    const text = css("--soft"), edge = css("--edge");
    const axis = { stroke: text, grid: { stroke: edge, width: 1 }, ticks: { stroke: edge }, font: "12px system-ui, sans-serif" };
    this.plots[id] = new uPlot({
      width: $(id).clientWidth || 600, height: 220, legend: { show: false }, cursor: { points: { show: false }, drag: { x: false, y: false } },
      series: [{}, ...series],
      bands: bands || [],
      axes: [{ ...axis, size: 32, values: (_, ticks) => ticks.map((t) => clock(1000 * t)), space: 90 }, { ...axis, size: 60, ...(bands ? bent : { values: (_, ticks) => ticks.map((t) => whole(t)) }) }],
      scales: { x: { time: true }, y: { range: (_, __, top) => [0, top > 0 ? 1.08 * top : 1] } },
      hooks: { setCursor: [(u) => this.read(id, u.cursor.idx)] },
    }, [[], ...series.map(() => [])], $(id));
  }

  // read says in words what stands under the pointer, or what is newest.
  read(id, index) {
    const r = this.shown, n = r.number.length;
    if (n === 0) return set($(id + "-read"), "No round was reported yet.");
    const k = index ?? n - 1, when = (index === null ? "Newest: round " : "Round ") + whole(r.number[k]) + ", " + clock(this.job.created + 1000 * r.at[k]) + ": ";
    if (id === "goodput") {
      const even = r.even[k] > 0 ? "; equal shares " + rate(r.even[k]) + ", predicted" : "";
      return set($("goodput-read"), when + rate(r.goodput[k]) + " samples/s" + even + ".");
    }
    const shares = r.shares[k];
    if (!shares) return set($("sizes-read"), when + "of another start of the process group.");
    const names = this.job.names;
    if (this.many) {
      return set($("sizes-read"), when + this.devices.map((d, i) => {
        const [least, low, median, high, most] = shares.slice(5 * i, 5 * i + 5).map(number);
        return d + " " + least + " to " + most + ", half of them " + low + " to " + high + ", median " + median;
      }).join("; ") + ".");
    }
    const named = shares.map((s, i) => [s, names.lines[i]]);
    const some = named.length > 16 ? [...named].sort((a, b) => b[0] - a[0]) : named;
    const more = some.length > 16 ? ", … (largest first)" : "";
    set($("sizes-read"), when + some.slice(0, 16).map(([s, name]) => name + " " + number(s)).join(", ") + more + ".");
  }

  // tables fills those that are open.
  tables() {
    const r = this.shown, names = this.job.names;
    if (!r) return;
    const newest = [...r.number.keys()].reverse().slice(0, 60), when = (k) => [whole(r.number[k]), clock(this.job.created + 1000 * r.at[k])];
    const first = [{ name: "Round", number: true }, { name: "Time" }];
    if ($("goodput-data").open) {
      const columns = [...first, { name: "Samples/s", number: true }, { name: "Equal shares (predicted)", number: true }];
      fill("goodput-data", table(columns, newest.map((k) => [...when(k), rate(r.goodput[k]), rate(r.even[k])])));
    }
    if ($("sizes-data").open && names) {
      const columns = [...first, ...(this.many ? this.devices.map((d) => d + ": least, quartiles, most") : names.lines).map((name) => ({ name, number: true }))];
      const cells = (shares) => (this.many ? this.devices.map((_, d) => shares.slice(5 * d, 5 * d + 5).map(number).join(" · ")) : shares.map(number));
      fill("sizes-data", table(columns, newest.filter((k) => r.shares[k]).map((k) => [...when(k), ...cells(r.shares[k])])));
    }
  }
}

const number = (s) => whole(Math.round(10 * s) / 10);

export const fill = (id, content) => $(id).querySelector(".scroll").replaceChildren(content);

// means are those of so many rates up to each, weighed by the times that they held for, or by what is in proportion: of equal shares,
// whose samples are the same in every round, one over the rate. null where a rate is not known.
export function means(rates, times, n) {
  return rates.map((x, k) => {
    let sum = 0, time = 0;
    for (let i = Math.max(0, k - n + 1); i <= k; i++) {
      sum += rates[i] * times[i];
      time += times[i];
    }
    return x > 0 && time > 0 ? sum / time : null;
  });
}
