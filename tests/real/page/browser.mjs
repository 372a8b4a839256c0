// What a reader's browser makes of the pages. `node browser.mjs WHAT BASE …` prints what it has found, as JSON.
import { readFileSync } from "node:fs";
import { launch, opened as openedIn, require } from "../../support/chromium.mjs";

const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const [what, base, ...words] = process.argv.slice(2);
const browser = await launch("--host-resolver-rules=MAP foreign.test 127.0.0.1");
const opened = (options) => openedIn(browser, options);

// Opens addresses one after another, and counts what must not happen.
async function walk(paths) {
  const page = await opened();
  const found = { pages: 0, bad: [] };
  page.on("dialog", (dialog) => { found.bad.push(`dialog ${dialog.message()}`); dialog.dismiss(); });
  page.on("pageerror", (error) => found.bad.push(`error ${error.message}`));
  page.on("console", (line) => { if (line.type() === "error") found.bad.push(`console ${line.text()}`); });
  page.on("request", (request) => { if (!request.url().startsWith(`${base}/`)) found.bad.push(`request ${request.url()}`); });
  for (const path of paths) {
    const answer = await page.goto(base + path, { waitUntil: "load" });
    if (answer.status() !== 200) found.bad.push(`${answer.status()} ${path}`);
    found.pages += 1;
  }
  return found;
}

// Looks at pages in each width: nothing is cut off, and axe finds nothing in the narrowest, in light colours, and in the
// widest, in dark ones: what it says of colours hangs on no width, and nothing else on colours. A look between these only
// makes the page narrower.
async function faces(paths) {
  const found = { looks: 0, bad: [] };
  for (const [width, ...narrower] of [[375], [1440, 768]]) {
    const page = await opened({ viewport: { width, height: 900 }, bypassCSP: true, colorScheme: width === 375 ? "light" : "dark" });
    for (const path of paths) {
      await page.goto(base + path);
      for (const each of [...narrower, width]) {
        await page.setViewportSize({ width: each, height: 900 });
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (over > 0) found.bad.push(`${path} at ${each}: ${over} pixels too wide`);
        found.looks += 1;
      }
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => axe.run());
      for (const each of violations) found.bad.push(`${path} at ${width}: ${each.id} ${each.nodes[0].target}`);
    }
    await page.close();
  }
  return found;
}

// In Airflow's frame: its theme, links into it, local times, live updates. `BASE/` holds the frame, `BASE/step` goes on.
async function frame() {
  const page = await opened({ colorScheme: "light", timezoneId: "America/New_York", locale: "en-US" });
  await page.goto(`${base}/`);
  await page.evaluate(() => { window.mark = 1; window.pops = 0; addEventListener("popstate", () => (window.pops += 1)); });
  const inner = page.frame({ url: /cairn/ });
  await inner.waitForSelector("main time");
  const theme = () => inner.evaluate(() => [document.documentElement.className, getComputedStyle(document.body).backgroundColor]);
  const found = { dark: await theme() };
  await page.evaluate(() => (document.documentElement.className = "light"));
  await inner.waitForFunction(() => document.documentElement.className === "light");
  found.light = await theme();
  found.time = await inner.$eval("time", (each) => [each.textContent, each.title]);
  found.zones = await zones(page, inner);
  await inner.click("a[data-airflow]");
  found.link = await page.evaluate(() => [location.pathname, window.mark, window.pops]);
  await inner.evaluate(() => document.activeElement.blur());
  await inner.evaluate(() => { window.mark = 2; return fetch("/step", { method: "POST" }); });
  await inner.waitForFunction(() => !document.querySelector(".stages"));
  found.live = await inner.evaluate(() => [window.mark, document.querySelector("time").textContent.includes("UTC")]);
  return found;
}

// What the first moment is when the zone chosen in Airflow changes: as its UI keeps it, then values that are no zone.
async function zones(page, inner) {
  const found = {};
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.message));
  for (const kept of ['"Asia/Tokyo"', '"No/Such_Zone"', '"UTC"', "no JSON", '"Asia/Tokyo"', "7", '"Asia/Tokyo"', null]) {
    const before = await inner.textContent("time");
    await page.evaluate((value) => (value === null ? localStorage.removeItem("timezone") : localStorage.setItem("timezone", value)), kept);
    await inner.waitForFunction((text) => document.querySelector("time").textContent !== text, before);
    found[kept] = (await inner.textContent("time")).replace(/\s+/g, " ");
  }
  return { ...found, errors };
}

// A page that stays open while its looks fail: what it says of that, and that it goes on. `BASE/trouble/KIND` makes them fail.
async function stale(troubles) {
  const page = await opened({ locale: "en-US" });
  await page.addInitScript(() => { const plain = setInterval; window.setInterval = (call, ms) => plain(call, ms / 50); });
  await page.goto(`${base}/cairn/dags/flights`);
  const line = page.locator("main").locator("xpath=preceding-sibling::*[@role='status']");
  const said = async (pattern) => {
    await line.filter({ hasText: pattern }).waitFor({ state: "attached" });
    return (await line.textContent()).replace(/since .*?[AP]M [A-Z]+[^:]*/, "since TIME");
  };
  const trouble = (kind) => page.request.post(`${base}/trouble/${kind}`);
  const found = { first: await line.textContent(), troubles: {} };
  for (const kind of troubles) {
    await trouble(kind);
    found.troubles[kind] = [await said(/./), await page.locator(".stages li").count()];
    await trouble("none");
    await said(/^$/);
  }
  await page.route("**/*", (route) => route.abort());
  found.troubles.unreachable = [await said(/./), await page.locator(".stages li").count()];
  await page.unroute("**/*");
  await said(/^$/);
  await page.locator("main a").first().focus();
  await page.request.post(`${base}/step`);
  found.inUse = [await said(/./), await page.locator(".stages li").count()];
  await page.evaluate(() => document.activeElement.blur());
  await page.waitForFunction(() => !document.querySelector(".stages"));
  found.last = await said(/^$/);
  return found;
}

// A page in use on which only spans of time go on, until its server has sent three that differ.
async function counting([path]) {
  const page = await opened();
  await page.addInitScript(() => { const plain = setInterval; window.setInterval = (call, ms) => plain(call, ms / 50); });
  await page.goto(base + path);
  await page.locator("main a").first().focus();
  const look = () => page.waitForResponse((each) => each.request().resourceType() === "fetch");
  const sent = new Set();
  while (sent.size < 3) sent.add(await (await look()).text());
  await look(); // begins when what came before it has been shown
  const said = await page.locator("main").locator("xpath=preceding-sibling::*[@role='status']").textContent();
  return { said, drawn: (await page.innerHTML("main")).match(/<svg class="bar"|<progress/g)?.length ?? 0 };
}

// Without JavaScript: from the overview to a checkpoint and back by links and a form alone.
async function plain() {
  const context = await browser.newContext({ javaScriptEnabled: false });
  context.setDefaultTimeout(240_000);
  const page = await context.newPage();
  await page.goto(`${base}/cairn/dags/flights`);
  await page.click("text=History");
  await page.selectOption("select", "COMPLETED");
  await page.click("text=Show");
  const rows = await page.locator("tbody tr").count();
  await page.click("tbody th > a");
  return { rows, heading: (await page.textContent("h2")).trim(), address: new URL(page.url()).pathname };
}

// How high a picture is that cuts no line of the page in two.
function whole(most) {
  if (document.body.scrollHeight + 16 <= most) return document.body.scrollHeight + 16;
  const ends = [...document.querySelectorAll("main tr, main li, main p, main dd, main h3")].map((each) => each.getBoundingClientRect().bottom + scrollY);
  return Math.ceil(Math.max(...ends.filter((end) => end < most))) + 1;
}

// Pictures of whole pages, for looking.
const looks = (words) => pictures(words, Infinity);

// Pictures of pages for the documentation, on a narrow and on a wide screen, in both colour schemes.
async function pictures([folder, ...pages], most = 0) {
  const files = [];
  for (const width of [375, 1280]) {
    const page = await opened({ viewport: { width, height: 800 }, timezoneId: "UTC", locale: "en-GB" });
    for (const each of pages) {
      const [name, path] = each.split("=");
      await page.goto(base + path);
      for (const colorScheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme });
        files.push(`page-${name}-${width}-${colorScheme}.png`);
        const more = name === "checkpoint" ? 400 : 0; // its stages come last
        const height = await page.evaluate(whole, most || (width === 375 ? 1400 : 880) + more);
        await page.screenshot({ path: `${folder}/${files.at(-1)}`, fullPage: true, clip: { x: 0, y: 0, width, height } });
      }
    }
    await page.close();
  }
  return { files };
}

// By the keyboard alone: from the first key to a confirmation. Every element on the way is seen to have the focus.
async function keys(targets) {
  const page = await opened();
  await page.goto(`${base}/cairn/dags/flights`);
  const found = { stops: 0, unseen: [], first: "", skipped: "", addresses: [] };
  const focused = () => page.evaluate(() => {
    const { activeElement: each } = document;
    const [box, style] = [each.getBoundingClientRect(), getComputedStyle(each)];
    const seen = style.outlineStyle !== "none" && box.width > 0 && box.right > 0 && box.left < innerWidth && box.bottom > 0 && box.top < innerHeight;
    return { text: (each.textContent || each.name || "").trim(), name: each.name ?? "", seen };
  });
  const tab = async () => {
    await page.keyboard.press("Tab");
    const each = await focused();
    found.stops += 1;
    if (!each.seen) found.unseen.push(each.text);
    return each;
  };
  found.first = (await tab()).text;
  await page.keyboard.press("Enter");
  await page.waitForURL("**#main");
  found.skipped = await page.evaluate(() => (document.querySelector("header nav").compareDocumentPosition(document.querySelector("main")) & 4) > 0);
  await page.goto(`${base}/cairn/dags/flights`);
  for (const target of targets) {
    const [text, then] = target.split("=");
    for (let n = 0; n < 80; n += 1) {
      const each = await tab();
      if (each.text === text || each.name === text) break;
      if (n === 79) throw new Error(`no way to ${text} by the keyboard on ${page.url()}`);
    }
    if (then) {
      await page.keyboard.type(then);
    } else {
      await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
      found.addresses.push(page.url().slice(base.length));
    }
  }
  return found;
}

// In Airflow's frame a person confirms what a page has said. `FOREIGN` is a page of another site that sends the same form.
async function confirm([foreign]) {
  const page = await opened();
  await page.goto(`${base}/`);
  const inner = page.frame({ url: /cairn/ });
  await inner.goto(`${base}/cairn/dags/flights/jobs/flights/checkpoints/1`);
  await inner.click("text=Go back to this checkpoint");
  await inner.waitForSelector("button.danger");
  const found = { asked: (await inner.textContent("h2")).trim(), address: inner.url().slice(base.length) };
  const confirmed = await inner.inputValue("input[name=confirmed]");
  const other = await opened();
  await other.goto(`${foreign}/forged?action=${encodeURIComponent(base + found.address)}&confirmed=${encodeURIComponent(confirmed)}`);
  const [answer] = await Promise.all([other.waitForNavigation(), other.click("button")]);
  found.forged = answer.status();
  await inner.click("button.danger");
  await inner.waitForSelector("header nav [aria-current]");
  found.ends = inner.url().slice(base.length);
  return found;
}

const found = await { walk, faces, frame, stale, counting, plain, pictures, looks, keys, confirm }[what](words);
await browser.close();
console.log(JSON.stringify(found));
