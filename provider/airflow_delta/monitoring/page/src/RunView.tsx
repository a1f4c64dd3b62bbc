/** One run: the table before and after it, and its report. */
import { type Point, type RunAnswer, useAnswer } from "./api";
import { bytes, count, duration, moment, percent } from "./format";
import { ChakraUI, React } from "./host";
import { Failed, Foreign, Loading, Section, TaskLink, ViewLink } from "./parts";
import { tableAddress } from "./place";
import { RunStatus } from "./status";
import { gainOf } from "./TableView";

const { Box, Code, Heading, HStack, Stack, Table, Text } = ChakraUI;

const read = (point: Point | null, text: (point: Point) => string): string => (point === null ? "not read" : text(point));

const BeforeAfter = ({ answer }: { readonly answer: RunAnswer }) => {
  const { health_after: after, health_before: before, run } = answer;
  const size = run.table_size;
  const rows: Array<[string, string, string]> = [
    ...(size === null
      ? []
      : ([
          ["Files", count(size["files_before"]), count(size["files_after"])],
          ["Size", bytes(size["bytes_before"]), bytes(size["bytes_after"])],
        ] as Array<[string, string, string]>)),
    ["Small files", read(before, (point) => count(point.small_files)), read(after, (point) => count(point.small_files))],
    [
      "Deleted rows",
      read(before, (point) => percent(point.deleted_rows_ratio)),
      read(after, (point) => percent(point.deleted_rows_ratio)),
    ],
    [
      "Log tail",
      read(before, (point) => `${count(point.commits_since_checkpoint)} commits`),
      read(after, (point) => `${count(point.commits_since_checkpoint)} commits`),
    ],
  ];

  return (
    <Section title="Before and after">
      <Table.ScrollArea borderRadius="md" borderWidth={1} maxW="2xl">
        <Table.Root size="sm">
          <Table.Header>
            <Table.Row bg="bg.muted">
              <Table.ColumnHeader scope="col">Figure</Table.ColumnHeader>
              <Table.ColumnHeader scope="col" textAlign="end">
                Before
              </Table.ColumnHeader>
              <Table.ColumnHeader scope="col" textAlign="end">
                After
              </Table.ColumnHeader>
            </Table.Row>
          </Table.Header>
          <Table.Body>
            {rows.map(([name, one, other]) => (
              <Table.Row key={name}>
                <Table.Cell>{name}</Table.Cell>
                <Table.Cell fontVariantNumeric="tabular-nums" textAlign="end">
                  {one}
                </Table.Cell>
                <Table.Cell fontVariantNumeric="tabular-nums" textAlign="end">
                  {other}
                </Table.Cell>
              </Table.Row>
            ))}
          </Table.Body>
        </Table.Root>
      </Table.ScrollArea>
      <Text color="fg.muted" fontSize="sm" mt={1}>
        {`Files and size are those of the report. The other figures are from the readings of health before the run${before === null ? "" : ` (version ${count(before.version)})`} and after it${after === null ? "" : ` (version ${count(after.version)})`}.`}
      </Text>
    </Section>
  );
};

export const RunView = ({ again, id, number }: { readonly again: number; readonly id: string; readonly number: string }) => {
  const loaded = useAnswer<RunAnswer>(`runs/${encodeURIComponent(number)}`, again);

  if (loaded.state === "loading") {
    return <Loading />;
  }
  if (loaded.state === "failed") {
    return (
      <>
        <ViewLink to={tableAddress(id)}>The table</ViewLink>
        <Failed message={loaded.message} />
      </>
    );
  }
  const { answer } = loaded;
  const { run } = answer;
  const facts: Array<[string, string]> = [
    ["Ended", moment(run.time_ms)],
    ["Took", duration(run.duration_ms)],
    ["Gain", gainOf(run)],
    ["Planned on version", count(run.read_version)],
    ["Made version", count(run.version)],
    ["Engine", run.engine ?? "–"],
    ["Bins left out", count(run.dropped_bins)],
    ["Files left for another run", count(run.left_files)],
  ];

  return (
    <Box aria-busy={loaded.isLoading}>
      <Text fontSize="sm" mb={2}>
        <ViewLink to={tableAddress(id)}>
          <Foreign>{answer.table}</Foreign>
        </ViewLink>
      </Text>
      <HStack gap={3} mb={2} wrap="wrap">
        <Heading as="h1" size="xl">
          {run.operation}
        </Heading>
        <RunStatus status={run.status} />
      </HStack>
      <Text fontSize="sm">
        {"By task "}
        <TaskLink source={run}>{`${run.dag_id} / ${run.task_id}`}</TaskLink>
      </Text>
      <Section title="Run">
        <Stack as="dl" fontSize="sm" gap={1}>
          {facts.map(([name, value]) => (
            <HStack align="flex-start" key={name}>
              <Box as="dt" color="fg.muted" minW="44">
                {name}
              </Box>
              <Box as="dd">{value}</Box>
            </HStack>
          ))}
        </Stack>
      </Section>
      <BeforeAfter answer={answer} />
      <Section title="In words">
        <Code display="block" fontSize="sm" overflowX="auto" p={3} tabIndex={0} whiteSpace="pre">
          {answer.lines.join("\n")}
        </Code>
      </Section>
      <Section title="Report">
        {answer.left_out.length === 0 ? undefined : (
          <Text fontSize="sm">{`It was too long; left out: ${answer.left_out.join(", ")}.`}</Text>
        )}
        <Box as="details">
          <Box as="summary" cursor="pointer" fontSize="sm">
            Show as JSON
          </Box>
          <Code display="block" fontSize="xs" maxH="lg" overflow="auto" p={3} tabIndex={0} whiteSpace="pre">
            {JSON.stringify(answer.report, undefined, 2)}
          </Code>
        </Box>
      </Section>
    </Box>
  );
};
