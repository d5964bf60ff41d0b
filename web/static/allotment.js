// The pages work without this file; it keeps them up to date.
"use strict";

// The server sends "farm" after each cycle and "plan" after each edit: parts of a page that
// have hx-trigger="farm from:body" ask for themselves again. A hidden page has no stream.
const events = ["farm", "plan"];
let stream = null;

function announce(name) {
  document.body.dispatchEvent(new CustomEvent(name));
}

function follow() {
  if (stream || document.hidden) return;
  stream = new EventSource("/events");
  for (const name of events) stream.addEventListener(name, () => announce(name));
}

if (document.querySelector('[hx-trigger*="from:body"], [data-live]')) {
  follow();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      if (stream) stream.close();
      stream = null;
      return;
    }
    follow();
    events.forEach(announce);
  });
}
