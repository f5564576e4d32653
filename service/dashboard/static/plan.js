// A plan while its problems are tuned and it is made: what has ended, and which phase it is in.
import { tell, watch } from "./page.js";

const facts = document.querySelector("#plan");
const progress = document.querySelector("#progress");
let last = -1; // which problems the page shows as ended has nothing to do with their order

function field(name) {
  return document.querySelector(`[data-field=${name}]`);
}

// As the pages themselves have it: 12.3 ns, 12.3 us, 12.34 ms.
function micros(time) {
  if (time < 1) {
    return `${(time * 1000).toFixed(1)} ns`;
  }
  return time >= 10000 ? `${(time / 1000).toFixed(2)} ms` : `${time.toFixed(1)} us`;
}

function onPart(event) {
  const part = JSON.parse(event.data);
  tell(field("state"), "running");
  last = Number(event.lastEventId);
  progress.value = Math.max(progress.value, part.done);
  tell(field("ended"), progress.value);
  for (const row of document.querySelectorAll("[data-key]")) {
    if (row.dataset.key === part.key) {
      const state = row.querySelector(".state");
      tell(state, part.state);
      state.className = `state state-${part.state}`;
      tell(row.querySelector("[data-field=part-time]"), part.time_us == null ? "" : micros(part.time_us));
    }
  }
}

function onPhase(event) {
  const phase = JSON.parse(event.data);
  tell(field("phase"), phase.total ? `${phase.name} ${phase.done}/${phase.total}` : phase.name);
  if (phase.name !== "tuning") {
    tell(field("state"), "running");
  }
}

const stop = watch(() => {
  const source = new EventSource(`/v1/plans/${Number(facts.dataset.plan)}/events?after=${last}`);
  source.addEventListener("part", onPart);
  source.addEventListener("phase", onPhase);
  source.addEventListener("end", () => {
    stop();
    location.reload();
  });
  return source;
});
