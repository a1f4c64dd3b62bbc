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
