// The model, the keys and the connection to the adapter: away from the page's thread, which never waits.
// @ts-check
import { instantiate, read, TensafeError } from "./client/client.js";
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

/** The language model in WebAssembly: tiny_lm.cpp. */
class Model {
  constructor(/** @type {any} */ engine, /** @type {ArrayBuffer} */ weights) {
    this.engine = engine;
    this.give(new Uint8Array(weights));
    this.check(engine.load());
  }
  give(/** @type {Uint8Array} */ bytes) {
    const at = this.engine.argument(bytes.length);
    new Uint8Array(this.engine.memory.buffer, at, bytes.length).set(bytes);
  }
  shown() {
    return new Uint8Array(this.engine.memory.buffer, this.engine.result_data(), this.engine.result_size());
  }
  check(/** @type {number} */ status) {
    if (status !== 0) {
      throw new TensafeError("parameter", new TextDecoder().decode(this.shown()));
    }
  }
  begin(/** @type {number} */ character) {
    this.check(this.engine.begin(character));
  }
  /** The linears that wait, by name; none: the position is done. */
  sites() {
    this.check(this.engine.sites());
    return new TextDecoder().decode(this.shown());
  }
  input() {
    this.check(this.engine.input());
    return new Float32Array(this.shown().slice().buffer);
  }
  /** With what an adapter adds to each of them, or without. */
  resume(/** @type {Float32Array[]} */ deltas) {
    const all = new Float32Array(deltas.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const one of deltas) {
      all.set(one, at);
      at += one.length;
    }
    this.give(new Uint8Array(all.buffer));
    this.check(this.engine.resume(all.length));
  }
}

/** @type {Model} */ let model;
/** @type {import("./client/session.js").Session | undefined} */ let session;
/** @type {Map<string, {group: number, sites: number[]}>} */ const places = new Map();
let mustStop = false;
let waited = 0;

/** What the adapter adds to the linears that wait. */
async function deltas(/** @type {string} */ sites) {
  const { groups } = /** @type {any} */ (session);
  let place = places.get(sites);
  if (!place) {
    const names = sites.split("\n");
    const group = groups.findIndex((/** @type {any} */ each) =>
      each.sites.some((/** @type {any} */ site) => site.name === names[0]));
    place = { group, sites: names.map((name) =>
      groups[group].sites.findIndex((/** @type {any} */ site) => site.name === name)) };
    places.set(sites, place);
  }
  const start = performance.now();
  const all = await /** @type {any} */ (session).deltas(place.group, model.input());
  waited += performance.now() - start;
  return place.sites.map((site) => all[site]);
}

async function step(/** @type {number} */ character, /** @type {boolean} */ withAdapter) {
  model.begin(character);
  for (let sites = model.sites(); sites !== ""; sites = model.sites()) {
    model.resume(withAdapter ? await deltas(sites) : []);
  }
}

async function open() {
  session?.close();
  places.clear();
  const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/split`;
  session = await connect(url, { adapter: "kjv", WebSocket: WatchedSocket, tokensAhead: 32,
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
  model.engine.clear();
  for (const character of prompt.slice(0, -1)) {
    await step(character.charCodeAt(0), withAdapter);
  }
  let last = prompt.charCodeAt(prompt.length - 1);
  const start = performance.now();
  const before = { ...session?.counts };
  waited = 0;
  let text = "";
  let shownAt = 0;
  for (let written = 1; written <= characters && !mustStop; ++written) {
    await step(last, withAdapter);
    last = model.engine.likeliest();
    text += String.fromCharCode(last);
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
  model = new Model(engine, weights);
  post({ type: "ready", text: noServer ? `Ready, but without the adapter, which is tried again when you write: ${noServer}`
    : "Ready." });
} catch (error) {
  post({ type: "done", isFailure: true, text: `The model cannot be loaded: ${/** @type {any} */ (error).message}` });
}
