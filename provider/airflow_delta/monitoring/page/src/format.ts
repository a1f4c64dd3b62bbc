/** Numbers, sizes and times for people. A figure that is not known is a dash. */
export const DASH = "–";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const count = (value: number | null | undefined): string =>
  typeof value === "number" ? value.toLocaleString("en-US") : DASH;

export const bytes = (value: number | null | undefined): string => {
  if (typeof value !== "number") {
    return DASH;
  }
  let size = value;
  let unit = 0;

  while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }

  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${UNITS[unit]}`;
};

export const percent = (value: number | null | undefined): string => {
  if (typeof value !== "number") {
    return DASH;
  }
  if (value > 0 && value < 0.001) {
    return "< 0.1 %";
  }

  return `${(value * 100).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
};

export const duration = (milliseconds: number | null | undefined): string => {
  if (typeof milliseconds !== "number") {
    return DASH;
  }
  const seconds = milliseconds / 1000;

  if (seconds < 60) {
    return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  }
  const minutes = Math.floor(seconds / 60);

  return minutes < 60
    ? `${minutes} min ${Math.round(seconds % 60)} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
};

const STEPS: Array<[number, string]> = [
  [60, "s"],
  [3600, "min"],
  [86_400, "h"],
  [Number.POSITIVE_INFINITY, "d"],
];

export const ago = (timeMs: number, nowMs: number = Date.now()): string => {
  const seconds = Math.max(0, Math.round((nowMs - timeMs) / 1000));
  const divisors: Record<string, number> = { d: 86_400, h: 3600, min: 60, s: 1 };
  const unit = STEPS.find(([limit]) => seconds < limit)?.[1] ?? "d";

  return seconds < 60 ? "just now" : `${Math.floor(seconds / (divisors[unit] ?? 1))} ${unit} ago`;
};

export const moment = (timeMs: number): string =>
  new Date(timeMs).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** "numFilesToMerge" and "num_files" as words. */
export const words = (name: string): string =>
  name
    .replaceAll("_", " ")
    .replaceAll(/([a-z])([A-Z])/gu, "$1 $2")
    .toLowerCase();

export const asNumber = (value: unknown, ...path: Array<string>): number | null => {
  let found = value;

  for (const name of path) {
    found = typeof found === "object" && found !== null ? Reflect.get(found, name) : undefined;
  }

  return typeof found === "number" ? found : null;
};

export const asObjects = (value: unknown): Array<Record<string, unknown>> =>
  Array.isArray(value)
    ? value.filter((one): one is Record<string, unknown> => typeof one === "object" && one !== null && !Array.isArray(one))
    : [];

export const asObject = (value: unknown): Record<string, unknown> => asObjects([value])[0] ?? {};

/** "day = 2026-01-01, region = eu", from the values of partition columns. */
export const partitionText = (value: unknown): string => {
  const pairs = Object.entries(asObject(value)).map(([name, held]) => `${name} = ${held === null ? "null" : String(held)}`);

  return pairs.length === 0 ? "the whole table" : pairs.join(", ");
};

/** Why a rewrite left files as they are, by the reasons of a report. */
const LEFT: Record<string, string> = {
  alone: "alone in their partition",
  below_ratio: "below the ratio of deleted rows",
  clean: "without deleted rows",
  clustered: "clustered already",
  clustered_otherwise: "clustered by other columns",
  finished: "done by an earlier try",
  foreign: "outside of the table's directory",
  hot: "in partitions that are being written to",
  laid_out: "laid out already",
  large_enough: "large enough",
  left_over: "left over, since the files that would fit are merged without them",
  outside_where: "outside of the predicate",
  over_budget: "over the budget of the run",
  sealed: "in a finished part of the layout",
  too_large_together: "above the target size with any other file of their partition",
  undecided: "with a partition value that cannot be read",
  unmatched: "without a partner of fitting size",
  up_to_date: "up to date",
};

export const leftText = (reasons: Record<string, number>): string =>
  Object.entries(reasons)
    .sort(([, one], [, other]) => other - one)
    .map(([name, files]) => `${count(files)} ${LEFT[name] ?? words(name)}`)
    .join(", ");
