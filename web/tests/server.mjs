// Starts tensafe-server for a test, and what tests read of the data.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../../", import.meta.url));
export const program = process.env.TENSAFE_SPLIT_SERVER ?? join(root, "build/dev/service/tensafe-server");

const running = new Set();
after(() => Promise.all([...running].map((server) => server.stop("SIGKILL"))));  // a test that failed stopped none

/** A server on a loopback address that ends with stop(), or with the tests of its file; `log` grows. */
export async function startServer(...options) {
  const folder = mkdtempSync(join(tmpdir(), "tensafe-web-"));
  const server = { log: "", url: "", port: 0, stop, process: undefined };
  const child = spawn(program, ["--insecure-plaintext", "--state", join(folder, "state"), "--anybody",
    ...(options.includes("--listen") ? [] : ["--listen", "127.0.0.1:0"]), ...options]);
  server.process = child;
  running.add(server);
  const ended = new Promise((done) => child.on("exit", done));
  child.stderr.on("data", (data) => { server.log += data; });
  async function stop(signal = "SIGTERM") {
    child.kill(signal);
    await ended;
    running.delete(server);
    rmSync(folder, { recursive: true, force: true });
  }
  await new Promise((listening, failed) => {
    let said = "";
    child.stdout.on("data", (data) => {
      said += data;
      const found = /listening on (ws:\/\/[^,]*:(\d+)),.*\nserving /.exec(said);
      if (found) {
        server.url = `${found[1]}/v1/split`;
        server.port = Number(found[2]);
        listening();
      }
    });
    ended.then((status) => failed(new Error(`tensafe-server ended with ${status}: ${server.log}`)));
  });
  return server;
}

/** The tensors of a file: name to {shape, values}. F32 and F64. */
export function tensors(path) {
  const file = readFileSync(join(root, path));
  const length = Number(file.readBigUInt64LE(0));
  const data = file.subarray(8 + length);
  const result = {};
  for (const [name, { dtype, shape, data_offsets: [begin, end] }] of
       Object.entries(JSON.parse(file.subarray(8, 8 + length)))) {
    if (name !== "__metadata__") {
      const bytes = Uint8Array.from(data.subarray(begin, end)).buffer;
      result[name] = { shape, values: dtype === "F64" ? new Float64Array(bytes) : new Float32Array(bytes) };
    }
  }
  return result;
}
