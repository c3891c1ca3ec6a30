// The client in node: node --experimental-websocket --test web/tests/client.test.mjs
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { program, root, startServer, tensors } from "./server.mjs";

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

test("the package has the version of the server", () => {
  const { version } = JSON.parse(readFileSync(join(root, "build/web/client/package.json")));
  assert.equal(execFileSync(program, ["--version"], { encoding: "utf8" }), `tensafe-server ${version}\n`);
});

/** The largest error beside the largest entry. */
function check(session, deltas, row) {
  const got = deltas[session.groups[input(session)].sites.findIndex(({ name }) => name.endsWith(site))];
  const want = expected.values.subarray(row * dOut, (row + 1) * dOut);
  assert.equal(got.length, dOut);
  const largest = want.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  const error = want.reduce((most, x, i) => Math.max(most, Math.abs(x - got[i])), 0) / largest;
  assert.ok(error < 5e-4, `relative error ${error}`);
}
const input = (session) => session.groups.findIndex(({ sites }) => sites.some(({ name }) => name.endsWith(site)));

/** Sockets that note what passes, and hand on what `sees` makes of a frame that came. */
class Watched extends WebSocket {
  static log = [];
  static sees = (data) => data;
  static begin(sees = (data) => data) {
    Watched.log.length = 0;
    Watched.sees = sees;
  }
  static ups = () => Watched.log.filter(({ way, data }) => way === "up" && typeof data !== "string").map(({ data }) => data);
  set onmessage(handler) {
    super.onmessage = ({ data }) => {
      Watched.log.push({ way: "down", data });
      handler({ data: Watched.sees(data, this) });
    };
  }
  send(data) {
    Watched.log.push({ way: "up", data });
    super.send(data);
  }
}
const kind = (message) => message[5];  // 16 alone, 22 of a block, 24 of a token in one
const number = (message) => Number(Buffer.from(message).readBigUInt64LE(24));
const rows = (count) => Array.from({ length: count }, (_, row) => state(row % 16));
const askAll = async (session, count) => (await session.deltas(input(session), rows(count))).forEach((deltas, row) =>
  check(session, deltas, row % 16));

for (const tokensAhead of [1, 128]) {
  test(`hidden states ${tokensAhead === 1 ? "alone" : "in blocks"} get the deltas of the adapter`, async () => {
    const session = await connect(server.url, { adapter: "qwen", tokensAhead });
    const group = input(session);
    const all = await Promise.all([0, 1, 2].map((row) => session.deltas(group, state(row))));
    all.forEach((deltas, row) => check(session, deltas, row));
    for (let k = 3; k < 40; ++k) {
      check(session, await session.deltas(session.groups[group].input, state(k % 16)), k % 16);
    }
    await askAll(session, 60);
    assert.equal(session.counts.replies, 100);
    assert.ok(tokensAhead === 1 ? session.counts.bytesUp > 100 * 60_000 : session.counts.bytesUp < 100 * 30_000);
    session.close();
    await assert.rejects(session.deltas(group, state(0)), { code: "closed" });
  });

  test(`many hidden states ${tokensAhead === 1 ? "alone" : "in a block"} take one round trip`, async () => {
    const session = await connect(server.url, { adapter: "qwen", tokensAhead, WebSocket: Watched });
    const count = tokensAhead === 1 ? 8 : 16;
    Watched.begin();
    await session.deltas(input(session), rows(count));
    const first = Watched.log.findIndex(({ way }) => way === "down");
    const messages = Watched.log.slice(0, first).map(({ data }) => data);
    assert.deepEqual(messages.slice(0, count + (tokensAhead > 1)).map(kind),
      tokensAhead === 1 ? Array(count).fill(16) : [22, ...Array(count).fill(24)]);
    assert.ok(messages.every((message, i) => number(message) === i + 1 && message[6] === i));  // so many have no answer yet
    assert.ok(Watched.log.slice(first).every(({ way, data }) => way === "down" || kind(data) === 22));  // the next block
    Watched.begin();
    await session.deltas(input(session), state(0));
    assert.ok(Watched.log[0].data[6] <= 1);  // all replies are acknowledged but for that to the next block
    session.close();
  });
}

test("a block that is used up is kept until its last token is answered, though the next one was asked for", async () => {
  const session = await connect(server.url, { adapter: "qwen", WebSocket: Watched });
  Watched.begin();
  await askAll(session, 40);
  const binary = Watched.log.filter(({ data }) => typeof data !== "string");
  const place = (way, what, nth) =>
    binary.indexOf(binary.filter((m) => m.way === way && kind(new Uint8Array(m.data)) === what)[nth]);
  assert.ok(place("up", 22, 1) > 0);
  assert.ok(place("up", 22, 1) < place("down", 25, session.tokensAhead - 1));
  session.close();
});

/** What is left, as a call says that cannot be paid. */
async function refusal(session) {
  const error = await session.deltas(input(session), rows(500)).catch((why) => why);
  assert.deepEqual([error.code, error.answered], ["query_limit", []]);
  return Number(/got a call of 500 hidden states, expected at most (\d+)/.exec(error.message)[1]);
}

test("what was sent goes again as its bytes in the same session, and no bytes of a state are in it", async () => {
  for (const tokensAhead of [1, 128]) {
    const session = await connect(server.url, { adapter: "qwen", tokensAhead, WebSocket: Watched });
    const left = await refusal(session);
    let socket;
    let replies = 0;
    Watched.begin((data, of) => {
      socket = of;
      if (typeof data !== "string" && ++replies === 4) {
        of.close();
      }
      return data;
    });
    await askAll(session, 8);
    assert.deepEqual([session.counts.sessions, session.counts.resumed, session.counts.replies], [1, 1, 8]);
    const sent = new Map();
    for (const message of Watched.ups()) {
      const again = sent.get(number(message));
      assert.ok(!again || Buffer.from(message.slice(48)).equals(again.slice(48)));
      sent.set(number(message), message);
    }
    assert.ok(Watched.ups().length > sent.size);
    const bytes = Buffer.from(state(0).slice(0, 2).buffer);
    assert.ok(Watched.ups().every((data) => !Buffer.from(data).includes(bytes)));
    socket.close();  // while nobody asks
    await askAll(session, 1);
    assert.deepEqual([session.counts.resumed, left - await refusal(session)], [2, 9]);  // nothing was paid twice
    session.close();
  }
});

test("a client that is closed opens nothing, and its keys are gone", async () => {
  const session = await connect(server.url, { adapter: "qwen", WebSocket: Watched });
  const asked = session.deltas(0, state(0));
  session.close();
  await assert.rejects(asked, TensafeError);
  Watched.begin();
  await assert.rejects(session.deltas(0, state(0)), { code: "closed" });
  await new Promise((done) => setTimeout(done, 300));
  assert.equal(Watched.log.length, 0);
  const client = await Client.create();
  client.close();
  assert.throws(() => client.rerandomizationKey(new Uint8Array(32)), { message: /it was closed/ });
});

test("a server's text that is no message is refused", async () => {
  for (const [said, expected] of [["nothing", /is no message/], ["null", /is no message/], ["{}", /is no message/],
    [`{"type": "welcome"}`, /got "welcome", expected challenge/],
    [`{"type": "challenge", "protocol": 2}`, /got protocol "2", expected 3/],
    [`{"type": "challenge", "protocol": 3, "nonce": "zz"}`, /no nonce of 64 hex digits/],
    [`{"type": "error", "code": "range", "message": "once more"}`, /once more/],
    [JSON.stringify({ type: "error", code: "internal", message: "\u001b[2J\u202e\n" + "x".repeat(9_000) }),
      /: "\\u001b\[2J\\u202e\\nx{194}"\.\.\.$/],
    [JSON.stringify({ type: "x".repeat(9_000) }), /^.{210,260}$/],
    [" ".repeat(16_385), /got a text of 16385 characters, expected at most 16384/],
    [`{"type": "error", "code": "rate_limit", "message": "m", "retry_after_ms": "1"}`, /no number for retry_after_ms/],
    ...["7", "[]", "[-1]", "[9007199254740992]", `["1"]`, `[${Array(513).fill(1)}]`].map((left) =>
      [`{"type": "welcome", "queries_left": ${left}}`, /got no queries_left|got no number for queries_left/])]) {
    class Hostile {
      readyState = 1;
      constructor() {
        const challenge = `{"type": "challenge", "protocol": 3, "nonce": "${"0".repeat(64)}"}`;
        setTimeout(() => (said.includes("left") ? [challenge, said] : [said]).forEach((data) => this.onmessage({ data })));
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

/** Sockets of a server that `says` something to each request, or nothing. */
const hostile = (says) => class extends Watched {
  send(data) {
    if (typeof data === "string" || kind(data) < 16) {
      return super.send(data);
    }
    Watched.log.push({ way: "up", data });
    const answer = says && JSON.stringify({ type: "error", message: "no", number: number(data), ...says });
    setTimeout(() => answer && this.handler({ data: answer }));
  }
  set onmessage(handler) { super.onmessage = this.handler = handler; }
};

for (const [says, code] of [[{ code: "rate_limit", retry_after_ms: 1 }, "rate_limit"], [undefined, "lost"],
  [{ code: "unavailable", retry_after_ms: 1 }, "unavailable"],
  [{ code: "unknown_block" }, "unknown_block"], [{ code: "replayed" }, "replayed"]]) {
  test(`a server that says ${says?.code ?? "nothing"} for ever costs the total time at most`, async () => {
    const session = await connect(server.url, { adapter: "qwen", WebSocket: hostile(says), totalLimit: 1_500, stepLimit: 400 });
    Watched.begin();
    await assert.rejects(session.deltas(input(session), rows(2)), { code });
    assert.ok(Watched.ups().length < 60, `${Watched.ups().length} messages`);
    assert.ok(session.counts.resumed < 4);
    session.close();
  });
}

test("the first connection waits for a server that starts", async () => {
  const { port, url, stop } = await startServer("--adapter", `qwen=${root}/${data}`);
  await stop();
  const reported = [];
  const connecting = connect(url, { adapter: "qwen", report: (text) => reported.push(text) });
  const own = await startServer("--adapter", `qwen=${root}/${data}`, "--listen", `127.0.0.1:${port}`);
  (await connecting).close();
  assert.ok(reported.some((text) => /the connection (failed|closed)/.test(text)), reported.join());
  await own.stop();
});

test("after a reconnection the adapter must be the same one, or the client stops", async () => {
  let own = await startServer("--adapter", `a=${root}/${data}`);
  const { port, url } = own;
  const listen = ["--listen", `127.0.0.1:${port}`];
  const session = await connect(url, { adapter: "a", WebSocket: Watched });
  const group = input(session);
  let replies = 0;
  let restarted;
  Watched.begin((frame, socket) => {
    if (typeof frame !== "string" && ++replies === 4) {
      socket.close();
      restarted = own.stop("SIGKILL").then(() => startServer("--adapter", `a=${root}/${data}`, ...listen));
    }
    return frame;
  });
  await askAll(session, 8);  // some are answered before, and some after
  own = await restarted;
  assert.deepEqual([session.counts.sessions, session.counts.resumed, session.counts.replies], [2, 0, 8]);
  const tokens = Watched.ups().filter((message) => kind(message) === 24).map((message) => Buffer.from(message.slice(80)));
  assert.ok(tokens.every((one, i) => tokens.every((other, k) => i === k || !one.equals(other))));  // all is encrypted anew
  await own.stop("SIGKILL");
  own = await startServer("--adapter", `a=${root}/examples/data/tiny_lm/adapter`, ...listen);
  await assert.rejects(session.deltas(group, state(1)), { code: "adapter_changed" });
  session.close();
  await own.stop();
});

test("blocks that are longer than tokensAhead are not used, and a report says so", async () => {
  const reported = [];
  const session = await connect(server.url, { adapter: "qwen", tokensAhead: 2, report: (text) => reported.push(text) });
  assert.deepEqual([session.tokensAhead, reported.at(-1)],
    [0, "the server has blocks of 38 tokens, tokensAhead is 2: each hidden state goes alone"]);
  await askAll(session, 3);
  assert.ok(session.counts.bytesUp > 3 * 60_000);
  session.close();
});

for (const [what, option, value, tokensAhead, said] of [
  ["a block that is refused is reported, and its hidden states go alone", "--block-memory", "0", 128, "block_limit"],
  ["a limit of rates makes a call slower and costs none of it", "--rate", "8", 1, "rate_limit"]]) {
  test(what, async () => {
    const own = await startServer("--adapter", `qwen=${root}/${data}`, option, value);
    const reported = [];
    const session = await connect(own.url, { adapter: "qwen", tokensAhead, WebSocket: Watched,
      report: (text) => reported.push(text) });
    Watched.begin();
    await askAll(session, 24);
    assert.equal(session.counts.replies, 24);
    assert.ok(Watched.log.some(({ data: text }) => typeof text === "string" && text.includes(said)));
    assert.equal(reported.some((text) => /block/.test(text)), said === "block_limit");
    assert.ok(Watched.ups().filter((message) => kind(message) === 16).length >= 24);
    session.close();
    await own.stop();
  });
}

test("a call that cannot be paid is refused whole, and what was paid for is on the error", async () => {
  const own = await startServer("--adapter", `qwen=${root}/${data}`, "--client-share", "0.02", "--adapter-share", "0.03");
  const session = await connect(own.url, { adapter: "qwen", WebSocket: Watched });
  const group = input(session);
  await session.deltas(group, rows(3));
  Watched.begin();
  const left = await refusal(session);
  assert.equal(Watched.log.length, 0);
  assert.ok(left >= session.queriesLeft && session.queriesLeft > 0);
  assert.equal((await session.deltas(group, rows(left))).length, left);
  assert.equal(session.queriesLeft, 0);
  await assert.rejects(session.deltas(group, state(0)), { code: "query_limit", message: /expected at most 0/ });
  session.close();
  const other = await connect(own.url, { adapter: "qwen" });  // what others took of the adapter is not told
  const error = await other.deltas(group, rows(left)).catch((why) => why);
  assert.equal(error.code, "query_limit");
  const { length } = error.answered.filter((deltas, row) => deltas && (check(other, deltas, row % 16), true));
  assert.ok(length > 0 && length < left, `${length} of ${left}`);
  assert.equal(other.counts.replies, length);
  other.close();
  await own.stop();
});

test("errors say what was wrong", async () => {
  await assert.rejects(connect(server.url, { adapter: "none" }), { code: "unknown_adapter", message: /served: \\"qwen\\"/ });
  const origin = "http://other.example";  // a client signs for its own alone
  await assert.rejects(connect(server.url, { adapter: "qwen", origin }), { code: "not_authorised" });
  await assert.rejects(connect(server.url, {}), { code: "parameter", message: /got no adapter/ });
  await assert.rejects(connect("wss://localhost:1/", { adapter: "qwen" }), { message: /signs its origin/ });
  await assert.rejects(connect(server.url.replace(/:\d+/, ":1"), { adapter: "qwen", totalLimit: 300 }), { code: "lost" });
  const session = await connect(server.url, { adapter: "qwen", WebSocket: Watched });
  const group = input(session);
  await assert.rejects(session.deltas(99, state(0)), { code: "parameter", message: /expected one of/ });
  await assert.rejects(session.deltas(group, [1, 2]), { message: /got a hidden state of 2 entries, expected 2048/ });
  await assert.rejects(session.deltas(group, [state(0), [1]]), { message: /got a hidden state of 1 entries, expected 2048/ });
  await assert.rejects(session.deltas(group, []), { code: "parameter", message: /got no hidden state/ });
  Watched.begin((frame) => typeof frame === "string" ? frame : frame.slice(0, -1));
  await assert.rejects(session.deltas(group, state(0)), { code: "format" });
  Watched.begin();
  await askAll(session, 2);  // nothing was lost
  assert.equal(session.counts.sessions, 1);
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

test("a site whose gain passes its base norm is refused before anything is encrypted", async () => {
  const session = await connect(server.url, { adapter: "qwen" });
  const { name, gain } = session.groups[input(session)].sites.find(({ name }) => name.endsWith(site));
  session.close();
  for (const [norm, holds] of [[gain, true], [gain / 2, false], [NaN, false], [undefined, false]]) {
    const connecting = connect(server.url, { adapter: "qwen", baseNorms: { other: 0, [name]: norm } });
    if (holds) {
      (await connecting).close();
    } else {
      await assert.rejects(connecting, { code: "parameter", message: /got a gain of .* the base layer's norm/ });
    }
  }
  await assert.rejects(connect(server.url, { adapter: "qwen", baseNorms: { other: 1 } }),
    { code: "parameter", message: /expected names as/ });
});

test("messages that are none are refused and harm nothing", async () => {
  const client = await Client.create();
  assert.throws(() => client.begin(0, new Float32Array(4)), { message: /expected open first/ });
  assert.throws(() => client.signedSeed(new Uint8Array(31)), { message: /got a nonce of 31 bytes, expected 32/ });
  assert.throws(() => client.open(new Uint8Array(64), new Uint8Array(0)), TensafeError);
  assert.throws(() => client.take(new Uint8Array(10)), { message: /expected open first/ });
  const one = client.rerandomizationKey(new Uint8Array(32));
  const other = (await Client.create()).rerandomizationKey(new Uint8Array(32));
  assert.equal(one.length, other.length);
  assert.notDeepEqual(one, other);  // keys are fresh
  client.close();
});
