/** Statuses of tables and of runs: each has a word and a shape besides its colour. */
import { ChakraUI, React } from "./host";

const { Box, HStack } = ChakraUI;

interface Look {
  label: string;
  palette: string;
  shape: keyof typeof SHAPES;
}

/** Paths in a square of 16. */
const SHAPES = {
  bar: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13ZM4 6.9h8v2.2H4Z",
  circle: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13Zm0 1.6a4.9 4.9 0 1 1 0 9.8 4.9 4.9 0 0 1 0-9.8Z",
  cross: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13ZM5.6 4.5 8 6.9l2.4-2.4 1.1 1.1L9.1 8l2.4 2.4-1.1 1.1L8 9.1l-2.4 2.4-1.1-1.1L6.9 8 4.5 5.6Z",
  lock: "M8 1.5a3.5 3.5 0 0 0-3.5 3.5v1.5H3.5v8h9v-8h-1V5A3.5 3.5 0 0 0 8 1.5ZM8 3a2 2 0 0 1 2 2v1.5H6V5a2 2 0 0 1 2-2Z",
  octagon: "M5.3 1.5h5.4l3.8 3.8v5.4l-3.8 3.8H5.3l-3.8-3.8V5.3ZM7.2 4.2v4.6h1.6V4.2Zm0 6v1.6h1.6v-1.6Z",
  skip: "M1.8 3v10L8 8.6V13l6.2-5L8 3v4.4Z",
  tick: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13Zm3.3 4.2 1 1.1-5 4.9L3.9 8.4 5 7.3l2.3 2.2Z",
  triangle: "M8 1.4 15.2 14H.8ZM7.2 6v3.8h1.6V6Zm0 4.8v1.6h1.6v-1.6Z",
};

export const TABLE_STATUSES: Record<string, Look> = {
  attention: { label: "Needs attention", palette: "orange", shape: "triangle" },
  critical: { label: "Critical", palette: "red", shape: "octagon" },
  failing: { label: "Failed run", palette: "red", shape: "cross" },
  healthy: { label: "Healthy", palette: "green", shape: "tick" },
  unreadable: { label: "Cannot be read", palette: "red", shape: "bar" },
  unknown: { label: "Not read yet", palette: "gray", shape: "circle" },
  unsupported: { label: "Unsupported", palette: "purple", shape: "lock" },
};

const CHANGED: Look = { label: "Changed", palette: "green", shape: "tick" };
const RUN_STATUSES: Record<string, Look> = {
  already_done: { label: "Done by an earlier try", palette: "green", shape: "tick" },
  cleaned: { label: "Cleaned", palette: "green", shape: "tick" },
  committed: CHANGED,
  failed: { label: "Failed", palette: "red", shape: "cross" },
  nothing_to_do: { label: "Skipped, nothing to do", palette: "gray", shape: "skip" },
  planned: { label: "Planned only", palette: "blue", shape: "circle" },
  restored: { label: "Restored", palette: "green", shape: "tick" },
  written: { label: "Written", palette: "green", shape: "tick" },
};
/** What became of a table in a night of a fleet. */
export const NIGHT_STATES: Record<string, Look> = {
  announced: { label: "Announced", palette: "blue", shape: "circle" },
  approval: { label: "Waits for approval", palette: "orange", shape: "triangle" },
  disabled: { label: "Disabled", palette: "gray", shape: "bar" },
  done: { label: "Done", palette: "green", shape: "tick" },
  failed: { label: "Failed", palette: "red", shape: "cross" },
  failed_before: { label: "Failed before", palette: "orange", shape: "cross" },
  frozen: { label: "Frozen", palette: "gray", shape: "lock" },
  healthy: { label: "Healthy", palette: "green", shape: "tick" },
  known_broken: { label: "Known to be broken", palette: "gray", shape: "cross" },
  late: { label: "Unhealthy too long", palette: "red", shape: "octagon" },
  never_fits: { label: "Fits no budget", palette: "orange", shape: "octagon" },
  not_begun: { label: "Not begun", palette: "orange", shape: "skip" },
  not_measured: { label: "Not measured", palette: "gray", shape: "circle" },
  not_worth_it: { label: "Not worth it", palette: "gray", shape: "skip" },
  other_maintainer: { label: "Other maintainer", palette: "purple", shape: "lock" },
  outside_window: { label: "Outside its window", palette: "gray", shape: "circle" },
  over_budget: { label: "Over the budget", palette: "orange", shape: "skip" },
  paused: { label: "Paused", palette: "gray", shape: "bar" },
  quiet: { label: "Being written to", palette: "gray", shape: "circle" },
  refused: { label: "Refused", palette: "purple", shape: "lock" },
  report_only: { label: "Deletions only reported", palette: "gray", shape: "circle" },
  reported: { label: "Waits for trust", palette: "blue", shape: "circle" },
  stopped: { label: "Stopped", palette: "red", shape: "bar" },
  surveyed_first: { label: "Surveyed first", palette: "gray", shape: "circle" },
  unhealthy: { label: "Still unhealthy", palette: "orange", shape: "triangle" },
  unread: { label: "Cannot be read", palette: "red", shape: "bar" },
};

const SEVERITIES: Record<string, Look> = {
  attention: { label: "Attention", palette: "orange", shape: "triangle" },
  critical: { label: "Critical", palette: "red", shape: "octagon" },
  info: { label: "Info", palette: "blue", shape: "circle" },
};

export const Shape = ({ name }: { readonly name: keyof typeof SHAPES }) => (
  <svg aria-hidden fill="currentColor" height="1em" viewBox="0 0 16 16" width="1em" style={{ flexShrink: 0 }}>
    <path d={SHAPES[name]} fillRule="evenodd" />
  </svg>
);

const Badge = ({ look }: { readonly look: Look }) => (
  <HStack
    bg="colorPalette.subtle"
    borderRadius="full"
    color="colorPalette.fg"
    colorPalette={look.palette}
    display="inline-flex"
    fontSize="xs"
    fontWeight="medium"
    gap={1.5}
    px={2}
    py={0.5}
    whiteSpace="nowrap"
  >
    <Shape name={look.shape} />
    <Box as="span">{look.label}</Box>
  </HStack>
);

const other = (name: string): Look => ({ label: name, palette: "gray", shape: "circle" });

export const TableStatus = ({ status }: { readonly status: string }) => (
  <Badge look={TABLE_STATUSES[status] ?? other(status)} />
);

export const NightState = ({ state }: { readonly state: string }) => <Badge look={NIGHT_STATES[state] ?? other(state)} />;

export const RunStatus = ({ status }: { readonly status: string }) => (
  <Badge look={RUN_STATUSES[status] ?? other(status)} />
);

export const Severity = ({ severity }: { readonly severity: string }) => (
  <Badge look={SEVERITIES[severity] ?? other(severity)} />
);
