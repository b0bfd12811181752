// The camera: record a video, or ask about the last seconds again and again.

import { makeAvi } from "./avi.js";
import { bars } from "./draw.js";
import { send } from "./http.js";

const WIDTH = 320, RATE = 12, SECONDS = 2.5, EVERY = 500; // pixels, pictures a second, of each question, ms between them
const LONGEST = 60; // seconds of a recording
const panel = document.getElementById("camera");
const preview = document.getElementById("preview");
const label = document.getElementById("camera-label");
const list = document.getElementById("camera-bars");
const note = document.getElementById("camera-note");
const problem = document.getElementById("camera-problem");
const stopButton = document.getElementById("camera-stop");
let stream = null, end = () => {};

async function open(title) {
  end();
  document.getElementById("camera-title").textContent = title;
  problem.hidden = true;
  panel.hidden = false;
  list.replaceChildren();
  note.textContent = "";
  label.textContent = "";
  try {
    if (!navigator.mediaDevices) throw new Error("A browser allows the camera only on this computer's own address or over https.");
    stream = await navigator.mediaDevices.getUserMedia({ video: { width: 640, height: 480 } });
  } catch (error) {
    const reasons = { NotAllowedError: "The camera was not allowed; change that in the browser's settings of this page.", NotFoundError: "No camera was found.", NotReadableError: "The camera is used by another program." };
    problem.textContent = reasons[error.name] || error.message;
    problem.hidden = false;
    return false;
  }
  preview.srcObject = stream;
  await preview.play();
  panel.scrollIntoView({ block: "nearest" });
  stopButton.focus();
  return true;
}

function close() {
  stream?.getTracks().forEach((track) => track.stop());
  stream = preview.srcObject = null;
  panel.hidden = true;
}

stopButton.addEventListener("click", () => { end(); close(); });

export async function live() {
  if (!(await open("Live camera"))) return;
  const canvas = document.createElement("canvas");
  canvas.width = WIDTH;
  canvas.height = Math.round((WIDTH * preview.videoHeight) / preview.videoWidth / 2) * 2;
  const context = canvas.getContext("2d");
  const stopper = new AbortController();
  let pictures = [], asking = false;
  label.textContent = "Watching…";
  const grab = setInterval(() => {
    const time = performance.now();
    context.drawImage(preview, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(async (blob) => {
      if (!blob) return;
      pictures.push({ time, data: new Uint8Array(await blob.arrayBuffer()) });
      pictures = pictures.filter((picture) => time - picture.time < 1000 * SECONDS);
    }, "image/jpeg", 0.8);
  }, 1000 / RATE);
  const ask = setInterval(async () => {
    if (asking || pictures.length < RATE) return; // the server is slower than twice a second, or nothing is there yet
    asking = true;
    const last = [...pictures].sort((a, b) => a.time - b.time);
    const newest = last.at(-1).time, rate = (1000 * (last.length - 1)) / (newest - last[0].time);
    try {
      const video = makeAvi(last.map((picture) => picture.data), canvas.width, canvas.height, rate);
      const { top } = await send("/v1/predict?top_k=3", video, "camera.avi", () => {}, stopper.signal);
      const lag = (performance.now() - newest) / 1000;
      if (label.textContent !== top[0].label) label.textContent = top[0].label;
      bars(list, top);
      note.textContent = `About the last ${((newest - last[0].time) / 1000).toFixed(1)} s · lag ${lag.toFixed(2)} s`;
      problem.hidden = true;
    } catch (error) {
      if (!stopper.signal.aborted) {
        problem.textContent = error.message;
        problem.hidden = false;
      }
    } finally {
      asking = false;
    }
  }, EVERY);
  end = () => {
    clearInterval(grab);
    clearInterval(ask);
    stopper.abort();
    end = () => {};
  };
}

export async function record(use) {
  if (!(await open("Recording"))) return;
  if (!window.MediaRecorder) {
    problem.textContent = "This browser cannot record; choose a file instead.";
    problem.hidden = false;
    return;
  }
  const type = ["video/webm;codecs=vp8", "video/webm", "video/mp4"].find((kind) => MediaRecorder.isTypeSupported(kind));
  const recorder = new MediaRecorder(stream, type ? { mimeType: type } : {});
  const parts = [], begin = performance.now();
  label.textContent = "Recording…";
  const timer = setInterval(() => {
    const seconds = (performance.now() - begin) / 1000;
    note.textContent = `${seconds.toFixed(0)} s; Stop sends it`;
    if (seconds > LONGEST) stopButton.click();
  }, 250);
  recorder.ondataavailable = (event) => parts.push(event.data);
  recorder.onstop = () => {
    const kind = recorder.mimeType.split(";")[0] || "video/webm";
    use(new Blob(parts, { type: kind }), `recording.${kind.split("/")[1]}`);
  };
  recorder.start();
  end = () => {
    clearInterval(timer);
    recorder.stop();
    end = () => {};
  };
}
