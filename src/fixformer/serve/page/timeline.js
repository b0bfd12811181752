// Segments as buttons along the time, and the probabilities of the classes below.

import { clock, element, percent } from "./draw.js";

const SVG = "http://www.w3.org/2000/svg";
const COLOURS = 8;

export function showTimeline(section, result, card) {
  const { seconds, segments, times, tracks } = result;
  const names = [...new Set([...segments.map((segment) => segment.label), ...tracks.map((track) => track.label)])];
  const colour = (label) => `k${Math.min(names.indexOf(label), COLOURS - 1)}`;
  const now = element("span", { class: "now" });
  const track = element("div", { class: "track", role: "group", "aria-label": "Segments; each goes to its beginning" });
  for (const { start, end, label, certainty } of segments) {
    const words = `${label}, ${clock(start)} to ${clock(end)}, ${percent(certainty)}`;
    const button = element("button", { type: "button", class: colour(label), title: words, "aria-label": words }, label);
    button.style.left = `${(100 * start) / seconds}%`;
    button.style.width = `${(100 * (end - start)) / seconds}%`;
    button.addEventListener("click", (event) => {
      // where it was clicked; with the keyboard, its beginning
      const share = event.detail ? event.offsetX / button.clientWidth : 0;
      const at = start + share * (end - start);
      now.style.left = `${(100 * at) / seconds}%`;
      card.seek(at);
    });
    track.append(button);
  }
  track.append(now);
  card.video.addEventListener("timeupdate", () => {
    now.style.left = `${Math.min(100, (100 * card.video.currentTime) / seconds)}%`;
  });
  const axis = element("p", { class: "axis quiet" }, element("span", {}, "0 s"), element("span", {}, clock(seconds)));
  const legend = element("ul", { class: "legend" }, ...tracks.map(({ label }) =>
    element("li", {}, element("i", { class: colour(label) }), label)));
  const rows = segments.map(({ start, end, label, certainty }) => element("tr", {},
    element("td", {}, label), element("td", {}, clock(start)), element("td", {}, clock(end)), element("td", {}, percent(certainty))));
  const head = element("tr", {}, ...["Segment", "from", "to", "certainty"].map((text) => element("th", { scope: "col" }, text)));
  const table = element("details", {}, element("summary", {}, `${segments.length} ${segments.length === 1 ? "segment" : "segments"} as a table`),
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows))));
  section.replaceChildren(element("h4", {}, "Timeline"), track, curves(times, tracks, seconds, colour), axis, legend, table);
}

function curves(times, tracks, seconds, colour) {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("class", "curves");
  picture.setAttribute("viewBox", "0 -4 1000 108");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", "Probability of each class over time");
  for (const { label, scores } of tracks) {
    const path = document.createElementNS(SVG, "path");
    const points = scores.map((score, n) => `${((1000 * times[n]) / seconds).toFixed(1)},${(100 - 100 * score).toFixed(1)}`);
    if (points.length === 1) points.unshift(`0,${points[0].split(",")[1]}`), points.push(`1000,${points[0].split(",")[1]}`);
    path.setAttribute("d", `M${points.join("L")}`);
    path.setAttribute("class", colour(label));
    picture.append(path);
  }
  return picture;
}
