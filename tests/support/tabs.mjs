// One who has not signed in, and users in Airflow's own UI: each opens a tab by its address before signing in, then the tabs of
// the other destinations, and in each of them all pages of the job; the first also chooses a time zone, follows links, reloads,
// and stays until the session has ended.
// `node tabs.mjs BASE DAG RUN TASK USER PASSWORD USER PASSWORD` prints what they have seen, as JSON.
import { asked, inner, signIn } from "./airflow_ui.mjs";
import { launch, opened } from "./chromium.mjs";

const [base, dag, run, task, ...users] = process.argv.slice(2);
const browser = await launch();

// Opens a tab without a session, signs in where Airflow asks for it, and comes back to the tab.
async function signedIn(page, user, password) {
  const found = { frames: await asked(page, `${base}/dags/${dag}/plugin/checkpoints`) };
  await signIn(page, user, password);
  found.comesBackTo = page.url().slice(base.length);
  found.dag = await (await inner(page, "h1")).locator("h1").textContent();
  return found;
}

// Waits until Airflow's router has come to a path, without loading a page.
const comesTo = (page, path) => page.waitForFunction((end) => location.pathname.endsWith(end), path);

// Where our tabs are, below a DAG.
const places = {
  dag: "plugin/checkpoints",
  run: `runs/${run}/plugin/run-checkpoints`,
  task: `tasks/${task}/plugin/task-checkpoints`,
  instance: `runs/${run}/tasks/${task}/plugin/ti-checkpoints`,
};
const addresses = { ...Object.fromEntries(Object.entries(places).map(([name, path]) => [name, `dags/${dag}/${path}`])), nav: "plugin/cairn" };

// One who has not signed in is asked to, whatever is opened, and sees no frame.
async function signedOut(page) {
  const found = {};
  for (const [name, path] of Object.entries(addresses)) found[name] = await asked(page, `${base}/${path}`);
  return found;
}

// Opens all pages of the job within a frame by their links; gives those that say whose they are.
async function pagesOf(frame) {
  const links = frame.locator("header nav a");
  await links.first().waitFor();
  const found = [];
  for (const name of await links.allTextContents()) {
    await links.filter({ hasText: name }).click();
    await frame.locator("header nav a[aria-current=page]", { hasText: name }).waitFor();
    await frame.locator("main > *").first().waitFor({ state: "attached" });
    const problem = frame.locator("main", { hasText: /Status [45]\d\d/ });
    if ((await frame.locator("h1").textContent()) === dag && (await problem.count()) === 0) found.push(name);
  }
  return found.join(" ");
}

// The tabs of a run, a task and a task instance, and the entry in the navigation.
async function tabs(page) {
  const found = { pages: {} };
  for (const name of Object.keys(places)) {
    await page.goto(`${base}/${addresses[name]}`);
    const frame = await inner(page, name === "dag" ? "h1" : "tbody tr");
    if (name !== "dag") found[name] = [await frame.locator("h1").textContent(), await frame.locator("main").getByText(run).count() > 0];
    found.pages[name] = await pagesOf(frame);
  }
  await page.goto(`${base}/${addresses.nav}`);
  const frame = await inner(page, "tbody a");
  const link = frame.locator("tbody th > a", { hasText: new RegExp(`^${dag}$`) });
  found.nav = await link.count();
  await link.click();
  found.pages.nav = await pagesOf(frame);
  return found;
}

// Links: into Airflow without a reload, and from one page of ours to another, which a reload comes back to.
async function links(page) {
  const found = {};
  await page.goto(`${base}/dags/${dag}`);
  await page.locator(`a[href$="/dags/${dag}/plugin/checkpoints"]`).first().click();
  await inner(page, "h1");
  found.icon = await page.evaluate(async (address) => (await fetch(address)).status, `${base}/cairn/static/icon.svg`);
  await page.goto(`${base}/dags/${dag}/runs/${run}/plugin/run-checkpoints`);
  let frame = await inner(page, "tbody tr");
  await page.evaluate(() => (window.mark = 1));
  await frame.locator("tbody a[data-airflow]").first().click();
  await comesTo(page, `/dags/${dag}/runs/${run}`);
  found.link = await page.evaluate(() => window.mark);

  // In the navigation Airflow mirrors the address of the page, so a reload comes back to it.
  await page.goto(`${base}/plugin/cairn`);
  frame = await inner(page, "tbody a");
  await frame.locator("tbody th > a", { hasText: new RegExp(`^${dag}$`) }).click();
  await (await inner(page, "header nav")).locator("text=History").click();
  await (await inner(page, "form.filter")).locator("h1").waitFor();
  await comesTo(page, "/history");
  found.mirrored = page.url().slice(base.length);
  await page.reload();
  found.reloaded = await (await inner(page, "form.filter")).locator("h1").textContent();
  return found;
}

// The zone that the user chooses in Airflow's own menu: an open page follows, and so does one that is loaded anew.
async function zone(page) {
  const follows = async (timeZone) => {
    await inner(page, "main time");
    await page.frame({ url: /\/cairn\// }).waitForFunction((zone) => {
      const written = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", timeZone: zone });
      return [...document.querySelectorAll("main time")].every((each) => each.textContent.startsWith(`${written.format(new Date(each.dateTime))} `));
    }, timeZone);
  };
  await page.goto(`${base}/${addresses.run}`);
  await follows(undefined);
  await page.getByRole("button", { name: /^[+-]\d\d:\d\d$/ }).click(); // named by the offset of the zone that holds
  const choice = page.getByRole("dialog").locator("input[role=combobox]");
  await choice.fill("Asia/Tokyo");
  await choice.press("Enter");
  await page.getByRole("dialog").getByText("Asia/Tokyo:").waitFor({ timeout: 60_000 });
  await follows("Asia/Tokyo");
  await page.reload();
  await follows("Asia/Tokyo");
  return page.evaluate(() => localStorage.getItem("timezone"));
}

// A session that ends while the tab is open: the page says it, and so does what a reload of the frame brings.
async function ended(page) {
  const frame = await inner(page, "header nav");
  await page.waitForLoadState("networkidle"); // Airflow's own page leaves for the login where a request of its own is refused
  await page.context().clearCookies();
  const line = frame.locator("[role=status]", { hasText: "Your session has ended" });
  await line.waitFor();
  const found = [(await line.textContent()).replace(/since .*?[AP]M [A-Z]+[^:]*/, "since TIME"), await frame.locator("form.filter").count()];
  await frame.locator("body").evaluate(() => { setTimeout(() => location.reload()); });
  await frame.locator("main", { hasText: "sign in" }).waitFor();
  return [...found, await frame.locator("h1").textContent()];
}

const stranger = await opened(browser);
const found = { nobody: await signedOut(stranger) };
await stranger.close();
for (let first = 0; first < users.length; first += 2) {
  const page = await opened(browser, { viewport: { width: 1400, height: 900 }, locale: "en-US" });
  const seen = { ...(await signedIn(page, users[first], users[first + 1])), ...(await tabs(page)) };
  if (first === 0) Object.assign(seen, { zone: await zone(page) }, await links(page), { ended: await ended(page) });
  found[users[first]] = seen;
}
await browser.close();
console.log(JSON.stringify(found));
