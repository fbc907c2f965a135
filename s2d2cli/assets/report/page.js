"use strict";
// Draws what Python computed. Text from outside goes through textContent only. The state is in the address after "#".

const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const FILTERS = ["x", "task", "decoder", "router", "words"];
const WIDE = 860, HIGH = 430, EDGE = {left: 56, right: 16, top: 12, bottom: 44};

function make(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "text", "polyline"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const number = (value, key) => value === null ? "?" : value.toFixed(data.metrics[key].digits);

function withInterval(row, key) {
  const [value, low, high] = row.values[key];
  return number(value, key) + (low === null ? "" : ` (${number(low, key)} to ${number(high, key)})`);
}

// "": not on this front; "*": on it; "~62 %": on it as measured, and in so many of the draws.
const mark = (row, key) => row.front[key] + (row.front[key].startsWith("~") ? " %" : "");

function passes(row, table) {
  return (!at("task").value || table.task === at("task").value)
    && (!at("decoder").value || row.decoder === at("decoder").value)
    && (!at("router").value || row.router === at("router").value)
    && at("words").value.split(" ").every((word) => `${row.decoder} ${row.settings} ${row.id}`.includes(word));
}

// The plot

const SHAPES = {
  "*": "M0-7L1.8-2.3 6.7-2.2 2.8.9 4.1 5.7 0 2.9-4.1 5.7-2.8.9-6.7-2.2-1.8-2.3Z", s: "M-5-5H5V5H-5Z",
  o: "M-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0Z", v: "M-6-4.5H6L0 6Z", "^": "M-6 4.5H6L0-6Z",
  D: "M0-7L6 0 0 7-6 0Z", P: "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z", "<": "M4.5-6V6L-6 0Z", ">": "M-4.5-6V6L6 0Z",
  X: "M-6-3L-3-6 0-3 3-6 6-3 3 0 6 3 3 6 0 3-3 6-6 3-3 0Z", h: "M0-6.5L5.6-3.2V3.2L0 6.5-5.6 3.2V-3.2Z",
  p: "M0-6.5L6.2-2 3.8 5.3H-3.8L-6.2-2Z",
};
const color = (decoder) => data.styles[decoder][0] === "#000000" ? "var(--ink)" : data.styles[decoder][0];
const shape = (decoder) => SHAPES[data.styles[decoder][1]];

function ticks(low, high) {
  const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((unit) => unit * power).find((size) => size >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) found.push(value);
  return found.map((value) => Number(value.toPrecision(12)));
}

function scale(values, from, to) {
  let low = Math.min(...values), high = Math.max(...values);
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  low -= room; high += room;
  return {low, high, at: (value) => from + (value - low) / (high - low) * (to - from)};
}

function plot(table, key) {
  const rows = table.rows.filter((row) => row.values[key][0] !== null);
  const beside = at("published").checked ? placed(table, key) : [];
  const svg = make("svg", {viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img",
    "aria-label": `accuracy against ${data.metrics[key].label}`});
  if (!rows.length) return make("p", {class: "quiet"}, `no ${data.metrics[key].label} is known here`);
  const spread = (name) => rows.flatMap((row) => row.values[name].filter((value) => value !== null));
  const x = scale([...spread(key), ...beside.map((one) => one.values[key])], EDGE.left, WIDE - EDGE.right);
  const y = scale([...spread("accuracy"), ...beside.map((one) => one.values.accuracy)], HIGH - EDGE.bottom, EDGE.top);
  svg.append(...frame(x, y, key));
  const corners = table.lines[key].map(([a, b]) => `${x.at(a)},${y.at(b)}`).join(" ");
  svg.append(make("polyline", {class: "line", points: corners}));
  svg.append(...beside.map((one) => besideMark(one, x.at(one.values[key]), y.at(one.values.accuracy))));
  svg.append(...rows.map((row) => point(row, table, key, x, y)));
  return svg;
}

function frame(x, y, key) {
  const bottom = HIGH - EDGE.bottom, parts = [], metric = data.metrics[key];
  for (const value of ticks(x.low, x.high)) {
    parts.push(make("line", {class: "grid", x1: x.at(value), x2: x.at(value), y1: EDGE.top, y2: bottom}));
    parts.push(make("text", {x: x.at(value), y: bottom + 16, "text-anchor": "middle"}, String(value)));
  }
  for (const value of ticks(y.low, y.high)) {
    parts.push(make("line", {class: "grid", x1: EDGE.left, x2: WIDE - EDGE.right, y1: y.at(value), y2: y.at(value)}));
    parts.push(make("text", {x: EDGE.left - 6, y: y.at(value) + 4, "text-anchor": "end"}, String(value)));
  }
  const name = metric.label + (metric.larger ? "" : " (less is better)");
  parts.push(make("text", {x: WIDE / 2, y: HIGH - 8, "text-anchor": "middle"}, name));
  return [...parts, make("text", {x: 12, y: HIGH / 2, "text-anchor": "middle",
    transform: `rotate(-90 12 ${HIGH / 2})`}, "accuracy")];
}

function point(row, table, key, x, y) {
  const [value, low, high] = row.values[key], [accuracy, least, most] = row.values.accuracy;
  const ink = color(row.decoder), group = make("g", {"data-id": row.id});
  if (at("bars").checked) {
    const bar = (x1, y1, x2, y2) => group.append(make("line", {class: "bar", stroke: ink, x1, y1, x2, y2}));
    if (low !== null) bar(x.at(low), y.at(accuracy), x.at(high), y.at(accuracy));
    if (least !== null) bar(x.at(value), y.at(least), x.at(value), y.at(most));
  }
  const doubtful = mark(row, key).startsWith("~");
  const sign = make("path", {class: "mark", d: shape(row.decoder), stroke: ink, fill: doubtful ? "var(--paper)" : ink,
    transform: `translate(${x.at(value)} ${y.at(accuracy)})`, tabindex: 0, "aria-label": tipText(row, key)});
  group.append(sign);
  if (!passes(row, table)) group.classList.add("out");
  listen(sign, row, key);
  return group;
}

// Published rows that have a number for this axis.
const placed = (table, key) =>
  table.published.filter((one) => typeof one.values[key] === "number" && one.values.accuracy !== null);

function besideMark(one, x, y) {
  const sign = make("path", {d: `M${x - 4} ${y - 4}l8 8m0-8l-8 8`, tabindex: 0, "aria-label": one.name});
  const numbers = Object.keys(one.values).filter((name) => one.values[name] !== null)
    .map((name) => `${data.metrics[name].label} ${number(one.values[name], name)}`);
  tipAt(sign, () => [one.name, data.caveat, ...numbers, one.note, one.source].filter(Boolean).join("\n"));
  return make("g", {class: "published"}, sign);
}

function key(table) {
  const decoders = [...new Set(table.rows.map((row) => row.decoder))];
  return make("ul", {class: "key"}, ...decoders.map((name) => make("li", {}, make("svg", {viewBox: "-8 -8 16 16"},
    make("path", {d: shape(name), fill: color(name)})), ` ${name}`)), make("li", {}, "hollow: on the front, not robustly"));
}

// Hovering

function tipText(row, axis) {
  const metric = data.metrics[axis], sure = mark(row, axis);
  const lines = [`${row.decoder} ${row.settings}`, `accuracy ${withInterval(row, "accuracy")}, n = ${row.n}`,
    `${metric.label} ${withInterval(row, axis)}`];
  if (row.values.speedup && row.values.speedup[0] !== null && axis !== "speedup")
    lines.push(row.baseline ? "the baseline" : `${withInterval(row, "speedup")} times the baseline's tokens/s`);
  if (sure) lines.push(sure === "*" ? "on the Pareto front" : `on the front in ${sure.slice(1)} of the draws`);
  if (row.alarms) lines.push(row.alarms);
  return lines.join("\n");
}

function tipAt(node, text, light = () => {}) {
  const show = () => {
    const tip = at("tip"), box = node.getBoundingClientRect();
    tip.textContent = text();
    tip.hidden = false;
    const left = Math.min(box.right + 10, innerWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${Math.max(8, Math.min(box.top, innerHeight - tip.offsetHeight - 8))}px`;
    light(true);
  };
  const hide = () => { at("tip").hidden = true; light(false); };
  for (const event of ["pointerenter", "focus"]) node.addEventListener(event, show);
  for (const event of ["pointerleave", "blur"]) node.addEventListener(event, hide);
}

function listen(node, row, axis) {
  tipAt(node, () => tipText(row, axis), (on) => document.querySelectorAll(`[data-id="${CSS.escape(row.id)}"]`)
    .forEach((one) => one.classList.toggle("lit", on)));
  node.addEventListener("click", () => open(row));
}

// The table

const order = {column: "accuracy", down: true};

function columns() {
  const axes = data.axes.map((name) => ({name, head: data.metrics[name].label, number: true, title: data.metrics[name].unit,
    value: (row) => row.values[name][0], text: (row) => `${number(row.values[name][0], name)} ${mark(row, name)}`.trim()}));
  const word = (name, head = name) => ({name, head, value: (row) => row[name], text: (row) => row[name]});
  return [word("decoder"), word("settings"), {name: "run", head: "run", value: (row) => row.id, links: true},
    {name: "accuracy", head: "accuracy", number: true, title: data.metrics.accuracy.unit,
      value: (row) => row.values.accuracy[0], text: (row) => withInterval(row, "accuracy")},
    ...axes,
    {name: "p", head: "p", number: true, title: "McNemar's exact test against the baseline, after Holm",
      value: (row) => row.p, text: (row) => row.baseline ? "baseline" : row.p === null ? "" : row.p.toPrecision(2)},
    {name: "n", head: "n", number: true, value: (row) => row.n, text: (row) => String(row.n)}, word("alarms")];
}

// What has no value stands last, whichever way the others go.
function sorted(rows, column) {
  const known = (value) => value !== null && value !== "";
  const compare = (a, b) => typeof a === "string" ? a.localeCompare(b, "en", {numeric: true}) : a - b;
  return [...rows].sort((one, other) => {
    const a = column.value(one), b = column.value(other);
    if (!known(a) || !known(b)) return known(b) - known(a);
    return order.down ? compare(b, a) : compare(a, b);
  });
}

function head(column) {
  const button = make("button", {type: "button", title: column.title || ""}, column.head);
  button.addEventListener("click", () => {
    order.down = order.column === column.name ? !order.down : Boolean(column.number);
    order.column = column.name;
    draw();
  });
  const way = order.down ? "descending" : "ascending";
  return make("th", {class: column.number ? "number" : "", "data-column": column.name,
    "aria-sort": order.column === column.name ? way : "none"}, button);
}

function grid(table, axis) {
  const shown = columns(), rows = table.rows.filter((row) => passes(row, table));
  const body = make("tbody");
  for (const row of sorted(rows, shown.find((column) => column.name === order.column))) {
    const line = make("tr", {"data-id": row.id}, ...shown.map((column) =>
      make("td", {class: column.number ? "number" : ""}, ...(column.links ? links(row) : [column.text(row)]))));
    listen(line, row, axis);
    body.append(line, ...(opened.has(row.id) ? [details(row, shown.length)] : []));
  }
  const heads = make("tr", {}, ...shown.map(head));
  const left = table.rows.length - rows.length;
  const note = left ? `${left} of ${table.rows.length} rows are filtered out; the front is that of all rows. ` : "";
  return make("div", {}, make("div", {class: "scroll"}, make("table", {}, make("thead", {}, heads), body)),
    make("p", {class: "quiet"}, `${note}Click a row for its settings.`));
}

function links(row) {
  return Object.entries(row.links).flatMap(([name, target]) => {
    const link = make("a", {href: target}, name);
    link.addEventListener("click", (event) => event.stopPropagation());
    return [link, " "];
  });
}

const opened = new Set();

function open(row) {
  if (!opened.delete(row.id)) opened.add(row.id);
  draw();
}

function details(row, span) {
  const list = (entries) => make("dl", {}, ...entries.flatMap(([name, value]) =>
    [make("dt", {}, name), make("dd", {}, String(value))]));
  const seconds = Object.entries(row.phases).map(([name, value]) => [`seconds ${name}`, value.toFixed(3)]);
  const lengths = row.lengths.map((bin) => [`tokens/s, answers of ${bin.above + 1} to ${bin.up_to ?? "more"} tokens`,
    `${bin.tokens_per_s.toFixed(1)} (${bin.n} answers)`]);
  return make("tr", {class: "opened"}, make("td", {colspan: span},
    list([...Object.entries(row.about), ...seconds, ...lengths]), list(Object.entries(row.config))));
}

function besideTable(table) {
  if (!table.published.length || !at("published").checked) return [];
  const keys = Object.keys(table.published[0].values);
  const words = ["model", "method", "setting"], after = ["note", "source"];
  const cell = (text, tag = "td") => make(tag, {}, text);
  const head = make("tr", {}, ...words.map((name) => cell(name, "th")),
    ...keys.map((name) => cell(data.metrics[name].label, "th")), ...after.map((name) => cell(name, "th")));
  const lines = table.published.map((one) => make("tr", {}, ...words.map((name) => cell(one[name])),
    ...keys.map((name) => cell(one.values[name] === null ? "" : number(one.values[name], name))),
    ...after.map((name) => cell(one[name]))));
  return [make("h3", {}, data.caveat), make("div", {class: "scroll"},
    make("table", {class: "published"}, make("thead", {}, head), make("tbody", {}, ...lines)))];
}

// All of it

function draw() {
  const axis = at("x").value;
  const shown = data.tables.filter((table) => !at("task").value || table.task === at("task").value);
  at("tip").hidden = true;
  at("tables").replaceChildren(...shown.map((table) => make("section", {}, make("h2", {}, table.title),
    plot(table, axis), key(table), grid(table, axis), ...besideTable(table))));
  const state = FILTERS.filter((name) => at(name).value).map((name) => [name, at(name).value]);
  history.replaceState(null, "", `#${new URLSearchParams(state)}`);
}

function choices(id, entries) {
  at(id).append(...entries.map(([value, text]) => make("option", {value}, text)));
}

function start() {
  const rows = data.tables.flatMap((table) => table.rows);
  const all = (values) => [["", "all"], ...[...new Set(values)].sort().map((value) => [value, value])];
  choices("x", data.axes.map((name) => [name, data.metrics[name].label]));
  choices("task", all(data.tables.map((table) => table.task)));
  choices("decoder", all(rows.map((row) => row.decoder)));
  choices("router", all(rows.map((row) => row.router)));
  if (data.axes.includes(data.first)) at("x").value = data.first;
  const state = new URLSearchParams(location.hash.slice(1));
  FILTERS.filter((name) => state.has(name)).forEach((name) => { at(name).value = state.get(name); });
  if (!at("x").value) at("x").value = data.axes[0];
  at("with-published").hidden = !data.tables.some((table) => table.published.length);
  at("legend").textContent = data.legend;
  at("remarks").append(...data.remarks.map((text) => make("li", {}, text)));
  at("controls").addEventListener("input", draw);
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  draw();
}

start();
