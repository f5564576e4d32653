// A job while it runs: its numbers, its plots and its table grow.
import { duration, tell, watch } from "./page.js";
import { insert } from "./plots.js";

const facts = document.querySelector("#job");
const goesOn = ["queued", "running"].includes(facts.dataset.state);
const table = document.querySelector("#trial-rows");
let last = Number(facts.dataset.last);
let best = 0;
let began = 0; // when a job that waited began to run
const loaded = performance.now();
const origins = new Map(Object.entries(JSON.parse(facts.dataset.origins)));
const found = document.querySelector("#found");

function field(name) {
  return facts.querySelector(`[data-field=${name}]`);
}

function count(name) {
  tell(field(name), Number(field(name).textContent) + 1);
}

function countOrigin(name) {
  origins.set(name, (origins.get(name) ?? 0) + 1);
  const sorted = [...origins].sort(([one, many], [other, more]) => more - many || (one < other ? -1 : 1));
  tell(field("origins"), sorted.map(([origin, many]) => `${origin} ${many}`).join(", "));
}

function showTime() {
  if (field("state").textContent.trim() === "running") {
    const past = (performance.now() - Math.max(loaded, began)) / 1000;
    tell(field("elapsed"), duration(Number(facts.dataset.elapsed) + past));
  }
}

function addRow(trial) {
  const row = table.tBodies[0].insertRow();
  const details = trial.failure
    ? `${trial.failure}: ${trial.message}`
    : Object.entries({ ...trial.params, ...(trial.tile && { tile: trial.tile.description }) })
      .map(([name, value]) => `${name}=${value}`).join("; ");
  const speed = trial.gflops == null ? "" : trial.gflops.toFixed(1);
  const interval = trial.interval
    ? trial.interval.map((end) => end.toFixed(1)).join(" to ")
    : trial.gflops == null ? "" : "one sample";
  for (const [text, kind] of [[trial.number, "number"], ["", ""], [speed, "number"],
    [interval, "number faint"], [trial.origin, ""], [details, "details"]]) {
    const cell = row.insertCell();
    cell.className = kind;
    cell.textContent = text;
  }
  const state = document.createElement("span");
  state.className = `state state-${trial.state}`;
  state.textContent = trial.state;
  row.cells[1].append(state);
}

function onTrial(event) {
  const trial = JSON.parse(event.data);
  if (trial.number <= last) {
    return;
  }
  last = trial.number;
  count("ended");
  count(trial.state);
  countOrigin(trial.origin);
  if (found.dataset.grows) {
    tell(found, Number(found.textContent) + 1);
  }
  document.querySelector("#progress").value += 1;
  if (trial.state === "timed" && trial.gflops > best) {
    best = trial.gflops;
    const shown = Number.parseFloat(field("best").textContent);
    if (!(shown > best)) {
      tell(field("best"), best.toFixed(1));
    }
  }
  const [low, high] = trial.interval ?? [null, null];
  const { number, state, origin, failure, gflops, pace, hash } = trial;
  insert("trials", [{ number, state, origin, failure, gflops, low, high, pace, hash }]);
  if (table.dataset.grows) {
    addRow(trial);
  }
}

function onPhase(event) {
  const phase = JSON.parse(event.data);
  tell(field("phase"), phase.total ? `${phase.name} ${phase.done}/${phase.total}` : phase.name);
  if (field("state").textContent.trim() === "queued") {
    began = performance.now();
    tell(field("state"), "running");
  }
}

if (goesOn) {
  setInterval(showTime, 1000);
  const stop = watch(() => {
    const source = new EventSource(`/v1/jobs/${Number(facts.dataset.job)}/events?after=${last}`);
    source.addEventListener("trial", onTrial);
    source.addEventListener("phase", onPhase);
    source.addEventListener("end", () => {
      stop();
      location.reload();
    });
    return source;
  });
}
