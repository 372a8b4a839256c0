// A reader who leaves the tab of a DAG open in Airflow's own UI, and what the overview says one after the other.
// `node watched.mjs BASE USER PASSWORD DAG FILE LAST…` writes each new sentence to FILE until one holds all of LAST, or FILE.stop is there.
import { appendFileSync, existsSync } from "node:fs";
import { asked, signIn } from "../../support/airflow_ui.mjs";
import { launch, opened } from "../../support/chromium.mjs";

const [base, user, password, dag, file, ...last] = process.argv.slice(2);
const browser = await launch();
const page = await opened(browser, { viewport: { width: 1400, height: 900 } });
await asked(page, `${base}/dags/${dag}/plugin/checkpoints`);
await signIn(page, user, password);
const main = page.frameLocator("iframe").locator("main");
await main.evaluate(() => (window.mark = 1));

// What is in progress, with the stages that are waited for, and the newest checkpoints that have ended.
const said = () => main.evaluate((root) => {
  const text = (each) => each.textContent.replace(/\s+/g, " ").trim();
  const pending = [...root.querySelectorAll("section[aria-labelledby^=pending] h2")].map(text);
  const stages = [...root.querySelectorAll(".stages li")].map((each) => `${text(each.querySelector(".name"))}: ${text(each.querySelector(".said")).split(",")[0]}`);
  const rows = [...root.querySelectorAll("section[aria-labelledby=latest] tbody tr")];
  const ended = rows.slice(0, 2).map((row) => [...row.children].slice(0, 2).map(text).join(" "));
  return [...pending, ...stages, ...ended].join("; ") || text(root);
});
let before = "";
while (!last.every((each) => before.includes(each)) && !existsSync(`${file}.stop`)) {
  const now = await said();
  if (now !== before) appendFileSync(file, `${now}\n`);
  before = now;
  await new Promise((done) => setTimeout(done, 200));
}
const mark = await main.evaluate(() => window.mark);
await browser.close();
console.log(JSON.stringify({ mark }));
