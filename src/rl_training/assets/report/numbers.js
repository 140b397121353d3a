// Numbers: ticks, formats, smoothing. Nothing here knows the page.

function niceTicks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}

function logTicks(low, high, count) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const factor of [1, 2, 5]) ticks.push(Number((factor * 10 ** power).toPrecision(3)));
  }
  const inside = ticks.filter((value) => value >= low && value <= high);
  const powers = inside.filter((value) => Number.isInteger(Math.log10(value)));
  if (inside.length < 2) return niceTicks(low, high, count); // zoomed into less than a factor of two
  return inside.length <= count || powers.length < 2 ? inside : powers;
}

function shortNumber(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-3 || size >= 1e12) return value.toExponential(1).replace(".0e", "e");
  const units = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [scale, unit] = units.find(([limit]) => size >= limit) || [1, ""];
  return String(Number((value / scale).toPrecision(4))).replace("-", "−") + unit;
}

function exactNumber(value) {
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(2);
  return value.toLocaleString("en-US", { maximumSignificantDigits: size >= 1e4 ? 6 : 4 }).replace("-", "−");
}

// A Gaussian mean over neighbours in x. It has no lag, and keeps the ends where an exponential average would not.
function smoothed(x, y, amount) {
  const width = amount * 0.1 * (x[x.length - 1] - x[0]);
  if (!(width > 0)) return y;
  let first = 0;
  return y.map((_, i) => {
    while (x[i] - x[first] > 4 * width) first += 1;
    let sum = 0;
    let weights = 0;
    for (let j = first; j < x.length && x[j] - x[i] <= 4 * width; j += 1) {
      const weight = Math.exp(-0.5 * ((x[j] - x[i]) / width) ** 2);
      sum += weight * y[j];
      weights += weight;
    }
    return sum / weights;
  });
}

function nearestIndex(x, value) {
  let low = 0;
  let high = x.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] <= value) low = middle;
    else high = middle;
  }
  return Math.abs(x[high] - value) < Math.abs(x[low] - value) ? high : low;
}
