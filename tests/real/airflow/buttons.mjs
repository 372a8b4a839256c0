// The Test button of connections in Airflow's own list, and what Airflow then says.
// `node buttons.mjs BASE USER PASSWORD CONNECTION…` prints it for each, as JSON.
import { asked } from "../../support/airflow_ui.mjs";
import { launch, opened } from "../../support/chromium.mjs";

const [base, user, password, ...connections] = process.argv.slice(2);
const browser = await launch();
const page = await opened(browser, { viewport: { width: 1400, height: 900 }, locale: "en-US" });
const found = {};
await asked(page, `${base}/connections`);
await page.fill("input[name=username]", user);
await page.fill("input[name=password]", password);
await page.keyboard.press("Enter");
for (const name of connections) {
  await page.locator("tr", { hasText: name }).waitFor();
  await page.goto(`${base}/connections`); // without what it said of the one before
  await page.locator("tr", { hasText: name }).getByRole("button", { name: "Test Connection" }).click();
  const said = await page.locator("[data-scope=toast][data-part=root]", { hasText: "Test Connection" }).innerText();
  found[name] = said.split("\n").filter((line) => line.trim());
}
await browser.close();
console.log(JSON.stringify(found));
