// The session of a client with tensafe-server over a WebSocket: docs/service.md.
// @ts-check
import { bytesOf, check, Client, codes, TensafeError } from "./client.js";

export { Client, TensafeError };

const protocol = 3;
const mostLimits = 512;  // numbers of queries_left
const longestText = 16_384;

/** @param {number} milliseconds */
const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** @param {Uint8Array} bytes */
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** @param {unknown} text @param {number} bytes @param {string} what */
function fromHex(text, bytes, what) {
  check(typeof text === "string" && text.length === 2 * bytes && /^[0-9a-f]*$/.test(text), "format",
    `session: got no ${what} of ${2 * bytes} hex digits`);
  return Uint8Array.from({ length: bytes }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}

/** @param {(Uint8Array | string)[]} parts */
const joined = (...parts) => new Uint8Array(parts.flatMap((part) =>
  Array.from(typeof part === "string" ? new TextEncoder().encode(part) : part)));

/** @param {unknown} value @param {string} what */
function checkedNumber(value, what) {
  check(typeof value === "number" && Number.isSafeInteger(value) && value >= 0, "format", `session: got no number for ${what}`);
  return value;
}

/** Checks what `welcome` and `resumed` say of the limit of queries. @param {unknown} left @returns {number[]} */
function checkedLeft(left) {
  check(left === null || (Array.isArray(left) && left.length > 0 && left.length <= mostLimits), "format",
    `session: got no queries_left, expected null or 1 to ${mostLimits} numbers`);
  return (left ?? []).map((each) => checkedNumber(each, "queries_left"));
}

/** Shows text that a server wrote, in quotes: without what a screen would obey, and cut. @param {unknown} text */
const quoted = (text) => JSON.stringify(String(text).slice(0, 200)).replace(/[^ -~]/g, (character) =>
  `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`) + (String(text).length > 200 ? "..." : "");

/** Parses the object of a text frame. @param {string} frame @returns {any} */
function parsed(frame) {
  let said;
  try {
    said = JSON.parse(frame);
  } catch {
    // below
  }
  check(typeof said?.type === "string", "format", "session: got a text frame that is no message");
  return said;
}

/** @param {Uint8Array} bytes */
const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

const mayComeBack = ["lost", "draining", "loading"];  // codes after which another connection may work
const longestFrame = 64 << 20;
const mostFrames = 260;  // that nobody waits for: 256 replies of a call, and what else a server says

/** A WebSocket whose frames are awaited one after the other. */
class Connection {
  /** @type {WebSocket} */ #socket;
  /** @type {(Uint8Array | string)[]} */ #frames = [];
  #bytes = 0;  // of them
  /** @type {(x?: any) => void} */ #wake = () => {};
  /** @type {TensafeError | undefined} */ #lost;

  constructor(/** @type {WebSocket} */ socket) {
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }) => {
      const frame = typeof data === "string" ? data : new Uint8Array(data);
      if (frame.length > longestFrame || this.#bytes > longestFrame || this.#frames.length === mostFrames) {
        return this.close("the server sent more than was asked for");
      }
      if (typeof data === "string" && data.length > longestText) {
        return this.close(`session: got a text of ${data.length} characters, expected at most ${longestText}`, "format");
      }
      this.#frames.push(frame);
      this.#bytes += frame.length;
      this.#wake();
    };
    socket.onclose = ({ code, reason }) => this.close(`the connection closed: ${code}${reason ? ` ${quoted(reason)}` : ""}`);
    socket.onerror = () => this.close("the connection failed");
  }
  /** Sends a frame; if it goes nowhere, `receive` finds out. @param {Uint8Array | string} frame */
  send(frame) {
    if (this.#socket.readyState === 1) {
      this.#socket.send(frame);
    }
  }
  /** @param {number} limit in milliseconds @returns {Promise<Uint8Array | string>} */
  async receive(limit) {
    const timer = setTimeout(() => this.close(`no answer came within ${limit / 1000} s`), limit);
    try {
      let frame;
      while ((frame = this.#frames.shift()) === undefined) {
        if (this.#lost) {
          throw this.#lost;
        }
        await new Promise((wake) => { this.#wake = wake; });
      }
      this.#bytes -= frame.length;
      return frame;
    } finally {
      clearTimeout(timer);
    }
  }
  close(why = "it was closed here", code = "lost") {
    if (!this.#lost) {  // closing may say that it failed
      this.#lost = new TensafeError(code, why);
      this.#socket.close();
      this.#wake();
    }
  }
}

/** A session over connections that may break. Calls wait for each other. */
export class Session {
  #options;
  /** @type {Client} */ #client;
  /** @type {CryptoKey} */ #identity;
  /** @type {Connection | undefined} */ #connection;
  /** @type {Uint8Array | undefined} */ #session;
  /** @type {string | undefined} */ #adapter;  // a hash of what the server handed out
  #isClosed = false;
  #until = 0;  // until then all may be waited for
  #waits = 0;  // in that time
  /** @type {Promise<any>} */ #last = Promise.resolve();
  /** The hidden states that the client's own limits leave, in the group with the least; null: there are no limits. */
  /** @type {number | null} */ queriesLeft = null;
  badStates = 0;
  version = 0;
  counts = { replies: 0, bytesUp: 0, bytesDown: 0, sessions: 0, resumed: 0 };

  /** @param {any} options as in connect, and url, publicKey and binding @param {Client} client @param {CryptoKey} identity */
  constructor(options, client, identity) {
    this.#options = options;
    this.#client = client;
    this.#identity = identity;
  }

  /** @param {string} url @param {any} options see session.d.ts */
  static async connect(url, options) {
    const settings = {
      WebSocket: globalThis.WebSocket, origin: globalThis.location?.origin, tokensAhead: 128, stepLimit: 60_000,
      totalLimit: 180_000, zerosForNan: true, report: () => {}, ...options,
    };
    check(typeof settings.adapter === "string", "parameter", "connect: got no adapter, expected its name on the server");
    check(settings.WebSocket, "parameter", "connect: there is no WebSocket here: give options.WebSocket");
    check(settings.origin || url.startsWith("ws:"), "parameter",
      "connect: a page signs its origin; outside of one give options.origin, and a WebSocket that sends it");
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
    const session = new Session({ ...settings, url, publicKey, binding }, await Client.create(settings.wasm),
      identity.privateKey);
    try {
      session.#begin();
      await session.#connected(null);
    } catch (error) {
      session.#end();
      throw error;
    }
    return session;
  }

  get groups() { return this.#client.groups; }
  get tokensAhead() { return this.#client.tokensAhead; }

  /** @param {number | string} group @param {ArrayLike<number> | ArrayLike<number>[]} h @returns {Promise<any>} */
  async deltas(group, h, overflowMargin = 1) {
    const number = typeof group === "number" ? group : this.groups.findIndex(({ input }) => input === group);
    check(this.groups[number], "parameter",
      `deltas: got the group ${group}, expected one of ${this.groups.map(({ input }) => input).join(", ")}`);
    const { d } = this.groups[number];
    const isMany = Array.isArray(h) && typeof h[0] !== "number";
    const rows = /** @type {ArrayLike<number>[]} */ (isMany ? h : [h]);
    const wrong = rows.findIndex((row) => row?.length !== d);
    check(rows.length > 0 && wrong < 0, "parameter", `deltas: got ${rows.length === 0 ? "no hidden state"
      : `a hidden state of ${rows[wrong]?.length} entries`}, expected ${d}`);
    const states = new Float32Array(rows.length * d);
    rows.forEach((row, i) => states.set(row, i * d));
    const ask = () => this.#ask(number, states, overflowMargin).finally(() => states.fill(0));
    const all = await (this.#last = this.#last.then(ask, ask));
    return isMany ? all : all[0];
  }

  /** Ends the session and wipes the keys. */
  close() {
    if (!this.#isClosed) {
      this.#connection?.send(JSON.stringify({ type: "bye" }));
      this.#end();
    }
  }

  #end() {
    this.#isClosed = true;
    this.#drop();
    this.#session = undefined;
    this.#client.close();
  }
  #checkOpen() { check(!this.#isClosed, "closed", "session: it was closed"); }

  #begin() {
    this.#until = performance.now() + this.#options.totalLimit;
    this.#waits = 0;
  }
  /** Waits so long at least, and longer and longer; throws `why` where there is no time for it.
   *  @param {number} least @param {TensafeError} why */
  async #wait(least, why) {
    const step = Math.min(100 * 2 ** this.#waits++, 10_000);
    const time = Math.max(least, (step / 2) * (1 + Math.random()));
    if (performance.now() + time > this.#until) {
      throw why;
    }
    await wait(time);
    this.#checkOpen();
  }

  /** @param {number} group @param {Float32Array} states @param {number} overflowMargin */
  async #ask(group, states, overflowMargin) {
    this.#begin();
    await this.#connected();
    const client = this.#client;
    client.begin(group, states, overflowMargin, this.#options.zerosForNan);
    const results = () => Array.from({ length: states.length / this.groups[group].d }, (_, row) => client.deltas(row));
    try {
      await this.#pump();
      client.rethrow();
      return results();
    } catch (error) {
      if (error instanceof TensafeError && !this.#isClosed) {
        error.answered = results();
      }
      throw error;
    } finally {
      if (!this.#isClosed) {
        this.counts.replies += client.status.answered;
        client.end();
        ({ queriesLeft: this.queriesLeft, badStates: this.badStates } = client.status);
      }
    }
  }

  /** Sends all that may go up, then takes an answer, until the call is over. */
  async #pump() {
    const client = this.#client;
    let before = 0;
    /** @type {TensafeError | undefined} */ let lost;
    /** @type {TensafeError | undefined} */ let limited;
    for (;;) {
      await this.#connected(lost);
      try {
        for (let message = client.next(); message; message = client.next()) {
          /** @type {Connection} */ (this.#connection).send(message);
          this.counts.bytesUp += message.length;
        }
        const { isOver, answered, heldFor, awaitsReply } = client.status;
        if (isOver) {
          return;
        }
        if (answered > before) {
          before = answered;
          this.#begin();
        }
        if (heldFor > 0 && !awaitsReply) {
          await this.#wait(heldFor, /** @type {TensafeError} */ (limited));
          client.goOn();
          continue;
        }
        const answer = await this.#reply().catch((error) => {
          if (error.number === undefined || mayComeBack.includes(error.code)) {
            throw error;
          }
          return error;
        });
        this.#checkOpen();
        if (!(answer instanceof TensafeError)) {
          client.take(answer);
        } else {
          client.refused(/** @type {number} */ (answer.number), answer);
          if (answer.isForNow) {
            limited = answer;
          } else {
            this.#options.report(answer.message);
          }
        }
      } catch (error) {
        this.#drop();  // late replies must find nobody
        if (!(error instanceof TensafeError && mayComeBack.includes(error.code))) {
          throw error;
        }
        this.#options.report(error.message);
        lost = error;
      }
    }
  }

  /** Returns the next message, which must be JSON of `type` if that is given. @param {string} [type] @returns {Promise<any>} */
  async #reply(type) {
    for (let goesAway = false; ; goesAway = true) {
      const frame = await /** @type {Connection} */ (this.#connection).receive(
        Math.max(1, Math.min(this.#options.stepLimit, this.#until - performance.now())));
      if (typeof frame !== "string") {
        check(!type, "format", `session: got a binary frame, expected ${type}`);
        this.counts.bytesDown += frame.length;
        return frame;
      }
      const said = parsed(frame);
      if (said.type === "error") {
        const later = said.retry_after_ms === undefined ? undefined
          : checkedNumber(said.retry_after_ms, "retry_after_ms");
        const code = codes.includes(said.code) ? said.code : "format";
        throw Object.assign(new TensafeError(code, `the server refuses (${code}): ${quoted(said.message)}`, later),
          said.number === undefined ? {} : { number: checkedNumber(said.number, "number") });
      }
      if (said.type === "draining" && !goesAway) {
        this.#options.report("the server is going away");
      } else {
        check(said.type === type, "format", `session: got ${quoted(said.type)}, expected ${type ?? "a message"}`);
        return said;
      }
    }
  }

  #drop() {
    this.#connection?.close();
    this.#connection = undefined;
    this.#client.lost();
  }

  /** Connects if there is no connection. @param {TensafeError | null} lost why; null: the first try is at once */
  async #connected(lost = new TensafeError("lost", "there is no connection")) {
    this.#checkOpen();
    while (!this.#connection) {
      if (lost) {
        await this.#wait(lost.retryAfter ?? 0, lost);
      }
      try {
        await this.#open();
      } catch (error) {
        this.#drop();
        this.#checkOpen();
        if (!(error instanceof TensafeError && (mayComeBack.includes(error.code) || error.isForNow))) {
          throw error;
        }
        this.#options.report(error.message);
        lost = error;
      }
    }
  }

  async #open() {
    const { url, publicKey, binding, adapter, origin, WebSocket, tokensAhead, report } = this.#options;
    const connection = new Connection(new WebSocket(url));
    this.#connection = connection;
    const challenge = await this.#reply("challenge");
    check(challenge.protocol === protocol, "unsupported_version",
      `session: got protocol ${quoted(challenge.protocol)}, expected ${protocol}`);
    const nonce = fromHex(challenge.nonce, 32, "nonce");
    const seed = this.#client.signedSeed(nonce);
    const me = hex(publicKey);
    const sign = async (/** @type {string} */ title, /** @type {(Uint8Array | string)[]} */ ...rest) =>
      hex(new Uint8Array(await crypto.subtle.sign("Ed25519", this.#identity, joined(title, binding, seed, ...rest))));
    if (this.#session) {
      connection.send(JSON.stringify({ type: "resume", protocol, session: hex(this.#session), client: me,
        signature: await sign("tensafe split inference 3 resume\n", this.#session) }));
      try {
        const resumed = await this.#reply("resumed");
        check(resumed.session === hex(this.#session) && resumed.version === this.version, "format",
          "session: the server resumed another one");
        this.#client.resumed(checkedNumber(resumed.next_number, "next_number"), checkedLeft(resumed.queries_left));
        this.queriesLeft = this.#client.status.queriesLeft;
        ++this.counts.resumed;
        return report("the session goes on");
      } catch (error) {
        if (!(error instanceof TensafeError) || error.code !== "resume_failed") {
          throw error;
        }
      }
      this.#session = undefined;
    }
    const key = this.#client.rerandomizationKey(nonce);
    const digest = await sha256(key);
    const set = bytesOf(BigUint64Array.of(this.#client.set));
    connection.send(JSON.stringify({ type: "hello", protocol, adapter, client: me,
      set: this.#client.set.toString(16).padStart(16, "0"), key_sha256: hex(digest),
      signature: await sign("tensafe split inference 3\n", set, digest, adapter), frames: "binary", held: true }));
    connection.send(key);
    const welcome = await this.#reply("welcome");
    const left = checkedLeft(welcome.queries_left);
    const layout = await this.#reply();
    const held = await this.#reply();
    this.#checkOpen();
    check(welcome.adapter === adapter, "format", `session: got the adapter ${quoted(welcome.adapter)}, expected ${adapter}`);
    const handedOut = hex(await sha256(layout)) + hex(await sha256(held));
    if (this.#adapter === undefined) {
      this.#client.open(layout, held, this.#options.tokensAhead, this.#options.baseNorms);
      this.#adapter = handedOut;
    }
    check(this.#adapter === handedOut, "adapter_changed",
      `session: the server has another adapter ${adapter} than before the connection was lost`);
    this.#client.opened(left);
    this.#session = fromHex(welcome.session, 16, "session");
    this.version = checkedNumber(welcome.version, "version");
    this.queriesLeft = this.#client.status.queriesLeft;
    ++this.counts.sessions;
    report(`a session${origin ? ` from ${origin}` : ""}`);
    const { tokensOffered } = this.#client;
    if (tokensAhead > 1 && tokensOffered > tokensAhead) {
      report(`the server has blocks of ${tokensOffered} tokens, tokensAhead is ${tokensAhead}: each hidden state goes alone`);
    }
  }
}

/** @type {typeof Session.connect} */
export const connect = (url, options) => Session.connect(url, options);
