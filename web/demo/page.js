// Shows what the worker does, which has the model, the keys and the connection.
// @ts-check
const part = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
const worker = new Worker("worker.js", { type: "module" });
const shown = 24;  // frames

let isReady = false;
let isWriting = false;

function enable() {
  part("write").disabled = !isReady || isWriting;
  part("stop").disabled = !isWriting;
}
function say(/** @type {string} */ text, isFailure = false) {
  part("state").textContent = text;
  part("state").className = isFailure ? "failed" : "";
}

/** @type {Record<string, (data: any) => void>} */
const handlers = {
  state: ({ text }) => say(text),
  ready: ({ text }) => {
    isReady = true;
    say(text);
  },
  begin: ({ prompt }) => {
    const beginning = document.createElement("b");
    beginning.textContent = prompt;
    part("text").replaceChildren(beginning, document.createTextNode(""));
  },
  text: ({ text, figures }) => {
    part("text").lastChild.data += text;
    for (const [id, value] of Object.entries(figures)) {
      part(id).textContent = value;
    }
  },
  frames: ({ frames }) => {
    for (const { ms, way, bytes, head } of frames.slice(-shown)) {
      const row = document.createElement("tr");
      for (const value of [ms, way, bytes, head]) {
        row.append(document.createElement("td"));
        /** @type {any} */ (row.lastChild).textContent = value;
      }
      part("frames").prepend(row);
    }
    while (part("frames").childElementCount > shown) {
      part("frames").lastElementChild.remove();
    }
  },
  done: ({ text, isFailure }) => {
    isWriting = false;
    say(text, isFailure);
  },
};
worker.onmessage = (/** @type {MessageEvent} */ { data }) => {
  handlers[data.type](data);
  enable();
};
worker.onerror = (/** @type {ErrorEvent} */ { message }) => say(`The page's worker failed: ${message}`, true);

part("form").onsubmit = (/** @type {Event} */ event) => {
  event.preventDefault();
  isWriting = true;
  say("Writing.");
  enable();
  worker.postMessage({ type: "write", prompt: part("beginning").value, characters: Number(part("characters").value),
    withAdapter: part("form").elements.way.value === "adapter" });
};
part("stop").onclick = () => worker.postMessage({ type: "stop" });
