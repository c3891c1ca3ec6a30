// The client in node: node --experimental-websocket --test web/tests/client.test.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import { root, startServer, tensors } from "./server.mjs";

const { Client, connect, TensafeError } = await import(process.env.TENSAFE_WEB_CLIENT ??
  new URL("../../build/web/client/session.js", import.meta.url));

const data = "examples/data/qwen_rank32";
const site = "self_attn.q_proj";
const states = tensors(`${data}/hidden_states.safetensors`)[site];
const expected = tensors(`${data}/expected_delta.safetensors`)[site];
const d = states.shape[1];
const dOut = expected.shape[1];
const state = (row) => states.values.subarray(row * d, (row + 1) * d);

const server = await startServer("--adapter", `qwen=${root}/${data}`);
test.after(() => server.stop());

/** The largest error beside the largest entry. */
function check(deltas, sites, row) {
  const got = deltas[sites.findIndex(({ name }) => name.endsWith(site))];
  const want = expected.values.subarray(row * dOut, (row + 1) * dOut);
  assert.equal(got.length, dOut);
  const largest = want.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  const error = want.reduce((most, x, i) => Math.max(most, Math.abs(x - got[i])), 0) / largest;
  assert.ok(error < 5e-4, `relative error ${error}`);
}
const input = (session) => session.groups.findIndex(({ sites }) => sites.some(({ name }) => name.endsWith(site)));

for (const tokensAhead of [1, 128]) {
  test(`hidden states ${tokensAhead === 1 ? "alone" : "in blocks"} get the deltas of the adapter`, async () => {
    const session = await connect(server.url, { adapter: "qwen", tokensAhead });
    const group = input(session);
    const { sites } = session.groups[group];
    const all = await Promise.all([0, 1, 2].map((row) => session.deltas(group, state(row))));
    all.forEach((deltas, row) => check(deltas, sites, row));
    for (let k = 3; k < 40; ++k) {
      check(await session.deltas(session.groups[group].input, state(k % 16)), sites, k % 16);
    }
    assert.equal(session.counts.replies, 40);
    assert.ok(tokensAhead === 1 ? session.counts.bytesUp > 40 * 60_000 : session.counts.bytesUp < 40 * 30_000);
    session.close();
    await assert.rejects(session.deltas(group, state(0)), { code: "closed" });
  });
}

test("a lost connection is made up for, with its session and in a fresh one", async () => {
  const sockets = [];
  class Socket extends WebSocket {
    constructor(url) {
      super(url);
      sockets.push(this);
    }
  }
  const session = await connect(server.url, { adapter: "qwen", WebSocket: Socket });
  const group = input(session);
  const { sites } = session.groups[group];
  check(await session.deltas(group, state(0)), sites, 0);
  sockets.at(-1).close();
  check(await session.deltas(group, state(1)), sites, 1);
  assert.deepEqual([session.counts.sessions, session.counts.resumed], [1, 1]);
  const asked = session.deltas(group, state(2));  // lost on its way
  setTimeout(() => sockets.at(-1).close(), 1);
  check(await asked, sites, 2);
  session.close();
});

/** Sockets that note what is sent, and can break a connection behind a message of this length. */
class Lossy extends WebSocket {
  static sent = [];
  static breaksAt = 0;
  send(data) {
    super.send(data);
    Lossy.sent.push(data);
    if (data.length === Lossy.breaksAt) {
      Lossy.breaksAt = 0;
      this.close();
    }
  }
}

test("what was sent of a block goes again as its bytes, all else anew; and no bytes of a state are in it", async () => {
  const session = await connect(server.url, { adapter: "qwen", WebSocket: Lossy });
  const group = input(session);
  const { sites } = session.groups[group];
  check(await session.deltas(group, state(0)), sites, 0);
  const [block, token] = Lossy.sent.slice(-2);
  for (const [length, count] of [[token.length, 2], [block.length, 3]]) {
    Lossy.sent.length = 0;
    Lossy.breaksAt = length;
    if (length === block.length) {
      await session.deltas(1 - group, states.values.subarray(0, session.groups[1 - group].d));
    } else {
      check(await session.deltas(group, state(1)), sites, 1);
    }
    const messages = Lossy.sent.filter((data) => typeof data !== "string");
    assert.equal(messages.length, count);
    assert.deepEqual(messages[0], messages[1]);
  }
  assert.deepEqual([session.counts.sessions, session.counts.resumed], [1, 2]);
  session.close();
  const alone = await connect(server.url, { adapter: "qwen", WebSocket: Lossy, tokensAhead: 1 });
  Lossy.sent.length = 0;
  check(await alone.deltas(group, state(0)), sites, 0);
  Lossy.breaksAt = Lossy.sent[0].length;
  check(await alone.deltas(group, state(0)), sites, 0);
  const [, lost, , again] = Lossy.sent;
  assert.equal(lost.length, again.length);
  assert.notDeepEqual(lost.slice(80), again.slice(80));
  const bytes = Buffer.from(state(0).slice(0, 2).buffer);
  assert.ok(Lossy.sent.every((data) => !Buffer.from(data).includes(bytes)));
  alone.close();
});

test("a client that is closed opens nothing, and its keys are gone", async () => {
  const session = await connect(server.url, { adapter: "qwen", WebSocket: Lossy });
  const group = input(session);
  const asked = session.deltas(group, state(0));
  session.close();
  await assert.rejects(asked, TensafeError);
  Lossy.sent.length = 0;
  await assert.rejects(session.deltas(group, state(0)), { code: "closed" });
  await new Promise((done) => setTimeout(done, 300));
  assert.equal(Lossy.sent.length, 0);
  const client = await Client.create();
  client.close();
  assert.throws(() => client.rerandomizationKey(new Uint8Array(32)), { message: /it was closed/ });
});

test("a server's text that is no message is refused", async () => {
  for (const [said, expected] of [["nothing", /is no message/], ["null", /is no message/], ["{}", /is no message/],
    [`{"type": "welcome"}`, /got welcome, expected challenge/],
    [`{"type": "challenge", "protocol": 2}`, /got protocol 2, expected 3/],
    [`{"type": "challenge", "protocol": 3, "nonce": "zz"}`, /no nonce of 64 hex digits/],
    [`{"type": "error", "code": "range", "message": "once more"}`, /once more/],
    [`{"type": "error", "code": "rate_limit", "message": "m", "retry_after_ms": "1"}`, /no number for retry_after_ms/]]) {
    class Hostile {
      readyState = 1;
      constructor() {
        setTimeout(() => this.onmessage({ data: said }));
      }
      send() {}
      close() {}
    }
    await assert.rejects(connect("ws://127.0.0.1:1", { adapter: "qwen", WebSocket: Hostile }), (error) => {
      assert.match(error.message, expected);
      assert.notEqual(error.code, "range");
      return error instanceof TensafeError;
    });
  }
});

test("after a reconnection the adapter must be the same one, or the client stops", async () => {
  let own = await startServer("--adapter", `a=${root}/${data}`);
  const { port, url } = own;
  const listen = ["--listen", `127.0.0.1:${port}`];
  const session = await connect(url, { adapter: "a" });
  const group = input(session);
  await own.stop("SIGKILL");
  own = await startServer("--adapter", `a=${root}/${data}`, ...listen);
  check(await session.deltas(group, state(0)), session.groups[group].sites, 0);
  assert.deepEqual([session.counts.sessions, session.counts.resumed], [2, 0]);
  await own.stop("SIGKILL");
  own = await startServer("--adapter", `a=${root}/examples/data/tiny_lm/adapter`, ...listen);
  await assert.rejects(session.deltas(group, state(1)), { code: "adapter_changed" });
  session.close();
  await own.stop();
});

test("errors say what was wrong", async () => {
  await assert.rejects(connect(server.url, { adapter: "none" }), { code: "unknown_adapter", message: /"qwen"/ });
  await assert.rejects(connect(server.url, {}), { code: "parameter", message: /got no adapter/ });
  await assert.rejects(connect("wss://localhost:1/", { adapter: "qwen" }), { message: /signs its origin/ });
  await assert.rejects(connect(server.url.replace(/:\d+/, ":1"), { adapter: "qwen" }), { code: "lost" });
  const session = await connect(server.url, { adapter: "qwen" });
  const group = input(session);
  await assert.rejects(session.deltas(99, state(0)), { code: "parameter", message: /expected one of/ });
  await assert.rejects(session.deltas(group, [1, 2]), { message: /got a hidden state of 2 entries, expected 2048/ });
  check(await session.deltas(group, state(0)), session.groups[group].sites, 0);  // nothing was lost
  session.close();
  const loud = await connect(server.url, { adapter: "qwen", zerosForNan: false });
  await assert.rejects(loud.deltas(group, new Float32Array(d).fill(NaN)), { code: "encoding" });
  loud.close();
  const silent = await connect(server.url, { adapter: "qwen" });
  const zeros = await silent.deltas(group, new Float32Array(d).fill(NaN));
  assert.ok(zeros.every((site) => site.every((x) => Math.abs(x) < 1e-3)));
  assert.equal(silent.badStates, 1);
  silent.close();
});

test("a client signs for its origin alone", async () => {
  await assert.rejects(connect(server.url, { adapter: "qwen", origin: "http://other.example" }),
    { code: "not_authorised" });
});

test("messages that are none are refused and harm nothing", async () => {
  const client = await Client.create();
  assert.throws(() => client.encrypt(0, new Float32Array(4), 1), { message: /expected open first/ });
  assert.throws(() => client.signedSeed(new Uint8Array(31)), { message: /got a nonce of 31 bytes, expected 32/ });
  assert.throws(() => client.open(new Uint8Array(64), new Uint8Array(0)), TensafeError);
  assert.throws(() => client.accept(new Uint8Array(10)), { code: "format" });
  const one = client.rerandomizationKey(new Uint8Array(32));
  const other = (await Client.create()).rerandomizationKey(new Uint8Array(32));
  assert.equal(one.length, other.length);
  assert.notDeepEqual(one, other);  // keys are fresh
  client.close();
});
