// What a page is better with, and whole without: Airflow's theme, links out of its frame, local times, live updates.
"use strict";
(() => {
  const LOOK_MS = 5000;
  const PATIENCE_MS = 30_000; // the server itself gives up a store after eight seconds
  const ZONE = "timezone"; // under which Airflow's UI keeps the zone that the user has chosen, as JSON
  const framed = parent !== window;

  // The theme and the links come before the page is drawn: no page shows the other theme first, and no link is clicked
  // before its listener is there, which would open Airflow within the frame.

  // Airflow's theme. Its own document says which one is chosen; without it the media query decides.
  if (framed) {
    const theirs = parent.document.documentElement;
    const follow = () => {
      for (const name of ["light", "dark"]) document.documentElement.classList.toggle(name, theirs.classList.contains(name));
    };
    follow();
    new MutationObserver(follow).observe(theirs, { attributes: true, attributeFilter: ["class"] });
  }

  // The frame may not navigate its parent, so Airflow's router is told where to go.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-airflow]");
    if (!framed || !link || event.button !== 0) return;
    event.preventDefault();
    if (event.metaKey || event.ctrlKey || event.shiftKey) {
      parent.open(link.href, "_blank");
      return;
    }
    parent.history.pushState(null, "", link.href);
    parent.dispatchEvent(new PopStateEvent("popstate"));
  });

  document.addEventListener("DOMContentLoaded", () => {
    // In the zone chosen in Airflow, else in the browser's: no zone is chosen, or what is kept there is none.
    const inZone = (timeZone) => {
      const moments = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", timeZone });
      const zones = new Intl.DateTimeFormat(undefined, { timeZoneName: "short", timeZone });
      const name = (at) => zones.formatToParts(at).find((each) => each.type === "timeZoneName").value;
      return { format: (at) => `${moments.format(at)} ${name(at)}` };
    };
    const formatted = () => {
      try {
        return inZone(JSON.parse(localStorage.getItem(ZONE)) ?? undefined);
      } catch {
        return inZone(undefined);
      }
    };
    let local = formatted();
    const localise = (root) => {
      for (const each of root.querySelectorAll("time")) each.textContent = local.format(new Date(each.dateTime));
    };
    const main = document.getElementById("main");
    let shown = main.innerHTML; // as the server sent it
    localise(document);
    addEventListener("storage", ({ key }) => {
      if (key !== ZONE && key !== null) return;
      local = formatted();
      localise(document);
    });

    // Live: the same page again, and what differs put in its place. What a reader has opened or is typing stays. What
    // keeps the page from being up to date is said in a line above it.
    const unchanged = (html) => html.replace(/triggered [^;<(]* ago|\([^()]* ago\)|\(in [\d.dhms ]+\)|(begins|fails) in [\d.dhms ]+|(running|deferred) for [\d.dhms ]+|<span class="ago"[^>]*>[^<]*|<progress[^>]*>|<svg class="bar"[^]*?<\/svg>/g, "~");
    const notice = document.createElement("p");
    notice.className = "stale";
    notice.setAttribute("role", "status");
    let upToDate = new Date();
    const say = (why) => {
      const text = why && `Not up to date since ${local.format(upToDate)}: ${why}`;
      if (!why) upToDate = new Date();
      if (notice.textContent !== text) notice.textContent = text;
    };
    // "12 s ago" goes on by itself, within the elements that stand there, and so do bars.
    const goOn = (fresh) => {
      const [drawn, redrawn] = [main, fresh].map((root) => root.querySelectorAll("progress, svg.bar"));
      drawn.forEach((each, n) => { if (each.outerHTML !== redrawn[n].outerHTML) each.replaceWith(redrawn[n]); });
      const [ours, theirs] = [main, fresh].map((root) => {
        const [walker, found] = [document.createTreeWalker(root, NodeFilter.SHOW_TEXT), []];
        while (walker.nextNode()) found.push(walker.currentNode);
        return found;
      });
      if (ours.length !== theirs.length) return;
      ours.forEach((each, n) => { if (each.data !== theirs[n].data) each.data = theirs[n].data; });
    };
    const ask = async () => {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(PATIENCE_MS) });
      return [answer, new DOMParser().parseFromString(await answer.text(), "text/html")];
    };
    const look = async () => {
      if (document.hidden) return;
      let answer, fresh;
      try {
        [answer, fresh] = await ask();
      } catch {
        return say("Airflow does not answer. This page goes on when it does.");
      }
      const found = fresh.getElementById("main");
      if (!found) return say(`Airflow answers with another page (status ${answer.status}). Reload Airflow and sign in.`);
      if (!answer.ok) {
        const [title, wayOut] = [fresh.querySelector("h1"), found.querySelector("p:not(.cause, .quiet)")];
        return say(`${title?.textContent ?? answer.status}. ${wayOut?.textContent ?? ""}`.trim());
      }
      const html = found.innerHTML;
      localise(found);
      if (unchanged(html) === unchanged(shown)) {
        if (!getSelection()?.toString()) goOn(found);
      } else {
        const inUse = main.querySelector("details[open]:not(.timeline), :focus") || getSelection()?.toString();
        if (inUse) return say("there is news, which is shown when you leave what you have selected, opened or focused.");
        shown = html;
        found.querySelector(".timeline")?.toggleAttribute("open", main.querySelector(".timeline")?.open ?? true);
        main.replaceChildren(...found.childNodes);
      }
      say("");
    };
    if (document.querySelector("header nav [aria-current], .jobs")) {
      main.before(notice);
      let looking = false;
      const onlyOne = async () => {
        if (looking) return;
        looking = true;
        await look().finally(() => (looking = false));
      };
      setInterval(onlyOne, LOOK_MS);
      document.addEventListener("visibilitychange", onlyOne);
    }
  });
})();
