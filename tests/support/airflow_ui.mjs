// Airflow's own UI, with one of our pages in a frame. What is waited for is always an element: Airflow's UI may start a
// navigation twice, for each request that is refused, and Playwright reports the first one as aborted.

// Waits for an element of the page in the frame; gives the frame.
export async function inner(page, selector) {
  const frame = page.frameLocator("iframe");
  await frame.locator(selector).first().waitFor();
  return frame;
}

// Opens an address without a session, until Airflow asks for a name; gives how many frames it shows.
export async function asked(page, address) {
  await page.goto(address, { waitUntil: "commit" });
  await page.locator("input[name=password]").waitFor();
  return page.locator("iframe").count();
}

// Signs in where Airflow asks for it, and waits until it has come back to one of our pages.
export async function signIn(page, user, password) {
  await page.fill("input[name=username]", user);
  await page.fill("input[name=password]", password);
  await page.keyboard.press("Enter");
  await inner(page, "main");
}
