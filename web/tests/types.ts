// What a user of the package writes, for the compiler: nothing of it runs.
import { connect, Client, TensafeError, type Session } from "../../build/web/client/session.js";
const s: Session = await connect("wss://x/v1/split", { adapter: "kjv", zerosForNan: true, report: (t) => t.length });
const d: Float32Array[] = await s.deltas(s.groups[0].input, [1, 2]);
s.close();
const c: Client = await Client.create();
const m: Uint8Array = c.encrypt(0, new Float32Array(4), 1, 2, true);
try { c.accept(m); } catch (e) { if (e instanceof TensafeError) { const r: number | undefined = e.retryAfter; void r; void d; } }
