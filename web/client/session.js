// The session of a client with split_server over a WebSocket: docs/split-inference.md.
// @ts-check
import { Client, TensafeError } from "./client.js";

export { Client, TensafeError };

const protocol = 3;
const utf8 = new TextEncoder();

/** @param {number} milliseconds */
const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** @param {Uint8Array} bytes */
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** @param {unknown} text @param {number} bytes @param {string} what */
function fromHex(text, bytes, what) {
  if (typeof text !== "string" || text.length !== 2 * bytes || !/^[0-9a-f]*$/.test(text)) {
    throw new TensafeError("format", `session: got no ${what} of ${2 * bytes} hex digits`);
  }
  return Uint8Array.from({ length: bytes }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}

/** @param {(Uint8Array | string)[]} parts */
function joined(...parts) {
  const all = parts.map((part) => (typeof part === "string" ? utf8.encode(part) : part));
  const result = new Uint8Array(all.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of all) {
    result.set(part, at);
    at += part.length;
  }
  return result;
}

/** What a server may say is wrong: docs/split-inference.md. */
const codes = ["malformed", "parameter_mismatch", "unsupported_version", "unknown_adapter", "not_authorised", "query_limit",
  "rate_limit", "replayed", "resume_failed", "unknown_block", "block_limit", "too_large", "draining", "internal"];

/** @param {unknown} value @param {string} what */
function checkedNumber(value, what) {
  if (!Number.isSafeInteger(value) || /** @type {number} */ (value) < 0) {
    throw new TensafeError("format", `session: got no number for ${what}`);
  }
  return /** @type {number} */ (value);
}

/** The object of a text frame. @param {string} frame @returns {any} */
function parsed(frame) {
  let said;
  try {
    said = JSON.parse(frame);
  } catch {
    // below
  }
  if (typeof said !== "object" || said === null || typeof said.type !== "string") {
    throw new TensafeError("format", "session: got a text frame that is no message");
  }
  return said;
}

/** @param {Uint8Array} bytes */
const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

/** The connection is gone. */
class LostError extends TensafeError {
  constructor(/** @type {string} */ message) {
    super("lost", message);
  }
}

const longestFrame = 64 << 20;
const mostFrames = 16;  // that nobody waits for

/** A WebSocket whose frames are awaited one after the other. */
class Connection {
  /** @type {WebSocket} */ #socket;
  /** @type {(Uint8Array | string)[]} */ #frames = [];
  /** @type {{resolve: (frame: Uint8Array | string) => void, reject: (why: Error) => void} | undefined} */ #reader;
  /** @type {LostError | undefined} */ #lost;
  #limit;

  constructor(/** @type {WebSocket} */ socket, /** @type {number} */ limit) {
    this.#socket = socket;
    this.#limit = limit;
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }) => {
      const frame = typeof data === "string" ? data : new Uint8Array(data);
      if (frame.length > longestFrame || this.#frames.length === mostFrames) {
        this.#end("the server sent more than was asked for");
        socket.close();
      } else if (this.#reader) {
        this.#reader.resolve(frame);
      } else {
        this.#frames.push(frame);
      }
    };
    socket.onclose = ({ code, reason }) =>
      this.#end(`the connection closed: ${code}${reason ? ` ${reason}` : ""}`);
    socket.onerror = () => this.#end("the connection failed");
  }
  async opened() {
    while (this.#socket.readyState === 0 && !this.#lost) {
      await new Promise((resolve, reject) => this.#await(resolve, reject, "a connection"));
    }
  }
  /** @param {Uint8Array | string} frame */
  send(frame) {
    if (this.#lost) {
      throw this.#lost;
    }
    this.#socket.send(frame);
  }
  /** @returns {Promise<Uint8Array | string>} */
  receive() {
    const frame = this.#frames.shift();
    if (frame !== undefined) {
      return Promise.resolve(frame);
    }
    return new Promise((resolve, reject) => this.#await(resolve, reject, "an answer"));
  }
  close() {
    this.#end("it was closed here");
    this.#socket.close();
  }

  /** @param {(frame: any) => void} resolve @param {(why: Error) => void} reject @param {string} what */
  #await(resolve, reject, what) {
    if (this.#lost) {
      return reject(this.#lost);
    }
    const timer = setTimeout(() => {
      this.#end(`${what} did not come within ${this.#limit / 1000} s`);
      this.#socket.close();
    }, this.#limit);
    const once = (/** @type {(x: any) => void} */ then) => (/** @type {any} */ x) => {
      clearTimeout(timer);
      this.#reader = undefined;
      then(x);
    };
    this.#reader = { resolve: once(resolve), reject: once(reject) };
    this.#socket.onopen = () => this.#reader?.resolve("");
  }
  #end(/** @type {string} */ why) {
    this.#lost ??= new LostError(why);
    this.#reader?.reject(this.#lost);
  }
}

/** The same session over connections that may break. One hidden state after the other; calls wait for each other. */
export class Session {
  #url;
  #options;
  /** @type {Client} */ #client;
  /** @type {CryptoKeyPair} */ #identity;
  /** @type {Uint8Array} */ #publicKey;
  /** @type {Uint8Array} */ #binding;
  /** @type {Connection | undefined} */ #connection;
  /** @type {Uint8Array | undefined} */ #session;
  /** @type {string | undefined} */ #adapter;  // a hash of what the server handed out
  /** @type {{group: number, number: number, message: Uint8Array, isSent: boolean} | undefined} */ #block;
  /** @type {number[]} */ #alone = [];
  #next = 1;
  #isClosed = false;
  /** @type {Promise<unknown>} */ #last = Promise.resolve();
  /** Of the client's own limits, at the last handshake; null: there are none. */
  /** @type {number | null} */ queriesLeft = null;
  version = 0;
  counts = { replies: 0, bytesUp: 0, bytesDown: 0, sessions: 0, resumed: 0 };

  /** @param {string} url @param {any} options @param {Client} client @param {CryptoKeyPair} identity
   *  @param {Uint8Array} publicKey @param {Uint8Array} binding */
  constructor(url, options, client, identity, publicKey, binding) {
    this.#url = url;
    this.#options = options;
    this.#client = client;
    this.#identity = identity;
    this.#publicKey = publicKey;
    this.#binding = binding;
  }

  /** @param {string} url @param {any} options see session.d.ts */
  static async connect(url, options) {
    const settings = {
      WebSocket: globalThis.WebSocket, origin: globalThis.location?.origin, tokensAhead: 128, stepLimit: 60_000,
      zerosForNan: true, attempts: 10, report: () => {}, ...options,
    };
    if (typeof settings.adapter !== "string") {
      throw new TensafeError("parameter", "connect: got no adapter, expected its name on the server");
    }
    if (!settings.WebSocket) {
      throw new TensafeError("parameter", "connect: there is no WebSocket here: give options.WebSocket");
    }
    if (!settings.origin && !url.startsWith("ws:")) {
      throw new TensafeError("parameter", "connect: a page signs its origin; outside of one give options.origin, " +
        "and a WebSocket that sends it");
    }
    let identity;
    try {
      identity = /** @type {CryptoKeyPair} */ (
        await crypto.subtle.generateKey({ name: "Ed25519" }, false, ["sign", "verify"]));
    } catch (error) {
      throw new TensafeError("unsupported", `connect: WebCrypto has no Ed25519 here (${error})`);
    }
    const publicKey = new Uint8Array(await crypto.subtle.exportKey("raw", identity.publicKey));
    const binding = settings.origin
      ? await sha256(joined("tensafe split inference origin\n", settings.origin)) : new Uint8Array(32);
    const session = new Session(url, settings, await Client.create(settings.wasm), identity, publicKey, binding);
    try {
      await session.#open();
    } catch (error) {
      session.#end();
      throw error;
    }
    return session;
  }

  get groups() {
    return this.#client.groups;
  }
  get badStates() {
    return this.#client.badStates;
  }
  get tokensAhead() {
    return this.#client.tokensAhead;
  }

  /**
   * What the adapter adds to the outputs of a group's sites.
   * @param {number | string} group its number, or its input's name
   * @param {ArrayLike<number>} h the hidden state, d entries
   * @returns {Promise<Float32Array[]>} one for each site
   */
  deltas(group, h, overflowMargin = 1) {
    const number = typeof group === "number" ? group : this.groups.findIndex(({ input }) => input === group);
    if (!this.groups[number]) {
      return Promise.reject(new TensafeError("parameter", `deltas: got the group ${group}, expected one of ` +
        this.groups.map(({ input }) => input).join(", ")));
    }
    const state = Float32Array.from(h);
    return this.#inTurn(() => this.#ask(number, state, overflowMargin).finally(() => state.fill(0)));
  }

  /** Ends the session and wipes the keys. */
  close() {
    if (!this.#isClosed) {
      try {
        this.#connection?.send(JSON.stringify({ type: "bye" }));
      } catch {
        // then the server finds out by itself
      }
      this.#end();
    }
  }

  #end() {
    this.#isClosed = true;
    this.#drop();
    this.#session = undefined;
    this.#client.close();
  }
  #checkOpen() {
    if (this.#isClosed) {
      throw new TensafeError("closed", "session: it was closed");
    }
  }

  /** @template T @param {() => Promise<T>} f @returns {Promise<T>} */
  #inTurn(f) {
    const result = this.#last.then(f, f);
    this.#last = result.catch(() => {});
    return result;
  }

  /** @param {number} group @param {Float32Array} h @param {number} overflowMargin */
  async #ask(group, h, overflowMargin) {
    /** @type {{message: Uint8Array, number: number, inBlock: boolean, session: number} | undefined} */
    let sent;
    for (let tries = 0; ; ++tries) {
      try {
        await this.#connected();
        if (!sent || sent.session !== this.counts.sessions) {
          await this.#blockFor(group);
          const number = this.#next++;
          sent = { number, session: this.counts.sessions, inBlock: this.#client.positions(group) > 0,
            message: this.#client.encrypt(group, h, number, overflowMargin, this.#options.zerosForNan) };
        }
        const deltas = this.#client.decrypt(group, await this.#exchange(sent.message, false));
        ++this.counts.replies;
        this.#alone[group] = Math.max(0, (this.#alone[group] ?? 0) - 1);
        this.#prepareNext(group);
        return deltas;
      } catch (error) {
        const code = error instanceof TensafeError ? error.code : "";
        if (tries === 5 || !["lost", "unknown_block", "replayed"].includes(code)) {
          if (code === "format" || code === "") {
            this.#drop();  // a late reply must find nobody
          }
          throw error;
        }
        this.#options.report(/** @type {Error} */ (error).message);
        if (code === "lost") {
          this.#drop();
          // The server keeps the reply to the last request of a block or in one; all else is encrypted anew.
          sent = sent?.inBlock && sent.number === this.#next - 1 ? sent : undefined;
        } else {
          if (sent?.inBlock) {
            this.#client.dropBlock(group);
          }
          sent = undefined;
        }
      }
    }
  }

  /** Sends, and sends again as often as a limit of rates says.
   *  @param {Uint8Array} message @param {boolean} isSent */
  async #exchange(message, isSent) {
    for (let waits = 0; ; ++waits) {
      if (!isSent) {
        this.#connection?.send(message);
        this.counts.bytesUp += message.length;
      }
      isSent = false;
      try {
        return await this.#reply();
      } catch (error) {
        if (!(error instanceof TensafeError) || error.code !== "rate_limit" || waits === 100) {
          throw error;
        }
        await wait(error.retryAfter ?? 1000);
        this.#checkOpen();
      }
    }
  }

  /** A message; JSON of `type` if that is given. */
  /** @param {string} [type] @returns {Promise<any>} */
  async #reply(type) {
    for (let goesAway = false; ; goesAway = true) {
      const frame = await /** @type {Connection} */ (this.#connection).receive();
      if (typeof frame !== "string") {
        if (type) {
          throw new TensafeError("format", `session: got a binary frame, expected ${type}`);
        }
        this.counts.bytesDown += frame.length;
        return frame;
      }
      const said = parsed(frame);
      if (said.type === "error") {
        const later = said.retry_after_ms === undefined ? undefined
          : Math.min(checkedNumber(said.retry_after_ms, "retry_after_ms"), this.#options.stepLimit);
        throw new TensafeError(codes.includes(said.code) ? said.code : "format", String(said.message), later);
      }
      if (said.type === "draining" && !goesAway) {
        this.#options.report("the server is going away");
      } else if (said.type === type) {
        return said;
      } else {
        throw new TensafeError("format", `session: got ${said.type}, expected ${type ?? "a message"}`);
      }
    }
  }

  /** Prepares a block where there is none and there may be some. @param {number} group */
  async #blockFor(group) {
    await this.#finishBlock();
    if (this.tokensAhead > 1 && !this.#alone[group] && this.#client.positions(group) === 0) {
      this.#beginBlock(group);
      await this.#finishBlock();
    }
  }
  /** @param {number} group */
  #beginBlock(group) {
    const number = this.#next++;
    this.#block = { group, number, message: this.#client.prepare(group, number), isSent: false };
  }
  /** Asks for the next block while the caller goes on: not of all groups at one token. @param {number} group */
  #prepareNext(group) {
    const tokens = this.tokensAhead;
    const enough = Math.floor(tokens / 4 + (group * tokens) / 2 / this.groups.length);
    if (tokens < 2 || this.#block || this.#alone[group] || this.#client.positions(group) !== enough) {
      return;
    }
    this.#beginBlock(group);
    const block = /** @type {{message: Uint8Array, isSent: boolean}} */ (/** @type {unknown} */ (this.#block));
    try {
      this.#connection?.send(block.message);
      this.counts.bytesUp += block.message.length;
      block.isSent = true;
    } catch {
      // it goes with the next request
    }
  }
  async #finishBlock() {
    const block = this.#block;
    if (!block) {
      return;
    }
    const isSent = block.isSent;
    block.isSent = false;  // where it is lost, it goes again as it is
    try {
      this.#client.accept(await this.#exchange(block.message, isSent));
      this.#block = undefined;
    } catch (error) {
      if (error instanceof TensafeError && error.code === "lost") {
        throw error;
      }
      this.#block = undefined;
      this.#client.dropBlocks(false);
      if (!(error instanceof TensafeError) || !codes.includes(error.code)) {
        throw error;
      }
      // Refused: hidden states go alone for a while. A reply that was lost for good says nothing of room.
      this.#options.report(error.message);
      this.#alone[block.group] = error.code === "replayed" ? 0 : this.tokensAhead;
    }
  }

  #drop() {
    this.#connection?.close();
    this.#connection = undefined;
    if (this.#block) {
      this.#block.isSent = false;
    }
  }

  async #connected() {
    this.#checkOpen();
    if (this.#connection) {
      return;
    }
    for (let attempt = 0; ; ++attempt) {
      const step = Math.min(100 * 2 ** attempt, 10_000);
      await wait((step / 2) * (1 + Math.random()));
      this.#checkOpen();
      try {
        return await this.#open();
      } catch (error) {
        this.#drop();
        this.#checkOpen();
        const code = error instanceof TensafeError ? error.code : "";
        if (!["lost", "draining", "rate_limit"].includes(code) || attempt === this.#options.attempts) {
          throw error;
        }
        await wait(/** @type {TensafeError} */ (error).retryAfter ?? 0);
      }
    }
  }

  async #open() {
    const { adapter, origin, WebSocket, stepLimit, report } = this.#options;
    const connection = new Connection(new WebSocket(this.#url), stepLimit);
    this.#connection = connection;
    await connection.opened();
    const challenge = await this.#reply("challenge");
    if (challenge.protocol !== protocol) {
      throw new TensafeError("unsupported_version",
        `session: got protocol ${challenge.protocol}, expected ${protocol}`);
    }
    const nonce = fromHex(challenge.nonce, 32, "nonce");
    const seed = this.#client.signedSeed(nonce);
    const me = hex(this.#publicKey);
    const sign = async (/** @type {string} */ title, /** @type {(Uint8Array | string)[]} */ ...rest) =>
      hex(new Uint8Array(await crypto.subtle.sign("Ed25519", this.#identity.privateKey,
        joined(title, this.#binding, seed, ...rest))));
    if (this.#session) {
      connection.send(JSON.stringify({ type: "resume", protocol, session: hex(this.#session), client: me,
        signature: await sign("tensafe split inference 3 resume\n", this.#session) }));
      try {
        const resumed = await this.#reply("resumed");
        this.#next = Math.max(this.#next, checkedNumber(resumed.next_number, "next_number"));
        if (resumed.session !== hex(this.#session) || resumed.version !== this.version) {
          throw new TensafeError("format", "session: the server resumed another one");
        }
        this.queriesLeft = resumed.queries_left;
        ++this.counts.resumed;
        return report("the session goes on");
      } catch (error) {
        if (!(error instanceof TensafeError) || error.code !== "resume_failed") {
          throw error;
        }
      }
      this.#session = undefined;
      this.#block = undefined;
      this.#client.dropBlocks(true);
    }
    const key = this.#client.rerandomizationKey(nonce);
    const digest = await sha256(key);
    const set = new Uint8Array(8);
    new DataView(set.buffer).setBigUint64(0, this.#client.set, true);
    connection.send(JSON.stringify({ type: "hello", protocol, adapter, client: me,
      set: this.#client.set.toString(16).padStart(16, "0"), key_sha256: hex(digest),
      signature: await sign("tensafe split inference 3\n", set, digest, adapter), frames: "binary", held: true }));
    connection.send(key);
    const welcome = await this.#reply("welcome");
    const layout = await this.#reply();
    const held = await this.#reply();
    this.#checkOpen();
    if (welcome.adapter !== adapter) {
      throw new TensafeError("format", `session: got the adapter ${welcome.adapter}, expected ${adapter}`);
    }
    const handedOut = hex(await sha256(layout)) + hex(await sha256(held));
    if (this.#adapter === undefined) {
      this.#client.open(layout, held, this.#options.tokensAhead);
      this.#adapter = handedOut;
    } else if (this.#adapter !== handedOut) {
      throw new TensafeError("adapter_changed",
        `session: the server has another adapter ${adapter} than before the connection was lost`);
    }
    this.#session = fromHex(welcome.session, 16, "session");
    this.#next = 1;
    this.version = checkedNumber(welcome.version, "version");
    this.queriesLeft = welcome.queries_left;
    ++this.counts.sessions;
    report(`a session${origin ? ` from ${origin}` : ""}`);
  }
}

/** @type {typeof Session.connect} */
export const connect = (url, options) => Session.connect(url, options);
