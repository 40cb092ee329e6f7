// The explain box: a URL in, the decision out, with the rules that lose.

import { $, facts, get, make, plural, table } from "./dom.js";

const words = (name) => name.replaceAll("_", " ");

/// Of `{"prefix": "/cart"}`; the prefix of everything is written as nothing.
const pattern = (path) => {
  const [[kind, text]] = Object.entries(path);
  return `${text || "/"} (${{ exact: "Exact", prefix: "Prefix" }[kind] ?? "regular expression"})`;
};

const outcome = ({ outcome, backend }) => {
  const { status, location: to } = outcome;
  if (status) return to ? `${status}, redirect to ${to}` : `Answered with ${status}`;
  return backend ? `Forwarded to ${backend.id}` : `Answered by ${to ?? "nginx"}`;
};

const rules = ({ rules: found, other_rules: others }) => {
  const rows = found.map((rule) => [
    [rule.wins ? "wins" : "loses", rule.wins ? "good" : "soft"], [pattern(rule.path)], [`${rule.namespace}/${rule.ingress}`],
    [rule.service ? `${rule.service}:${rule.port}` : "none"], [rule.why],
  ]);
  const nodes = [make("h3", "Rules for this path")];
  nodes.push(rows.length ? table(["Result", "Path", "Ingress or route", "Service", "Reason"], rows) : make("p", "None."));
  if (others) nodes.push(make("p", `${plural(others, "rule")} of this host ${others === 1 ? "is" : "are"} for other paths.`, "soft"));
  return nodes;
};

const conditions = (found) => {
  if (!found.conditions.length) return [];
  const list = make("ul");
  list.append(...found.conditions.map((condition) => make("li", condition)));
  return [make("h3", "A real request also has to meet"), list];
};

const backend = ({ backend: found }) => {
  if (!found) return [];
  const canary = ({ id, weight, weight_total, header, cookie, has_endpoints }) => {
    const by = [weight ? `${weight} of ${weight_total} requests` : "", header && `header ${header}`, cookie && `cookie ${cookie}`];
    return `${id}: ${by.filter(Boolean).join(", ") || "no requests"}${has_endpoints ? "" : ", has no endpoints"}`;
  };
  const pairs = [
    ["Reason", found.why], ["Balancing", found.hash_key ? `hash of ${found.hash_key}` : words(found.algorithm)],
    ["Affinity", found.affinity_cookie && `cookie ${found.affinity_cookie}`],
    ...(found.alternatives ?? []).map((one) => ["Canary", canary(one)]),
  ];
  const rows = found.endpoints.map((one) => [[one.address], [one.eligible ? "may be chosen" : "closed", one.eligible ? "good" : "bad"], [one.why ?? ""]]);
  const nodes = [make("h3", `Backend ${found.id}`), facts(pairs), make("h3", "Endpoints"), rows.length ? table(["Address", "State", "Reason"], rows) : make("p", "None.", "bad")];
  if (found.more_endpoints) nodes.push(make("p", `and ${plural(found.more_endpoints, "more endpoint")}`, "soft"));
  return nodes;
};

const policies = ({ policies: found }) => {
  if (!found) return [];
  const box = make("details");
  box.append(make("summary", "Policies of the rule"), make("pre", JSON.stringify(found, null, 2)));
  return [box];
};

const query = (written, method) => {
  const text = /^https?:\/\//i.test(written) ? written : `https://${written}`;
  const url = new URL(text);
  // The path as it is written: URL would take its dots away.
  const target = text.replace(/^https?:\/\/[^/?#]*/i, "").replace(/#.*/, "") || "/";
  const path = target.startsWith("/") ? target : `/${target}`;
  const pairs = new URLSearchParams({ host: url.host, path, method, scheme: url.protocol.slice(0, -1) });
  return pairs.toString().replaceAll("+", "%20");
};

const ask = async () => {
  const box = $("answer");
  let asked;
  try {
    asked = query($("url").value.trim(), $("method").value);
  } catch {
    return box.replaceChildren(make("p", "This is no URL: write one such as https://shop.example.com/cart.", "bad"));
  }
  try {
    const found = await get(`/api/explain?${asked}`);
    const host = found.server ? `${found.server.host} (${found.server.found})` : "no rules for this host, and no default";
    box.replaceChildren(
      make("h2", outcome(found)),
      facts([["Reason", found.outcome.why], ["Host", host], ["Path", found.path], ["Endpoint sees", found.outcome.rewritten]]),
      ...rules(found), ...conditions(found), ...backend(found), ...policies(found),
    );
  } catch (error) {
    box.replaceChildren(make("p", error.message, "bad"));
  }
};

/// Explains a request for this URL.
export const explain = (url) => {
  if (!url || url === $("url").value) return;
  $("url").value = url;
  ask();
};

export const listen = () =>
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
