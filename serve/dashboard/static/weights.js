// The weights of what is wanted, and the pause: what is moved here acts on the job.

import { $, el, set } from "./text.js";

const kinds = [
  ["speed", "Speed", "samples per second"],
  ["waiting", "Waiting", "nodes that wait for others"],
  ["freshness", "Freshness", "gradients of older models"],
  ["energy", "Energy", "needs nodes whose power is known"],
];
const settle = 300; // ms without a move until it is sent

// openWeights shows sliders. send changes the job; however fast they move, one request at a time is under way, and the
// newest position follows it.
export function openWeights(send, state, refused) {
  const sliders = new Map(), outputs = new Map();
  let timer = 0, busy = false, moved = false, open = true;
  $("weights").replaceChildren(...kinds.map(([k, name, hint]) => {
    const input = el("input", { type: "range", min: 0, max: 100, step: 1, id: "weight-" + k, "aria-describedby": "weight-hint-" + k });
    const output = el("output", {});
    output.htmlFor = "weight-" + k;
    sliders.set(k, input);
    outputs.set(k, output);
    input.addEventListener("input", () => {
      moved = true;
      read();
      clearTimeout(timer);
      timer = setTimeout(act, settle);
    });
    return el("label", {}, el("span", {}, name), output, input, el("small", { id: "weight-hint-" + k }, hint));
  }));
  set($("tune-said"), "");

  function read() {
    const values = kinds.map(([k]) => Number(sliders.get(k).value));
    const sum = values.reduce((a, b) => a + b, 0);
    kinds.forEach(([k], i) => {
      const text = Math.round(100 * (sum ? values[i] / sum : k === "speed" ? 1 : 0)) + "%";
      set(outputs.get(k), text);
      sliders.get(k).setAttribute("aria-valuetext", text);
    });
  }

  async function act() {
    if (busy || !open) return;
    busy = true;
    moved = false;
    const objectives = Object.fromEntries(kinds.map(([k]) => [k, Number(sliders.get(k).value) / 100]));
    await change({ objectives }, "The weights hold from the next round on.");
    busy = false;
    if (moved) act();
  }

  async function change(body, done) {
    try {
      await send(body);
      if (open) set($("tune-said"), done);
    } catch (e) {
      if (!open) return;
      set($("tune-said"), "Nothing was changed: " + e.message);
      refused(e);
    }
  }

  const pause = async () => {
    const to = !state()?.paused;
    $("pause").disabled = true;
    await change({ paused: to }, to ? "Paused: sizes stay as they are." : "Sizes change again.");
    $("pause").disabled = false;
    $("pause").focus();
  };
  $("pause").addEventListener("click", pause);

  return {
    show() {
      const j = state();
      set($("pause"), j.paused ? "Resume" : "Pause");
      if (busy || moved) return; // the job is not yet where the sliders are
      const o = { speed: 0, waiting: 0, freshness: 0, energy: 0, ...j.objectives };
      const top = Math.max(...Object.values(o));
      for (const [k] of kinds) sliders.get(k).value = top > 0 ? Math.round((100 * o[k]) / Math.max(top, 1)) : k === "speed" ? 100 : 0;
      read();
    },
    close() {
      open = false;
      clearTimeout(timer);
      $("pause").removeEventListener("click", pause);
    },
  };
}
