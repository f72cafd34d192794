// The counter of the platform's documentation: each step is read, changed and written by itself.
export class Counter {
  constructor(state) {
    this.state = state;
  }

  async fetch(request) {
    const { by } = await request.json();
    if (new URL(request.url).pathname === "/nothing") return Response.json({ value: by });
    let value = (await this.state.storage.get("value")) || 0;
    value += by;
    await this.state.storage.put("value", value);
    return Response.json({ value });
  }
}

export default {
  fetch(request, env) {
    return env.COUNTER.get(env.COUNTER.idFromName("bench")).fetch(request);
  },
};
