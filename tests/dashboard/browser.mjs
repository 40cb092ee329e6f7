// A headless Chromium, and what look.mjs and measure.mjs both do with it.

import puppeteer from "puppeteer-core";

export const VIEWS = ["overview", "routes", "backends", "certificates", "findings", "explain"];

export const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/// Runs `work` with a browser, and ends the browser whatever becomes of it.
export const withBrowser = async (work) => {
  // As root Chromium has no sandbox; it loads one page, of this machine.
  const args = process.getuid() === 0 ? ["--no-sandbox"] : [];
  const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
  try {
    return await work(browser);
  } finally {
    await browser.close();
  }
};

/// A page whose errors end up in `errors`.
export const pageOf = async (browser, errors) => {
  const page = await browser.newPage();
  page.on("pageerror", (error) => errors.push(`error: ${error.message}`));
  page.on("console", (message) => message.type() === "error" && errors.push(`console: ${message.text()}`));
  return page;
};

/// Opens a view, and waits until it shows what an event says.
export const open = async (page, url, view) => {
  await page.goto("about:blank");
  await page.goto(`${url}#/${view}`);
  await page.waitForFunction(() => /generation/.test(document.getElementById("state").textContent));
};
