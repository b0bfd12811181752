// Requests to this server: uploads with progress in both directions, errors in words, the token.

const dialog = document.getElementById("token-dialog");
let token = sessionStorage.getItem("token") || "";

export class Problem extends Error {
  constructor(message, status, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

function askForToken() {
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      token = document.getElementById("token").value.trim();
      sessionStorage.setItem("token", token);
      resolve();
    }, { once: true });
    if (!dialog.open) dialog.showModal();
  });
}

function headers() {
  return token ? { Authorization: `Bearer ${token}` } : {};
}

export async function getJson(path) {
  const response = await fetch(path, { headers: headers() }).catch(() => {
    throw new Problem("The server does not answer. Is it still running?", 0);
  });
  if (response.status === 401) {
    await askForToken();
    return getJson(path);
  }
  const body = await response.json();
  if (!response.ok) throw new Problem(sentence(body.error.message), response.status, retryAfter(response.headers.get("Retry-After")));
  return body;
}

// Send a video; `onStep(text, share)` is called with what happens, the share being null where nobody knows it.
export async function send(path, blob, name, onStep = () => {}, signal) {
  for (;;) {
    try {
      return await sendOnce(path, blob, name, onStep, signal);
    } catch (problem) {
      if (problem.status === 401) {
        await askForToken();
      } else if (problem.retryAfter && (problem.status === 429 || problem.status === 503)) {
        onStep(`The server is busy; trying again in ${problem.retryAfter} s`, null);
        await pause(problem.retryAfter * 1000, signal);
      } else {
        throw problem;
      }
    }
  }
}

function sendOnce(path, blob, name, onStep, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    let seen = 0;
    request.open("POST", path);
    request.setRequestHeader("Accept", "application/x-ndjson, application/json");
    for (const [key, value] of Object.entries(headers())) request.setRequestHeader(key, value);
    request.upload.onprogress = (event) => onStep("Uploading", event.lengthComputable ? event.loaded / event.total : null);
    request.upload.onload = () => onStep("Decoding", null);
    const read = () => {
      const lines = request.responseText.slice(seen).split("\n");
      seen += lines.slice(0, -1).reduce((sum, line) => sum + line.length + 1, 0);
      return lines.slice(0, -1).map((line) => JSON.parse(line));
    };
    const take = (messages) => {
      for (const { progress, result, error, status } of messages) {
        if (progress) onStep(capital(progress.what), progress.done ? progress.done / progress.total : null);
        if (result) resolve(result);
        if (error) reject(new Problem(sentence(error.message), status, status === 503 ? 3 : null));
      }
    };
    const isStream = () => (request.getResponseHeader("Content-Type") || "").startsWith("application/x-ndjson");
    request.onprogress = () => { if (request.status === 200 && isStream()) take(read()); };
    request.onload = () => {
      if (request.status === 200) {
        take(read());
        reject(new Problem("The answer ended early; please try again.", 0));
        return;
      }
      let message = `The server answered with status ${request.status}.`;
      try { message = sentence(JSON.parse(request.responseText).error.message); } catch { /* not ours */ }
      reject(new Problem(message, request.status, retryAfter(request.getResponseHeader("Retry-After"))));
    };
    request.onerror = () => reject(new Problem("The server does not answer. Is it still running?", 0));
    request.onabort = () => reject(new Problem("Stopped.", 0));
    signal?.addEventListener("abort", () => request.abort());
    const form = new FormData();
    form.append("file", blob, name);
    request.send(form);
  });
}

function retryAfter(text) {
  return text ? Math.min(Number(text) || 3, 30) : null;
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => reject(new Problem("Stopped.", 0)));
  });
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function sentence(text) {
  return text.replace(/[^.!?]$/, "$&.");
}
