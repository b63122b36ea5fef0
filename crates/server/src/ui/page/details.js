// The right-hand side: one pod, one end, one workload, or an overview. Each part is made anew only when what it shows has changed, so that
// whoever reads it or has the focus in it is not disturbed.

import { gantt, legend, lives, rollout } from './chart.js';
import { duration, h, mark, say, time } from './dom.js';
import { VERDICTS, deadlineOf, isLeaving, isReady, losses, ownerOf, requestsOf, startOf, stateOf, stepText, unfinished, waitsFor } from './ends.js';
import { get, now } from './follow.js';

const REVISION = 'deployment.kubernetes.io/revision';
const ROWS_MOST = 200;
const STEP_KINDS = [['drain', 'drain'], ['hook', 'hook'], ['stop', 'stop signal, wait'], ['killed', 'after KILL'], ['clear', 'clear up']];
const LIFE_KINDS = [['starting', 'starting'], ['serving', 'ready'], ['leaving', 'leaving'], ['clean', 'clean'], ['hurried', 'hurried'], ['forced', 'forced'], ['lost', 'lost']];

const parts = new Map();

/** Makes one part of the panel, if `key` is not what it was made of before. */
function part(panel, name, key, build) {
  let own = parts.get(name);
  if (!own) {
    own = { element: h('section', { class: name }), key: undefined };
    parts.set(name, own);
    panel.append(own.element);
  }
  if (own.key === key) return own.element;
  own.key = key;
  own.element.replaceChildren(...[build()].flat().filter(Boolean));
  own.element.hidden = !own.element.childNodes.length;
  return own.element;
}

export function clear(panel) {
  parts.clear();
  panel.replaceChildren();
}

export const badge = (verdict) => h('span', { class: `badge ${verdict}`, title: VERDICTS[verdict]?.[1] }, `${VERDICTS[verdict]?.[0] ?? ''} ${verdict}`);

function table(caption, heads, rows) {
  if (!rows.length) return null;
  const head = h('thead', {}, h('tr', {}, heads.map((own) => h('th', { scope: 'col' }, own))));
  const body = h('tbody', {}, rows.map((row) => h('tr', {}, row.map((cell) => h('td', {}, cell)))));
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption }, h('table', {}, h('caption', {}, caption), head, body));
}

function head(app, title, badges, remarks) {
  const close = h('button', { type: 'button', class: 'close', click: () => app.select(null), 'aria-label': 'Close (Escape)', title: 'Close (Escape)' }, '✕');
  return [h('div', { class: 'title' }, h('h2', { tabindex: '-1' }, title), badges, close), h('p', { class: 'dim' }, remarks.filter(Boolean).flatMap((own, place) => (place ? [' · ', own] : [own])))];
}

const link = (app, selection, text) => h('button', { type: 'button', class: 'link', click: () => app.select(selection) }, text);

/** Steps as a table: the same as the picture, for all readers. */
function steps(record) {
  const rows = (record.steps ?? []).map((own) => {
    const [when, words] = stepText(own);
    return [h('span', { class: 'when' }, when), [h('span', { class: own.type === 'KillAsked' || own.type === 'Warning' ? 'bad' : '' }, words), own.output ? h('pre', {}, own.output) : null]];
  });
  if (record.omittedSteps) rows.push(['', `${record.omittedSteps} more steps were not kept`]);
  return table('Steps', ['seconds', 'what happened'], rows);
}

const ended = (list) => table('Containers', ['container', 'exit code', 'how'], (list ?? []).map((own) => [own.name, own.exitCode === undefined ? 'not known' : String(own.exitCode), [own.signal, own.reason].filter(Boolean).join(', ')]));

function asked(requests) {
  const rows = (requests ?? []).map((own) => [own.by || 'not known', own.via || 'Delete', own.gracePeriodSeconds === undefined ? '' : `${own.gracePeriodSeconds} s`, own.at ?? `${duration(own.afterMilliseconds ?? 0)} after the first`]);
  return table('Who asked', ['who', 'how', 'grace', 'when'], rows);
}

function phases(record) {
  const told = [['drain', 'drainMilliseconds'], ['hooks', 'hooksMilliseconds'], ['to the first signal', 'toSignalMilliseconds'], ['signal to exit', 'exitMilliseconds'], ['clean up', 'cleanupMilliseconds']];
  const known = told.filter(([, field]) => Number.isFinite(record.phases?.[field]));
  return known.length ? h('dl', { class: 'phases' }, known.map(([word, field]) => h('div', {}, h('dt', {}, word), h('dd', {}, duration(record.phases[field]))))) : null;
}

function end(app, panel, record) {
  const key = `${record.metadata.uid}/${record.metadata.resourceVersion}`;
  const { owner } = record.pod;
  const workload = app.workloadOf(owner, record.metadata.namespace);
  part(panel, 'head', `${key}/${workload?.metadata.uid}`, () => [
    head(app, record.pod.name, badge(record.verdict || 'lost'), [record.metadata.namespace, record.nodeName && `node ${record.nodeName}`, workload ? link(app, app.selectionOf(workload), `${workload.kind}/${workload.metadata.name}`) : owner, record.endTime && new Date(record.endTime).toLocaleString()]),
    h('p', { class: 'summary' }, record.summary || 'It is over.'),
    h('p', { class: 'dim' }, `${record.verdict}: ${VERDICTS[record.verdict]?.[1] ?? 'not known'}`, losses(record) && h('span', { class: 'bad' }, ` · connections: ${losses(record)}`)),
  ].flat());
  part(panel, 'phases', key, () => phases(record));
  drawing(panel, `${key}/${panel.clientWidth}`, record, 'From the record of its end.');
  part(panel, 'steps', key, () => steps(record));
  part(panel, 'who', key, () => asked(record.requests));
  part(panel, 'containers', key, () => ended(record.containers));
}

function drawing(panel, key, record, source) {
  const section = part(panel, 'picture', 'made', () => [h('h3', {}, 'How it ends'), h('div', { class: 'canvas' }), legend(STEP_KINDS), h('p', { class: 'dim source' })]);
  say(section.querySelector('.source'), source);
  const canvas = section.querySelector('.canvas');
  if (canvas.dataset.key === key) return;
  canvas.dataset.key = key;
  gantt(canvas, record);
}

function containerRows(pod) {
  return ['initContainerStatuses', 'containerStatuses', 'ephemeralContainerStatuses'].flatMap((own) => pod.status?.[own] ?? []).map((own) => {
    const [word, told] = Object.entries(own.state ?? {})[0] ?? ['unknown', {}];
    const detail = word === 'terminated' ? `ended with ${told.exitCode}${told.reason ? ` (${told.reason})` : ''}` : word === 'running' ? `running since ${new Date(told.startedAt).toLocaleTimeString()}` : `waiting${told.reason ? ` (${told.reason})` : ''}`;
    return [own.name, detail, own.ready ? 'ready' : 'not ready', String(own.restartCount ?? 0), own.image ?? ''];
  });
}

function pod(app, panel, object) {
  const { uid, namespace, name, resourceVersion } = object.metadata;
  const [state, glyph, word] = stateOf(object);
  const owner = ownerOf(object);
  const workload = app.workloadOf(owner ? `${owner.kind}/${owner.name}` : '', namespace);
  part(panel, 'head', `${uid}/${word}/${workload?.metadata.uid}/${object.spec?.nodeName}`, () => head(app, name, h('span', { class: `badge ${state}` }, `${glyph} ${word}`), [
    namespace, object.spec?.nodeName && `node ${object.spec.nodeName}`, workload ? link(app, app.selectionOf(workload), `${workload.kind}/${workload.metadata.name}`) : owner && `${owner.kind}/${owner.name}`, object.status?.podIP]));
  if (!isLeaving(object)) {
    const grace = object.spec?.terminationGracePeriodSeconds;
    const hooks = (object.spec?.containers ?? []).filter((own) => own.lifecycle?.preStop).map((own) => own.name);
    part(panel, 'state', resourceVersion, () => h('p', { class: 'summary' }, `It is not leaving. When it is asked to, it has ${grace ?? 30} s${hooks.length ? `, and the preStop hook of ${hooks.join(', ')} runs first` : ''}.`));
    part(panel, 'containers', resourceVersion, () => table('Containers', ['container', 'state', 'ready', 'restarts', 'image'], containerRows(object)));
    const events = app.eventsOf(uid);
    part(panel, 'events', `${uid}/${events.length}`, () => table('Events', ['when', 'reason', 'message'], events.slice(-30).reverse().map((own) => [new Date(own.lastTimestamp ?? own.eventTime ?? own.metadata.creationTimestamp).toLocaleTimeString(), own.reason, own.message])));
    return;
  }
  const events = app.eventsOf(uid);
  const moment = now();
  const record = unfinished(object, events, app.known.get(uid)?.leftSeen, moment);
  const section = part(panel, 'leaving', uid, () => [
    h('p', { class: 'summary waits', role: 'status' }), h('p', { class: 'left' }, h('strong', {}), ' ', h('span', { class: 'dim' })),
    h('div', { class: 'meter', role: 'progressbar', 'aria-label': 'how much of its time is spent', 'aria-valuemin': '0', 'aria-valuemax': '100' }, h('div', {})),
  ]);
  say(section.querySelector('.waits'), `Waits for: ${waitsFor(object, events, moment)}.`);
  const left = deadlineOf(object) - moment;
  const whole = Math.max(1, deadlineOf(object) - startOf(object));
  say(section.querySelector('strong'), left >= 0 ? `${duration(Math.ceil(left / 1000) * 1000)} left` : `${duration(left)} past its deadline`);
  say(section.querySelector('.left span'), `of ${duration(whole)}; deadline ${new Date(deadlineOf(object)).toLocaleTimeString()}`);
  const spent = Math.min(100, Math.max(0, 100 - left / whole * 100));
  mark(section.querySelector('.meter'), 'aria-valuenow', Math.round(spent));
  section.querySelector('.meter div').style.width = `${spent}%`;
  drawing(panel, `${uid}/${Math.floor(moment / 200)}`, record, 'Drawn live from its object, its conditions and its events: mostly to the second. The record of its end, which is exact, takes its place when it is gone.');
  part(panel, 'steps', `${uid}/${JSON.stringify(record.steps)}`, () => steps(record));
  const requests = requestsOf(object);
  part(panel, 'who', `${uid}/${JSON.stringify(requests)}`, () => asked(requests));
  part(panel, 'containers', resourceVersion, () => table('Containers', ['container', 'state', 'ready', 'restarts', 'image'], containerRows(object)));
}

/** Pods by revision, the newest first; without revisions all are one group. */
function groups(app, object) {
  const { namespace } = object.metadata;
  const sets = object.kind === 'Deployment' ? app.setsOf(object) : [];
  const owners = sets.length ? sets.map((own) => [`ReplicaSet/${own.metadata.name}`, own]) : [[`${object.kind}/${object.metadata.name}`, null]];
  const newest = Math.max(...sets.map((own) => Number(own.metadata.annotations?.[REVISION]) || 0));
  return owners.map(([owner, set]) => {
    const records = app.recordsOf(owner, namespace);
    const gone = new Set(records.map((own) => own.pod.uid));
    const pods = app.podsOf(owner, namespace).filter((own) => !gone.has(own.metadata.uid));
    const revision = Number(set?.metadata.annotations?.[REVISION]) || 0;
    return { revision, isNew: !set || revision === newest, title: set ? `revision ${revision}${revision === newest ? ' (new)' : ' (old)'}` : 'pods', set, rows: lives(pods, records, app.known) };
  }).sort((one, two) => two.revision - one.revision);
}

/** What of all that is shown: the last rollout of a Deployment, else the last half hour. */
function span(object, all, moment) {
  const times = (rows, ...fields) => rows.flatMap((own) => fields.map((field) => own[field])).filter(Number.isFinite);
  const [fresh, old] = [all.filter((own) => own.isNew), all.filter((own) => !own.isNew)].map((own) => own.flatMap((group) => group.rows));
  const isRollout = object.kind === 'Deployment' && all.length > 1 && fresh.length > 0;
  const since = isRollout ? Math.min(moment, ...times(fresh, 'from')) : Math.max(moment - 1800e3, Math.min(moment - 1000, ...times([...fresh, ...old], 'from', 'left')));
  const isDone = isRollout && !old.some((own) => own.pod) && fresh.every((own) => !own.pod || (isReady(own.pod) && !isLeaving(own.pod)));
  // What came of the new pods later is no part of it.
  const oldEnd = Math.max(since, ...times(old, 'to'));
  const last = Math.max(oldEnd, ...times(fresh.filter((own) => own.from <= oldEnd + 1000), 'ready'));
  const to = isDone ? Math.min(moment, last + Math.max(500, (last - since) * 0.12)) : moment;
  const from = since - Math.max(300, (to - since) * 0.06);
  return { from, to: Math.max(to, from + 1000), isNow: !isDone, isRollout };
}

function workload(app, panel, object) {
  const { uid, namespace, name, resourceVersion } = object.metadata;
  const { wanted, ready, leaving, updated } = app.counts(object);
  part(panel, 'head', `${uid}/${resourceVersion}/${leaving}`, () => [
    head(app, name, h('span', { class: 'badge kind' }, object.kind), [namespace, (object.spec?.template?.spec?.containers ?? []).map((own) => own.image).join(', ')]),
    h('dl', { class: 'phases' }, [['wanted', wanted], ['ready', ready], ['leaving', leaving], ['up to date', updated]].filter(([, own]) => own !== undefined).map(([word, own]) => h('div', {}, h('dt', {}, word), h('dd', {}, String(own))))),
  ].flat());
  const moment = now();
  const all = groups(app, object);
  const shown = span(object, all, moment);
  let room = ROWS_MOST;
  const drawn = all.map((group) => {
    const order = (own) => (Number.isFinite(own.from) ? own.from : own.left);
    const rows = group.rows.filter((own) => !(own.to < shown.from) && !(own.from > shown.to)).sort((one, two) => order(one) - order(two));
    const kept = rows.slice(0, Math.max(0, room));
    room -= kept.length;
    return { ...group, rows: kept, remark: `${kept.filter((own) => own.pod).length} here, ${kept.filter((own) => own.verdict).length} gone${rows.length > kept.length ? `, ${rows.length - kept.length} not shown` : ''}` };
  }).filter((own) => own.rows.length);
  const section = part(panel, 'picture', uid, () => [h('h3', {}, object.kind === 'Deployment' ? 'Rollout' : 'Pods over time'), h('div', { class: 'canvas' }), legend(LIFE_KINDS), h('p', { class: 'dim source' })]);
  say(section.querySelector('.source'), `${shown.isRollout ? 'The last rollout' : 'The last half hour'}, from ${new Date(shown.from).toLocaleTimeString()}${shown.isNow ? ' until now' : ''}. Where nothing is known of a pod before this page or its events, it is drawn from the left edge.`);
  rollout(section.querySelector('.canvas'), drawn, shown);
  const rows = drawn.flatMap((group) => group.rows.map((own) => {
    const selection = own.record ? app.selectionOf(own.record) : app.selectionOf(own.pod);
    const [, glyph, word] = own.pod ? stateOf(own.pod) : [];
    const took = own.record ? duration(own.record.tookMilliseconds ?? 0) : '';
    return { key: `${own.uid}/${word}/${own.verdict}`, cells: () => [link(app, selection, own.name), group.title, own.verdict ? badge(own.verdict) : `${glyph} ${word}`, took, own.record ? losses(own.record) ?? 'none told' : ''] };
  }));
  part(panel, 'steps', rows.map((own) => own.key).join(), () => table('The same as a table', ['pod', 'of', 'state or verdict', 'its end took', 'connections lost or late'], rows.map((own) => own.cells())));
}

/** What events tell of the beginnings of pods that were gone before this page was opened; asked once for each workload that is shown. */
export async function learnBeginnings(app, namespace) {
  try {
    const told = await get(`/api/v1/namespaces/${encodeURIComponent(namespace)}/events`, { limit: '500', fieldSelector: 'involvedObject.kind=Pod,reason=Scheduled' });
    for (const event of told.items ?? []) {
      const uid = event.involvedObject?.uid;
      const moment = time(event.firstTimestamp ?? event.eventTime);
      if (uid && Number.isFinite(moment) && !app.known.get(uid)?.from) app.known.set(uid, { ...app.known.get(uid), from: moment });
    }
  } catch { /* it is drawn from the left edge then */ }
}

function overview(app, panel) {
  const leaving = [...app.pods.values()].filter(isLeaving).length;
  const counts = Object.keys(VERDICTS).map((verdict) => [verdict, [...app.records.values()].filter((own) => own.verdict === verdict).length]);
  part(panel, 'overview', JSON.stringify([leaving, app.pods.size, counts]), () => [
    h('h2', {}, leaving ? `${leaving} leaving now` : 'Nobody is leaving'),
    h('p', { class: 'summary' }, `${app.pods.size} pods. Choose one to see its end as it happens, a workload to see its rollout, or an end that is over.`),
    h('h3', {}, 'Ends on record'),
    h('dl', { class: 'phases' }, counts.map(([verdict, count]) => h('div', {}, h('dt', {}, badge(verdict)), h('dd', {}, String(count))))),
    h('h3', {}, 'Keys'),
    h('dl', { class: 'keys' }, [['/', 'filter'], ['↑ ↓', 'move in the list'], ['Enter', 'open'], ['Escape', 'close, back to the list'], ['← →', 'between Pods, Workloads, Ended']].map(([own, word]) => h('div', {}, h('dt', {}, h('kbd', {}, own)), h('dd', {}, word)))),
  ]);
}

/** Shows what is selected, or the overview. */
export function render(app, panel, selection) {
  const kind = selection?.type ?? 'overview';
  if (panel.dataset.shown !== `${kind}/${selection?.key}`) {
    clear(panel);
    panel.dataset.shown = `${kind}/${selection?.key}`;
  }
  if (kind === 'pod') pod(app, panel, selection.object);
  else if (kind === 'end') end(app, panel, selection.object);
  else if (kind === 'workload') workload(app, panel, selection.object);
  else if (kind === 'missing') part(panel, 'head', selection.key, () => head(app, selection.key, '', ['It is not there, not yet, or you may not see it.']));
  else overview(app, panel);
}
