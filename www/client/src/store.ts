/**
 * Where ledgers outlive the page: IndexedDB, else localStorage, else memory.
 *
 * A record belongs to a page, and a page holds a lock as long as it lives (Web Locks). Another
 * page takes a record over only when it gets that lock, so that no record has two senders that
 * could both believe its unsent part to be theirs.
 */
export interface Stored {
  page: string;
  id: string;
  bytes: Uint8Array<ArrayBuffer>;
  savedMs: number;
}

/** Saves a record, or deletes it where it has no bytes. */
export type Change = { page: string; id: string; bytes: Uint8Array<ArrayBuffer> | undefined };

export interface Store {
  load(): Promise<Stored[]>;
  save(changes: Change[]): Promise<void>;
}

/** Opens the best store that this browser lets us write. */
export async function openStore(name: string): Promise<Store> {
  try {
    const store = new IndexedStore(await openDatabase(`poptally ${name}`));
    await store.load();
    return store;
  } catch {
    // Private windows and old browsers may refuse.
  }
  try {
    const probe = `poptally ${name} probe`;
    localStorage.setItem(probe, "");
    localStorage.removeItem(probe);
    return new LocalStore(`poptally ${name} `);
  } catch {
    return new MemoryStore();
  }
}

class IndexedStore implements Store {
  constructor(private readonly database: IDBDatabase) {}

  async load(): Promise<Stored[]> {
    const request = this.database.transaction("ledgers").objectStore("ledgers").getAll();
    return new Promise((resolve, reject) => {
      request.onsuccess = () => resolve(request.result as Stored[]);
      request.onerror = () => reject(request.error);
    });
  }

  async save(changes: Change[]): Promise<void> {
    // Strict: on disk when it says so, since what was sent must be known after a crash.
    const transaction = this.database.transaction("ledgers", "readwrite", { durability: "strict" });
    const ledgers = transaction.objectStore("ledgers");
    for (const { page, id, bytes } of changes) {
      if (bytes) ledgers.put({ page, id, bytes, savedMs: Date.now() } satisfies Stored);
      else ledgers.delete(id);
    }
    return new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onerror = transaction.onabort = () => reject(transaction.error);
    });
  }
}

class LocalStore implements Store {
  constructor(private readonly prefix: string) {}

  async load(): Promise<Stored[]> {
    const names = Object.keys(localStorage).filter((name) => name.startsWith(this.prefix));
    return names.map((name) => {
      const { page, savedMs, bytes } = JSON.parse(localStorage.getItem(name) ?? "{}");
      return { page, id: name.slice(this.prefix.length), savedMs, bytes: Uint8Array.from(bytes) };
    });
  }

  async save(changes: Change[]): Promise<void> {
    for (const { page, id, bytes } of changes) {
      const record = { page, savedMs: Date.now(), bytes: bytes && [...bytes] };
      if (bytes) localStorage.setItem(this.prefix + id, JSON.stringify(record));
      else localStorage.removeItem(this.prefix + id);
    }
  }
}

class MemoryStore implements Store {
  async load(): Promise<Stored[]> {
    return [];
  }

  async save(): Promise<void> {}
}

function openDatabase(name: string): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(name, 1);
    request.onupgradeneeded = () => request.result.createObjectStore("ledgers", { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = request.onblocked = () => reject(request.error);
  });
}

/** Takes a page's lock for as long as this page lives; false where its page still lives. */
export function holdLock(page: string, onlyIfFree: boolean): Promise<boolean> {
  return new Promise((resolve) => {
    const held = (lock: unknown): Promise<void> | undefined => {
      resolve(lock !== null);
      return lock === null ? undefined : new Promise(() => {});
    };
    navigator.locks.request(`poptally ${page}`, { ifAvailable: onlyIfFree }, held).catch(() => resolve(false));
  });
}

/** Whether the page that owns a record is certainly closed. */
export async function ownerIsGone(record: Stored): Promise<boolean> {
  if (typeof navigator !== "undefined" && navigator.locks) return holdLock(record.page, true);
  // Without locks only time tells.
  return Date.now() - record.savedMs > DAY_MS;
}

const DAY_MS = 86_400_000;
