// Elements. Words of the cluster become text and nothing else: there is no way here to write markup.

const SVG = 'http://www.w3.org/2000/svg';

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'click') element.addEventListener('click', value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

export const h = (tag, attributes, ...children) => made(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => made(document.createElementNS(SVG, tag), attributes, children);

/** Sets a text only if it changed, so that nothing is drawn or read out again for nothing. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The same of an attribute. */
export function mark(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** `1.204 s`, `3 min 5 s`, `2 h 10 min`, as precise as is of use. */
export function duration(ms) {
  const whole = Math.round(Math.abs(ms) / 1000);
  if (Math.abs(ms) < 1000) return `${Math.round(Math.abs(ms))} ms`;
  if (Math.abs(ms) < 10000) return `${(Math.abs(ms) / 1000).toFixed(2)} s`;
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min ${whole % 60 ? `${whole % 60} s` : ''}`.trim();
  if (whole < 172800) return `${Math.floor(whole / 3600)} h ${Math.floor(whole % 3600 / 60)} min`;
  return `${Math.floor(whole / 86400)} d`;
}

/** For lists: one unit. */
export function age(ms) {
  const whole = Math.max(0, Math.floor(ms / 1000));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 172800) return `${Math.floor(whole / 3600)} h`;
  return `${Math.floor(whole / 86400)} d`;
}

/** Milliseconds of a time of the API; NaN if there is none. */
export const time = (text) => (text ? Date.parse(text) : NaN);
