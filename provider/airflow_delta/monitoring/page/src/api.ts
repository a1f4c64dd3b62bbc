/** The answers of the provider's API, and the hook that fetches them. provider/airflow_delta/monitoring/answers.py has the same. */
import { React } from "./host";

export interface Source {
  dag_id: string;
  map_index: number;
  run_id: string;
  task_id: string;
}

/** What identifies an asset of Airflow. */
export interface Asset {
  name: string;
  uri: string;
}

export interface Work extends Source {
  operation: string;
  status: string;
  time_ms: number;
}

export interface Row {
  commits_since_checkpoint: number | null;
  deleted_rows_ratio: number | null;
  failure: (Work & { message: string | null }) | null;
  finding: { code: string | null; message: string | null; severity: string | null } | null;
  id: string;
  is_exact: boolean;
  is_next_done: boolean;
  is_older_than_work: boolean;
  last_runs: Record<string, { engine: string | null; status: string; time_ms: number }>;
  last_work: Work | null;
  name: string;
  next: { operation: string | null; operator: string | null; why: string | null } | null;
  num_files: number | null;
  num_findings: number;
  read_ms: number | null;
  reclaimable_bytes: number | null;
  sight: (Work & { version: number | null }) | null;
  size_bytes: number | null;
  small_files: number | null;
  status: string;
  table: string;
  trend: { num_files: Array<number | null>; small_files: Array<number | null> };
  version: number | null;
  watch: { asset: string; version: number | null } | null;
}

export interface Fleet {
  broken: Array<Source & { time_ms: number; why: string }>;
  counts: Record<string, number>;
  days: number;
  maintenance_dag: string | null;
  offset: number;
  tables: Array<Row>;
  total: number;
}

export interface Point {
  commits_since_checkpoint: number | null;
  deleted_rows_ratio: number | null;
  num_files: number | null;
  read_ms: number;
  size_bytes: number | null;
  small_files: number | null;
  status: string | null;
  version: number | null;
}

export interface Finding {
  code?: string;
  evidence?: Record<string, unknown>;
  limit?: number | null;
  message?: string;
  number?: number | null;
  severity?: string;
}

export interface Advice {
  arguments?: Record<string, unknown>;
  command?: string;
  operation?: string;
  operator?: string;
  why?: string;
}

export interface Health extends Source {
  facts: Record<string, unknown>;
  findings: Array<Finding>;
  left_out: Array<string>;
  read_ms: number;
  recommendations: Array<Advice>;
  status: string | null;
  version: number | null;
}

export interface Run extends Work {
  deleted_bytes: number | null;
  deleted_files: number | null;
  dropped_bins: number | null;
  duration_ms: number | null;
  engine: string | null;
  error: string | null;
  left_by_reason: Record<string, number>;
  left_files: number | null;
  number: number | null;
  read_version: number | null;
  summary: string | null;
  table_size: Record<string, number | null> | null;
  taken_over_bins: number | null;
  version: number | null;
}

export interface Version {
  engine: string | null;
  is_maintenance: boolean;
  operation: string | null;
  time_ms: number | null;
  version: number;
  writer: string | null;
}

export interface Feature {
  name: string;
  note: string;
  refused: Array<string>;
}

export interface TableAnswer {
  features: Array<Feature>;
  health: Health | null;
  maintenance_dag: string | null;
  plan: { lines: Array<string>; run: Run } | null;
  row: Row;
  runs: Array<Run>;
  trend: Array<Point>;
  versions: Array<Version>;
}

export interface Told {
  kind: string;
  row: Row;
  run: Run | null;
}

export interface TaskAnswer {
  told: Array<Told>;
}

export interface RunAnswer {
  health_after: Point | null;
  health_before: Point | null;
  left_out: Array<string>;
  lines: Array<string>;
  report: Record<string, unknown>;
  run: Run;
  table: string;
}

export interface Figures {
  num_done: number;
  num_failed: number;
  num_files: number;
  num_tables: number;
  num_unhealthy: number;
  num_unread: number;
  reclaimable_bytes: number;
  size_bytes: number;
  started_ms: number;
}

export interface Alert {
  kind: string;
  num_tables: number;
  why: string;
}

/** A pause, or an acknowledgement of failures, of the tables that match a pattern. */
export interface Hold {
  kind: string;
  match: string;
  until?: string | null;
  why: string;
}

export interface FleetLine extends Source {
  alerts: Array<Alert>;
  asset: string;
  asset_id: number;
  broken: string;
  figures: Figures | null;
}

export interface FleetsAnswer {
  fleets: Array<FleetLine>;
}

export interface Cost {
  read_bytes: number;
  requests: number;
  worker_seconds: number;
}

export interface LeftWork {
  next_ms: number | null;
  operations: Array<string>;
  reason: string;
  why: string;
}

export interface DoneWork {
  forecast: Cost;
  message: string;
  operation: string;
  outcome: Cost;
  saved_bytes: number;
  saved_files: number;
  status: string;
}

export interface TableNight {
  deadline_ms: number | null;
  done: Array<DoneWork>;
  due_next: Array<{ cost: Cost; operation: string; why: string }>;
  id: string;
  left: Array<LeftWork>;
  left_next: Array<LeftWork>;
  num_files: number | null;
  owner: string | null;
  reclaimable_bytes: number | null;
  size_bytes: number | null;
  small_files: number | null;
  state: string;
  table: string;
  unhealthy_since_ms: number | null;
  value: number;
  written_ms: number | null;
}

export interface BudgetUse {
  forecast: number;
  limit: number | null;
  resource: string;
  used: number;
}

export interface Group {
  name: string;
  num_done: number;
  num_failed: number;
  num_tables: number;
  num_unhealthy: number;
  reclaimable_bytes: number;
  size_bytes: number;
  small_files: number;
}

export interface FleetAnswer extends FleetLine {
  broken_holds: string;
  budget: Array<BudgetUse>;
  counts: Record<string, number>;
  figures: Figures;
  finished_ms: number;
  groups: Array<Group>;
  holds: Array<Hold>;
  interval_ms: number | null;
  may_change: boolean;
  next: { budget: Array<BudgetUse>; cost: Cost; num_tables: number; starts_ms: number };
  night_holds: Array<Hold>;
  num_groups: number;
  offset: number;
  run_id_of_fleet: string;
  source: string;
  started_ms: number;
  tables: Array<TableNight>;
  total: number;
  totals: Group;
  trend: Array<Figures>;
}

export type Loaded<T> =
  | { answer: T; isLoading: boolean; state: "loaded" }
  | { message: string; state: "failed" }
  | { state: "loading" };

/** The API is served beside this script. */
const BASE = new URL("v1/", import.meta.url);

const REASONS: Record<number, string> = {
  401: "Your session has ended. Log in again.",
  403: "You may not read assets. Ask an administrator of this Airflow for the permission.",
};

const fetched = async <T>(path: string, signal: AbortSignal): Promise<T> => {
  const response = await fetch(new URL(path, BASE), {
    credentials: "same-origin",
    headers: { Accept: "application/json" },
    signal,
  });

  if (!response.ok) {
    const body: unknown = await response.json().catch(() => undefined);
    const detail = typeof body === "object" && body !== null ? Reflect.get(body, "detail") : undefined;

    throw new Error(
      REASONS[response.status] ??
        (typeof detail === "string" ? detail : `The API server answered ${response.status}.`),
    );
  }

  return (await response.json()) as T;
};

const textOf = (detail: unknown, status: number): string =>
  typeof detail === "string"
    ? detail
    : `The API server answered ${status}. ${detail === undefined ? "" : JSON.stringify(detail)}`;

/** Asks Airflow's own REST API, as the user who is logged in: Airflow decides whether they may. */
const asked = async (method: string, path: string, denied: string, content: unknown): Promise<unknown> => {
  const response = await fetch(new URL(`../api/v2/${path}`, import.meta.url), {
    body: JSON.stringify(content),
    credentials: "same-origin",
    headers: { Accept: "application/json", "Content-Type": "application/json" },
    method,
  });
  const body: unknown = await response.json().catch(() => undefined);

  if (!response.ok) {
    throw new Error(response.status === 403 ? denied : textOf(member(body, "detail"), response.status));
  }

  return body;
};

const member = (body: unknown, name: string): unknown =>
  typeof body === "object" && body !== null ? Reflect.get(body, name) : undefined;

/**
 * Starts a DAG for a table.
 *
 * @returns the id of the run
 */
export const startedRun = async (dagId: string, conf: Record<string, string>): Promise<string> => {
  const path = `dags/${encodeURIComponent(dagId)}/dagRuns`;
  const body = await asked("POST", path, "You may not start this DAG.", { conf, logical_date: null });

  return String(member(body, "dag_run_id"));
};

/** The key of the state store of a fleet's asset that has its holds; provider/airflow_delta/monitoring/fleets/record.py has the same. */
const HOLDS = "delta_fleet_holds";
const MAY_NOT = "You may not write to the state store of this asset.";

/** Changes what persons have said of a fleet's tables. What others have said since the page was loaded stays. */
export const changeHolds = async (assetId: number, change: (holds: Array<Hold>) => Array<Hold>): Promise<void> => {
  const fleet = await fetched<FleetAnswer>(`fleets/${assetId}?limit=1`, new AbortController().signal);

  if (fleet.broken_holds !== "") {
    throw new Error(fleet.broken_holds);
  }
  await asked("PUT", `assets/${assetId}/state-store/${HOLDS}`, MAY_NOT, { value: { holds: change(fleet.holds) } });
};

/** The address of an answer that the browser saves. */
export const addressOf = (path: string): string => new URL(path, BASE).href;

/** The answer to a path. While another one is fetched, the last answer stays. */
export const useAnswer = <T>(path: string, again: number): Loaded<T> => {
  const [loaded, setLoaded] = React.useState<Loaded<T>>({ state: "loading" });

  React.useEffect(() => {
    const controller = new AbortController();

    setLoaded((held) => (held.state === "loaded" ? { ...held, isLoading: true } : { state: "loading" }));
    fetched<T>(path, controller.signal)
      .then((answer) => setLoaded({ answer, isLoading: false, state: "loaded" }))
      .catch((error: unknown) => {
        if (!controller.signal.aborted) {
          setLoaded({ message: error instanceof Error ? error.message : String(error), state: "failed" });
        }
      });

    return () => controller.abort();
  }, [path, again]);

  return loaded;
};
