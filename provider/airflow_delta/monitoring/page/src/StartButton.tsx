/** Starts the DAG of the setting `maintenance_dag` for a table, after a question. */
import { type Row, startedRun } from "./api";
import { ChakraUI, React, ReactRouterDOM } from "./host";
import { Foreign } from "./parts";

const { Box, Button, HStack, Link, Text } = ChakraUI;

type State =
  | { kind: "asked" }
  | { kind: "failed"; why: string }
  | { kind: "idle" }
  | { kind: "sent" }
  | { kind: "started"; run: string };

export const StartButton = ({ dagId, row }: { readonly dagId: string | null; readonly row: Row }) => {
  const [state, setState] = React.useState<State>({ kind: "idle" });

  if (dagId === null || !row.is_exact) {
    return undefined;
  }
  const start = () => {
    setState({ kind: "sent" });
    startedRun(dagId, { table: row.table })
      .then((run) => setState({ kind: "started", run }))
      .catch((error: unknown) => setState({ kind: "failed", why: error instanceof Error ? error.message : String(error) }));
  };
  const isAsking = state.kind === "asked" || state.kind === "sent";

  return (
    <Box fontSize="sm">
      {isAsking ? (
        <HStack aria-label={`Start maintenance of ${row.name}`} gap={2} role="group" wrap="wrap">
          <Text>
            {`Start ${dagId} for `}
            <Foreign>{row.name}</Foreign>?
          </Text>
          <Button autoFocus colorPalette="blue" loading={state.kind === "sent"} onClick={start} size="2xs">
            Start
          </Button>
          <Button disabled={state.kind === "sent"} onClick={() => setState({ kind: "idle" })} size="2xs" variant="outline">
            Cancel
          </Button>
        </HStack>
      ) : (
        <Button
          aria-label={`Start maintenance of ${row.name}`}
          onClick={() => setState({ kind: "asked" })}
          size="2xs"
          variant="outline"
        >
          Start maintenance
        </Button>
      )}
      <Box role="status">
        {state.kind === "started" ? (
          <>
            {"Started: "}
            <Link asChild colorPalette="blue" variant="underline">
              <ReactRouterDOM.Link to={`/dags/${encodeURIComponent(dagId)}/runs/${encodeURIComponent(state.run)}`}>
                <Foreign>{state.run}</Foreign>
              </ReactRouterDOM.Link>
            </Link>
          </>
        ) : state.kind === "failed" ? (
          <Text color="red.fg">
            {"Not started: "}
            <Foreign>{state.why}</Foreign>
          </Text>
        ) : undefined}
      </Box>
    </Box>
  );
};
