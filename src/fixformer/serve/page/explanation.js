// The clip's frames with the heat over them: one slider for the time, one for the strength of the heat.

import { element, percent } from "./draw.js";

const MEANINGS = {
  fixation: "Warm colours: a high fixation ratio γ; the attention keeps what is there. Cold colours: it lets go of it.",
  "roll-out": "Warm colours: much attention ends there, followed through all layers. This model has no fixation.",
  occlusion: "Warm colours: the answer suffers most when this place is covered. This model has no fixation.",
};

export function showExplanation(section, result) {
  const { frames, layers, notes, label, probability, heat_of: heatOf } = result;
  const still = element("img", { alt: "" });
  const heat = element("img", { alt: "" });
  const stage = element("div", { class: "stage" }, still, heat);
  const time = slider("Frame", 1, frames.length, 1, (value) => {
    still.src = frames[value - 1].image;
    heat.src = frames[value - 1].overlay;
    still.alt = `frame ${value} of ${frames.length}`;
    return `${value} of ${frames.length}`;
  });
  const strength = slider("Heat", 0, 100, 100, (value) => {
    heat.style.opacity = value / 100;
    return `${value} %`;
  });
  const words = element("p", { class: "quiet" }, MEANINGS[heatOf] || `Warm colours: ${heatOf}.`);
  const what = element("p", {}, element("strong", {}, label), ` (${percent(probability)}), in the clip's ${frames.length} frames`);
  what.className = "explained";
  const side = element("div", {}, what, time, strength, words, ...notes.map((note) => element("p", { class: "quiet" }, note)));
  section.replaceChildren(element("h4", {}, "Where it looked"), element("div", { class: "split" }, stage, side));
  if (layers.length) section.append(layerTable(layers));
}

let sliders = 0;

function slider(name, low, high, value, show) {
  const id = `slider-${++sliders}`;
  const output = element("output", { for: id });
  const input = element("input", { type: "range", id, min: low, max: high, value });
  const update = () => { output.textContent = show(Number(input.value)); };
  input.addEventListener("input", update);
  update();
  return element("div", { class: "slider" }, element("span", {}, element("label", { for: id }, name), output), input);
}

function layerTable(layers) {
  const number = (value) => (value === null ? "–" : value.toFixed(3));
  const head = ["Attention", "tokens", "entropy", "mass of top tenth", "distance to softmax", "γ"];
  const rows = layers.map((row) => element("tr", {}, ...[
    row.layer, String(row.tokens), number(row.entropy), number(row.top_tenth), number(row.to_softmax), number(row.gamma),
  ].map((text) => element("td", {}, text))));
  return element("details", {}, element("summary", {}, "How concentrated each attention is"),
    element("div", { class: "scroll" }, element("table", {},
      element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))), element("tbody", {}, ...rows))));
}
