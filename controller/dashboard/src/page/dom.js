// Small pieces that the views share. Text from the cluster goes into textContent only.

export const $ = (id) => document.getElementById(id);

export const make = (tag, text, name) => {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  if (name) node.className = name;
  return node;
};

export const link = (text, href) => {
  const node = make("a", text);
  node.href = href;
  return node;
};

export const button = (text, name, act) => {
  const node = make("button", text, name);
  node.type = "button";
  node.addEventListener("click", act);
  return node;
};

export const number = (value) => (value === null || value === undefined ? "–" : Number(value).toLocaleString("en"));

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export const milliseconds = (seconds) => {
  const value = seconds * 1000;
  return value >= 1000 ? `${seconds.toFixed(1)} s` : `${value.toFixed(value < 10 ? 1 : 0)} ms`;
};

export const duration = (seconds) => {
  const steps = [[31_557_600, "year"], [86_400, "day"], [3_600, "hour"], [60, "minute"]];
  const [unit, word] = steps.find(([unit]) => seconds >= 2 * unit) ?? [1, "second"];
  return plural(Math.max(0, Math.floor(seconds / unit)), word);
};

export const expiry = (at) => {
  if (at === null || at === undefined) return { text: "expiry unknown", kind: "soft" };
  const left = at - Date.now() / 1000, date = new Date(at * 1000).toISOString().slice(0, 10);
  if (left < 0) return { text: `expired ${date}, ${duration(-left)} ago`, kind: "bad" };
  const kind = left < 7 * 86_400 ? "bad" : left < 30 * 86_400 ? "warn" : "";
  return { text: `expires ${date}, in ${duration(left)}`, kind };
};

export const get = async (path) => {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
  return answer.json();
};

/// Pairs of a name and a text or a node; pairs without a value are left out.
export const facts = (pairs) => {
  const list = make("dl");
  for (const [title, value, kind] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    const cell = make("dd", undefined, kind);
    cell.append(value);
    list.append(make("dt", title), cell);
  }
  return list;
};

// The roles stand here because a phone shows cells as blocks, which takes their meaning away.
const withRole = (node, role) => {
  node.setAttribute("role", role);
  return node;
};
export const table = (head, rows) => {
  const node = withRole(make("table"), "table"), top = withRole(make("thead"), "rowgroup");
  const body = withRole(make("tbody"), "rowgroup"), titles = withRole(make("tr"), "row");
  head.forEach((text) => titles.append(withRole(make("th", text), "columnheader")));
  for (const cells of rows) {
    const line = withRole(make("tr"), "row");
    cells.forEach(([text, kind], at) => {
      const cell = withRole(make("td", text, kind), "cell");
      cell.dataset.label = head[at];
      line.append(cell);
    });
    body.append(line);
  }
  top.append(titles);
  node.append(top, body);
  return node;
};

const SVG = "http://www.w3.org/2000/svg";
const shape = (tag, attributes) => {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
};
const canvas = () => shape("svg", { viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" });

/// So many values fill a chart at least, so that the first ones are not as wide as it.
const FEW = 20;

/// A line from zero to the largest value, the newest at the right.
export const chart = (values) => {
  const svg = canvas(), most = Math.max(FEW, values.length), top = Math.max(...values, 1e-9), step = 100 / (most - 1), start = 100 - (values.length - 1) * step;
  if (values.length < 2) return svg;
  const points = values.map((value, at) => `${(start + at * step).toFixed(2)} ${(30 - (value / top) * 28).toFixed(2)}`);
  svg.append(
    shape("path", { class: "area", d: `M${start.toFixed(2)} 30L${points.join("L")}L100 30Z` }),
    shape("path", { class: "line", d: `M${points.join("L")}` }),
  );
  return svg;
};

/// A bar for each value, from zero, the newest at the right.
export const bars = (values) => {
  const svg = canvas(), top = Math.max(...values, 1e-9), step = 100 / Math.max(FEW, values.length);
  values.forEach((value, at) => {
    const height = Math.max(0.6, (value / top) * 28), x = 100 - (values.length - at) * step;
    svg.append(shape("rect", { x: x.toFixed(2), y: (30 - height).toFixed(2), width: (step * 0.7).toFixed(2), height: height.toFixed(2) }));
  });
  return svg;
};
