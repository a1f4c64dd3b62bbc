/** The tab of a task instance: what it has told of tables. */
import { type TaskAnswer, type Told, useAnswer } from "./api";
import { ChakraUI, React } from "./host";
import { Failed, Foreign, Loading, Notice, Section, ViewLink } from "./parts";
import { runAddress, tableAddress } from "./place";
import { RunView } from "./RunView";
import { RunStatus, TableStatus } from "./status";

const { Heading, HStack, Stack, Text } = ChakraUI;

export interface TaskOfAirflow {
  dagId: string;
  mapIndex?: string;
  runId: string;
  taskId: string;
}

const KINDS: Record<string, string> = { health: "read its health", sight: "waited for it" };

const ToldOf = ({ told }: { readonly told: Told }) => (
  <HStack align="baseline" as="li" gap={3} wrap="wrap">
    <ViewLink to={tableAddress(told.row.id)}>
      <Foreign>{told.row.table}</Foreign>
    </ViewLink>
    {told.run === null ? (
      <>
        <Text color="fg.muted">{KINDS[told.kind] ?? told.kind}</Text>
        <TableStatus status={told.row.status} />
      </>
    ) : (
      <>
        {told.run.number === null ? (
          <Text>{told.run.operation}</Text>
        ) : (
          <ViewLink to={runAddress(told.row.id, told.run.number)}>{told.run.operation}</ViewLink>
        )}
        <RunStatus status={told.run.status} />
        <Text flexBasis="full" fontSize="sm">
          <Foreign>{told.run.error ?? told.run.summary ?? ""}</Foreign>
        </Text>
      </>
    )}
  </HStack>
);

export const TaskTab = ({ again, task }: { readonly again: number; readonly task: TaskOfAirflow }) => {
  const query = new URLSearchParams({ dag_id: task.dagId, run_id: task.runId, task_id: task.taskId });

  if (task.mapIndex !== undefined && /^\d+$/u.test(task.mapIndex)) {
    query.set("map_index", task.mapIndex);
  }
  const loaded = useAnswer<TaskAnswer>(`task?${query.toString()}`, again);

  if (loaded.state === "loading") {
    return <Loading />;
  }
  if (loaded.state === "failed") {
    return <Failed message={loaded.message} />;
  }
  const { told } = loaded.answer;
  const [only] = told;

  if (only === undefined) {
    return (
      <Notice palette="blue" title="This task has told of no Delta table">
        The operators and sensors of airflow-provider-delta tell what they did when they end. A task that was killed tells nothing.
      </Notice>
    );
  }
  if (told.length === 1 && only.run !== null && only.run.number !== null) {
    return <RunView again={again} id={only.row.id} number={String(only.run.number)} />;
  }

  return (
    <>
      <Heading as="h1" size="lg">
        Delta tables of this task
      </Heading>
      <Section title="It has told">
        <Stack as="ul" gap={3} listStyleType="none">
          {told.map((one, position) => (
            <ToldOf key={`${one.row.id} ${position}`} told={one} />
          ))}
        </Stack>
      </Section>
    </>
  );
};
