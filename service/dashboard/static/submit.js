// Describes a problem string while it is typed.

const input = document.querySelector("#problem");
const description = document.querySelector("#problem-description");
let waits = 0;

async function check() {
  const problem = input.value.trim();
  if (!problem) {
    description.textContent = "";
    return;
  }
  const answer = await fetch(`/submit/check?problem=${encodeURIComponent(problem)}`).catch(() => null);
  if (!answer?.ok || input.value.trim() !== problem) {
    return;
  }
  const found = await answer.json();
  description.className = found.error ? "wrong" : "faint";
  description.textContent = found.error ??
    `${found.problem}: ${found.gflop.toPrecision(3)} GFLOP over ${found.mib.toPrecision(3)} MiB, ` +
    `${found.intensity.toPrecision(3)} flops per byte`;
}

input.addEventListener("input", () => {
  clearTimeout(waits);
  waits = setTimeout(check, 250);
});
check();
