/** One run: the table before and after it, and its report. */
import { type Point, type RunAnswer, useAnswer } from "./api";
import { asNumber, asObject, asObjects, bytes, count, DASH, duration, leftText, moment, partitionText, percent } from "./format";
import { ChakraUI, React } from "./host";
import { DataTable, Failed, Foreign, Lines, Loading, Section, TaskLink, ViewLink } from "./parts";
import { tableAddress } from "./place";
import { RunStatus } from "./status";
import { Terms } from "./Terms";
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
      <Terms names={rows.map(([name]) => name)} />
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

const PHASES: Array<[string, string, string]> = [
  ["plan_ms", "Plan", "blue.solid"],
  ["rewrite_ms", "Rewrite", "green.solid"],
  ["wait_ms", "Wait for a moment to commit", "gray.solid"],
  ["commit_ms", "Commit", "orange.solid"],
];

const Phases = ({ report }: { readonly report: Record<string, unknown> }) => {
  const phases = PHASES.flatMap(([name, title, bg]) => {
    const spent = asNumber(report, "phases", name);

    return spent === null || (spent === 0 && name === "wait_ms") ? [] : [{ bg, spent, title }];
  });
  const all = phases.reduce((sum, phase) => sum + phase.spent, 0);

  if (all === 0) {
    return undefined;
  }

  return (
    <Section title="Time by phase">
      <HStack aria-hidden borderRadius="sm" gap={0} height={4} maxW="2xl" overflow="hidden">
        {phases.map((phase) => (
          <Box bg={phase.bg} height="full" key={phase.title} width={`${(100 * phase.spent) / all}%`} />
        ))}
      </HStack>
      <HStack as="ul" fontSize="sm" gap={5} listStyleType="none" mt={1} wrap="wrap">
        {phases.map((phase) => (
          <HStack as="li" gap={1.5} key={phase.title}>
            <Box aria-hidden bg={phase.bg} borderRadius="xs" height={3} width={3} />
            {`${phase.title} ${duration(phase.spent)}`}
          </HStack>
        ))}
      </HStack>
    </Section>
  );
};

const Partitions = ({ report }: { readonly report: Record<string, unknown> }) => {
  const partitions = asObjects(report["partitions"]);

  return partitions.length === 0 ? undefined : (
    <Section note="The files that the run read and wrote. Partitions that lost the most files come first, ten at most." title="By partition">
      <DataTable
        columns={[
          { title: "Partition" },
          { isNumber: true, title: "Files before" },
          { isNumber: true, title: "Files after" },
          { isNumber: true, title: "Bytes before" },
          { isNumber: true, title: "Bytes after" },
        ]}
        label="By partition"
        rows={partitions.map((change) => {
          const name = partitionText(asObject(change["partition"]));

          return {
            cells: [
              <Foreign key="name">{name}</Foreign>,
              count(asNumber(change, "files_before")),
              count(asNumber(change, "files_after")),
              bytes(asNumber(change, "bytes_before")),
              bytes(asNumber(change, "bytes_after")),
            ],
            key: name,
          };
        })}
      />
    </Section>
  );
};

/** Bins that the commit left out: another writer changed or removed their files first, or a file cannot be read. */
const LeftOut = ({ answer }: { readonly answer: RunAnswer }) => {
  const dropped = asObjects(answer.report["dropped"]);
  const all = answer.run.dropped_bins ?? dropped.length;

  return dropped.length === 0 ? undefined : (
    <Section
      note={`Another writer changed their files first, so the run left the table as that writer wanted it.${all > dropped.length ? ` The first ${dropped.length} of ${count(all)}.` : ""}`}
      title="Bins dropped to a conflict"
    >
      <DataTable
        columns={[
          { title: "Partition" },
          { isNumber: true, title: "Files" },
          { isNumber: true, title: "Bytes" },
          { isNumber: true, title: "Version that won" },
          { title: "What it did" },
        ]}
        label="Bins dropped to a conflict"
        rows={dropped.map((bin, position) => ({
          cells: [
            <Foreign key="name">{partitionText(asObject(bin["partition_values"]))}</Foreign>,
            count(asNumber(bin, "files")),
            bytes(asNumber(bin, "bytes")),
            count(asNumber(bin, "version")),
            <Foreign key="why">{typeof bin["message"] === "string" ? bin["message"] : DASH}</Foreign>,
          ],
          key: String(position),
        }))}
      />
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
    ["Engine", run.engine ?? DASH],
    ["Bins dropped to a conflict", count(run.dropped_bins)],
    ["Taken over from an earlier try", run.taken_over_bins === null ? DASH : `${count(run.taken_over_bins)} bins`],
    ["Files left for another run", count(run.left_files)],
    ["Files left as they are", leftText(run.left_by_reason) || DASH],
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
              <Box as="dt" color="fg.muted" minW={{ base: "32", sm: "56" }}>
                {name}
              </Box>
              <Box as="dd">{value}</Box>
            </HStack>
          ))}
        </Stack>
      </Section>
      <BeforeAfter answer={answer} />
      <Partitions report={answer.report} />
      <LeftOut answer={answer} />
      <Phases report={answer.report} />
      <Section title="In words">
        <Lines label="In words">{answer.lines}</Lines>
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
