// A private client of split inference, for browsers and node. The keys are made in WebAssembly and in WebCrypto, and
// stay there. docs/web.md
// @ts-check

/** The codes of a server's errors (docs/service.md): session::refusal has the first ones, in its order. */
export const codes = ["replayed", "unknown_block", "block_limit", "query_limit", "rate_limit", "malformed",
  "parameter_mismatch", "unsupported_version", "unknown_adapter", "not_authorised", "resume_failed", "too_large", "draining",
  "loading", "unavailable", "internal"];
/** The kinds of errors that exports.hpp tells apart, by their numbers. Larger ones are what a call was told. */
const kinds = ["", "parameter", "range", "encoding", "format", "memory", "query_limit"];

/** An error whose `code` is the server's, or one of the client's kinds. */
export class TensafeError extends Error {
  constructor(/** @type {string} */ code, /** @type {string} */ message, /** @type {number | undefined} */ retryAfter) {
    super(message);
    this.name = "TensafeError";
    this.code = code;
    this.retryAfter = retryAfter;
    /** The number of the request that a server refused. @type {number | undefined} */
    this.number = undefined;
    /** @type {(Float32Array[] | undefined)[]} */
    this.answered = [];
  }
  /** Whether the same may be asked later. */
  get isForNow() { return this.code === "rate_limit" || this.code === "unavailable"; }
}

/** @type {(holds: unknown, code: string, message: string) => asserts holds} */
export const check = (holds, code, message) => {
  if (!holds) {
    throw new TensafeError(code, message);
  }
};

/** Reads a file beside this module, or anywhere. @param {string} url @returns {Promise<ArrayBuffer | Uint8Array>} */
export async function read(url) {
  if (url.startsWith("file:")) {
    const name = "node:fs/promises";  // of node alone: bundlers must not look for it
    const files = await import(/* webpackIgnore: true */ /* @vite-ignore */ name);
    return files.readFile(new URL(url));
  }
  const response = await fetch(url);
  check(response.ok, "network", `${url}: got status ${response.status}, expected 200`);
  return response.arrayBuffer();
}

/** @type {Map<string, Promise<WebAssembly.Module>>} */
const modules = new Map();

/** An instance of a module that was compiled with Emscripten and needs of the system only randomness: exports.hpp. */
export class Module {
  constructor(/** @type {any} */ exports) { this.exports = exports; }
  /** Calls a function with an argument of these parts, and returns what it shows.
   *  @param {string} name @param {(number | bigint)[]} values @param {Uint8Array[]} parts */
  call(name, values = [], ...parts) {
    const { memory, argument, result_data, result_size } = this.exports;
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    let at = argument(size);
    check(at !== 0 || size === 0, "memory", `client: no memory for ${size} bytes`);
    for (const part of parts) {
      new Uint8Array(memory.buffer, at, part.length).set(part);
      at += part.length;
    }
    const status = this.exports[name](...values);
    const shown = new Uint8Array(memory.buffer, result_data(), result_size()).slice();
    if (status !== 0) {
      throw this.told[status - kinds.length] ?? new TensafeError(kinds[status], new TextDecoder().decode(shown));
    }
    return shown;
  }
  /** @type {TensafeError[]} */ told = [];
}

/** @param {string} url */
export async function instantiate(url) {
  if (!modules.has(url)) {
    const compiled = read(url).then((bytes) => WebAssembly.compile(bytes)).catch((why) => {
      throw why instanceof TensafeError ? why : new TensafeError("network", `${url}: got ${why.message}, expected engine.wasm`);
    });
    compiled.catch(() => modules.delete(url));  // the next one tries again
    modules.set(url, compiled);
  }
  const module = await /** @type {Promise<WebAssembly.Module>} */ (modules.get(url));
  /** @type {any} */
  let exports;
  const memory = () => exports.memory.buffer;
  const refuse = () => 52;  // ENOSYS
  const instance = await WebAssembly.instantiate(module, {
    env: {
      getentropy(/** @type {number} */ at, /** @type {number} */ count) {
        crypto.getRandomValues(new Uint8Array(memory(), at, count));
        return 0;
      },
      emscripten_notify_memory_growth() {},
    },
    wasi_snapshot_preview1: {
      proc_exit(/** @type {number} */ status) {
        throw new Error(`the engine ended with status ${status}`);
      },
      environ_sizes_get(/** @type {number} */ count, /** @type {number} */ bytes) {
        new Uint32Array(memory(), count, 1)[0] = 0;
        new Uint32Array(memory(), bytes, 1)[0] = 0;
        return 0;
      },
      environ_get: () => 0,
      clock_time_get: refuse, fd_close: refuse, fd_read: refuse, fd_seek: refuse, fd_write: refuse,
    },
  });
  exports = instance.exports;
  exports._initialize();
  return new Module(exports);
}

export const bytesOf = (/** @type {ArrayBufferView} */ view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

/** Holds the keys of one client and its side of a session: session.d.ts. See Session for a network. */
export class Client {
  #engine;
  #exports;
  #group = 0;
  /** @type {{input: string, d: number, sites: {name: string, dOut: number, gain: number}[]}[]} */
  groups = [];
  tokensAhead = 0;
  tokensOffered = 0;  // of the server's blocks, which may be too long

  constructor(/** @type {Module} */ engine) {
    this.#engine = engine;
    this.#exports = engine.exports;
    engine.call("create");
  }
  static async create(wasm = new URL("engine.wasm", import.meta.url).href) {
    return new Client(await instantiate(wasm));
  }

  /** The number of the parameter set. */
  get set() { return BigInt.asUintN(64, this.#exports.set_id()); }
  /** Makes the seed that is signed of a challenge's nonce. */
  signedSeed(/** @type {Uint8Array} */ nonce) { return this.#engine.call("signed_seed", [], nonce); }
  /** Makes the message of the re-randomization key for this nonce, once a session. */
  rerandomizationKey(/** @type {Uint8Array} */ nonce) { return this.#engine.call("rerandomization_key", [], nonce); }
  /** Takes the server's layout and the client's part of the adapter. Blocks of more than mostTokens are not used.
   *  @param {Uint8Array} layout @param {Uint8Array} held @param {Record<string, number>} baseNorms */
  open(layout, held, mostTokens = 128, baseNorms = {}) {
    const shown = this.#engine.call("open", [layout.length, mostTokens], layout, held);
    const lines = new TextDecoder().decode(shown).split("\n");
    [this.tokensAhead, this.tokensOffered] = /** @type {string} */ (lines.pop()).split("\t").map(Number);
    const groups = lines.map((line) => {
      const [input, d, ...rest] = line.split("\t");
      const sites = rest.flatMap((name, i) =>
        i % 3 === 0 ? [{ name, dOut: Number(rest[i + 1]), gain: Number(rest[i + 2]) }] : []);
      return { input, d: Number(d), sites };
    });
    const bounded = groups.flatMap(({ sites }) => sites).filter(({ name }) => Object.hasOwn(baseNorms, name));
    check(bounded.length > 0 || Object.keys(baseNorms).length === 0, "parameter",
      `open: baseNorms: got no site of the adapter, expected names as ${groups[0]?.sites[0].name}`);
    for (const { name, gain } of bounded) {
      check(gain <= baseNorms[name], "parameter",
        `open: site ${name}: got a gain of ${gain}, expected at most ${baseNorms[name]}, the base layer's norm`);
    }
    this.groups = groups;
  }

  /** @param {number} group @param {Float32Array} states */
  begin(group, states, overflowMargin = 1, zerosForNan = true) {
    this.#engine.call("begin", [group, overflowMargin, zerosForNan ? 1 : 0], bytesOf(states));
    this.#group = group;
    this.#engine.told = [];
  }
  /** @returns {Uint8Array | undefined} */
  next() {
    const message = this.#engine.call("next");
    return message.length > 0 ? message : undefined;
  }
  take(/** @type {Uint8Array} */ reply) { this.#engine.call("take", [], reply); }
  /** @param {number} number @param {TensafeError} why */
  refused(number, why) {
    const which = this.#engine.told.push(why) - 1;
    const code = codes.indexOf(why.isForNow ? "rate_limit" : why.code);
    this.#engine.call("refused", [BigInt(number), code, why.retryAfter ?? -1, which]);
  }
  get status() {
    const [isOver, answered, awaitsReply, heldFor, left, badStates] = new Float64Array(this.#engine.call("status").buffer);
    return { isOver: isOver !== 0, answered, awaitsReply: awaitsReply !== 0, heldFor, queriesLeft: left < 0 ? null : left,
      badStates };
  }
  goOn() { this.#engine.call("go_on"); }
  rethrow() { this.#engine.call("rethrow"); }
  deltas(/** @type {number} */ row) {
    const all = new Float32Array(this.#engine.call("deltas", [row]).buffer);
    let end = 0;
    return all.length === 0 ? undefined
      : this.groups[this.#group].sites.map(({ dOut }) => all.subarray(end, (end += dOut)));
  }
  end() { this.#exports.end(); }

  lost() { this.#exports.lost(); }
  /** @param {number} nextNumber @param {number[]} left */
  resumed(nextNumber, left) {
    this.#engine.call("resumed", [BigInt(nextNumber)], bytesOf(BigUint64Array.from(left, BigInt)));
  }
  opened(/** @type {number[]} */ left) { this.#engine.call("opened", [], bytesOf(BigUint64Array.from(left, BigInt))); }
  /** Wipes the keys. */
  close() { this.#exports.close(); }
}
