// Tells what a problem string means while it is typed.

const input = document.querySelector("#problem");
const told = document.querySelector("#problem-told");
let waits = 0;

async function check() {
  const asked = input.value.trim();
  if (!asked) {
    told.textContent = "";
    return;
  }
  const answer = await fetch(`/submit/check?problem=${encodeURIComponent(asked)}`).catch(() => null);
  if (!answer?.ok || input.value.trim() !== asked) {
    return;
  }
  const found = await answer.json();
  told.className = found.error ? "wrong" : "faint";
  told.textContent = found.error ??
    `${found.problem}: ${found.gflop.toPrecision(3)} GFLOP over ${found.mib.toPrecision(3)} MiB, ` +
    `${found.intensity.toPrecision(3)} flops per byte`;
}

input.addEventListener("input", () => {
  clearTimeout(waits);
  waits = setTimeout(check, 250);
});
check();
