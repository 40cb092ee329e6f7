// Screenshots of each view at two widths, light and dark, with what axe finds, what is cut off, and what keys do.
//
// node look.mjs URL FOLDER [PORT]: with the port of nginx there is some traffic to look at.

import http from "node:http";
import { createRequire } from "node:module";
import { mkdirSync, readFileSync } from "node:fs";
import { VIEWS, open, pageOf, pause, withBrowser } from "./browser.mjs";

const [url, folder, port] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const errors = [];

/// Requests, some of which are answered with 503, until the returned function is called.
const traffic = (port) => {
  const targets = [["api.localhost", "/v1/orders"], ["a.tenant.localhost", "/"], ["blog.localhost", "/"], ["blog.localhost", "/search"]];
  const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
  let sent = 0;
  const timer = setInterval(() => {
    sent += 1;
    const [host, path] = targets[sent % 50 === 0 ? 3 : sent % 3];
    http.get({ port, path, agent, headers: { host } }, (answer) => answer.resume()).on("error", () => {});
  }, 10);
  return () => {
    clearInterval(timer);
    agent.destroy();
  };
};

const prepare = async (page, view) => {
  if (view === "explain") {
    await page.type("#url", "https://shop.localhost/cart");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#answer table");
  } else if (view !== "overview") {
    await page.waitForSelector("#rows button .tag, #rows button span span, #rows .clamp");
    const rows = await page.$$("#rows button");
    await rows[Math.min(1, rows.length - 1)].click();
    await page.waitForSelector("#detail:not([hidden]) dl");
  }
  await pause(400);
};

const violations = async (page) => {
  await page.evaluate(axe);
  const found = await page.evaluate(() => axe.run());
  return found.violations.map(({ id, impact, nodes }) => `axe: ${id} (${impact}): ${nodes.map((node) => node.target).join(", ")}`);
};

/// Elements that are wider than their place, and do not say so with an ellipsis.
const cut = (page) =>
  page.evaluate(() =>
    [...document.querySelectorAll("html, header, nav, main, section, #scroll, #detail, table, .tile")]
      .filter((node) => node.scrollWidth > node.clientWidth + 1)
      .map((node) => `cut off: ${node.tagName.toLowerCase()}#${node.id}, ${node.scrollWidth - node.clientWidth} px`));

/// The page is used with keys alone: `/`, a search, the arrows, Enter, Escape, and the tabs.
const keys = async (page) => {
  await open(page, url, "routes");
  const focus = () => page.evaluate(() => document.activeElement.dataset.row ?? document.activeElement.id);
  const expect = async (what, expected, found) => found === expected || errors.push(`keys: ${what}: ${found}, not ${expected}`);
  await page.keyboard.press("/");
  await expect("/ leads to the search", "search", await focus());
  await page.keyboard.type("shop.localhost prefix");
  await page.waitForFunction(() => /match/.test(document.getElementById("found").textContent));
  await page.focus("#rows button");
  await page.keyboard.press("ArrowDown");
  await expect("the arrow leads to the next row", "1", await focus());
  await page.keyboard.press("Home");
  await expect("Home leads to the first row", "0", await focus());
  await page.keyboard.press("Enter");
  await page.waitForSelector("#detail:not([hidden])");
  await page.keyboard.press("Escape");
  await expect("Escape closes the details", true, await page.$eval("#detail", (node) => node.hidden));
  await expect("and leads back to the row", "0", await focus());
  await page.focus("#tab-routes");
  await page.keyboard.press("End");
  await expect("End leads to the last tab", "tab-explain", await focus());
};

const stop = port ? traffic(port) : () => {};
await withBrowser(async (browser) => {
  mkdirSync(folder, { recursive: true });
  const page = await pageOf(browser, errors);
  for (const width of [1280, 390]) {
    await page.setViewport({ width, height: 800 });
    for (const theme of ["light", "dark"]) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
      for (const view of VIEWS) {
        await open(page, url, view);
        if (view === "overview") await pause(theme === "light" ? 45_000 : 7_000);
        await prepare(page, view);
        await page.screenshot({ path: `${folder}/${view}-${width}-${theme}.png` });
        const found = [...(await violations(page)), ...(await cut(page))];
        errors.push(...found.map((text) => `${view}, ${width} px, ${theme}: ${text}`));
      }
    }
  }
  await page.setViewport({ width: 1280, height: 800 });
  await keys(page);
});
stop();
console.log(`${VIEWS.length * 4} screenshots in ${folder}`);
console.log(errors.length ? errors.join("\n") : "axe finds no violation; nothing is cut off; keys do what they should");
process.exit(errors.length ? 1 : 0);
