// What tensafe-server needs for pages, and how it serves them.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { program, root, startServer } from "./server.mjs";

const folder = mkdtempSync(join(tmpdir(), "tensafe-site-"));
test.after(() => rmSync(folder, { recursive: true }));
const site = join(folder, "site");
mkdirSync(join(site, "sub"), { recursive: true });
writeFileSync(join(site, "index.html"), "<p>index");
writeFileSync(join(site, "sub/code.js"), "1;");
writeFileSync(join(folder, "outside.txt"), "secret");
const adapter = ["--adapter", `kjv=${root}examples/data/tiny_lm/adapter`];
const limits = ["--tenant-share", "1", "--adapter-share", "none"];

/** @returns {Promise<{status: number, headers: object, body: string}>} */
const ask = (server, path, method = "GET") => new Promise((done, failed) => {
  const asked = request({ port: server.port, path, method }, (response) => {
    let body = "";
    response.on("data", (data) => { body += data; });
    response.on("end", () => done({ status: response.statusCode, headers: response.headers, body }));
  });
  asked.on("error", failed);
  asked.end();
});

test("files of the folder are served, and nothing else", async () => {
  const server = await startServer(...adapter, "--web", site, ...limits);
  writeFileSync(join(site, "later.txt"), "not there at the start");
  for (const path of ["/", "/index.html", "/?x=/../y"]) {
    const { status, headers, body } = await ask(server, path);
    assert.deepEqual([status, body, headers["content-type"]], [200, "<p>index", "text/html; charset=utf-8"]);
    assert.match(headers["content-security-policy"], /^default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; /);
    assert.equal(headers["cross-origin-opener-policy"], "same-origin");
    assert.equal(headers["cross-origin-embedder-policy"], "require-corp");
    assert.equal(headers["x-content-type-options"], "nosniff");
  }
  const head = await ask(server, "/sub/code.js", "HEAD");
  assert.deepEqual([head.status, head.body, head.headers["content-length"], head.headers["content-type"]],
    [200, "", "2", "text/javascript; charset=utf-8"]);
  for (const path of ["/sub", "/sub/", "/later.txt", "/../outside.txt", "//outside.txt", "/%2e%2e/outside.txt",
    "/sub/../index.html", "/index.html/", "/index.html%00", "/admin/../index.html"]) {
    const { status, body } = await ask(server, path);
    assert.notEqual(status, 200, path);
    assert.ok(!body.includes("secret") && !body.includes("<p>index"), path);
  }
  assert.notEqual((await ask(server, "/", "POST")).status, 200);
  assert.equal((await ask(server, "/healthz")).body, "ok\n");
  await server.stop();
  rmSync(join(site, "later.txt"));
});

test("what pages need is asked for before the server starts", () => {
  const refusal = (...options) => {
    const { status, stderr } = spawnSync(program, [...adapter, "--state", join(folder, "state"), ...options],
      { encoding: "utf8", timeout: 10_000 });
    assert.equal(status, 1, stderr);
    return stderr;
  };
  const plain = "--insecure-plaintext";
  assert.match(refusal("--web", site, "--anybody", plain), /expected with them --anybody, --tenant-share/);
  assert.match(refusal("--origin", "https://a.example", "--anybody", "--tenant-share", "1"), /--adapter-share/);
  writeFileSync(join(folder, "clients"), `${"0".repeat(64)}\n`);
  assert.match(refusal("--web", site, "--clients", join(folder, "clients"), ...limits, plain), /--anybody/);
  assert.match(refusal("--web", site, "--anybody", ...limits), /expected the address that people type/);
  assert.match(refusal("--web", site, "--anybody", ...limits, plain, "--listen", "0.0.0.0:0"), /loopback/);
  for (const origin of ["example.org", "https://example.org/", "https://Example.org", "ftp://example.org", "null",
    "https://", "https://example.org:", "https://example.org:443", "http://example.org", "http://localhost:80", "https://example.org:123456", "https://a b"]) {
    assert.match(refusal("--origin", origin, "--anybody", ...limits), /expected what browsers send/, origin);
  }
  assert.match(refusal("--web", folder, "--anybody", ...limits, plain), /expected two folders/);  // "state" is in it
  const other = join(folder, "other");
  mkdirSync(other);
  for (const name of [".env", "healthz", "admin"]) {
    writeFileSync(join(other, name), "");
    assert.match(refusal("--web", other, "--anybody", ...limits, plain), /expected names without a dot/);
    rmSync(join(other, name));
  }
  assert.match(refusal("--web", other, "--anybody", ...limits, plain), /index\.html.*expected the page/);
  writeFileSync(join(other, "index.html"), "");
  symlinkSync("../outside.txt", join(other, "link"));
  assert.match(refusal("--web", other, "--anybody", ...limits, plain), /got a link/);
  rmSync(join(other, "link"));
  for (let i = 0; i < 64; ++i) {
    writeFileSync(join(other, `${i}`), "");
  }
  assert.match(refusal("--web", other, "--anybody", ...limits, plain), /at most 64 files/);
});
