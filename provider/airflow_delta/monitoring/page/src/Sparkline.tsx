/** A figure over the newest readings, as small as a word. Its title tells the first and the last value. */
import { count } from "./format";
import { React } from "./host";

const WIDTH = 56;
const HEIGHT = 14;

export const Sparkline = ({ points, title }: { readonly points: Array<number | null>; readonly title: string }) => {
  const known = points.filter((point) => point !== null);
  const [first] = known;
  const last = known.at(-1);

  if (first === undefined || last === undefined || known.every((one) => one === first)) {
    return undefined;
  }
  const top = Math.max(...known, 1);
  const corners = known.map(
    (one, position) =>
      `${((position / (known.length - 1)) * WIDTH).toFixed(1)},${(HEIGHT - 1 - (one / top) * (HEIGHT - 2)).toFixed(1)}`,
  );

  return (
    <svg
      aria-label={`${title} over ${known.length} readings: from ${count(first)} to ${count(last)}`}
      height={HEIGHT}
      role="img"
      style={{ display: "block", marginInlineStart: "auto", opacity: 0.75 }}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      width={WIDTH}
    >
      <polyline fill="none" points={corners.join(" ")} stroke="currentColor" strokeWidth="1.5" />
    </svg>
  );
};
