"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 44;
let sample = data.samples[0], lanes = [], time = 0, timer = null;

function add(parent, name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return parent.appendChild(made);
}

function draw(name, parent, attributes) {
  const made = parent.appendChild(document.createElementNS(SVG, name));
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

const end = () => Math.max(...sample.lanes.map(lane => lane.forwards));
const tokenClass = (token, more) => `token ${token.source}${more}`;

// A lane: its heading, its tokens, and its bars on the common axis.
function built(lane) {
  const box = add(byId("lanes"), "section", "lane");
  add(box, "h2", "", lane.label);
  const stat = add(box, "p", "stat"), text = add(box, "pre");
  const spans = lane.tokens.map(token => {
    const span = add(text, "span", "token");
    span.style.setProperty("--color", data.sources[token.source].color);
    span.addEventListener("pointerenter", event => story(event, lane, token));
    span.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
    return span;
  });
  return { lane, box, stat, spans, head: bars(box, lane) };
}

function bars(box, lane) {
  const width = end() + 1, most = Math.max(1, ...sample.lanes.flatMap(one => one.bars.map(bar => bar.total)));
  const svg = draw("svg", box, { viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  draw("title", svg, {}).textContent = "tokens decided after each forward";
  draw("line", svg, { class: "ground", x1: 0, x2: width, y1: HEIGHT, y2: HEIGHT, "vector-effect": "non-scaling-stroke" });
  for (const bar of lane.bars) {
    let top = HEIGHT;
    for (const [source, count] of Object.entries(bar.counts)) {
      const height = count / most * (HEIGHT - 4);
      top -= height;
      draw("rect", svg, { x: bar.at - 0.4, width: 0.8, y: top, height, fill: data.sources[source].color });
    }
  }
  svg.addEventListener("click", event => {
    const place = svg.getBoundingClientRect();
    pause();
    seek(Math.round((event.clientX - place.left) / place.width * width));
  });
  return draw("line", svg, { class: "head", y1: 0, y2: HEIGHT, "vector-effect": "non-scaling-stroke" });
}

// The lane after so many forwards: decided tokens, masks in the block at work, nothing behind it.
function show(one) {
  const { lane, spans } = one;
  const first = lane.tokens.find(token => token.at > time);
  lane.tokens.forEach((token, index) => {
    const span = spans[index], known = token.at <= time, begun = first && token.block === first.block;
    const edited = token.until !== null && token.until <= time, edit = token.source === "edited";
    span.hidden = edited || (edit && !known);
    span.textContent = known ? token.text : "░░";
    const fresh = token.at === lane.bars.reduce((last, bar) => bar.at <= time ? bar.at : last, -1) && time < lane.forwards;
    span.className = known ? tokenClass(token, fresh ? " fresh" : "") : `token ${begun ? "masked" : "waiting"}`;
  });
  const decided = lane.tokens.filter(token => token.at <= time && token.source !== "edited");
  const tokens = decided.length, forwards = Math.min(time, lane.forwards);
  const rate = forwards ? (tokens / forwards).toFixed(2) : "0.00", done = time >= lane.forwards;
  one.stat.textContent = `${done ? "done: " : ""}${tokens} tokens, ${forwards} forwards, ${rate} tokens per forward`;
  one.box.classList.toggle("done", done);
  for (const key of ["x1", "x2"]) one.head.setAttribute(key, forwards + 0.5);
}

function story(event, lane, token) {
  if (token.at > time) return;
  const probability = value => value === null ? "nobody asked" : value.toFixed(4);
  const verdict = token.verified ? `verified, ${token.accepted} accepted (${token.expected} expected)` : "not verified";
  byId("tip").textContent = [
    `${JSON.stringify(token.text)}, position ${token.position}, block ${token.block}`,
    `step ${token.step}, after ${token.at} forwards: ${verdict}`,
    `${data.sources[token.source].word}${token.why ? `: ${token.why}` : ""}`,
    `draft probability ${probability(token.draft)}`,
    `verify probability ${probability(token.verify)}`,
  ].join("\n");
  const tip = byId("tip"), place = event.target.getBoundingClientRect();
  tip.hidden = false;
  tip.style.left = `${Math.max(0, Math.min(place.left, innerWidth - tip.offsetWidth - 8))}px`;
  const under = place.bottom + 6, over = place.top - tip.offsetHeight - 6;
  tip.style.top = `${under + tip.offsetHeight > innerHeight && over > 0 ? over : under}px`;
}

function seek(to) {
  time = Math.max(0, Math.min(to, end()));
  byId("time").value = time;
  byId("now").textContent = `${time} of ${end()}`;
  byId("tip").hidden = true;
  lanes.forEach(show);
}

function pause() {
  clearInterval(timer);
  timer = null;
  byId("play").textContent = "play";
}

function play() {
  pause();
  if (time >= end()) seek(0);
  byId("play").textContent = "pause";
  timer = setInterval(() => { seek(time + 1); if (time >= end()) pause(); }, 1000 / byId("speed").value);
}

function choose(index, at) {
  pause();
  sample = data.samples[index];
  byId("lanes").replaceChildren();
  byId("prompt").textContent = sample.prompt;
  byId("time").max = end();
  lanes = sample.lanes.map(built);
  seek(at);
}

function legend() {
  for (const [name, { color, word }] of Object.entries(data.sources)) {
    const span = add(byId("legend"), "span");
    add(span, "span", `token ${name}`, word).style.setProperty("--color", color);
  }
  add(add(byId("legend"), "span"), "span", "token masked", "░░ masked");
}

data.samples.forEach((one, index) => { add(byId("sample"), "option", "", one.id).value = index; });
byId("which").hidden = data.samples.length === 1;
byId("sample").addEventListener("change", event => choose(+event.target.value, 0));
byId("start").addEventListener("click", () => { pause(); seek(0); });
byId("back").addEventListener("click", () => { pause(); seek(time - 1); });
byId("on").addEventListener("click", () => { pause(); seek(time + 1); });
byId("play").addEventListener("click", () => timer ? pause() : play());
byId("speed").addEventListener("change", () => { if (timer) play(); });
byId("time").addEventListener("input", event => { pause(); seek(+event.target.value); });
byId("controls").addEventListener("submit", event => event.preventDefault());
document.addEventListener("keydown", event => {
  if (["INPUT", "SELECT", "BUTTON"].includes(event.target.tagName)) return;
  const key = { " ": () => timer ? pause() : play(), ArrowLeft: () => { pause(); seek(time - 1); }, ArrowRight: () => { pause(); seek(time + 1); } }[event.key];
  if (key) { event.preventDefault(); key(); }
});
legend();
const asked = /^#forwards=(\d+)$/.exec(location.hash);  // a link to one moment, at rest
choose(0, asked ? +asked[1] : 0);
if (!asked && !matchMedia("(prefers-reduced-motion: reduce)").matches) play();
