// The runs and panels of this page, and numbers as text.

const DATA = JSON.parse(document.getElementById("data").textContent);

let findingNumber = 0;
for (const run of DATA.runs) {
  for (const finding of run.findings) finding.number = ++findingNumber; // as the table counts them
}

/** First and last step of all runs. */
const STEPS = (() => {
  let low = Infinity, high = -Infinity;
  for (const run of DATA.runs) {
    for (const { steps } of Object.values(run.curves)) {
      if (steps.length) {
        low = Math.min(low, steps[0]);
        high = Math.max(high, steps[steps.length - 1]);
      }
    }
  }
  if (low > high) return [0, 1];
  return low === high ? [low - 1, high + 1] : [low, high];
})();

/** Text of a value: five digits. */
function valueText(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(3).replace("-", "−");
  return String(Number(value.toPrecision(5))).replace("-", "−");
}

/** Short text of a value on an axis. */
function tickText(value) {
  if (value === null) return "";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) {
    const [mantissa, exponent] = value.toExponential(1).split("e");
    return `${mantissa.replace(/\.0$/, "")}e${Number(exponent)}`.replaceAll("-", "−");
  }
  return String(Number(value.toPrecision(6))).replace("-", "−");
}

/** Short text of a step on an axis. */
function stepTick(step) {
  if (!Number.isInteger(step)) return "";
  if (step >= 1e6) return `${Number((step / 1e6).toPrecision(5))} M`;
  return step.toLocaleString("en-US");
}

/** An element with text. */
function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
