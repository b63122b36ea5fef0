// What an end means, in words and bars. The bars and the words of a step are those of `adieu timeline`
// (crates/cli/src/timeline/chart.rs), and the end-to-end test compares them; why a pod waits is told as `adieu why` tells it where it
// knows the API alone (crates/cli/src/why/leaving.rs).

import { time } from './dom.js';

export const VERDICTS = {
  clean: ['✓', 'everything it asked for was given, and every process left by itself'],
  hurried: ['»', 'every process left by itself, but something was cut short'],
  forced: ['✕', 'a process had to be killed, or the object was deleted by force'],
  lost: ['?', 'of a process it is not known how it ended'],
};

/** No end is longer: what says so cannot be drawn. */
const LONGEST = 2 ** 40;
const REQUESTS = 'adieu.dev/deletion-requests';

const at = (step) => Math.min(Math.max(Number(step.afterMilliseconds) || 0, 0), LONGEST);
const list = (value) => (Array.isArray(value) ? value : []);

/** `1.204 s`, as the command line says it. */
export const seconds = (ms) => `${Math.floor(ms / 1000)}.${String(Math.floor(ms % 1000)).padStart(3, '0')} s`;

/** The parts of an end that last, in the order they began; `to` is null while a part goes on. */
export function bars(record) {
  const steps = list(record.steps);
  const found = [];
  const cut = steps.find((own) => own.type === 'CutAsked' || own.type === 'Drained');
  const drained = steps.find((own) => own.type === 'Drained');
  if (cut) {
    const seen = steps.find((own) => own.type === 'Cut');
    const marks = seen ? [[at(seen), 'cut']] : [];
    found.push({ kind: 'drain', label: 'drain', from: 0, to: drained ? at(drained) : null, remark: record.barrier ?? '', marks });
  }
  steps.forEach((own, place) => {
    const later = (wanted) => steps.slice(place + 1).find(wanted);
    const same = (other) => (other.container ?? '') === (own.container ?? '');
    const until = (step) => (step ? at(step) : null);
    if (own.type === 'HookStarted') {
      const ended = later((other) => other.type === 'HookEnded' && same(other) && other.hook === own.hook);
      const label = `${own.hook} ${own.container}`;
      found.push({ kind: 'hook', label, from: at(own), to: until(ended), remark: ended?.result ?? '', marks: [] });
    } else if (own.type === 'SignalAsked') {
      const exit = later((other) => other.type === 'Exited' && same(other));
      const killed = steps.find((other) => other.type === 'KillAsked' && same(other));
      const code = exit && Number.isInteger(exit.exitCode) ? `, exit code ${exit.exitCode}` : '';
      const remark = `${own.signal ?? ''}${killed ? ', KILL' : ''}${code}`;
      const marks = killed ? [[at(killed), 'KILL']] : [];
      found.push({ kind: 'stop', label: `stop ${own.container}`, from: at(own), to: until(exit), killed: killed ? at(killed) : null, remark, marks });
    } else if (own.type === 'SandboxRemovalAsked') {
      found.push({ kind: 'clear', label: 'clear up', from: at(own), to: until(later((other) => other.type === 'SandboxRemoved')), remark: '', marks: [] });
    } else if (own.type === 'DeleteAsked') {
      found.push({ kind: 'clear', label: 'object', from: at(own), to: until(later((other) => other.type === 'Deleted')), remark: '', marks: [] });
    }
  });
  return found;
}

/** How long the drawing is, in milliseconds: until the end, or until the last that happened. */
export function length(record) {
  const steps = list(record.steps);
  const last = steps.length ? at(steps.at(-1)) : 0;
  return Math.min(Math.max(record.tookMilliseconds ?? last, last, 1), LONGEST);
}

/** The deadline that held at the end, if any. */
export const deadline = (record) => list(record.requests).at(-1)?.deadlineMilliseconds ?? null;

/** When a step was, and what it was: `['0.006', '-> SIGTERM to app']`. */
export function stepText(own) {
  const because = own.message ? `: ${own.message}` : '';
  const words = {
    Requested: () => own.message || 'asked to leave',
    CutAsked: () => `-> ${own.message || 'send new connections elsewhere'}`,
    Cut: () => own.message || 'new connections go elsewhere',
    Connections: () => `${own.connections ?? 0} connections are open`,
    Drained: () => `new connections go elsewhere, or are not waited for (${own.result ?? ''}${because})`,
    HookStarted: () => `-> run the ${own.hook} hook of ${own.container}`,
    HookEnded: () => `${own.hook} hook of ${own.container}: ${own.result}${because}`,
    HookCancelled: () => `-> end the ${own.hook} hook of ${own.container}`,
    SignalAsked: () => `-> ${own.signal} to ${own.container}`,
    SignalDelivered: () => `${own.signal} to ${own.container}: ${own.result}`,
    KillAsked: () => `-> SIGKILL to ${own.container}`,
    SandboxRemovalAsked: () => '-> remove the sandbox',
    SandboxRemoved: () => 'the sandbox is gone',
    DeleteAsked: () => '-> delete the object',
    Deleted: () => 'the object is gone',
    Rebooted: () => 'the machine was booted anew',
  };
  const said = Object.hasOwn(words, own.type) ? words[own.type]() : own.message || own.type || '';
  const open = own.type !== 'Connections' && own.connections !== undefined ? ` (${own.connections} connections open)` : '';
  return [seconds(at(own)).slice(0, -2), said + open];
}

/** Connections that came late, or were open when a process was killed: `null` where nothing is told. */
export function losses(record) {
  const told = [];
  for (const own of list(record.steps)) {
    if (own.type === 'KillAsked' && own.connections > 0) told.push(`${own.connections} open at KILL`);
    const late = /^LateConnections: (\d+) /.exec(own.message ?? '');
    if (late) told.push(`${late[1]} late`);
  }
  return told.length ? told.join(', ') : null;
}

const condition = (pod, type) => list(pod.status?.conditions).find((own) => own.type === type);
const statuses = (pod) => ['initContainerStatuses', 'containerStatuses', 'ephemeralContainerStatuses'].flatMap((own) => list(pod.status?.[own]));
const running = (pod) => statuses(pod).filter((own) => own.state?.running).map((own) => own.name);
const containers = (pod) => [...list(pod.spec?.initContainers), ...list(pod.spec?.containers)];
export const isLeaving = (pod) => Boolean(pod.metadata.deletionTimestamp);
export const isReady = (pod) => condition(pod, 'Ready')?.status === 'True';
export const isOver = (pod) => ['Succeeded', 'Failed'].includes(pod.status?.phase);
export const deadlineOf = (pod) => time(pod.metadata.deletionTimestamp);
export const ownerOf = (object) => list(object.metadata.ownerReferences).find((own) => own.controller);

/** `deletionTimestamp` is whole seconds; so is this. */
export const startOf = (pod) => deadlineOf(pod) - (pod.metadata.deletionGracePeriodSeconds ?? 0) * 1000;

/** Who asked for the end of a pod that leaves, as the server noted it there. */
export function requestsOf(pod) {
  try {
    return list(JSON.parse(pod.metadata.annotations?.[REQUESTS] ?? '[]')).slice(0, 8);
  } catch {
    return [];
  }
}

/** What a pod waits for that was asked to leave. `events` are those about it that are known. */
export function waitsFor(pod, events, now) {
  const finalizers = list(pod.metadata.finalizers);
  const runs = running(pod);
  const nodeIsDone = pod.metadata.deletionGracePeriodSeconds === 0 || !pod.spec?.nodeName;
  if (finalizers.length && (nodeIsDone || (isOver(pod) && !runs.length))) return `its object waits for ${finalizers.join(', ')} (finalizer)`;
  const blocked = condition(pod, 'adieu.dev/TerminationBlocked');
  if (blocked?.status === 'True') return `its node cannot finish: ${blocked.message ?? ''}`;
  const has = (reason) => events.some((own) => own.reason === reason);
  const names = runs.join(', ');
  if (has('KillSent') && runs.length) return `${names} was sent SIGKILL and has not ended yet`;
  if (has('StopSignalSent') && runs.length) return `${names} has its stop signal and has not ended yet`;
  const drained = condition(pod, 'adieu.dev/TrafficDrained');
  if (drained?.message?.includes('connections open')) return `its open connections are waited for (${drained.message})`;
  if (drained?.status === 'False') {
    if (drained.reason === 'WaitingForReplacement') return 'nobody else can take its traffic yet: another pod is waited for';
    return `evidence that new connections go elsewhere${drained.message ? `: ${drained.message}` : ''}`;
  }
  if (!pod.spec?.nodeName) return 'it has no node, and its object is about to go';
  if (!runs.length) return 'no container runs any more; its node is clearing up';
  if (now > deadlineOf(pod) + 3000) return `its time is over, and ${names} still runs by the word of its node`;
  const hooks = containers(pod).filter((own) => own.lifecycle?.preStop && runs.includes(own.name)).map((own) => own.name);
  if (hooks.length) return `either the preStop hook of ${hooks.join(', ')} runs, or ${names} was asked to stop`;
  return `${names} was asked to stop and has not ended yet`;
}

/** When an event was, on our clock if it was seen to come: its own time is whole seconds. */
export const eventTime = (event) => {
  const told = time(event.series?.lastObservedTime ?? event.lastTimestamp ?? event.eventTime ?? event.metadata.creationTimestamp);
  return event.seen >= told && event.seen < told + 1500 ? event.seen : told;
};

/** `6.2ms`, `1.5s` as the barrier writes it, in milliseconds. */
function spanOf(text) {
  if (text?.startsWith('at once')) return 0;
  const [, number, unit] = /after ([\d.]+)(ms|µs|s)\b/.exec(text ?? '') ?? [];
  return unit ? Number(number) * { ms: 1, 'µs': 0.001, s: 1000 }[unit] : NaN;
}

/**
 * The end of a pod that is still leaving, as far as its object and its events tell it, in the form of a record. `leftAt` is when it was
 * seen to be asked, if it was seen.
 */
export function unfinished(pod, events, leftAt, now) {
  const noted = requestsOf(pod);
  const told = noted.length ? time(noted[0].at) : startOf(pod);
  const start = leftAt >= told && leftAt < told + 1500 ? leftAt : told;
  const after = (moment) => Math.max(0, Math.round(moment - start));
  const grace = pod.metadata.deletionGracePeriodSeconds ?? 0;
  const steps = [];
  const requests = (noted.length ? noted : [{ gracePeriodSeconds: grace }]).map((own, place) => {
    const asked = place && own.at ? after(time(own.at)) : 0;
    const message = `delete requested${own.by ? ` by ${own.by}` : ''}, grace ${own.gracePeriodSeconds} s`;
    steps.push({ type: 'Requested', afterMilliseconds: asked, message });
    return { by: own.by, via: own.via, afterMilliseconds: asked, gracePeriodSeconds: own.gracePeriodSeconds };
  });
  requests.at(-1).deadlineMilliseconds = Math.max(0, deadlineOf(pod) - told);
  const drained = condition(pod, 'adieu.dev/TrafficDrained');
  const hooks = new Set(containers(pod).filter((own) => own.lifecycle?.preStop).map((own) => own.name));
  const begun = new Set();
  const containerOf = (event) => /\{(.+)\}/.exec(event.involvedObject?.fieldPath ?? '')?.[1] ?? /container ([a-z0-9-]+)/.exec(event.message ?? '')?.[1] ?? '';
  const hookEnded = (container, moment, result) => {
    if (begun.delete(container)) steps.push({ type: 'HookEnded', hook: 'preStop', container, afterMilliseconds: moment, result });
  };
  const known = events.filter((own) => eventTime(own) >= told).sort((one, two) => eventTime(one) - eventTime(two));
  for (const event of known) {
    const moment = after(eventTime(event));
    const name = containerOf(event);
    if (event.reason === 'DrainStarted') steps.push({ type: 'CutAsked', afterMilliseconds: moment, message: event.message });
    else if (event.reason === 'DrainReleased' || event.reason === 'DrainDeadline') continue;
    else if (event.reason === 'StopSignalSent') {
      hookEnded(name, moment, 'Ended');
      steps.push({ type: 'SignalAsked', afterMilliseconds: moment, container: name, signal: /SIG[A-Z0-9+]+/.exec(event.message)?.[0] ?? 'the stop signal' });
    } else if (event.reason === 'KillSent') steps.push({ type: 'KillAsked', afterMilliseconds: moment, container: name });
    else if (event.reason === 'Killing') {
      steps.push({ type: 'Event', afterMilliseconds: moment, message: `Killing: ${event.message}` });
      if (hooks.has(name)) {
        begun.add(name);
        steps.push({ type: 'HookStarted', hook: 'preStop', container: name, afterMilliseconds: moment });
      }
    } else if (event.type === 'Warning') {
      if (event.reason === 'FailedPreStopHook') hookEnded(name, moment, 'Failed');
      steps.push({ type: 'Event', afterMilliseconds: moment, message: `${event.reason}: ${event.message}` });
    }
  }
  if (drained?.status === 'True') {
    const span = spanOf(drained.message);
    const moment = Number.isFinite(span) ? Math.round(span) : after(time(drained.lastTransitionTime));
    // What is seen of an event is when it came here, a moment after it was.
    for (const own of steps) if (own.type === 'CutAsked') own.afterMilliseconds = Math.min(own.afterMilliseconds, moment);
    steps.push({ type: 'Drained', afterMilliseconds: moment, result: drained.reason, message: drained.message });
  }
  const over = [];
  for (const status of statuses(pod)) {
    const end = status.state?.terminated;
    if (!end) continue;
    over.push({ name: status.name, exitCode: end.exitCode, reason: end.reason });
    if (time(end.finishedAt) < told) continue;
    const signalled = steps.findLast((own) => own.container === status.name)?.afterMilliseconds ?? 0;
    const moment = Math.max(after(time(end.finishedAt)), signalled);
    steps.push({ type: 'Exited', container: status.name, exitCode: end.exitCode, afterMilliseconds: moment, message: `${status.name} exited with code ${end.exitCode}` });
  }
  // Evidence comes before what it allows, also where both are of the same second.
  const rank = { Requested: 0, CutAsked: 1, Cut: 2, Drained: 3 };
  steps.sort((one, two) => one.afterMilliseconds - two.afterMilliseconds || (rank[one.type] ?? 4) - (rank[two.type] ?? 4));
  const owner = ownerOf(pod);
  return {
    metadata: { name: pod.metadata.name, namespace: pod.metadata.namespace },
    pod: { name: pod.metadata.name, uid: pod.metadata.uid, owner: owner ? `${owner.kind}/${owner.name}` : '' },
    nodeName: pod.spec?.nodeName, askedBy: noted[0]?.by, gracePeriodSeconds: noted[0]?.gracePeriodSeconds ?? grace,
    startTime: new Date(start).toISOString(), deadline: pod.metadata.deletionTimestamp, barrier: drained?.status === 'True' ? drained.reason : '',
    requests, steps, containers: over, now: Math.max(1, now - start), isUnfinished: true,
  };
}

/** What a pod is, in one word for people and one letter for those who see no colours. */
export function stateOf(pod) {
  if (isLeaving(pod)) return ['leaving', '◌', 'Leaving'];
  if (pod.status?.phase === 'Succeeded') return ['over', '✓', 'Completed'];
  if (pod.status?.phase === 'Failed') return ['failed', '✕', pod.status.reason || 'Failed'];
  const waiting = statuses(pod).map((own) => own.state?.waiting?.reason).find((own) => own && own !== 'ContainerCreating' && own !== 'PodInitializing');
  if (waiting) return ['failed', '!', waiting];
  if (isReady(pod)) return ['ready', '●', 'Running'];
  if (pod.status?.phase === 'Running') return ['starting', '◐', 'Not ready'];
  return ['starting', '○', pod.spec?.nodeName ? 'Starting' : 'Pending'];
}
