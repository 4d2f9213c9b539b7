// Elements and words. Whatever comes from the service is set as text, never as markup.

export const $ = (id) => document.getElementById(id);

// el makes an element; properties are its own, but for class, and those with a dash, which are attributes.
export function el(tag, props = {}, ...inside) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props)) {
    if (k === "class") e.className = v;
    else if (k.includes("-") || k === "scope") e.setAttribute(k, v);
    else e[k] = v;
  }
  e.append(...inside.filter((x) => x !== null && x !== undefined));
  return e;
}

export const few = 64; // nodes that are shown one by one

// set changes an element's text where it differs: most of a page stays as it is from one second to the next.
export function set(e, text) {
  text = String(text);
  if (e.textContent !== text) e.textContent = text;
}

export const count = (n, what) => whole(n) + " " + what + (n === 1 ? "" : "s");
const english = new Intl.NumberFormat("en"); // toLocaleString makes one for each number
export const whole = (n) => english.format(n);

export function rate(x) {
  if (!(x > 0)) return "–";
  return x >= 100 ? whole(Math.round(x)) : x.toPrecision(3);
}

export function seconds(s) {
  if (!(s > 0)) return "–";
  if (s >= 100) return whole(Math.round(s)) + " s";
  if (s >= 1) return s.toPrecision(3) + " s";
  if (s >= 1e-3) return (1e3 * s).toPrecision(3) + " ms";
  return (1e6 * s).toPrecision(3) + " µs";
}

export const percent = (x) => (100 * x).toFixed(x < 0.1 ? 1 : 0) + "%";
export const times = (x) => (x > 0 && isFinite(x) ? (x < 10 ? x.toFixed(2) : x.toPrecision(3)) + "×" : "–");

// ago says how long ago something was, given in seconds.
export function ago(s) {
  s = Math.max(0, s);
  if (s < 1.5) return "now";
  if (s < 90) return Math.round(s) + " s ago";
  if (s < 5400) return Math.round(s / 60) + " min ago";
  if (s < 129600) return Math.round(s / 3600) + " h ago";
  return Math.round(s / 86400) + " days ago";
}

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

// quantile is what so great a part of sorted numbers lies below, 0 of none.
export const quantile = (sorted, part) => sorted[Math.floor(part * (sorted.length - 1))] ?? 0;
export const quartiles = (sorted) => [0, 0.25, 0.5, 0.75, 1].map((part) => quantile(sorted, part));

// table makes one of columns ({ name, number }) and rows of text.
export function table(columns, rows) {
  const head = el("tr", {}, ...columns.map((c) => el("th", { scope: "col", class: c.number ? "n" : "" }, c.name)));
  return el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows.map((r) => el("tr", {}, ...r.map((x, k) => el("td", { class: columns[k].number ? "n" : "" }, String(x)))))));
}

// Devices, in the colours of Okabe and Ito, which differ to all kinds of eyes; then the same with dashes.
const light = ["#0072b2", "#d55e00", "#007a5a", "#a8478a", "#8a6d00", "#3a7ca5", "#444444", "#b03030"];
const dark = ["#56b4e9", "#ff9d4d", "#2ec4a0", "#e0a0c8", "#f0e442", "#8fd0ff", "#c8c8c8", "#ff8f8f"];
export const isDark = matchMedia("(prefers-color-scheme: dark)");
export const colour = (k) => (isDark.matches ? dark : light)[k % light.length];
export const dash = (k) => (k < light.length ? undefined : k < 2 * light.length ? [8, 4] : [2, 3]);

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
