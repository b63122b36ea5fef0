// One collection of the API: a list, then its watch, for as long as it is wanted. Begins again where it was when the connection ends,
// lists anew when that is too long ago (410), and waits longer and longer when nobody answers.

const PAGE = 500;
/**
 * Waits between tries, in milliseconds. The first is short and not told: a browser drops its connections whenever the network of its machine
 * changes, and each pod that starts there changes it.
 */
const FIRST = 200;
const LONGEST = 15000;
const REFUSED = 30000;
/** A watch says something at least every minute; whoever says nothing for this long is gone. */
const SILENCE = 100000;
/** A watch that ends sooner than this is counted as a failure. */
const SHORT = 1000;

/** How far the server's clock is ahead of ours, in milliseconds; small differences are only the way. */
let ahead = 0;
export const now = () => Date.now() + ahead;

class Refusal extends Error {
  constructor(code, message, after) {
    super(message);
    this.code = code;
    this.after = after;
  }
}

async function ask(path, parameters, signal) {
  const answer = await fetch(`${path}?${new URLSearchParams({ pretty: '0', ...parameters })}`, {
    signal, credentials: 'same-origin', redirect: 'error', headers: { accept: 'application/json' },
  });
  const date = Date.parse(answer.headers.get('date') ?? '');
  if (Number.isFinite(date)) ahead = Math.abs(date + 500 - Date.now()) > 3000 ? date + 500 - Date.now() : 0;
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw new Refusal(answer.status, told.message ?? answer.statusText, Number(answer.headers.get('retry-after')) * 1000);
}

/** One object or list; asked for again if the connection broke. */
export async function get(path, parameters = {}) {
  for (let tries = 3; ; tries -= 1) {
    try {
      return await (await ask(path, parameters)).json();
    } catch (problem) {
      if (problem.code || tries === 1) throw problem;
      await new Promise((done) => setTimeout(done, FIRST));
    }
  }
}

/**
 * Follows `path`. `heard` has `reset(objects)`, `change(type, object)` and `state(word, detail)`, where the word is `live`, `wait` (detail:
 * until when, and why), `refused` (why) or `over`. With `fromNow` nothing is listed: only what happens from now on is told.
 */
export function follow(path, heard, { fields, fromNow = false } = {}) {
  let stopped = false;
  let request = null;
  let wake = null;
  let liveSince = Infinity;
  const selection = fields ? { fieldSelector: fields } : {};

  async function list() {
    const items = [];
    let next;
    let version;
    do {
      request = new AbortController();
      const limit = fromNow ? { limit: '1' } : { limit: String(PAGE), ...(next && { continue: next }) };
      const page = await (await ask(path, { ...selection, ...limit }, request.signal)).json();
      items.push(...page.items ?? []);
      next = fromNow ? '' : page.metadata?.continue;
      version = page.metadata?.resourceVersion;
    } while (next && !stopped);
    if (!stopped) heard.reset(fromNow ? [] : items);
    return version;
  }

  /** Answers the version that the next watch begins at. */
  async function watch(version) {
    request = new AbortController();
    const ending = request;
    const parameters = { ...selection, watch: '1', allowWatchBookmarks: 'true', resourceVersion: version };
    let silence = setTimeout(() => ending.abort(), SILENCE);
    try {
      const answer = await ask(path, parameters, request.signal);
      heard.state('live');
      liveSince = Date.now();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ''; ;) {
        const { done, value } = await reader.read();
        if (done) return version;
        clearTimeout(silence);
        silence = setTimeout(() => ending.abort(), SILENCE);
        const lines = (rest + value).split('\n');
        rest = lines.pop();
        for (const line of lines) {
          const { type, object } = JSON.parse(line);
          if (type === 'ERROR') throw new Refusal(object.code, object.message);
          version = object.metadata.resourceVersion;
          if (type !== 'BOOKMARK' && !stopped) heard.change(type, object);
        }
      }
    } finally {
      clearTimeout(silence);
    }
  }

  const pause = (ms) => new Promise((done) => {
    const timer = setTimeout(done, ms);
    wake = () => { clearTimeout(timer); done(); };
  });

  async function run() {
    let version = null;
    let failures = 0;
    while (!stopped) {
      liveSince = Infinity;
      try {
        version ??= await list();
        version = await watch(version);
        if (Date.now() - liveSince > SHORT) failures = 0;
        else throw new Error('the server ended the connection at once');
      } catch (problem) {
        if (stopped) return;
        const { code } = problem;
        if (code === 401) return heard.state('over');
        if (code === 410 && version !== null) { version = null; continue; }
        // Whatever else is wrong with the version, a list tells.
        if (code) version = null;
        if (Date.now() - liveSince > SHORT) failures = 0;
        failures += 1;
        const spread = 0.75 + Math.random() / 2;
        const wait = code === 403 ? REFUSED : problem.after || Math.min(LONGEST, FIRST * 2 ** (failures - 1)) * spread;
        if (code === 403) heard.state('refused', problem.message);
        else if (failures > 1) heard.state('wait', { until: Date.now() + wait, why: problem.message });
        await pause(wait);
      }
    }
  }

  run();
  return {
    stop() { stopped = true; request?.abort(); wake?.(); },
    /** Does not wait any longer. */
    hurry() { wake?.(); },
  };
}
