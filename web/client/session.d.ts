/** A private client of split inference: docs/web.md. Keys are made inside and stay there. */

/** The linears that share an input, and what the server calls them. */
export interface Group {
  input: string;
  /** Entries of a hidden state. */
  d: number;
  sites: { name: string; dOut: number }[];
}

/**
 * What went wrong. `code` is one of the server's, as "query_limit" or "not_authorised" (docs/service.md), or the
 * client's: "lost" (no connection), "closed", "adapter_changed", "parameter", "encoding" (a hidden state with no finite
 * norm), "range" (ask again with a larger overflow margin), "format" (the server's messages are none), "memory",
 * "network", "unsupported".
 */
export class TensafeError extends Error {
  constructor(code: string, message: string, retryAfter?: number);
  code: string;
  /** Milliseconds after which to ask again, if the server said so. */
  retryAfter?: number;
  /** Of a call that failed after it began: for each hidden state its deltas, which were paid for, if they came. Else empty. */
  answered: (Float32Array[] | undefined)[];
}

export interface ConnectOptions {
  /** The adapter's name on the server. */
  adapter: string;
  /** What is signed, and what the WebSocket sends as Origin. Default: the page's own. Outside of a page without TLS: none. */
  origin?: string;
  /** Default: the platform's. */
  WebSocket?: typeof WebSocket;
  /** Blocks of more hidden states are not used; 1: none. A block takes 16 bytes for each and entry. Default 128. */
  tokensAhead?: number;
  /**
   * Zeros go instead of a hidden state with no finite norm, and `badStates` counts them: a server that is not trusted learns
   * nothing from silence. False: such a state fails the call when its turn comes, after earlier ones were sent and paid for.
   * Default true.
   */
  zerosForNan?: boolean;
  /** Milliseconds in which the next reply must come, and for connecting. Default 60000. */
  stepLimit?: number;
  /** After so many tries to connect beyond a first one the call fails with "lost". Each takes stepLimit at most. Default 10. */
  attempts?: number;
  /** What happens to the connection, for people. */
  report?: (what: string) => void;
  /** Where engine.wasm is. Default: beside this module. */
  wasm?: string;
}

/** A session over connections that may break: what has no answer goes again, as its bytes or, in a fresh session, anew. */
export class Session {
  static connect(url: string, options: ConnectOptions): Promise<Session>;
  readonly groups: Group[];
  /** Hidden states in a block; 0 or 1: each goes alone. */
  readonly tokensAhead: number;
  /** Hidden states that limits of this client alone leave, of the group with the least; null: there are none. */
  readonly queriesLeft: number | null;
  readonly version: number;
  /** Hidden states for which zeros were sent, with `zerosForNan`. */
  readonly badStates: number;
  /** Bytes are those of messages, without frames and handshakes. */
  readonly counts: { replies: number; bytesUp: number; bytesDown: number; sessions: number; resumed: number };
  /**
   * What the adapter adds to the outputs of a group's linears: one array for each site; of many hidden states, such a list
   * for each. Many go up before earlier replies came, as many as the windows of docs/service.md hold. Calls wait for
   * each other. If limits of this client cannot pay them all, none is sent ("query_limit", with both numbers); after another
   * error `error.answered` has those that were answered.
   * @param group its number, or its input's name
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
 * A client's side of a session and its keys, for a transport of your own: messages of docs/wire-format.md in and out. After
 * `open` say `opened`. A call goes from `begin` to `end`: until it `isOver` send what `next` gives, and while it
 * `awaitsReply` `take` what comes.
 */
export class Client {
  /** With a fresh secret key. */
  static create(wasm?: string): Promise<Client>;
  readonly set: bigint;
  readonly groups: Group[];
  readonly tokensAhead: number;
  signedSeed(nonce: Uint8Array): Uint8Array;
  rerandomizationKey(nonce: Uint8Array): Uint8Array;
  open(layout: Uint8Array, held: Uint8Array, mostTokens?: number): void;
  /** @param states hidden states, one behind the other. An earlier call ends, and so does this one if this fails. */
  begin(group: number, states: Float32Array, overflowMargin?: number, zerosForNan?: boolean): void;
  /** The next message to send now, if there is one. */
  next(): Uint8Array | undefined;
  /** Takes a reply. After an error the connection must be given up. */
  take(reply: Uint8Array): void;
  /** The server refused the message of this number. If the call fails of it, that is what `rethrow` throws. */
  refused(number: number, why: TensafeError): void;
  readonly status: {
    isOver: boolean;
    /** Hidden states of the call. */
    answered: number;
    /** Whether an answer is to come on this connection: also when the call is over, that to the next block. */
    awaitsReply: boolean;
    /** Milliseconds in which `next` gives nothing, because of a limit of rates, until `goOn`; 0: none. */
    heldFor: number;
    queriesLeft: number | null;
    badStates: number;
  };
  goOn(): void;
  /** Throws what the call failed with. */
  rethrow(): void;
  /** For the call's hidden state of this number, if it was answered. */
  deltas(row: number): Float32Array[] | undefined;
  end(): void;
  /** The connection is lost: what has no answer goes again over the next one. */
  lost(): void;
  /** The session goes on over another one. @param left of queries, for each group or one number for all; none: no limit */
  resumed(nextNumber: number, left: number[]): void;
  /** A fresh session began. */
  opened(left: number[]): void;
  close(): void;
}
