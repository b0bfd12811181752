// The page: what the model is, where videos come from, and a card for each.

import { live, record } from "./camera.js";
import { Card } from "./card.js";
import { clock } from "./draw.js";
import { getJson } from "./http.js";

const AT_ONCE = 2;
const results = document.getElementById("results");
const input = document.getElementById("file");
const line = document.getElementById("model");
const waiting = [];
let running = 0, largest = Infinity;

async function describe() {
  try {
    const { model, labels, frames, size, limits } = await getJson("/v1/model");
    largest = limits.upload_bytes;
    line.textContent = `${model} · ${labels.length} classes · ${frames} frames at ${size} × ${size}`;
    document.getElementById("limits").textContent =
      `Up to ${Math.round(largest / 1e6)} MB and ${clock(limits.duration)} long. MP4, WebM, MOV, AVI, MKV, GIF and more.`;
  } catch (problem) {
    line.textContent = problem.message;
    setTimeout(describe, 2000); // the model may still be loading
  }
}

function add(blob, name) {
  const card = new Card(blob, name);
  results.prepend(card.root);
  if (blob.size > largest) {
    card.find(".problem").textContent = `It has ${Math.ceil(blob.size / 1e6)} MB; this server takes up to ${Math.round(largest / 1e6)} MB.`;
    card.find(".problem").hidden = false;
    return;
  }
  card.step("Waiting", null);
  waiting.push(card);
  next();
}

async function next() {
  if (running >= AT_ONCE || !waiting.length) return;
  running += 1;
  await waiting.shift().run();
  running -= 1;
  next();
}

input.addEventListener("change", () => {
  for (const file of input.files) add(file, file.name);
  input.value = ""; // so that the same file can be chosen again
});
document.getElementById("record").addEventListener("click", () => record(add));
document.getElementById("live").addEventListener("click", live);

let depth = 0; // of dragenter events: children send their own
const drag = (change) => {
  depth = Math.max(0, depth + change);
  document.body.classList.toggle("dragging", depth > 0);
};
addEventListener("dragenter", () => drag(1));
addEventListener("dragleave", () => drag(-1));
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  drag(-depth);
  for (const file of event.dataTransfer.files) add(file, file.name);
});

describe();
