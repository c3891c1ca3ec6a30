/** A private client of split inference: docs/web.md. Keys are made inside and stay there. */

/** The linears that share an input, and what the server calls them. */
export interface Group {
  input: string;
  /** Entries of a hidden state. */
  d: number;
  sites: { name: string; dOut: number }[];
}

/**
 * What went wrong. `code` is one of the server's, as "query_limit" or "not_authorised" (docs/split-inference.md), or the
 * client's: "lost" (no connection), "closed", "adapter_changed", "parameter", "encoding" (a hidden state with no finite
 * norm), "range" (ask again with a larger overflow margin), "format" (the server's messages are none), "memory",
 * "network", "unsupported".
 */
export class TensafeError extends Error {
  code: string;
  /** Milliseconds after which to ask again, if the server said so. */
  retryAfter?: number;
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
   * nothing from silence. False: it is an error. Default true.
   */
  zerosForNan?: boolean;
  /** Milliseconds for a request with its reply, and for connecting. Default 60000. */
  stepLimit?: number;
  /** To connect again, before it gives up. Default 10. */
  attempts?: number;
  /** What happens to the connection, for people. */
  report?: (what: string) => void;
  /** Where engine.wasm is. Default: beside this module. */
  wasm?: string;
}

/** A session over connections that may break: what was lost is asked again, encrypted anew. */
export class Session {
  static connect(url: string, options: ConnectOptions): Promise<Session>;
  readonly groups: Group[];
  /** Hidden states in a block; 0 or 1: each goes alone. */
  readonly tokensAhead: number;
  /** Hidden states that limits of this client alone leave, at the last handshake; null: there are none. */
  readonly queriesLeft: number | null;
  readonly version: number;
  /** Hidden states for which zeros were sent, with `zerosForNan`. */
  readonly badStates: number;
  /** Bytes are those of messages, without frames and handshakes. */
  readonly counts: { replies: number; bytesUp: number; bytesDown: number; sessions: number; resumed: number };
  /**
   * What the adapter adds to the outputs of a group's linears: one array for each site. Calls wait for each other.
   * @param group its number, or its input's name
   * @param h the hidden state: `d` finite numbers
   */
  deltas(group: number | string, h: ArrayLike<number>, overflowMargin?: number): Promise<Float32Array[]>;
  /** Ends the session and wipes the keys. */
  close(): void;
}

/** Connects to a split_server ("wss://host:8443/v1/split") and opens a session. */
export function connect(url: string, options: ConnectOptions): Promise<Session>;

/** The keys of one client and one adapter, for a transport of your own: messages of docs/wire-format.md in and out. */
export class Client {
  /** With a fresh secret key. */
  static create(wasm?: string): Promise<Client>;
  readonly set: bigint;
  readonly groups: Group[];
  readonly tokensAhead: number;
  signedSeed(nonce: Uint8Array): Uint8Array;
  rerandomizationKey(nonce: Uint8Array): Uint8Array;
  open(layout: Uint8Array, held: Uint8Array, mostTokens?: number): void;
  /** Hidden states of this group that can go at a position of a block. */
  positions(group: number): number;
  prepare(group: number, number: number): Uint8Array;
  accept(reply: Uint8Array): void;
  /** @param number of the request: above all earlier ones of the session */
  encrypt(group: number, h: Float32Array, number: number, overflowMargin?: number, zerosForNan?: boolean): Uint8Array;
  decrypt(group: number, reply: Uint8Array): Float32Array[];
  dropBlock(group: number): void;
  dropBlocks(all: boolean): void;
  close(): void;
}
