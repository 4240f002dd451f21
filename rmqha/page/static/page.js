// The page of a node; docs/guide/page.rst.  All that nodes tell is shown as text: nothing here
// makes markup of it.
"use strict";

const AGAIN = 5000; // milliseconds between an answer and the next question
const PATIENCE = 10000; // milliseconds that an answer may take
const OLD = 15000; // milliseconds after which what is shown is grey
const MOST = { groups: 20, refused: 20, events: 100 }; // rows of the tables

const WIDTH = 190, HEIGHT = 64, TOP = 13, BOTTOM = 13; // of a plot, in its own units

function make(tag, name, ...content) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...content); // strings become text
  return made;
}

function fill(id, ...content) {
  document.getElementById(id).replaceChildren(...content);
}

function several(value) {
  return Array.isArray(value) ? value : [];
}

// --- numbers for people --------------------------------------------------------------------

function number(value, unit) {
  let shown = value, prefix = "";
  if (unit.startsWith("bytes") || unit === "/s") {
    for (const next of ["k", "M", "G", "T"]) {
      if (shown < 1000) break;
      shown /= 1000;
      prefix = next;
    }
  }
  const text = shown < 10 && shown % 1 ? shown.toFixed(1) : shown.toFixed(0);
  return `${text} ${prefix}${unit.replace("bytes", "B")}`;
}

function age(seconds) {
  if (typeof seconds !== "number") return "unknown";
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(0)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(0)} h` : `${(seconds / 86400).toFixed(0)} d`;
}

// --- a node --------------------------------------------------------------------------------

function plot(times, series) {
  const values = several(series.values);
  const known = values.filter((value) => typeof value === "number");
  const last = values[values.length - 1];
  const now = typeof last === "number" ? number(last, series.unit) : "unknown";
  const figure = make("figure", "", make("figcaption", "", `${series.name}: ${now}`));
  const svg = d3.select(figure).append("svg")
    .attr("viewBox", `0 0 ${WIDTH} ${HEIGHT}`)
    .attr("role", "img")
    .attr("aria-label", `${series.name} in ${series.unit}, the last 15 minutes`);
  const end = times[times.length - 1];
  const x = d3.time.scale().domain([end - 900000, end]).range([0, WIDTH]);
  const top = d3.max(known) || 1;
  const y = d3.scale.linear().domain([0, top]).range([HEIGHT - BOTTOM, TOP]);
  const axis = svg.append("g").attr("class", "axis");
  axis.append("line").attr({ x1: 0, x2: WIDTH, y1: y(0), y2: y(0) });
  axis.append("line").attr({ x1: 0, x2: WIDTH, y1: y(top), y2: y(top) });
  axis.append("text").attr({ x: 0, y: TOP - 3 }).text(number(top, series.unit));
  axis.append("text").attr({ x: 0, y: HEIGHT - 3 }).text("15 min ago");
  axis.append("text").attr({ x: WIDTH, y: HEIGHT - 3, "text-anchor": "end" }).text("now");
  const line = d3.svg.line()
    .defined((value) => typeof value === "number")
    .x((value, index) => x(times[index]))
    .y((value) => y(value));
  svg.append("path").datum(values).attr("d", line);
  return figure;
}

function card(node) {
  const facts = make("dl", "");
  if (node.problem) facts.append(make("dt", "", "problem"), make("dd", "wrong", node.problem));
  for (const fact of several(node.facts)) {
    const tone = fact.name === "attention" ? "wrong" : "";
    facts.append(make("dt", "", fact.name), make("dd", tone, fact.text));
  }
  const plots = make("div", "plots");
  const times = several(node.times);
  if (times.length && typeof d3 !== "undefined") {
    for (const series of several(node.series)) plots.append(plot(times, series));
  }
  const title = make("h3", "", node.name, make("span", "quiet", node.role ? ` ${node.role}` : ""));
  return make("article", node.problem ? "node bad" : "node", title, facts, plots);
}

function rows(nodes) {
  const sets = new Map();
  for (const node of nodes) {
    const name = node.brokerName || "name servers";
    if (!sets.has(name)) sets.set(name, []);
    sets.get(name).push(node);
  }
  return [...sets.keys()].sort((a, b) => (a === "name servers") - (b === "name servers") || a.localeCompare(b))
    .map((name) => {
      const members = sets.get(name).sort((a, b) => a.brokerId - b.brokerId);
      return make("section", "set", make("h2", "", name), make("div", "nodes", ...members.map(card)));
    });
}

// --- the tables below ----------------------------------------------------------------------

function table(names, lines, none) {
  if (!lines.length) return make("p", "quiet", none);
  const head = make("tr", "", ...names.map((name) => make("th", "", name)));
  const body = lines.map((line) => make("tr", "", ...line.map((value, index) => {
    const cell = make("td", typeof value === "number" ? "number" : "", make("span", "", String(value)));
    cell.dataset.name = names[index];
    return cell;
  })));
  return make("table", "", make("thead", "", head), make("tbody", "", ...body));
}

function of(nodes, part) {
  return nodes.flatMap((node) => several(node[part]).map((row) => ({ node: node.name, ...row })));
}

function show(page) {
  const nodes = several(page.nodes);
  const clusters = [...new Set(nodes.map((node) => node.cluster).filter(Boolean))];
  fill("title", clusters.join(", ") || page.own);
  document.title = `${clusters.join(", ") || page.own} - rmqha`;
  const note = document.getElementById("note");
  note.textContent = page.note || "";
  note.hidden = !page.note;
  fill("sets", ...rows(nodes));
  // A slave's groups are its master's: those of masters, as far as masters are shown.
  const masters = new Set(nodes.filter((node) => !node.brokerId && several(node.facts).length)
    .map((node) => node.brokerName));
  const telling = nodes.filter((node) => !node.brokerId || !masters.has(node.brokerName));
  const groups = of(telling, "groups").sort((a, b) => b.messages - a.messages).slice(0, MOST.groups);
  fill("groups", table(["group", "topic", "behind", "since", "broker"],
    groups.map((row) => [row.group, row.topic, row.messages, age(row.seconds), row.node]),
    "No group is behind."));
  const refused = of(nodes, "refused").sort((a, b) => b.count - a.count).slice(0, MOST.refused);
  fill("refused", table(["node", "port", "what", "from", "times"],
    refused.map((row) => [row.node, row.port, row.reason, row.client || "", row.count]),
    "None."));
  const events = of(nodes, "events").sort((a, b) => b.time - a.time).slice(0, MOST.events);
  fill("events", table(["time", "node", "what", "text"],
    events.map((row) => [new Date(row.time).toLocaleString(), row.node, row.kind, row.text]),
    "Nothing happened."));
}

// --- asking --------------------------------------------------------------------------------

let own = "", drawn = 0, trouble = ""; // whose answer is shown, when it came, and what came since

// Time goes on whether there are answers or not.
function tell() {
  const when = document.getElementById("when");
  const quiet = Date.now() - drawn;
  const old = quiet > OLD;
  const time = new Date(drawn).toLocaleTimeString();
  if (!drawn) when.textContent = trouble || "asking …";
  else if (!trouble && !old) when.textContent = `${own}, ${time}`;
  else when.textContent = `${trouble || "No answer"}; as of ${time}, ${age(quiet / 1000)} ago`;
  when.className = trouble || (drawn && old) ? "wrong" : "";
  document.body.classList.toggle("old", drawn > 0 && old);
}

async function ask() {
  try {
    const signal = AbortSignal.timeout(PATIENCE);
    const answer = await fetch("/page/cluster", { cache: "no-store", signal });
    const page = await answer.json();
    if (!answer.ok) throw new Error(page.error);
    // Who is marking text to copy it keeps it, and the time that it is of.
    if (window.getSelection().isCollapsed) {
      show(page);
      own = page.own;
      drawn = Date.now();
      trouble = "";
    } else {
      trouble = "Held while text is marked";
    }
  } catch (error) {
    trouble = `No answer: ${error.message}`;
  }
  tell();
  setTimeout(ask, AGAIN);
}

setInterval(tell, 1000);
ask();
