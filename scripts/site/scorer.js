// What comes first in the site's search: pages that say what to do, before those that say why it was built so.
var Scorer = {
  score: ([docname, title, anchor, descr, score]) => {
    if (/^(docs\/decisions\/|CHANGELOG|CONTRIBUTING|docs\/rooms|docs\/semantics|docs\/reference\/schema\/|files\/)/.test(docname)) return score / 4;
    if (/^(docs\/how-to\/|docs\/faq|docs\/tutorial|docs\/operations|docs\/when-not-to-use|docs\/concepts\/overview)/.test(docname)) return score * 2;
    return score;
  },
  // All below is Sphinx's own.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
