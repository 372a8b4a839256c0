// What a page is better with, and whole without: Airflow's theme, links out of its frame, local times, live updates.
"use strict";
(() => {
  const LOOK_MS = 5000;
  const framed = parent !== window;

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

  const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const localise = (root) => {
    for (const each of root.querySelectorAll("time")) each.textContent = local.format(new Date(each.dateTime));
  };
  localise(document);

  // Live: the same page again, and what differs put in its place. What a reader has opened or is typing stays.
  const unchanged = (text) => text.replace(/triggered [^;<(]* ago|\([^()]* ago\)|(begins|fails) in [\d.dhms ]+/g, "");
  let seen = null;
  const look = async () => {
    const main = document.getElementById("main");
    const inUse = main.querySelector("details[open]:not(.timeline), :focus") || getSelection()?.toString();
    if (document.hidden || inUse) return;
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const text = await answer.text();
    if (seen !== null && unchanged(text) === unchanged(seen)) return;
    seen = text;
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("main");
    localise(fresh);
    fresh.querySelector(".timeline")?.toggleAttribute("open", main.querySelector(".timeline")?.open ?? true);
    main.replaceChildren(...fresh.childNodes);
  };
  if (document.querySelector("header nav [aria-current]")) {
    setInterval(() => look().catch(() => undefined), LOOK_MS);
  }
})();
