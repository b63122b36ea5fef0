// The page: what is followed, what is listed, what is selected. It only reads.

import { learnBeginnings, render as renderDetails } from './details.js';
import { age, duration, h, mark, say, time } from './dom.js';
import { VERDICTS, deadlineOf, isLeaving, ownerOf, startOf, stateOf, waitsFor } from './ends.js';
import { follow, get, now } from './follow.js';

const $ = (id) => document.getElementById(id);
/** Rows of one list; a filter finds the others. */
const ROWS_MOST = 1000;
const ENDS_MOST = 300;
const EVENTS_MOST = 60;
const KNOWN_MOST = 5000;
const ASKS_MOST = 10;
/** Changes that come together are drawn together. */
const TOGETHER = 120;
const KINDS = {
  Deployment: '/apis/apps/v1/deployments', StatefulSet: '/apis/apps/v1/statefulsets', DaemonSet: '/apis/apps/v1/daemonsets', Job: '/apis/batch/v1/jobs',
};

const sets = new Map();
const workloads = new Map();
const events = new Map();
const states = new Map();
let follows = [];
let tab = 'pods';
let namespace = '';
let words = [];
let selected = null;
let current = null;
let opener = null;

const app = {
  pods: new Map(), records: new Map(),
  /** What this page saw of pods, by UID: it outlives them. */
  known: new Map(),
  select, selectionOf, workloadOf, counts,
  eventsOf: (uid) => events.get(uid) ?? [],
  setsOf: (object) => [...sets.values()].filter((own) => ownerOf(own)?.uid === object.metadata.uid),
  podsOf: (owner, place) => [...app.pods.values()].filter((own) => own.metadata.namespace === place && nameOf(ownerOf(own)) === owner),
  recordsOf: (owner, place) => [...app.records.values()].filter((own) => own.metadata.namespace === place && own.pod.owner === owner),
};

const nameOf = (owner) => (owner ? `${owner.kind}/${owner.name}` : '');

// ---- what is followed

/** A path of the API in the namespace that is chosen. */
function scoped(path) {
  if (!namespace) return path;
  const at = path.lastIndexOf('/');
  return `${path.slice(0, at)}/namespaces/${encodeURIComponent(namespace)}${path.slice(at)}`;
}

function remember(pod) {
  const { uid, creationTimestamp } = pod.metadata;
  const own = app.known.get(uid) ?? { from: time(creationTimestamp) };
  const ready = pod.status?.conditions?.find((each) => each.type === 'Ready');
  if (ready?.status === 'True') own.ready ??= time(ready.lastTransitionTime);
  if (isLeaving(pod)) own.left ??= startOf(pod);
  app.known.set(uid, own);
  forget(app.known);
}

function keep(name, path, map, { adapt = (object) => object, fields, fromNow, seen } = {}) {
  const heard = {
    reset(items) {
      map.clear();
      for (const item of items) map.set(item.metadata.uid, adapt(item));
      draw();
    },
    change(type, object) {
      if (type === 'DELETED') map.delete(object.metadata.uid);
      else map.set(object.metadata.uid, adapt(object));
      seen?.(type, object);
      draw();
    },
    state(word, detail) {
      states.set(name, [word, detail]);
      drawLink();
    },
  };
  follows.push(follow(path, heard, { fields, fromNow }));
}

const slim = (object) => { delete object.metadata.managedFields; return object; };

function hear(event) {
  const uid = event.involvedObject?.uid;
  if (event.involvedObject?.kind !== 'Pod' || !uid) return;
  const all = events.get(uid) ?? [];
  const at = all.findIndex((own) => own.metadata.uid === event.metadata.uid);
  if (at >= 0) all[at] = { ...event, seen: all[at].seen };
  else all.push(event);
  events.set(uid, all.slice(-EVENTS_MOST));
}

function followAll() {
  for (const own of follows) own.stop();
  follows = [];
  states.clear();
  keep('pods', scoped('/api/v1/pods'), app.pods, {
    adapt(pod) { remember(slim(pod)); return pod; },
    seen(type, pod) {
      const own = app.known.get(pod.metadata.uid);
      if (own && type !== 'DELETED' && isLeaving(pod)) own.leftSeen ??= now();
      if (type === 'DELETED' && !(selected?.key ?? '').endsWith(`/${pod.metadata.name}`)) events.delete(pod.metadata.uid);
    },
  });
  keep('ends', scoped('/apis/adieu.dev/v1alpha1/terminationrecords'), app.records, { adapt: slim });
  keep('replicasets', scoped('/apis/apps/v1/replicasets'), sets, { adapt: slim });
  for (const [kind, path] of Object.entries(KINDS)) {
    const own = new Map();
    workloads.set(kind, own);
    keep(kind, scoped(path), own, { adapt: (object) => Object.assign(slim(object), { kind }) });
  }
  keep('events', scoped('/api/v1/events'), new Map(), { fromNow: true, seen: (type, event) => { if (type !== 'DELETED') hear({ ...event, seen: now() }); } });
}

/** Events of a pod from before this page: asked for when it is looked at, or leaves. */
const asked = new Set();
let asking = 0;
async function askForEvents(pod) {
  const { uid, namespace: place } = pod.metadata;
  if (asked.has(uid) || asking >= ASKS_MOST) return;
  forget(asked.add(uid));
  asking += 1;
  try {
    const told = await get(`/api/v1/namespaces/${encodeURIComponent(place)}/events`, { fieldSelector: `involvedObject.uid=${uid}`, limit: String(EVENTS_MOST) });
    for (const event of told.items ?? []) hear(event);
    draw();
  } catch { /* the object tells what it can */ }
  asking -= 1;
}

/** Keeps what was learned last. */
function forget(all) {
  if (all.size > KNOWN_MOST) all.delete(all.keys().next().value);
}

// ---- what belongs together

const allWorkloads = () => [...workloads.values()].flatMap((own) => [...own.values()]);

function workloadOf(owner, place) {
  const [kind, name] = (owner ?? '').split('/');
  const find = (all, wanted) => [...all ?? []].find((own) => own.metadata.name === wanted && own.metadata.namespace === place);
  if (kind !== 'ReplicaSet') return find(workloads.get(kind)?.values(), name);
  const above = ownerOf(find(sets.values(), name) ?? { metadata: {} });
  return above && find(workloads.get(above.kind)?.values(), above.name);
}

function counts(object) {
  const { kind, spec = {}, status = {}, metadata } = object;
  const owners = kind === 'Deployment' ? new Set(app.setsOf(object).map((own) => own.metadata.uid)) : new Set([metadata.uid]);
  let leaving = 0;
  for (const pod of app.pods.values()) if (isLeaving(pod) && owners.has(ownerOf(pod)?.uid)) leaving += 1;
  if (kind === 'DaemonSet') return { wanted: status.desiredNumberScheduled ?? 0, ready: status.numberReady ?? 0, updated: status.updatedNumberScheduled ?? 0, leaving };
  if (kind === 'Job') return { wanted: spec.completions ?? spec.parallelism ?? 1, ready: (status.succeeded ?? 0), leaving };
  return { wanted: spec.replicas ?? 1, ready: status.readyReplicas ?? 0, updated: status.updatedReplicas ?? 0, leaving };
}

function selectionOf(object) {
  const place = object.metadata.namespace;
  if (object.pod) return { type: 'end', key: `${place}/${object.metadata.name}` };
  return object.kind in KINDS ? { type: 'workload', key: `${object.kind}/${place}/${object.metadata.name}` } : { type: 'pod', key: `${place}/${object.metadata.name}` };
}

/** What is selected, as it is now. A pod that is gone is shown by its record. */
function found() {
  if (!selected) return null;
  const [one, two, three] = selected.key.split('/');
  const named = (all, place, name) => [...all ?? []].find((own) => own.metadata.namespace === place && own.metadata.name === name);
  if (selected.type === 'workload') {
    const object = named(workloads.get(one)?.values(), two, three);
    return object ? { ...selected, object } : { type: 'missing', key: `${two}/${three}` };
  }
  if (selected.type === 'end') {
    const object = named(app.records.values(), one, two);
    return object ? { ...selected, object } : { type: 'missing', key: selected.key };
  }
  const pod = named(app.pods.values(), one, two);
  const ends = [...app.records.values()].filter((own) => own.metadata.namespace === one && own.pod.name === two);
  // Of a pod that came again by the same name, the end that was looked at stays.
  const isAnother = pod && selected.uid && pod.metadata.uid !== selected.uid && ends.some((own) => own.pod.uid === selected.uid);
  if (pod && !isAnother) {
    selected.uid = pod.metadata.uid;
    askForEvents(pod);
    return { ...selected, object: pod };
  }
  const end = ends.find((own) => own.pod.uid === selected.uid) ?? (selected.uid ? null : ends.sort((a, b) => time(b.endTime) - time(a.endTime))[0]);
  return end ? { type: 'end', key: `${one}/${end.metadata.name}`, object: end } : { type: 'missing', key: selected.key };
}

// ---- the list

const has = (text) => words.every((own) => text.includes(own));

function rowOfPod(pod) {
  const [state, glyph, word] = stateOf(pod);
  const { uid, name, namespace: place, creationTimestamp } = pod.metadata;
  const leaving = isLeaving(pod);
  const sub = leaving ? `waits for: ${waitsFor(pod, app.eventsOf(uid), now())}` : [place, word, pod.spec?.nodeName].filter(Boolean).join(' · ');
  const left = deadlineOf(pod) - now();
  const whole = Math.max(1, deadlineOf(pod) - startOf(pod));
  return {
    key: uid, selection: selectionOf(pod), state, glyph, name, sub,
    side: leaving ? (left >= 0 ? `${duration(Math.ceil(left / 1000) * 1000)} left` : `${duration(left)} late`) : age(now() - time(creationTimestamp)),
    spent: leaving ? Math.min(100, Math.max(0, 100 - left / whole * 100)) : null,
  };
}

function podGroups() {
  const order = [['leaving', 'Leaving'], ['failed', 'In trouble'], ['starting', 'Starting'], ['ready', 'Ready'], ['over', 'Completed']];
  const all = new Map(order.map(([state]) => [state, []]));
  for (const pod of app.pods.values()) {
    const owner = nameOf(ownerOf(pod));
    if (has(`${pod.metadata.name} ${pod.metadata.namespace} ${pod.spec?.nodeName ?? ''} ${owner} ${stateOf(pod)[2]}`.toLowerCase())) all.get(stateOf(pod)[0]).push(pod);
    if (isLeaving(pod)) askForEvents(pod);
  }
  const byName = (a, b) => (a.metadata.namespace + a.metadata.name).localeCompare(b.metadata.namespace + b.metadata.name);
  all.get('leaving').sort((a, b) => deadlineOf(a) - deadlineOf(b) || byName(a, b));
  return order.map(([state, title]) => [title, state === 'leaving' ? all.get(state) : all.get(state).sort(byName), rowOfPod]);
}

function rowOfWorkload(object) {
  const { wanted, ready, leaving } = counts(object);
  const isSteady = ready >= wanted && !leaving;
  return {
    key: object.metadata.uid, selection: selectionOf(object), state: isSteady ? 'ready' : 'starting', glyph: isSteady ? '●' : '◐', name: object.metadata.name,
    sub: `${object.kind} · ${object.metadata.namespace}${leaving ? ` · ${leaving} leaving` : ''}`, side: `${ready}/${wanted} ${object.kind === 'Job' ? 'done' : 'ready'}`, spent: null,
  };
}

function workloadGroups() {
  const all = allWorkloads().filter((own) => has(`${own.kind} ${own.metadata.name} ${own.metadata.namespace}`.toLowerCase()));
  all.sort((a, b) => a.metadata.name.localeCompare(b.metadata.name));
  const isSteady = (own) => rowOfWorkload(own).state === 'ready';
  return [['Changing', all.filter((own) => !isSteady(own)), rowOfWorkload], ['Steady', all.filter(isSteady), rowOfWorkload]];
}

function rowOfEnd(record) {
  const verdict = record.verdict || 'lost';
  return {
    key: record.metadata.uid, selection: selectionOf(record), state: verdict, glyph: VERDICTS[verdict]?.[0] ?? '?', name: record.pod.name,
    sub: `${verdict} · ${record.cause ?? ''} · ${record.metadata.namespace} · took ${duration(record.tookMilliseconds ?? 0)}`, side: `${age(now() - time(record.endTime))} ago`, spent: null,
  };
}

function endGroups() {
  const all = [...app.records.values()].filter((own) => has(`${own.pod.name} ${own.metadata.namespace} ${own.verdict} ${own.cause} ${own.nodeName} ${own.askedBy} ${own.pod.owner}`.toLowerCase()));
  all.sort((a, b) => (time(b.endTime) || 0) - (time(a.endTime) || 0));
  const more = all.length > ENDS_MOST ? `, of ${all.length}` : '';
  return [[`Newest first${more}`, all.slice(0, ENDS_MOST), rowOfEnd]];
}

const rows = new Map();

function rowElement(row) {
  let own = rows.get(row.key);
  if (!own) {
    const [glyph, name, sub, side, meter] = ['glyph', 'name', 'sub', 'side-note', 'meter'].map((word) => h('span', { class: word }));
    glyph.setAttribute('aria-hidden', 'true');
    meter.append(h('span', {}));
    const element = h('div', { role: 'option', tabindex: '-1', id: `row-${row.key}`, 'aria-selected': 'false' }, glyph, h('span', { class: 'text' }, name, sub), side, meter);
    own = { element, glyph, name, sub, side, meter };
    element.addEventListener('click', () => { current = row.key; open(own.selection); });
    rows.set(row.key, own);
  }
  own.selection = row.selection;
  mark(own.element, 'data-state', row.state);
  say(own.glyph, row.glyph);
  say(own.name, row.name);
  say(own.sub, row.sub);
  mark(own.sub, 'title', row.sub);
  say(own.side, row.side);
  own.meter.hidden = row.spent === null;
  if (row.spent !== null) own.meter.firstChild.style.width = `${row.spent.toFixed(1)}%`;
  const isOpen = selected !== null && selected.type === row.selection.type && selected.key === row.selection.key;
  mark(own.element, 'aria-selected', isOpen);
  return own.element;
}

/** The options in the order they are shown. */
const options = () => [...$('list').querySelectorAll('[role=option]')];

function drawList() {
  const groups = { pods: podGroups, workloads: workloadGroups, ends: endGroups }[tab]();
  const shown = new Set();
  const list = $('list');
  let room = ROWS_MOST;
  groups.forEach(([title, objects, rowOf], place) => {
    let group = list.children[place];
    if (!group) {
      group = h('div', { role: 'group' }, h('div', { class: 'group-title', 'aria-hidden': 'true' }), h('div', { class: 'rows', role: 'presentation' }));
      list.append(group);
    }
    const [heading, body] = group.children;
    group.hidden = !objects.length;
    say(heading, `${title} (${objects.length})`);
    mark(group, 'aria-label', title);
    const kept = objects.slice(0, Math.max(0, room));
    room -= kept.length;
    kept.forEach((object, at) => {
      const row = rowOf(object);
      shown.add(row.key);
      const element = rowElement(row);
      if (body.children[at] !== element) moved(() => body.insertBefore(element, body.children[at] ?? null), element);
    });
    while (body.children.length > kept.length) body.lastChild.remove();
  });
  while (list.children.length > groups.length) list.lastChild.remove();
  for (const [key] of rows) if (!shown.has(key)) rows.delete(key);
  if (!shown.has(current)) current = options()[0]?.id.slice(4) ?? null;
  for (const [key, own] of rows) mark(own.element, 'tabindex', key === current ? 0 : -1);
  let empty = list.querySelector('.empty');
  if (!shown.size && !empty) list.append(empty = h('p', { class: 'empty dim' }));
  if (empty) empty.remove();
  if (!shown.size) list.append(h('p', { class: 'empty dim' }, words.length ? 'Nothing fits the filter.' : 'There is nothing here.'));
  for (const [name, count] of [['pods', app.pods.size], ['workloads', allWorkloads().length], ['ends', app.records.size]]) say($(`tab-${name}`).querySelector('.count'), String(count));
}

/** An element that is moved keeps the focus. */
function moved(move, element) {
  const isFocused = document.activeElement === element;
  move();
  if (isFocused) element.focus({ preventScroll: true });
}

// ---- drawing

let planned = null;
function draw() {
  planned ??= setTimeout(drawAll, TOGETHER);
}

function drawAll() {
  clearTimeout(planned);
  planned = null;
  drawList();
  const shown = found();
  document.body.classList.toggle('has-details', selected !== null);
  renderDetails(app, $('details'), shown);
  const name = shown && shown.type !== 'missing' ? `${shown.key.split('/').pop()} · ` : '';
  if (document.title !== `${name}Adieu`) document.title = `${name}Adieu`;
}

function drawLink() {
  const all = [...states.values()];
  const over = all.some(([word]) => word === 'over');
  const waits = all.filter(([word]) => word === 'wait').map(([, detail]) => detail);
  const refused = [...states].filter(([, [word]]) => word === 'refused').map(([name]) => name);
  const link = $('link');
  const state = over ? 'over' : waits.length ? 'wait' : all.some(([word]) => word === 'live') ? 'live' : refused.length ? 'over' : 'wait';
  mark(link, 'data-state', state);
  const left = waits.length ? Math.max(0, Math.ceil((Math.min(...waits.map((own) => own.until)) - Date.now()) / 1000)) : 0;
  mark(link, 'data-left', waits.length && left ? `next try in ${left} s` : null);
  say(link, over ? 'session over' : waits.length ? 'disconnected' : state === 'live' ? 'live' : refused.length ? 'not allowed' : 'connecting');
  mark(link, 'title', waits.length ? waits[0].why : null);
  $('retry').hidden = !waits.length;
  const notice = $('notice');
  notice.hidden = !over && !refused.length;
  if (over) say(notice, 'Your session is over: run “adieu ui” and open its link. What is shown here is from before.');
  else if (refused.length) say(notice, `You may not read ${refused.join(', ')} ${namespace ? `in namespace ${namespace}` : 'in all namespaces: choose one that you may read'}.`);
  if (over) for (const own of follows) own.stop();
}

// ---- what people do

function select(selection, { replace = false } = {}) {
  const was = selected;
  selected = selection && { type: selection.type, key: selection.key };
  const hash = selected ? `#/${selected.type}/${selected.key.split('/').map(encodeURIComponent).join('/')}` : location.pathname;
  if (replace) history.replaceState(null, '', hash);
  else history.pushState(null, '', hash);
  drawAll();
  $('details').scrollTop = 0;
  if (selected?.type === 'workload') learnBeginnings(app, selected.key.split('/')[1]).then(draw);
  if (!selected && was) (opener?.isConnected ? opener : options().find((own) => own.tabIndex === 0) ?? $('filter')).focus();
}

/** Opens a row; whoever came by the keyboard goes on reading there. */
function open(selection) {
  opener = rows.get(current)?.element ?? null;
  select(selection);
  $('details').querySelector('h2')?.focus({ preventScroll: true });
}

function fromHash() {
  const [type, ...rest] = location.hash.replace(/^#\/?/, '').split('/').map((own) => { try { return decodeURIComponent(own); } catch { return ''; } });
  const wanted = { pod: 2, end: 2, workload: 3 }[type];
  selected = wanted && rest.length === wanted ? { type, key: rest.join('/') } : null;
  if (selected?.type === 'workload') learnBeginnings(app, rest[1]).then(draw);
}

function choose(name) {
  tab = name;
  for (const own of document.querySelectorAll('[role=tab]')) {
    const isChosen = own.id === `tab-${name}`;
    own.setAttribute('aria-selected', isChosen);
    own.tabIndex = isChosen ? 0 : -1;
  }
  $('list').setAttribute('aria-label', { pods: 'Pods', workloads: 'Workloads', ends: 'Ends that are over' }[name]);
  $('list').scrollTop = 0;
  current = null;
  drawList();
}

const TABS = ['pods', 'workloads', 'ends'];
for (const name of TABS) $(`tab-${name}`).addEventListener('click', () => choose(name));
document.querySelector('[role=tablist]').addEventListener('keydown', (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  choose(TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length]);
  $(`tab-${tab}`).focus();
  event.preventDefault();
});

$('list').addEventListener('keydown', (event) => {
  const all = options();
  const at = all.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1, PageDown: at + 10, PageUp: at - 10 }[event.key];
  if (to !== undefined && all.length) {
    const next = all[Math.min(Math.max(to, 0), all.length - 1)];
    current = next.id.slice(4);
    for (const own of all) own.tabIndex = own === next ? 0 : -1;
    next.focus();
    event.preventDefault();
  } else if ((event.key === 'Enter' || event.key === ' ') && at >= 0) {
    open(rows.get(current).selection);
    event.preventDefault();
  }
});

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target instanceof HTMLInputElement;
  if (event.key === '/' && !isTyping) {
    $('filter').focus();
    event.preventDefault();
  } else if (event.key === 'Escape') {
    if (selected && !isTyping) select(null);
    else if (isTyping) {
      if (event.target.id === 'filter') { event.target.value = ''; filter(); }
      options()[0]?.focus();
    }
  } else if (event.key === 'ArrowDown' && event.target.id === 'filter') {
    options()[0]?.focus();
    event.preventDefault();
  }
});

function filter() {
  words = $('filter').value.toLowerCase().split(/\s+/).filter(Boolean).slice(0, 8);
  drawList();
}
$('filter').addEventListener('input', filter);
$('namespace').addEventListener('change', () => {
  namespace = $('namespace').value.trim();
  followAll();
});
$('retry').addEventListener('click', () => { for (const own of follows) own.hurry(); });
window.addEventListener('online', () => { for (const own of follows) own.hurry(); });
window.addEventListener('popstate', () => { fromHash(); drawAll(); });
window.addEventListener('resize', draw);

const THEMES = ['auto', 'dark', 'light'];
function showTheme() {
  say($('theme'), `Theme: ${document.documentElement.dataset.theme ?? 'auto'}`);
}
$('theme').addEventListener('click', () => {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? 'auto') + 1) % THEMES.length];
  if (next === 'auto') delete root.dataset.theme;
  else root.dataset.theme = next;
  try { localStorage.setItem('adieu-theme', next); } catch { /* it holds until the page is left */ }
  showTheme();
});
$('end').addEventListener('click', async () => {
  for (const own of follows) own.stop();
  await fetch('/ui/end', { method: 'POST', credentials: 'same-origin' }).catch(() => null);
  location.replace('/ui');
});

// ---- the beginning

async function namespaces() {
  try {
    const told = await get('/api/v1/namespaces', { limit: '500' });
    $('namespaces').replaceChildren(...(told.items ?? []).map((own) => h('option', { value: own.metadata.name })));
  } catch { /* its name can be typed */ }
}

const wanted = /^#ns=([a-z0-9-]{1,63})$/.exec(location.hash);
if (wanted) {
  [, namespace] = wanted;
  $('namespace').value = namespace;
  history.replaceState(null, '', location.pathname);
}
showTheme();
fromHash();
followAll();
drawAll();
namespaces();
$('namespace').addEventListener('focus', namespaces);
get('/ui/session').then(({ user, endsInSeconds }) => {
  say($('user'), user);
  $('user').title = `signed in as ${user}, reading only, until ${new Date(Date.now() + endsInSeconds * 1000).toLocaleTimeString()}`;
}).catch(() => {});

// What depends on the time: what leaves, the next try, and now and then every age.
let ticks = 0;
setInterval(() => {
  ticks += 1;
  drawLink();
  if (document.hidden) return;
  const leaves = [...app.pods.values()].some(isLeaving);
  if (leaves || selected?.type === 'workload' ? ticks % 2 === 0 || leaves : ticks % 20 === 0) drawAll();
}, 250);
