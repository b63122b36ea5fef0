// Pictures of ends: one pod's parts on a line of time, and all pods of a workload on one axis. Each has a table beside it that says the
// same; nothing is told by colour alone.

import { duration, h, s, time } from './dom.js';
import { VERDICTS, bars, deadline, length } from './ends.js';

const PATTERNS = { drain: 'lines', hook: 'dots', killed: 'cross', starting: 'lines', hurried: 'lines', forced: 'cross', lost: 'dots' };
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 864e5];

function canvas(place, height, title) {
  const width = Math.max(260, Math.floor(place.clientWidth || 600));
  return [s('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': title, class: 'chart' }), width];
}

/** A bar with the pattern of its kind, at least wide enough to be seen. */
function bar(svg, kind, x, y, width, height, title) {
  const place = { x: x.toFixed(1), y, width: Math.max(width, 3).toFixed(1), height, rx: Math.min(3, height / 2) };
  svg.append(s('rect', { ...place, class: `bar ${kind}` }, title && s('title', {}, title)));
  if (PATTERNS[kind]) svg.append(s('rect', { ...place, fill: `url(#${PATTERNS[kind]})`, 'pointer-events': 'none' }));
}

/** `500 ms`, `1.5 s`, `2 min 30 s`. */
const tick = (ms) => (ms >= 1000 && ms < 60000 ? `${+(ms / 1000).toFixed(2)} s` : duration(ms));

function axis(svg, { left, right, top, bottom, from, to }) {
  const room = Math.max(2, Math.floor((right - left) / 90));
  const step = STEPS.find((own) => (to - from) / own <= room) ?? (to - from) / 2;
  for (let moment = 0; moment <= to - from; moment += step) {
    const x = left + moment / (to - from) * (right - left);
    svg.append(s('line', { x1: x, x2: x, y1: top, y2: bottom, class: 'grid' }));
    const anchor = x > right - 24 ? 'end' : x < left + 12 ? 'start' : 'middle';
    svg.append(s('text', { x, y: bottom + 14, class: 'tick', 'text-anchor': anchor }, moment ? tick(moment) : '0'));
  }
}

/** One end. A record that `isUnfinished` is drawn until now, with what is left of its time. */
export function gantt(place, record) {
  const parts = bars(record);
  const elapsed = record.isUnfinished ? Math.max(record.now, length(record)) : length(record);
  const limit = deadline(record);
  // What is left is shown where it is not much more than what has been.
  const showsLimit = limit !== null && (record.isUnfinished ? limit < elapsed * 12 + 15000 : limit <= elapsed * 1.02);
  const whole = Math.max(elapsed, showsLimit ? limit : 0) * 1.02;
  const top = 22;
  const row = 42;
  const bottom = top + Math.max(1, parts.length) * row;
  const what = `${record.pod.name}: ${parts.map((own) => `${own.label} ${own.to === null ? 'goes on' : duration(own.to - own.from)}`).join(', ')}`;
  const [svg, width] = canvas(place, bottom + 22, what);
  const [left, right] = [1, width - 1];
  const x = (moment) => left + Math.min(Math.max(moment, 0), whole) / whole * (right - left);
  axis(svg, { left, right, top, bottom, from: 0, to: whole });
  if (showsLimit) {
    svg.append(s('line', { x1: x(limit), x2: x(limit), y1: top - 4, y2: bottom, class: 'deadline' }));
    const near = x(limit) > width - 60;
    svg.append(s('text', { x: x(limit) - (near ? 4 : 0), y: top - 9, class: 'tick limit', 'text-anchor': near ? 'end' : 'middle' }, `deadline ${tick(limit)}`));
  }
  if (record.isUnfinished) {
    svg.append(s('line', { x1: x(elapsed), x2: x(elapsed), y1: top - 4, y2: bottom, class: 'now' }));
    const near = showsLimit && x(limit) - x(elapsed) < 110;
    if (!near) svg.append(s('text', { x: x(elapsed), y: top - 9, class: 'tick', 'text-anchor': x(elapsed) < 30 ? 'start' : 'middle' }, 'now'));
  }
  parts.forEach((part, number) => {
    const y = top + number * row;
    const to = part.to ?? elapsed;
    const took = part.to === null ? 'goes on' : duration(part.to - part.from);
    const said = [took, part.remark].filter(Boolean).join(', ');
    svg.append(s('text', { x: left, y: y + 15, class: 'label' }, part.label, s('tspan', { class: 'remark', dx: 10 }, said)));
    const title = `${part.label}: ${said}`;
    const calm = part.killed === null || part.killed === undefined ? to : part.killed;
    bar(svg, part.kind, x(part.from), y + 21, x(calm) - x(part.from), 14, title);
    if (calm < to || part.killed === to) bar(svg, 'killed', Math.min(x(calm), x(to) - 3), y + 21, x(to) - x(calm), 14, title);
    for (const [moment, word] of part.marks) {
      svg.append(s('line', { x1: x(moment), x2: x(moment), y1: y + 18, y2: y + 38, class: 'mark' }, s('title', {}, `${word} after ${duration(moment)}`)));
    }
  });
  if (!parts.length) svg.append(s('text', { x: left, y: top + 20, class: 'remark' }, 'nothing that lasted is known'));
  place.replaceChildren(svg);
}

/** What the patterns and colours of a picture mean. */
export function legend(kinds) {
  const one = ([kind, word]) => {
    const svg = s('svg', { width: 20, height: 12, 'aria-hidden': 'true', class: 'chart' });
    bar(svg, kind, 0, 0, 20, 12);
    return h('li', {}, svg, word);
  };
  return h('ul', { class: 'legend' }, kinds.map(one));
}

/**
 * Pods of a workload on one axis, grouped by revision. Each row has `name`, `from`, `ready`, `left`, `to` (times, or NaN) and, of one that
 * is gone, its `verdict`.
 */
export function rollout(place, groups, { from, to, isNow }) {
  const top = 8;
  const line = 24;
  const head = 26;
  const height = groups.reduce((sum, group) => sum + head + group.rows.length * line, top);
  const title = groups.map((group) => `${group.title}: ${group.rows.length} pods`).join('; ');
  const [svg, width] = canvas(place, height + 24, title);
  const names = Math.min(170, Math.floor(width * 0.3));
  const [left, right] = [names + 8, width - 26];
  const x = (moment) => left + (Math.min(Math.max(moment, from), to) - from) / (to - from) * (right - left);
  axis(svg, { left, right, top, bottom: height, from, to });
  if (isNow) svg.append(s('line', { x1: right, x2: right, y1: top, y2: height, class: 'now' }));
  let y = top;
  for (const group of groups) {
    svg.append(s('text', { x: 0, y: y + 17, class: 'label' }, group.title, s('tspan', { class: 'remark', dx: 8 }, group.remark)));
    y += head;
    for (const row of group.rows) {
      // What comes after the axis is not drawn on it.
      const own = row.left >= to ? { ...row, left: NaN, to: NaN, verdict: undefined } : row;
      const end = Number.isFinite(own.to) ? own.to : to;
      const leaves = Number.isFinite(own.left) ? own.left : end;
      const begins = Number.isFinite(own.from) ? own.from : from;
      // Of one that is gone it may not be known when it was ready; one that is there and not ready never was.
      const ready = Number.isFinite(own.ready) ? Math.min(Math.max(own.ready, begins), leaves) : row.verdict ? begins : leaves;
      const most = Math.floor(names / 7);
      const shown = own.name.length > most ? `…${own.name.slice(1 - most)}` : own.name;
      svg.append(s('text', { x: names, y: y + 15, class: 'tick name', 'text-anchor': 'end' }, s('title', {}, own.name), shown));
      const title = (word, one, two) => `${own.name}: ${word} ${duration(two - one)}`;
      if (ready > begins) bar(svg, 'starting', x(begins), y + 4, x(ready) - x(begins), 14, title('starting', begins, ready));
      if (leaves > ready) bar(svg, 'serving', x(ready), y + 4, x(leaves) - x(ready), 14, title('ready', ready, leaves));
      if (end > leaves || own.verdict) bar(svg, own.verdict ?? 'leaving', x(leaves), y + 4, x(end) - x(leaves), 14, title(own.verdict ?? 'leaving', leaves, end));
      const glyph = own.verdict ? VERDICTS[own.verdict]?.[0] ?? '' : Number.isFinite(own.left) ? '◌' : '';
      if (glyph) svg.append(s('text', { x: x(end) + 5, y: y + 16, class: `glyph ${own.verdict ?? 'leaving'}` }, glyph));
      y += line;
    }
  }
  place.replaceChildren(svg);
}

/** The rows of a workload's pods, from those that are there and the records of those that are gone. */
export function lives(pods, records, known) {
  const rows = pods.map((pod) => {
    const ready = pod.status?.conditions?.find((own) => own.type === 'Ready');
    const before = known.get(pod.metadata.uid)?.ready;
    return {
      name: pod.metadata.name, uid: pod.metadata.uid, from: time(pod.metadata.creationTimestamp),
      ready: ready?.status === 'True' ? time(ready.lastTransitionTime) : before ?? NaN,
      left: known.get(pod.metadata.uid)?.left ?? (pod.metadata.deletionTimestamp ? time(pod.metadata.deletionTimestamp) - (pod.metadata.deletionGracePeriodSeconds ?? 0) * 1000 : NaN),
      to: NaN, pod,
    };
  });
  for (const record of records) {
    const seen = known.get(record.pod.uid);
    rows.push({
      name: record.pod.name, uid: record.pod.uid, from: seen?.from ?? NaN, ready: seen?.ready ?? NaN,
      left: time(record.startTime), to: time(record.endTime), verdict: record.verdict || 'lost', record,
    });
  }
  return rows;
}
