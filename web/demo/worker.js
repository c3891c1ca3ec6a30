// The model, the keys and the connection to the adapter: away from the page's thread, which never waits.
// @ts-check
import { bytesOf, instantiate, read, TensafeError } from "./client/client.js";
import { connect } from "./client/session.js";

const post = (/** @type {any} */ message) => postMessage(message);
const began = performance.now();

// What passes: shown a few times a second.
/** @type {any[]} */ let frames = [];
function saw(/** @type {string} */ way, /** @type {any} */ data) {
  const bytes = typeof data === "string" ? new TextEncoder().encode(data) : new Uint8Array(data);
  // Behind a message's header, which is 52 bytes and much the same in all.
  const head = typeof data === "string" ? data.slice(0, 60)
    : Array.from(bytes.subarray(64, 104), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  frames.push({ ms: (performance.now() - began).toFixed(1), way, bytes: bytes.length, head });
}
function showFrames() {
  if (frames.length > 0) {
    post({ type: "frames", frames });
    frames = [];
  }
}
class WatchedSocket extends WebSocket {
  constructor(/** @type {string} */ url) {
    super(url);
    this.addEventListener("message", ({ data }) => saw("down", data));
  }
  send(/** @type {any} */ data) {
    saw("up", data);
    super.send(data);
  }
}

/** @type {import("./client/client.js").Module} */ let model;  // the language model: tiny_lm.cpp
/** @type {import("./client/session.js").Session | undefined} */ let session;
let mustStop = false;
let waited = 0;

/** What the adapter adds to the linears that wait: of one after the other, position by position. */
async function deltas(/** @type {string[]} */ sites, /** @type {number} */ positions) {
  const { groups } = /** @type {any} */ (session);
  const group = groups.findIndex((/** @type {any} */ each) => each.sites.some((/** @type {any} */ site) => site.name === sites[0]));
  const states = new Float32Array(model.call("inputs").buffer);
  const d = states.length / positions;
  const start = performance.now();
  const all = await /** @type {any} */ (session).deltas(group,
    Array.from({ length: positions }, (_, i) => states.subarray(i * d, (i + 1) * d)));
  waited += performance.now() - start;
  return sites.flatMap((name) => {
    const at = groups[group].sites.findIndex((/** @type {any} */ site) => site.name === name);
    return all.map((/** @type {Float32Array[]} */ row) => row[at]);
  });
}

/** Adds a text: its characters go through the model, and to the server, together. */
async function step(/** @type {string} */ text, /** @type {boolean} */ withAdapter) {
  model.call("begin", [], new TextEncoder().encode(text));
  for (;;) {
    const sites = new TextDecoder().decode(model.call("sites"));  // that wait; none: the positions are done
    if (sites === "") {
      return;
    }
    model.call("resume", [], ...(withAdapter ? await deltas(sites.split("\n"), text.length) : []).map(bytesOf));
  }
}

async function open() {
  session?.close();
  const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/split`;
  session = await connect(url, { adapter: "kjv", WebSocket: WatchedSocket,
    report: (what) => post({ type: "state", text: `Connection: ${what}.` }) });
}

/** @param {{prompt: string, characters: number, withAdapter: boolean}} order */
async function write({ prompt, characters, withAdapter }) {
  mustStop = false;
  const unknown = /[^\n -~]/u.exec(prompt);
  if (unknown) {
    throw new TensafeError("parameter", `the model does not know the character ${unknown[0]}: it knows ASCII`);
  }
  post({ type: "begin", prompt });
  if (withAdapter && !session) {
    await open();
  }
  model.exports.clear();
  if (prompt.length > 1) {
    await step(prompt.slice(0, -1), withAdapter);
  }
  let last = prompt.slice(-1);
  const start = performance.now();
  const before = { ...session?.counts };
  waited = 0;
  let text = "";
  let shownAt = 0;
  for (let written = 1; written <= characters && !mustStop; ++written) {
    await step(last, withAdapter);
    last = String.fromCharCode(model.exports.likeliest());
    text += last;
    const now = performance.now();
    if (now - shownAt > 30 || written === characters) {
      const each = (/** @type {number} */ sum) => (sum / written).toFixed(withAdapter || sum === 0 ? 1 : 2);
      const bytes = (/** @type {"bytesUp" | "bytesDown"} */ way) => withAdapter
        ? Math.round((/** @type {any} */ (session).counts[way] - (before[way] ?? 0)) / written).toLocaleString("en") : "0";
      post({ type: "text", text, figures: { rate: (1000 * written / (now - start)).toFixed(0),
        time: each(now - start), waiting: each(waited), up: bytes("bytesUp"), down: bytes("bytesDown") } });
      showFrames();
      text = "";
      shownAt = now;
      await new Promise((next) => setTimeout(next));  // a stop may have come
    }
  }
  if (text) {
    post({ type: "text", text, figures: {} });
  }
}

onmessage = async ({ data }) => {
  if (data.type === "stop") {
    mustStop = true;
    return;
  }
  try {
    await write(data);
    const bad = session?.badStates ?? 0;
    post({ type: "done", isFailure: bad > 0, text: bad > 0
      ? `${bad} hidden states overflowed: the text means nothing, and the server may be hostile.`
      : mustStop ? "Stopped." : "Written." });
  } catch (error) {
    const { code, message } = /** @type {any} */ (error);
    if (code !== "parameter") {
      session?.close();
      session = undefined;
    }
    post({ type: "done", isFailure: true, text: code === "query_limit"
      ? `The server gives no more answers of this adapter: ${message}` : `It stopped: ${message}` });
  }
  showFrames();
};

const here = (/** @type {string} */ name) => new URL(name, import.meta.url).href;
try {
  const [engine, weights, noServer] = await Promise.all([instantiate(here("tiny_lm.wasm")), read(here("base.safetensors")),
    open().catch(({ message }) => message)]);
  engine.call("load", [], new Uint8Array(weights));
  model = engine;
  post({ type: "ready", text: noServer ? `Ready, but without the adapter, which is tried again when you write: ${noServer}`
    : "Ready." });
} catch (error) {
  post({ type: "done", isFailure: true, text: `The model cannot be loaded: ${/** @type {any} */ (error).message}` });
}
