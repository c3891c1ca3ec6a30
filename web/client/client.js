// A private client of split inference, for browsers and node. The keys are made in WebAssembly and in WebCrypto, and
// stay there. docs/web.md
// @ts-check

/** The kinds of errors that engine.cpp tells apart, by their numbers. */
const kinds = ["", "parameter", "range", "encoding", "format", "memory"];

/** What went wrong: `code` is the server's (docs/split-inference.md), or one of the client's kinds. */
export class TensafeError extends Error {
  constructor(/** @type {string} */ code, /** @type {string} */ message, /** @type {number | undefined} */ retryAfter) {
    super(message);
    this.name = "TensafeError";
    this.code = code;
    /** Milliseconds after which to ask again, if the server said so. */
    this.retryAfter = retryAfter;
  }
}

/** A file beside this module, or anywhere. @param {string} url @returns {Promise<ArrayBuffer | Uint8Array>} */
export async function read(url) {
  if (url.startsWith("file:")) {
    // @ts-ignore: there are no types of node here
    const files = await import("node:fs/promises");
    return files.readFile(new URL(url));
  }
  const response = await fetch(url);
  if (!response.ok) {
    throw new TensafeError("network", `${url}: got status ${response.status}, expected 200`);
  }
  return response.arrayBuffer();
}

/** @type {Map<string, Promise<WebAssembly.Module>>} */
const modules = new Map();

/**
 * An instance of a module that was compiled with Emscripten and needs of the system only randomness.
 * @param {string} url
 */
export async function instantiate(url) {
  if (!modules.has(url)) {
    const compiled = read(url).then((bytes) => WebAssembly.compile(bytes));
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
  return exports;
}

/** The keys of one client and what it knows of one adapter. Messages go in and out; see Session for a network. */
export class Client {
  #engine;
  /** @type {{input: string, d: number, sites: {name: string, dOut: number}[]}[]} */
  groups = [];
  /** Hidden states in a block; 0 or 1: there are no blocks. */
  tokensAhead = 0;

  constructor(/** @type {any} */ engine) {
    this.#engine = engine;
    this.#check(engine.create());
  }
  /** With a fresh secret key. */
  static async create(wasm = new URL("engine.wasm", import.meta.url).href) {
    return new Client(await instantiate(wasm));
  }

  /** The number of the parameter set. */
  get set() {
    return BigInt.asUintN(64, this.#engine.set_id());
  }
  /** Of a challenge's nonce, what is signed. */
  signedSeed(/** @type {Uint8Array} */ nonce) {
    this.#give(nonce);
    return this.#shown(this.#engine.signed_seed());
  }
  /** The message of the re-randomization key for this nonce: once a session. */
  rerandomizationKey(/** @type {Uint8Array} */ nonce) {
    this.#give(nonce);
    return this.#shown(this.#engine.rerandomization_key());
  }
  /** Takes the server's layout and what the client holds of the adapter. Blocks of more tokens are not used. */
  open(/** @type {Uint8Array} */ layout, /** @type {Uint8Array} */ held, mostTokens = 128) {
    this.#give(layout, held);
    this.#check(this.#engine.open(layout.length, mostTokens));
    const lines = new TextDecoder().decode(this.#shown(this.#engine.layout())).split("\n");
    this.tokensAhead = Number(lines.pop());
    this.groups = lines.map((line) => {
      const [input, d, ...rest] = line.split("\t");
      const sites = [];
      for (let i = 0; i < rest.length; i += 2) {
        sites.push({ name: rest[i], dOut: Number(rest[i + 1]) });
      }
      return { input, d: Number(d), sites };
    });
  }
  /** Hidden states that can go at a position of a block. */
  positions(/** @type {number} */ group) {
    const left = this.#engine.positions(group);
    this.#check(left < 0 ? 1 : 0);
    return left;
  }
  /** The request for a block. */
  prepare(/** @type {number} */ group, /** @type {number} */ number) {
    return this.#shown(this.#engine.prepare(group, BigInt(number)));
  }
  /** The reply to it. */
  accept(/** @type {Uint8Array} */ reply) {
    this.#give(reply);
    this.#check(this.#engine.accept());
  }
  /**
   * The request for the deltas of a hidden state: at a position of a block where there is one.
   * @param {number} group @param {Float32Array} h @param {number} number above all earlier ones
   */
  encrypt(group, h, number, overflowMargin = 1, zerosForNan = true) {
    this.#give(new Uint8Array(h.buffer, h.byteOffset, h.byteLength));
    return this.#shown(this.#engine.encrypt(group, h.length, BigInt(number), overflowMargin,
      zerosForNan ? 1 : 0));
  }
  /** Hidden states for which zeros were sent. */
  get badStates() {
    return this.#engine.bad_states();
  }
  /** The deltas of the group's sites, of the reply to its last request. */
  decrypt(/** @type {number} */ group, /** @type {Uint8Array} */ reply) {
    this.#give(reply);
    const all = new Float32Array(this.#shown(this.#engine.decrypt(group)).buffer);
    let end = 0;
    return this.groups[group].sites.map(({ dOut }) => all.subarray(end, (end += dOut)));
  }
  /** The server does not have the group's first block any more. */
  dropBlock(/** @type {number} */ group) {
    this.#check(this.#engine.drop_block(group));
  }
  /** Those that no reply came for, or all, which end with their session. */
  dropBlocks(/** @type {boolean} */ all) {
    this.#check(this.#engine.drop_blocks(all ? 1 : 0));
  }
  /** Wipes the keys. */
  close() {
    this.#engine.close();
  }

  #give(/** @type {Uint8Array[]} */ ...parts) {
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    let at = this.#engine.argument(size);
    if (at === 0 && size > 0) {
      throw new TensafeError("memory", `client: no memory for ${size} bytes`);
    }
    for (const part of parts) {
      new Uint8Array(this.#engine.memory.buffer, at, part.length).set(part);
      at += part.length;
    }
  }
  #read() {
    const { memory, result_data, result_size } = this.#engine;
    return new Uint8Array(memory.buffer, result_data(), result_size()).slice();
  }
  #check(/** @type {number} */ status) {
    if (status !== 0) {
      throw new TensafeError(kinds[status], new TextDecoder().decode(this.#read()));
    }
  }
  #shown(/** @type {number} */ status) {
    this.#check(status);
    return this.#read();
  }
}
