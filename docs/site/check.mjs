// The site in headless Chromium, from its files: scripts/site
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, relative, resolve } from "node:path";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
const require = createRequire(join(root, "build/site-tools/npm/package.json"));
const site = join(root, "build/site");
const pictures = join(root, "build/site-tools/pictures");
mkdirSync(pictures, { recursive: true });
const files = readdirSync(site, { recursive: true }).filter((name) => /\.(html|css|js)$/.test(name));
const text = (name) => readFileSync(join(site, name), "utf8");
// 404.html is for a server and has its absolute addresses.
const pages = files.filter((name) => name.endsWith(".html") && name !== "404.html");
const looked = ["index", "docs/benchmarks", "docs/design/house", "examples/01_readme.cpp", "include/tensafe/lora/index",
  "include/tensafe/lora/protocol/client.hpp", "python/tensafe", "web/client/session.d.ts"];

const browser = await require("playwright-core").chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"] });
test.after(() => browser.close());

/** A tab; its problems are what its console says, and what it wants from outside of the site. */
async function open(name, options) {
  const page = await browser.newPage(options);
  page.problems = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) {
      page.problems.push(`${name}: ${message.text()}`);
    }
  });
  page.on("pageerror", (error) => page.problems.push(`${name}: ${error}`));
  page.on("request", (request) => {
    if (!/^(file|data|blob):/.test(request.url())) {
      page.problems.push(`${name}: takes ${request.url()}`);
    }
  });
  await page.goto(pathToFileURL(join(site, name)).href);
  return page;
}

test("each link within the site leads to a file, and to a place in it", () => {
  const places = new Map();
  const wrong = [];
  for (const name of pages) {
    for (const [, link] of text(name).matchAll(/\s(?:href|src)="([^"]*)"/g)) {
      const [path, place] = link.split("#");
      if (/^(https?|mailto|data):/.test(path)) {
        continue;
      }
      const to = path ? relative(site, resolve(site, dirname(name), decodeURIComponent(path))) : name;
      if (to.startsWith("..") || !existsSync(join(site, to))) {
        wrong.push(`${name}: ${link}`);
        continue;
      }
      if (!places.has(to)) {
        const ids = to.endsWith(".html") ? text(to).matchAll(/\sid="?([^"\s>]+)/g) : [];
        places.set(to, new Set([...ids].map((found) => found[1])));
      }
      if (place && !places.get(to).has(decodeURIComponent(place))) {
        wrong.push(`${name}: ${link}`);
      }
    }
  }
  assert.ok(pages.length > 250);
  assert.deepEqual(wrong, []);
});

test("no page or style takes anything from outside of the site", () => {
  const taken = new RegExp(["<(script|img|iframe|source)\\b[^>]*\\ssrc=", "<link\\b[^>]*\\shref=", "url\\(", "@import "]
    .map((start) => `${start}["']?(https?:)?//`).join("|"));
  assert.deepEqual(files.filter((name) => !name.endsWith(".js") && taken.test(text(name))), []);
});

test("the search finds a function of a header without a server", async () => {
  const page = await open("index.html");
  await page.fill("[data-md-component=search-query]", "rerandomization_key");
  await page.locator(".md-search-result__link[href*='include/tensafe/ckks/']").first().waitFor({ timeout: 20_000 });
  assert.deepEqual(page.problems, []);
  await page.close();
});

for (const [device, viewport] of Object.entries({ desktop: { width: 1280, height: 800 }, phone: { width: 360, height: 780 } })) {
  for (const colorScheme of ["light", "dark"]) {
    test(`pages are accessible, quiet and no wider than the window: ${device}, ${colorScheme}`, async () => {
      const problems = [];
      for (const name of looked) {
        const page = await open(`${name}.html`, { viewport, colorScheme });
        await page.screenshot({ path: join(pictures, `${name.replaceAll("/", "-")}-${device}-${colorScheme}.png`) });
        await page.addScriptTag({ path: require.resolve("axe-core") });
        const { violations } = await page.evaluate(() => globalThis.axe.run({ preload: false }));
        problems.push(...page.problems, ...violations.map(({ id, nodes }) =>
          `${name}: ${id}: ${nodes.length}, first ${nodes[0].html} ${nodes[0].failureSummary}`));
        if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) {
          problems.push(`${name}: wider than the window`);
        }
        await page.close();
      }
      assert.deepEqual(problems, []);
    });
  }
}
