// The service lists blobs and prefixes in one order, so a folder's marker `x` comes before the prefix `x/`. Azurite lists
// all prefixes first, and Hadoop 3.5, which drops a prefix that follows its marker, takes each folder twice.
const path = require("node:path");
const xml = require(path.join(path.dirname(process.argv[1]), "generated", "utils", "xml.js"));
const { stringifyXML } = xml;
const name = (entry) => /<Name>(.*?)<\/Name>/s.exec(entry)[1];

xml.stringifyXML = (...given) =>
  stringifyXML(...given).replace(/(<Blobs>)(.*)(<\/Blobs>)/s, (_, head, listed, tail) => {
    const entries = listed.match(/<Blob>.*?<\/Blob>|<BlobPrefix>.*?<\/BlobPrefix>/gs) ?? [];
    return head + entries.sort((one, other) => (name(one) < name(other) ? -1 : 1)).join("") + tail;
  });

// After ten minutes Azurite looks all its memory over for garbage. It does not answer then, for minutes if much was
// written. Tests that write much start it anew.
require(path.join(path.dirname(process.argv[1]), "utils", "constants.js")).DEFAULT_GC_INTERVAL_MS = 2 ** 31 - 1;
