// @tensafe/client as npm packs it, in a new page that vite builds, in Chromium: node --test web/tests/package.test.mjs
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { root, startServer, tensors } from "./server.mjs";

const tools = createRequire(join(root, "build/web/tools/package.json"));
const { build, createLogger } = await import(tools.resolve("vite"));
const { chromium } = tools("playwright-core");

const folder = mkdtempSync(join(tmpdir(), "tensafe-page-"));
test.after(() => rmSync(folder, { recursive: true }));
const npm = (...words) => execFileSync("npm", [...words, "--silent", "--offline"], { cwd: folder, encoding: "utf8" }).trim();
const packed = npm("pack", join(root, "build/web/client"));
writeFileSync(join(folder, "package.json"), '{"private": true, "type": "module"}');
npm("install", `./${packed}`);
writeFileSync(join(folder, "index.html"), '<!doctype html><title>page</title><link rel="icon" href="data:,"><script type="module" src="main.js"></script>');
writeFileSync(join(folder, "main.js"), `import { connect } from "@tensafe/client";
window.deltas = async (h) => {
  const session = await connect(\`ws://\${location.host}/v1/split\`, { adapter: "qwen" });
  const { input, sites } = session.groups.find(({ sites }) => sites.some(({ name }) => name.endsWith("q_proj")));
  const deltas = await session.deltas(input, h);
  session.close();
  return Array.from(deltas[sites.findIndex(({ name }) => name.endsWith("q_proj"))]);
};
`);

test("the package has its types and its licence", () => {
  const installed = join(folder, "node_modules/@tensafe/client");
  const { types } = JSON.parse(readFileSync(join(installed, "package.json")));
  assert.match(readFileSync(join(installed, types), "utf8"), /export function connect/);
  assert.match(readFileSync(join(installed, "LICENSE"), "utf8"), /Apache License/);
});

test("a page that vite built decrypts the right delta", async () => {
  const problems = [];
  const customLogger = createLogger();
  customLogger.info = () => {};
  customLogger.warn = customLogger.warnOnce = customLogger.error = (text) => problems.push(text);
  await build({ root: folder, customLogger });
  const server = await startServer("--adapter", `qwen=${root}examples/data/qwen_rank32`, "--web", join(folder, "dist"),
    "--tenant-share", "1", "--adapter-share", "none");
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu"] });
  test.after(() => browser.close());
  const page = await browser.newPage();
  page.on("console", (message) => problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(String(error)));
  await page.goto(`http://127.0.0.1:${server.port}/`);
  const [h, expected] = ["hidden_states", "expected_delta"].map((name) => {
    const { shape, values } = tensors(`examples/data/qwen_rank32/${name}.safetensors`)["self_attn.q_proj"];
    return Array.from(values.subarray(0, shape[1]));
  });
  const got = await page.evaluate((h) => window.deltas(h), h);
  assert.equal(got.length, expected.length);
  const largest = (values) => Math.max(...values.map(Math.abs));
  const error = largest(expected.map((x, i) => x - got[i])) / largest(expected);
  assert.ok(error < 5e-4, `relative error ${error}`);
  assert.deepEqual(problems, []);
  await server.stop();
});
