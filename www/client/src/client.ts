/** Network, disk, time and chance for the core: what a page lends it. */
import { checkKey, random, tally, type Tally } from "./core.js";
import { Counter, type Status, TallyError } from "./counter.js";
import { type Change, holdLock, openStore, ownerIsGone, type Store } from "./store.js";

/** Something that the application should know: counts were refused, or can never be known. */
export interface Problem {
  readonly kind: string;
  readonly key: string;
  /** Units up and down that it is about. */
  readonly up: bigint;
  readonly down: bigint;
  readonly detail: string;
}

export interface Options {
  /** How old a subscribed counter's reading may become, in ms (default 2,000, at least 250). */
  pollMs?: number;
  /** Hears of counts that were refused, or that can never be known. */
  onProblem?: (problem: Problem) => void;
  /** More headers for every request. */
  headers?: Record<string, string>;
}

/** Connects to a poptally server. One client a server and page is enough. */
export function connect(endpoint: string | URL, options: Options = {}): Client {
  return new Client(new URL(endpoint).origin, options);
}

export class Client {
  readonly #endpoint: string;
  readonly #options: Options;
  readonly #core: Tally;
  readonly #counters = new Map<string, Counter>();
  readonly #page = random().toString(16);
  readonly #stop = new AbortController();
  #store: Store | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #running = false;
  #again = false;
  #settled = new Set<() => void>();

  /** @internal */
  constructor(endpoint: string, options: Options) {
    this.#endpoint = endpoint;
    this.#options = options;
    this.#core = tally(Math.max(250, options.pollMs ?? 2_000));
    void this.#start();
  }

  /** The counter `namespace/name`; the same object for the same key. Throws for a bad name. */
  counter(key: string): Counter {
    let counter = this.#counters.get(key);
    if (!counter) {
      checkKey(key);
      counter = new Counter(this, key);
      this.#counters.set(key, counter);
    }
    return counter;
  }

  get status(): Status {
    if (typeof navigator !== "undefined" && navigator.onLine === false) return "offline";
    if (this.#core.failing()) return "error";
    return this.#waiting() > 0n ? "syncing" : "idle";
  }

  /** Sends what is pending now; resolves when all of it is confirmed. */
  async flush({ signal }: { signal?: AbortSignal } = {}): Promise<void> {
    signal?.throwIfAborted();
    this.#core.hurry(Date.now());
    void this.#run();
    while (this.#waiting() > 0n) {
      await new Promise<void>((resolve, reject) => {
        const done = (): void => {
          this.#settled.delete(done);
          resolve();
        };
        this.#settled.add(done);
        signal?.addEventListener("abort", () => (this.#settled.delete(done), reject(signal.reason)), { once: true });
      });
    }
  }

  /** Stops all work of this client. What is pending stays stored for the next page. */
  dispose(): void {
    this.#stop.abort();
    clearTimeout(this.#timer);
  }

  /** @internal */
  add(key: string, by: bigint): void {
    if (BigInt.asIntN(64, by) !== by) throw new TallyError("bad-step", key, "a step is below 2^63");
    try {
      this.#core.add(key, by, Date.now());
    } catch (error) {
      const [kind, ...detail] = String((error as Error).message).split(": ");
      throw new TallyError(kind ?? "bad-step", key, detail.join(": "));
    }
    void this.#run();
  }

  /** @internal */
  look(key: string): { exact: bigint; pending: bigint; waiting: bigint; known: boolean } {
    const [exact, pending, waiting, known] = this.#core.view(key) as [bigint, bigint, bigint, boolean];
    return { exact, pending, waiting, known };
  }

  /** @internal */
  watch(key: string): void {
    this.#core.watch(key, Date.now());
    void this.#run();
  }

  /** @internal */
  unwatch(key: string): void {
    this.#core.unwatch(key);
  }

  async #start(): Promise<void> {
    const signal = this.#stop.signal;
    if (typeof navigator !== "undefined" && navigator.locks) await holdLock(this.#page, false);
    this.#store = await openStore(this.#endpoint);
    for (const record of await this.#store.load().catch(() => [])) {
      if (record.page !== this.#page) await this.#adopt(record.page, record.id);
    }
    if (typeof document !== "undefined") {
      document.addEventListener("visibilitychange", () => this.#hurry(), { signal });
      addEventListener("online", () => this.#hurry(), { signal });
      addEventListener("offline", () => this.#notify(), { signal });
      addEventListener("pagehide", () => this.#hurry(), { signal });
    }
    this.#notify();
    void this.#run();
  }

  /** Takes over what a closed page left. */
  async #adopt(page: string, id: string): Promise<void> {
    const before = (await this.#store?.load())?.find((record) => record.id === id);
    if (!before || !(this.#owned.has(page) || (await ownerIsGone(before)))) return;
    this.#owned.add(page);
    // Read again: until the lock was ours, its page may have changed it.
    const record = (await this.#store?.load())?.find((record) => record.id === id);
    if (!record) return;
    try {
      this.#core.adopt(record.bytes, Date.now());
    } catch (error) {
      console.warn("poptally: a stored ledger does not read back and is kept as it is", error);
    }
  }

  /** Pages whose lock is held here. */
  readonly #owned = new Set<string>();

  #hurry(): void {
    this.#core.hurry(Date.now());
    void this.#run();
  }

  #waiting(): bigint {
    let sum = 0n;
    for (const key of this.#counters.keys()) sum += this.look(key).waiting;
    return sum;
  }

  /** Does what is due, one message at a time; then sleeps until more is. */
  async #run(): Promise<void> {
    this.#again = true;
    if (this.#running || !this.#store) return;
    this.#running = true;
    while (this.#again && !this.#stop.signal.aborted) {
      this.#again = false;
      const message = this.#core.outgoing(Date.now(), random()) as [string, Uint8Array<ArrayBuffer>] | undefined;
      await this.#save();
      if (!message) continue;
      await this.#send(...message);
      this.#report();
      await this.#save();
      this.#notify();
      this.#again = true;
    }
    this.#running = false;
    this.#sleep();
  }

  async #send(path: string, body: Uint8Array<ArrayBuffer>): Promise<void> {
    const { headers } = this.#options;
    try {
      const signal = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(REPLY_MS)]);
      // Keepalive: the message of a page that closes is still delivered.
      const request = { method: "POST", body, signal, keepalive: true, ...(headers && { headers }) };
      const response = await fetch(this.#endpoint + path, request);
      const answer = new Uint8Array(await response.arrayBuffer());
      this.#core.answered(response.status, answer, Date.now(), random());
    } catch {
      this.#core.failed(Date.now(), random());
    }
  }

  async #save(): Promise<void> {
    const records = [...this.#core.unsaved()] as [bigint, Uint8Array<ArrayBuffer> | undefined][];
    if (records.length === 0) return;
    const changes: Change[] = records.map(([id, bytes]) => ({ page: this.#page, id: id.toString(16), bytes }));
    try {
      await this.#store?.save(changes);
    } catch (error) {
      // Counting goes on: only what a crash of this page would lose is more.
      console.warn("poptally: pending counts cannot be stored on this device", error);
    }
  }

  #report(): void {
    for (const notice of this.#core.notices()) {
      const [kind, key, up, down, detail] = notice as [string, string, bigint, bigint, string];
      this.#counters.get(key)?.refused(new TallyError(kind, key, detail));
      if (this.#options.onProblem) this.#options.onProblem({ kind, key, up, down, detail });
      else console.warn(`poptally: ${kind} ${key} +${up} -${down} ${detail}`);
    }
  }

  #notify(): void {
    for (const counter of this.#counters.values()) counter.changed();
    if (this.#waiting() === 0n) for (const done of [...this.#settled]) done();
  }

  #sleep(): void {
    clearTimeout(this.#timer);
    const at = this.#core.wake();
    const hidden = typeof document !== "undefined" && document.hidden;
    // A page that nobody sees polls nothing.
    if (at === undefined || this.#stop.signal.aborted || (hidden && this.#waiting() === 0n)) return;
    this.#timer = setTimeout(() => void this.#run(), Math.max(0, at - Date.now()));
  }
}

/** How long an answer may take, in ms. */
const REPLY_MS = 20_000;
