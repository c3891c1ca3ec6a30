// The page in headless Chromium: node --test web/tests/page.test.mjs
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { request } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { test } from "node:test";
import { root, startServer } from "./server.mjs";

const { chromium } = createRequire(join(root, "build/web/tools/package.json"))("playwright-core");
const site = join(root, "build/web/site");
const pictures = join(root, "build/web/pictures");
mkdirSync(pictures, { recursive: true });
const expected = readFileSync(join(root, "examples/data/tiny_lm/job_hath_spoken.txt"), "utf8");
const options = ["--adapter", `kjv=${root}examples/data/tiny_lm/adapter`, "--web", site, "--client-share", "none",
  "--tenant-share", "none", "--adapter-share", "none"];

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"] });
test.after(() => browser.close());

/** A tab, and what its console and its security policy say: nothing, if all is well. */
async function open(server, what = "/") {
  const page = await browser.newPage({ colorScheme: "light" });
  page.problems = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) {
      page.problems.push(message.text());
    }
  });
  page.on("pageerror", (error) => page.problems.push(String(error)));
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) =>
      console.error(`CSP: ${violatedDirective} ${blockedURI}`));
  });
  await page.goto(`http://127.0.0.1:${server.port}${what}`);
  return page;
}
const text = (page, id) => page.$eval(`#${id}`, (element) => element.textContent);
async function until(page, what, limit = 180_000) {  // a machine of two slow cores needs 20 s
  await page.waitForFunction(what, null, { timeout: limit, polling: 50 });  // hidden tabs draw nothing
}
const ready = (page) => until(page, () => !document.getElementById("write").disabled);
async function write(page, characters, way = "adapter") {
  await page.click(`input[value=${way}]`);
  await page.$eval("#characters", (element, n) => { element.value = n; }, characters);
  await page.click("#write");
}
const written = async (page) => (await text(page, "text")).slice("Job hath spoken".length);
const done = (page) => until(page, () => document.getElementById("state").textContent === "Written.");

test("the page writes 200 characters with the private adapter, and others without", async () => {
  const server = await startServer(...options);
  const began = Date.now();
  const page = await open(server);
  await ready(page);
  await page.screenshot({ path: join(pictures, "ready.png"), fullPage: true });
  await write(page, 200);
  await until(page, () => document.getElementById("text").textContent.length > 15);
  const first = Date.now() - began;
  await done(page);
  assert.equal(await written(page), expected.slice(0, 200));
  console.log(`first character after ${first} ms, ${await text(page, "rate")} characters/s, ${await text(page, "time")} ms ` +
    `each, ${await text(page, "waiting")} waiting; bytes ${await text(page, "up")} up, ${await text(page, "down")} down`);
  // What blocks save: alone, the hidden states of a character are 548 kB up.
  const up = Number((await text(page, "up")).replaceAll(",", ""));
  assert.ok(up > 0 && up < 300_000, `${up} bytes up`);
  await page.screenshot({ path: join(pictures, "written.png"), fullPage: true });
  await write(page, 40, "base");
  await done(page);
  assert.equal((await written(page)).length, 40);
  assert.notEqual(await written(page), expected.slice(0, 40));
  await page.$eval("#beginning", (element) => { element.value = "\u0141ess"; });
  await page.click("#write");
  await until(page, () => document.getElementById("state").className === "failed");
  assert.match(await text(page, "state"), /does not know the character \u0141/);
  await page.emulateMedia({ colorScheme: "dark" });
  await page.setViewportSize({ width: 360, height: 780 });
  await page.screenshot({ path: join(pictures, "dark_and_small.png"), fullPage: true });
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));  // nothing to scroll aside
  assert.deepEqual(page.problems, []);
  await Promise.all([page.close(), server.stop()]);
});

test("a server that is killed and started again in the middle costs no character", async () => {
  let server = await startServer(...options);
  const { port } = server;
  const page = await open(server);
  await ready(page);
  await write(page, 120);
  await until(page, () => document.getElementById("text").textContent.length > 45);
  await server.stop("SIGKILL");
  await until(page, () => document.getElementById("state").textContent.includes("onnection"));
  server = await startServer(...options, "--listen", `127.0.0.1:${port}`);
  await done(page);
  assert.equal(await written(page), expected.slice(0, 120));
  await Promise.all([page.close(), server.stop()]);
});

test("two tabs write at once, by keyboard alone", async () => {
  const server = await startServer(...options);
  const pages = await Promise.all([open(server), open(server)]);
  await Promise.all(pages.map(async (page) => {
    await ready(page);
    await page.$eval("#characters", (element) => { element.value = 60; });
    await page.focus("#beginning");
    await page.keyboard.press("Enter");
  }));
  for (const page of pages) {
    await page.bringToFront();
    await done(page);
    assert.equal(await written(page), expected.slice(0, 60));
    assert.deepEqual(page.problems, []);
    await page.close();
  }
  await server.stop();
});

/** The status of a WebSocket's beginning with this origin. */
const upgrade = (server, origin) => new Promise((done) => {
  const asked = request(server.url.replace("ws:", "http:"), { headers: { Origin: origin, Connection: "Upgrade",
    Upgrade: "websocket", "Sec-WebSocket-Version": 13, "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==" } });
  asked.on("response", ({ statusCode }) => done(statusCode));
  asked.on("upgrade", ({ statusCode }, socket) => {
    socket.destroy();
    done(statusCode);
  });
  asked.end();
});

test("a page of another origin gets no session", async () => {
  const server = await startServer(...options);
  const other = await startServer(...options);
  const page = await open(other);
  await ready(page);
  const outcome = await page.evaluate((url) => new Promise((done) => {
    const socket = new WebSocket(url);
    socket.onopen = () => done("open");
    socket.onerror = () => done("refused");
  }), server.url).catch(String);
  assert.equal(outcome, "refused");  // by this page's own policy, and by the server:
  assert.equal(await upgrade(server, `http://127.0.0.1:${other.port}`), 403);
  assert.equal(await upgrade(server, "null"), 403);
  assert.equal(await upgrade(server, `http://127.0.0.1:${server.port}`), 101);
  await Promise.all([page.close(), server.stop()]);
  await other.stop();
});

test("an address gets no more than its limit, and the page says so", async () => {
  const server = await startServer(...options.map((each, i) => options[i - 1] === "--tenant-share" ? "0.02" : each));
  const page = await open(server);
  await ready(page);
  await write(page, 2000);
  await until(page, () => document.getElementById("state").className === "failed");
  assert.match(await text(page, "state"), /no more answers.*this address/);
  await page.screenshot({ path: join(pictures, "limit.png"), fullPage: true });
  await Promise.all([page.close(), server.stop()]);
});
