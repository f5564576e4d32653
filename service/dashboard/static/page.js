// On every page: moments told anew, and buttons that need a script.

const SPANS = [["day", 86400], ["h", 3600], ["min", 60], ["s", 1]];

function ago(moment) {
  const past = Math.max(0, (Date.now() - Date.parse(moment)) / 1000);
  const [unit, size] = SPANS.find(([, size]) => past >= size) ?? SPANS.at(-1);
  const count = Math.floor(past / size);
  return `${count} ${unit === "day" && count !== 1 ? "days" : unit} ago`;
}

function tellMoments() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    time.textContent = ago(time.dateTime);
    time.title = new Date(time.dateTime).toLocaleString();
  }
}

tellMoments();
setInterval(tellMoments, 30000);

// A stream that is open only while somebody looks: browsers allow few to one host.
export function watch(open) {
  let source = null;
  const turn = () => {
    if (document.hidden) {
      source?.close();
      source = null;
    } else {
      source ??= open();
    }
  };
  document.addEventListener("visibilitychange", turn);
  addEventListener("pagehide", () => source?.close());
  turn();
  return () => {
    document.removeEventListener("visibilitychange", turn);
    source?.close();
  };
}

// Text goes in as text, whatever it says; what is the same is not touched.
export function tell(element, text) {
  if (element && element.textContent !== String(text)) {
    element.textContent = text;
  }
}
