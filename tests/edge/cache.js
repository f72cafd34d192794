// What workerd asks as its cache: `PUT` keeps an answer (the body is a whole HTTP message), `GET`
// gives it back. Nothing here runs out: the test looks at one moment.
const kept = new Map();

export default {
  async fetch(request) {
    if (request.method === "PUT") {
      kept.set(request.url, await request.text());
      return new Response(null, { status: 204 });
    }
    const message = kept.get(request.url);
    if (message === undefined) {
      return new Response(null, { status: 504, headers: { "cf-cache-status": "MISS" } });
    }
    const end = message.indexOf("\r\n\r\n");
    const lines = message.slice(0, end).split("\r\n").slice(1);
    const headers = new Headers(lines.map((line) => line.split(/:\s*(.*)/s).slice(0, 2)));
    headers.set("cf-cache-status", "HIT");
    return new Response(message.slice(end + 4), { headers });
  },
};
