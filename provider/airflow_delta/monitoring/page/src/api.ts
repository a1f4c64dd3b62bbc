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

/**
 * Starts a DAG for a table through Airflow's own REST API, as the user who is logged in: Airflow decides whether they may.
 *
 * @returns the id of the run
 */
export const startedRun = async (dagId: string, conf: Record<string, string>): Promise<string> => {
  const response = await fetch(new URL(`../api/v2/dags/${encodeURIComponent(dagId)}/dagRuns`, import.meta.url), {
    body: JSON.stringify({ conf, logical_date: null }),
    credentials: "same-origin",
    headers: { Accept: "application/json", "Content-Type": "application/json" },
    method: "POST",
  });
  const body: unknown = await response.json().catch(() => undefined);
  const member = (name: string): unknown =>
    typeof body === "object" && body !== null ? Reflect.get(body, name) : undefined;

  if (!response.ok) {
    const detail = member("detail");

    throw new Error(
      response.status === 403
        ? "You may not start this DAG."
        : typeof detail === "string"
          ? detail
          : `The API server answered ${response.status}. ${detail === undefined ? "" : JSON.stringify(detail)}`,
    );
  }

  return String(member("dag_run_id"));
};

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
