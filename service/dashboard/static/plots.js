// Plots: specifications from the service, drawn when they come into view, in the page's colours.
import themes from "./themes.js";

const ERRORS = 1; // an empty data set is no news to whoever looks at a plot
const views = new Map();
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
  tip.replaceChildren(...lines.filter(([, said]) => said !== "" && said != null && said !== "null").map(([name, said]) => {
    const line = document.createElement("div");
    line.textContent = name ? `${name}: ${said}` : String(said);
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

async function draw(figure) {
  const answer = await fetch(figure.dataset.plot);
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    say(figure, problem.detail ?? "The plot is not to be had.");
    return;
  }
  const spec = await answer.json();
  const { vegaEmbed } = await load();
  const place = document.createElement("div");
  place.className = "drawn";
  figure.querySelectorAll(".waiting, .drawn").forEach((old) => old.remove());
  figure.append(place);
  views.get(figure)?.finalize();
  const height = spec.height ?? 300;
  const made = await vegaEmbed(place, { width: "container", height, autosize: { type: "fit-x", contains: "padding" }, ...spec }, {
    ast: true, logLevel: ERRORS, defaultStyle: false, actions: false, renderer: "canvas", tooltip,
    config: themes[dark.matches ? "dark" : "light"],
  });
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", spec.description ?? "plot");
  views.set(figure, made);
  figure.dataset.drawn = "yes";
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
  for (const figure of views.keys()) {
    drawn(figure);
  }
});

// New rows of a live data set; plots that are not drawn yet will ask for all of them.
export function insert(name, rows) {
  for (const [figure, made] of views) {
    if (figure.dataset.live === name) {
      made.view.insert(name, rows).resize().runAsync(); // longer labels take more room
    }
  }
}
