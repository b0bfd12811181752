// One video and everything the model says about it.

import { bars, clock, element } from "./draw.js";
import { send } from "./http.js";
import { showExplanation } from "./explanation.js";
import { showTimeline } from "./timeline.js";

const template = document.getElementById("card");
const FRAMES = 16;

// The card says which video it is about.
function inWords(message, name) {
  const text = message.startsWith(`${name}: `) ? message.slice(name.length + 2) : message;
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}

export class Card {
  constructor(blob, name) {
    this.blob = blob;
    this.name = name;
    this.stopper = new AbortController();
    this.root = template.content.firstElementChild.cloneNode(true);
    this.find = (selector) => this.root.querySelector(selector);
    this.find("h3").textContent = name;
    this.video = this.find(".stage video");
    this.address = URL.createObjectURL(blob);
    this.video.src = this.address;
    this.video.addEventListener("error", () => this.showStill());
    this.find(".close").addEventListener("click", () => this.remove());
    this.expandable(".ask-timeline", ".timeline", "/v1/timeline", showTimeline);
    this.expandable(".ask-explain", ".explain", "/v1/explain", showExplanation);
  }

  // The answer; what goes wrong is told in the card.
  async run() {
    this.root.setAttribute("aria-busy", "true");
    const result = await this.ask(`/v1/predict?frames=${FRAMES}`);
    this.root.removeAttribute("aria-busy");
    if (result) this.show(result);
  }

  async ask(path) {
    const problem = this.find(".problem");
    problem.hidden = true;
    this.step("Waiting", null);
    try {
      return await send(path, this.blob, this.name, (text, share) => this.step(text, share), this.stopper.signal);
    } catch (error) {
      problem.textContent = inWords(error.message, this.name);
      problem.hidden = false;
      return null;
    } finally {
      this.find(".status").hidden = true;
    }
  }

  step(text, share) {
    this.find(".status").hidden = false;
    const line = this.find(".step");
    if (line.textContent !== text) line.textContent = text; // so that a screen reader says it once
    const bar = this.find("progress");
    bar.setAttribute("aria-label", text);
    if (share === null) bar.removeAttribute("value");
    else bar.value = share;
  }

  show(result) {
    const { video, top, frames } = result;
    this.result = result;
    const rate = video.fps ? ` · ${Math.round(video.fps)} frames/s` : "";
    this.find(".meta").textContent = `${clock(video.seconds)} · ${video.width} × ${video.height}${rate}`;
    this.find(".verdict").textContent = top[0].label;
    bars(this.find(".bars"), top);
    this.find(".strip").replaceChildren(...frames.map(({ time, image }) => {
      const button = element("button", { type: "button" }, element("img", { src: image, alt: "" }), clock(time));
      button.setAttribute("aria-label", `Go to the frame at ${clock(time)}`);
      button.addEventListener("click", () => this.seek(time, image));
      return element("li", {}, button);
    }));
    this.find(".answer").hidden = false;
    if (this.video.error) this.showStill();
  }

  // A browser cannot play every format that the server decodes: then its frames stand for the video.
  showStill(image = this.result?.frames[0]?.image) {
    if (!image) return;
    const still = this.find(".stage img");
    still.src = image;
    still.alt = `a frame of ${this.name}`;
    still.hidden = false;
    this.video.hidden = true;
  }

  seek(seconds, image) {
    if (!this.video.hidden) this.video.currentTime = seconds;
    else if (image) this.showStill(image);
    else {
      const nearest = this.result.frames.reduce((a, b) => (Math.abs(b.time - seconds) < Math.abs(a.time - seconds) ? b : a));
      this.showStill(nearest.image);
    }
  }

  // A button that opens a part of the card, which is asked for when it is opened first.
  expandable(button, part, path, show) {
    const opener = this.find(button), section = this.find(part);
    let asked = false;
    opener.addEventListener("click", async () => {
      if (asked) {
        section.hidden = !section.hidden;
        opener.setAttribute("aria-expanded", String(!section.hidden));
        return;
      }
      opener.disabled = true;
      const result = await this.ask(path);
      opener.disabled = false;
      if (!result) return;
      asked = true;
      show(section, result, this);
      section.hidden = false;
      opener.setAttribute("aria-expanded", "true");
      opener.focus();
    });
  }

  remove() {
    this.stopper.abort();
    URL.revokeObjectURL(this.address);
    const next = this.root.nextElementSibling?.querySelector(".close") || document.getElementById("file");
    this.root.remove();
    next.focus();
  }
}
