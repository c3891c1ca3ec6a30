/** A private client of split inference: docs/web.md. Keys are made inside and stay there. */

/** A group of linears that share an input, with the server's names. */
export interface Group {
  input: string;
  /** The number of entries of a hidden state. */
  d: number;
  /** The gain is about how much longer than a hidden state its delta may be. */
  sites: { name: string; dOut: number; gain: number }[];
}

/**
 * An error. Its `code` is one of the server's, as "query_limit" or "not_authorised" (docs/service.md), or the
 * client's: "lost" (no connection), "closed", "adapter_changed", "parameter", "encoding" (a hidden state with no finite
 * norm), "range" (ask again with a larger overflow margin), "format" (the server's messages are none), "memory",
 * "network", "unsupported".
 */
export class TensafeError extends Error {
  constructor(code: string, message: string, retryAfter?: number);
  code: string;
  /** The milliseconds after which to ask again, if the server said so. */
  retryAfter?: number;
  /** For each hidden state of a call that failed after it began, its deltas if they came and were paid for; else empty. */
  answered: (Float32Array[] | undefined)[];
}

export interface ConnectOptions {
  /** The adapter's name on the server. */
  adapter: string;
  /** The origin that is signed and that the WebSocket sends. Default: the page's own; none outside of a page without TLS. */
  origin?: string;
  /** The class that makes connections. Default: the platform's. */
  WebSocket?: typeof WebSocket;
  /**
   * The most hidden states of a block that is used; 1: none. Each takes 16 bytes for each of its entries. Where the server's
   * blocks are longer, each hidden state goes alone, and `report` says so. Default 128.
   */
  tokensAhead?: number;
  /**
   * Whether 0 is sent for a hidden state without a finite norm, and `badStates` counts it: a server that is not trusted learns
   * nothing from silence. If false, such a state fails the call when its turn comes, after earlier ones were sent and paid
   * for. Default true.
   */
  zerosForNan?: boolean;
  /** By site the Frobenius norm of the base layer's weights, which its gain must not pass ("parameter"); of others 2^20. */
  baseNorms?: Record<string, number>;
  /**
   * The milliseconds for all that connecting, or a call from one answer to the next, may wait for: a server that starts again,
   * limits of rates, silence. Default 180000.
   */
  totalLimit?: number;
  /** The milliseconds of them in which the next reply must come; then another connection is tried. Default 60000. */
  stepLimit?: number;
  /** Is told what happens to the connection, for people. */
  report?: (what: string) => void;
  /** The URL of engine.wasm. Default: beside this module. */
  wasm?: string;
}

/** A session over connections that may break: what has no answer goes again, as its bytes or, in a fresh session, anew. */
export class Session {
  static connect(url: string, options: ConnectOptions): Promise<Session>;
  readonly groups: Group[];
  /** The number of hidden states in a block; 0 or 1: each goes alone. */
  readonly tokensAhead: number;
  /** The hidden states that limits of this client alone leave, in the group with the least; null: there are no limits. */
  readonly queriesLeft: number | null;
  /** The version of the adapter on the server. */
  readonly version: number;
  /** The number of hidden states for which 0 was sent, with `zerosForNan`. */
  readonly badStates: number;
  /** Counts since the start. Bytes are those of messages, without frames and handshakes. */
  readonly counts: { replies: number; bytesUp: number; bytesDown: number; sessions: number; resumed: number };
  /**
   * Returns what the adapter adds to the outputs of a group's linears: one array for each site; for many hidden states, such a
   * list for each. Many go up before earlier replies come, as many as the windows of docs/service.md hold. Calls wait
   * for each other. If limits of this client cannot pay them all, none is sent ("query_limit", with both numbers); after another
   * error `error.answered` has those that were answered.
   * @param group the group's number, or its input's name
   * @param h a hidden state of `d` finite numbers, or an array of them
   */
  deltas(group: number | string, h: ArrayLike<number>[], overflowMargin?: number): Promise<Float32Array[][]>;
  deltas(group: number | string, h: ArrayLike<number>, overflowMargin?: number): Promise<Float32Array[]>;
  /** Ends the session and wipes the keys. */
  close(): void;
}

/** Connects to a tensafe-server ("wss://host:8443/v1/split") and opens a session. */
export function connect(url: string, options: ConnectOptions): Promise<Session>;

/**
 * Holds a client's side of a session and its keys, for a transport of your own: messages of docs/wire-format.md in and out.
 * After `open` say `opened`. A call goes from `begin` to `end`: until it `isOver` send what `next` gives, and while it
 * `awaitsReply` `take` what comes.
 */
export class Client {
  /** Makes a client with a fresh secret key. */
  static create(wasm?: string): Promise<Client>;
  /** The number of the parameter set. */
  readonly set: bigint;
  readonly groups: Group[];
  readonly tokensAhead: number;
  /** Makes the seed that is signed of a challenge's nonce. */
  signedSeed(nonce: Uint8Array): Uint8Array;
  /** Makes the message of the re-randomization key for this nonce, once a session. */
  rerandomizationKey(nonce: Uint8Array): Uint8Array;
  /** Takes the server's layout and the client's part of the adapter. Blocks of more than mostTokens are not used. */
  open(layout: Uint8Array, held: Uint8Array, mostTokens?: number, baseNorms?: Record<string, number>): void;
  /** Begins a call and ends an earlier one; if this fails, no call is left. @param states hidden states, one behind the other */
  begin(group: number, states: Float32Array, overflowMargin?: number, zerosForNan?: boolean): void;
  /** Returns the next message to send now, if there is one. */
  next(): Uint8Array | undefined;
  /** Takes a reply. After an error the connection must be given up. */
  take(reply: Uint8Array): void;
  /** Takes the server's refusal of the message of this number. If the call fails of it, `rethrow` throws it. */
  refused(number: number, why: TensafeError): void;
  readonly status: {
    isOver: boolean;
    /** The number of the call's hidden states that were answered. */
    answered: number;
    /** Whether an answer is to come on this connection: also when the call is over, that to the next block. */
    awaitsReply: boolean;
    /** The milliseconds in which `next` gives nothing, because of a limit of rates, until `goOn`; 0: none. */
    heldFor: number;
    queriesLeft: number | null;
    badStates: number;
  };
  /** Lets messages go up again after a limit of rates. */
  goOn(): void;
  /** Throws what the call failed with. */
  rethrow(): void;
  /** Returns the deltas of the call's hidden state of this number, if it was answered. */
  deltas(row: number): Float32Array[] | undefined;
  /** Ends the call, over or not, and wipes its hidden states and products. */
  end(): void;
  /** Notes that the connection is lost: what has no answer goes again over the next one. */
  lost(): void;
  /** Goes on over another connection. @param left queries left of each group, or one number for all; empty: no limit */
  resumed(nextNumber: number, left: number[]): void;
  /** Notes that a fresh session began. @param left queries left, as for `resumed` */
  opened(left: number[]): void;
  /** Wipes the keys. */
  close(): void;
}
