// Times of the client in Chromium, in a Worker: node web/bench.mjs, after scripts/web and with a tensafe-server of the preset
// release. Medians, in ms, of 32 x 2048.
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { root, startServer } from "./tests/server.mjs";

const { chromium } = createRequire(join(root, "build/web/tools/package.json"))("playwright-core");
const site = join(root, "build/web/site");
writeFileSync(join(site, "bench.js"), `
import { Module } from "./client/client.js";
import { connect } from "./client/session.js";
let times = {};
const call = Module.prototype.call;
Module.prototype.call = function (name, values, ...parts) {
  const start = performance.now();
  const shown = call.call(this, name, values, ...parts);
  // What makes or takes messages by their kind.
  (times[name === "next" ? shown[5] : name === "take" ? parts[0][5] : name] ??= []).push(performance.now() - start);
  return shown;
};
const h = Float32Array.from({ length: 2048 }, (_, i) => Math.sin(i));
const median = (...names) => names.reduce((sum, name) => sum + times[name].sort((a, b) => a - b)[times[name].length >> 1], 0);
for (const tokensAhead of [1, 128]) {
  const session = await connect("ws://" + location.host + "/v1/split", { adapter: "qwen", tokensAhead });
  for (let k = 0; k < 1500; ++k) {
    times = k === 301 ? {} : times;
    await session.deltas(0, h);
  }
  session.close();
  postMessage(tokensAhead === 1 ? "alone: encrypt and decrypt " + median(16, 17, "begin", "deltas").toFixed(2)
    : "stream: online " + median(24, 25, "begin", "deltas").toFixed(3) + ", masks of a token "
      + (median(22, 23) / session.tokensAhead).toFixed(2));
}
`);
const server = await startServer("--adapter", `qwen=${root}examples/data/qwen_rank32`, "--web", site, "--client-share", "none",
  "--tenant-share", "none", "--adapter-share", "none");
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage();
await page.goto(`http://127.0.0.1:${server.port}/`);
console.log(browser.version(), await page.evaluate(() => new Promise((done, failed) => {
  const worker = new Worker("bench.js", { type: "module" });
  const lines = [];
  worker.onmessage = ({ data }) => lines.push(data) === 2 && done(lines.join("\n"));
  worker.onerror = ({ message }) => failed(new Error(message));
})));
await browser.close();
await server.stop();
