/** One counter, as an application holds it. */
import { type Client } from "./client.js";

/** How things stand between this page and the server. */
export type Status = "idle" | "syncing" | "offline" | "error";

/** What a counter shows at one moment. A new object whenever something changed, and only then. */
export interface Snapshot {
  /** Everybody's count with each of one's own in it exactly once; rounded above 2^53. */
  readonly value: number;
  /** The same, exact. */
  readonly exact: bigint;
  /** One's own counts that the server has not confirmed yet, up minus down. */
  readonly pending: bigint;
  readonly status: Status;
  /** False until the counter was read for the first time: `value` is one's own part only. */
  readonly known: boolean;
}

/** What a step returns at once. */
export interface Increment {
  /** The value with the step. */
  readonly local: number;
  /** Resolves when the step is counted for good; rejects with a `TallyError` when it was refused
   * or when it can never be known. Offline, it waits. */
  readonly confirmed: Promise<void>;
}

/** Why a step was not confirmed: `kind` as in the API's problem types, or `indeterminate`. */
export class TallyError extends Error {
  constructor(
    readonly kind: string,
    readonly key: string,
    detail: string,
  ) {
    super(detail || kind);
    this.name = "TallyError";
  }
}

interface Waiter {
  units: bigint;
  resolve: () => void;
  reject: (error: TallyError) => void;
}

export class Counter {
  #snapshot: Snapshot;
  #listeners = new Set<(snapshot: Snapshot) => void>();
  #waiters: Waiter[] = [];
  /** Units that were ever counted through this counter. */
  #issued = 0n;

  /** @internal */
  constructor(
    private readonly client: Client,
    /** `namespace/name` */
    readonly key: string,
  ) {
    this.#snapshot = this.#look();
  }

  get value(): number {
    return this.#snapshot.value;
  }
  get exact(): bigint {
    return this.#snapshot.exact;
  }
  get pending(): bigint {
    return this.#snapshot.pending;
  }
  get status(): Status {
    return this.#snapshot.status;
  }

  /** Counts up, at once. `by` is a whole number, or a BigInt, and not 0. */
  increment(by: number | bigint = 1): Increment {
    return this.#step(by);
  }

  /** Counts down, at once. */
  decrement(by: number | bigint = 1): Increment {
    return this.#step(-by);
  }

  /** Calls `listener` at once and at every change. Returns how to stop. */
  subscribe(listener: (snapshot: Snapshot) => void): () => void {
    if (this.#listeners.size === 0) this.client.watch(this.key);
    // A function of its own, so that one listener may subscribe twice.
    const entry = (snapshot: Snapshot): void => listener(snapshot);
    this.#listeners.add(entry);
    entry(this.#snapshot);
    return () => {
      if (this.#listeners.delete(entry) && this.#listeners.size === 0) this.client.unwatch(this.key);
    };
  }

  /** The present snapshot: the same object until something changes. */
  getSnapshot(): Snapshot {
    return this.#snapshot;
  }

  /** Sends what is pending now; resolves when all of it is confirmed. */
  async flush(options: { signal?: AbortSignal } = {}): Promise<void> {
    await this.client.flush(options);
  }

  /** Stops listening. What is pending is sent all the same. */
  dispose(): void {
    if (this.#listeners.size > 0) this.client.unwatch(this.key);
    this.#listeners.clear();
  }

  /** @internal */
  changed(): void {
    const next = this.#look();
    const done = this.#issued - this.client.look(this.key).waiting;
    this.#waiters = this.#waiters.filter((waiter) => {
      if (waiter.units > done) return true;
      waiter.resolve();
      return false;
    });
    const now = this.#snapshot;
    const same =
      now.exact === next.exact && now.pending === next.pending && now.status === next.status && now.known === next.known;
    if (same) return;
    this.#snapshot = next;
    for (const listener of [...this.#listeners]) listener(next);
  }

  /** @internal */
  refused(error: TallyError): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) waiter.reject(error);
  }

  #step(by: number | bigint): Increment {
    if (typeof by === "number" && !Number.isSafeInteger(by)) {
      throw new TallyError("bad-step", this.key, `a step is a whole number, not ${by}; use a BigInt above 2^53`);
    }
    const step = BigInt(by);
    this.client.add(this.key, step);
    this.#issued += step < 0n ? -step : step;
    const units = this.#issued;
    const confirmed = new Promise<void>((resolve, reject) => this.#waiters.push({ units, resolve, reject }));
    // Who does not care need not catch.
    confirmed.catch(() => {});
    this.changed();
    return { local: this.value, confirmed };
  }

  #look(): Snapshot {
    const { exact, pending, known } = this.client.look(this.key);
    return Object.freeze({ value: Number(exact), exact, pending, known, status: this.client.status });
  }
}
