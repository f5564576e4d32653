// On every page: relative times kept current, and buttons that need a script.

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

// As the pages themselves have it: 1 h 4 min.
export function duration(seconds) {
  if (seconds < 60) {
    return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  }
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

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
