// Plots: specifications from the service, drawn when they come into view, in the page's colours.
import themes from "./themes.js";

const ERRORS = 1; // an empty data set is no news to whoever looks at a plot
const views = new Map(); // of each figure what is drawn, and the numbers of its live rows
const arrived = new Map(); // of each live data set the rows since the page was opened
const dark = matchMedia("(prefers-color-scheme: dark)");
let library = null;

function load() {
  library ??= import(`${document.documentElement.dataset.assets}/vega.js`);
  return library;
}

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);

// The library's own tooltip needs inline styles, which the policy forbids.
function tooltip(_handler, event, _item, value) {
  tip.hidden = value == null || value === "";
  if (tip.hidden) {
    return;
  }
  const lines = typeof value === "object" ? Object.entries(value) : [["", value]];
  tip.replaceChildren(...lines.filter(([, text]) => text !== "" && text != null && text !== "null").map(([name, text]) => {
    const line = document.createElement("div");
    line.textContent = name ? `${name}: ${text}` : String(text);
    return line;
  }));
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
}

function say(figure, text) {
  const line = document.createElement("p");
  line.className = "waiting";
  line.textContent = text;
  figure.querySelectorAll(".waiting, .drawn").forEach((old) => old.remove());
  figure.append(line);
}

// What a plot is called stands above it as text: a long name would make the plot narrow.
function caption(title) {
  const lines = [title?.text, ...[title?.subtitle ?? []].flat()].filter(Boolean);
  const made = document.createElement("div");
  made.className = "drawn caption";
  made.append(...lines.map((text, index) => {
    const line = document.createElement("div");
    line.className = index ? "faint" : "";
    line.textContent = text;
    return line;
  }));
  return made;
}

async function draw(figure) {
  views.get(figure)?.view.finalize();
  views.delete(figure);
  const answer = await fetch(figure.dataset.plot);
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    say(figure, problem.detail ?? "The plot is not to be had.");
    return;
  }
  const { title, ...spec } = await answer.json();
  const { vegaEmbed } = await load();
  const place = document.createElement("div");
  place.className = "drawn";
  figure.querySelectorAll(".waiting, .drawn").forEach((old) => old.remove());
  figure.append(caption(title), place);
  const height = spec.height ?? 300;
  const made = await vegaEmbed(place, { width: "container", height, autosize: { type: "fit-x", contains: "padding" }, ...spec }, {
    ast: true, logLevel: ERRORS, defaultStyle: false, actions: false, renderer: "canvas", tooltip,
    config: themes[dark.matches ? "dark" : "light"],
  });
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", spec.description ?? "plot");
  const known = new Set((spec.data?.values ?? []).map((row) => row.number));
  views.set(figure, { view: made.view, known });
  await add(figure, arrived.get(figure.dataset.live) ?? []);
  figure.dataset.drawn = "yes";
}

// Rows that a plot does not show yet: some come while it is drawn, and some come twice.
async function add(figure, rows) {
  const { view, known } = views.get(figure);
  const fresh = rows.filter((row) => !known.has(row.number));
  fresh.forEach((row) => known.add(row.number));
  figure.dataset.rows = known.size;
  if (fresh.length) {
    await view.insert(figure.dataset.live, fresh).resize().runAsync(); // longer labels take more room
  }
}

function drawn(figure) {
  return draw(figure).catch((error) => {
    say(figure, "The plot could not be drawn.");
    console.error(error);
  });
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) {
      seen.unobserve(entry.target);
      drawn(entry.target);
    }
  }
}, { rootMargin: "200px" });

// The page is shown first: compiling a plot takes longer than everything else here.
requestAnimationFrame(() => setTimeout(() => {
  for (const figure of document.querySelectorAll("[data-plot]")) {
    seen.observe(figure);
  }
}));

dark.addEventListener("change", () => {
  for (const figure of [...views.keys()]) {
    drawn(figure);
  }
});

// New rows of a live data set, for plots that are drawn and for those that will be.
export function insert(name, rows) {
  arrived.set(name, [...(arrived.get(name) ?? []), ...rows]);
  for (const figure of views.keys()) {
    if (figure.dataset.live === name) {
      add(figure, rows);
    }
  }
}
