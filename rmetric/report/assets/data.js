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

/** Short texts of the ticks of an axis: those of different ticks differ, and all are in one notation. */
function tickTexts(ticks) {
  const place = lastPlace(ticks);
  const plain = ticks.map((tick) => tickText(tick, place, "standard"));
  if (longest(plain) <= 5) return plain;
  const scientific = ticks.map((tick) => tickText(tick, place, "scientific"));
  return longest(scientific) < longest(plain) ? scientific : plain;
}

/** Power of ten of the last digit that tells ticks from each other. */
function lastPlace(ticks) {
  const gaps = ticks.slice(1).map((tick, index) => tick - ticks[index]);
  const finest = Math.min(...[...gaps, ...ticks].map(Math.abs).filter((size) => size > 0)); // a gap, or a tick by its digits
  const [mantissa, exponent] = exponential(finest, 2);
  return exponent - mantissa.replace(/\.?0*$/, "").slice(2).length;
}

function tickText(tick, place, notation) {
  if (tick === 0) return "0";
  const digits = Math.min(Math.max(exponential(tick, 9)[1] - place + 1, 1), 15);
  const text = tick.toLocaleString("en-US", { notation, maximumSignificantDigits: digits, useGrouping: false });
  return text.replace("E", "e").replaceAll("-", "−");
}

/** Mantissa as text, and exponent. */
function exponential(value, decimals) {
  const [mantissa, exponent] = value.toExponential(decimals).split("e");
  return [mantissa, Number(exponent)];
}

function longest(texts) {
  return Math.max(...texts.map((text) => text.length));
}

/** Short text of a step on an axis. */
function stepTick(step) {
  if (!Number.isInteger(step)) return "";
  return step >= 1e6 ? `${step / 1e6} M` : step.toLocaleString("en-US");
}

/** An element with text. */
function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
