// What a user of the package writes, for the compiler: nothing of it runs.
import { connect, Client, TensafeError, type Session } from "../../build/web/client/session.js";
const s: Session = await connect("wss://x/v1/split", { adapter: "kjv", zerosForNan: true, baseNorms: { q_proj: 4 }, report: (t) => t.length });
const d: Float32Array[] = await s.deltas(s.groups[0].input, [1, 2]);
const all: Float32Array[][] = await s.deltas(0, [new Float32Array(2), [1, 2]]);
const left: number | null = s.queriesLeft;
s.close();
const c: Client = await Client.create();
c.begin(0, new Float32Array(4), 2, true);
const m: Uint8Array | undefined = c.next();
try { c.take(m ?? new Uint8Array()); } catch (e) {
  if (e instanceof TensafeError) { const r: [number?, Float32Array[]?] = [e.retryAfter, e.answered[0]]; void [r, d, all, left]; }
}
