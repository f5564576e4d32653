// Jobs that run or wait, and machines, as they change.
import { tell, watch } from "./page.js";

const FIELDS = ["problem", "target", "state", "phase", "trials", "best"];

function keyed(parent) {
  return new Map([...parent.children].map((row) => [row.dataset.row, row]));
}

// Rows are kept where they are known, so that the focus stays where it is.
function show(parent, items, key, make, fill) {
  const known = keyed(parent);
  for (const item of items) {
    const name = String(item[key]);
    let row = known.get(name);
    if (!row) {
      row = make(item);
      row.dataset.row = name;
      parent.append(row);
    }
    known.delete(name);
    fill(row, item);
  }
  for (const gone of known.values()) {
    gone.remove();
  }
}

function jobRow(job) {
  const row = document.createElement("tr");
  const link = document.createElement("a");
  link.href = `/jobs/${Number(job.id)}`;
  link.textContent = job.id;
  row.insertCell().append(link);
  for (const field of FIELDS) {
    const cell = row.insertCell();
    cell.dataset.field = field;
    if (field === "trials" || field === "best") {
      cell.className = "number";
    }
  }
  return row;
}

function fillJob(row, job) {
  for (const field of FIELDS) {
    tell(row.querySelector(`[data-field=${field}]`), job[field]);
  }
}

function machineRow() {
  const row = document.createElement("li");
  for (const [kind, field] of [["b", "host"], ["span", "cpu"], ["span", "work"], ["span", "targets"]]) {
    const part = document.createElement(kind);
    part.dataset.field = field;
    row.append(part, " ");
  }
  return row;
}

function fillMachine(row, machine) {
  const does = [["runs job", machine.jobs], ["makes plan", machine.plans]]
    .filter(([, numbers]) => numbers.length)
    .map(([what, numbers]) => `${what} ${numbers.join(", ")}`);
  const work = does.join(", ") || "is idle";
  const fields = { ...machine, work: `${work}, room for ${machine.capacity}` };
  for (const field of ["host", "cpu", "work", "targets"]) {
    tell(row.querySelector(`[data-field=${field}]`), fields[field]);
  }
}

function update(event) {
  const found = JSON.parse(event.data);
  show(document.querySelector("#live-jobs tbody"), found.jobs, "id", jobRow, fillJob);
  show(document.querySelector("#live-machines"), found.machines, "owner", machineRow, fillMachine);
  document.querySelector("#no-jobs").hidden = found.jobs.length > 0;
  document.querySelector("#no-machines").hidden = found.machines.length > 0;
}

watch(() => {
  const source = new EventSource("/live");
  source.addEventListener("overview", update);
  return source;
});
