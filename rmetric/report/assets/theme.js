// Colours, from the style sheet, so that light, dark and print are said in one place.

const COLOURS = 6;
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3]];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Colour and dash of a run; no two of the first 24 share both. */
function lookOf(run) {
  return { stroke: colour(`run-${run % COLOURS}`), dash: DASHES[Math.floor(run / COLOURS) % DASHES.length] };
}

const LINES = { solid: [], dashed: [7, 3], dotted: [2, 3] };

/** Give a swatch the line of its run. */
function paintSwatch(swatch, run) {
  const styles = ["solid", "dashed", "dotted", "double"];
  swatch.style.borderTopStyle = styles[Math.floor(run / COLOURS) % styles.length];
  swatch.style.borderTopColor = `var(--run-${run % COLOURS})`;
}

for (const swatch of document.querySelectorAll(".swatch[data-run]")) paintSwatch(swatch, Number(swatch.dataset.run));
