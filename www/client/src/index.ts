/**
 * Counters that show a click at once, keep it while offline, and have it counted exactly once.
 *
 *     import { connect } from "poptally";
 *     const likes = connect("https://counts.example").counter("likes/post-42");
 *     likes.subscribe(({ value }) => (button.textContent = String(value)));
 *     likes.increment();
 */
export { connect, type Client, type Options, type Problem } from "./client.js";
export { type Counter, type Increment, type Snapshot, type Status, TallyError } from "./counter.js";
