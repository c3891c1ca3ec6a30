// Times of the client in Chromium, in a Worker: node web/bench.mjs, after scripts/web and with a split_server of the preset
// release. Medians, in ms, of 32 x 2048.
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { root, startServer } from "./tests/server.mjs";

const { chromium } = createRequire(join(root, "build/web/tools/package.json"))("playwright-core");
const site = join(root, "build/web/site");
writeFileSync(join(site, "bench.js"), `
import { Client } from "./client/client.js";
import { connect } from "./client/session.js";
const times = {};
for (const name of ["encrypt", "decrypt", "prepare", "accept"]) {
  const timed = Client.prototype[name];
  Client.prototype[name] = function (...all) {
    const start = performance.now();
    const result = timed.apply(this, all);
    (times[name] ??= []).push(performance.now() - start);
    return result;
  };
}
const h = Float32Array.from({ length: 2048 }, (_, i) => Math.sin(i));
const median = (name) => times[name].sort((a, b) => a - b)[times[name].length >> 1];
const lines = [];
for (const tokensAhead of [1, 32]) {
  const session = await connect("ws://" + location.host + "/v1/split", { adapter: "qwen", tokensAhead });
  for (let k = 0; k < 1500; ++k) {
    await session.deltas(0, h);
    if (k === 300) {
      Object.keys(times).forEach((name) => { times[name] = []; });
    }
  }
  lines.push(tokensAhead === 1 ? "alone: encrypt and decrypt " + (median("encrypt") + median("decrypt")).toFixed(2)
    : "stream: online " + (median("encrypt") + median("decrypt")).toFixed(3) + ", masks of a token "
      + ((median("prepare") + median("accept")) / tokensAhead).toFixed(2));
  session.close();
}
postMessage(lines.join("\\n"));
`);
const server = await startServer("--adapter", `qwen=${root}examples/data/qwen_rank32`, "--web", site, "--client-share", "none",
  "--tenant-share", "none", "--adapter-share", "none");
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage();
await page.goto(`http://127.0.0.1:${server.port}/`);
console.log(browser.version(), "\n" + await page.evaluate(() => new Promise((done, failed) => {
  const worker = new Worker("bench.js", { type: "module" });
  worker.onmessage = ({ data }) => done(data);
  worker.onerror = ({ message }) => failed(new Error(message));
})));
await browser.close();
await server.stop();
