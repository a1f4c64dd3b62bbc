/** One table: what it needs and why, its figures, and what its runs have done. */
import {
  type Advice,
  type Feature,
  type Finding,
  type Health,
  type Point,
  type Run,
  type TableAnswer,
  useAnswer,
} from "./api";
import { asNumber, bytes, count, DASH, duration, leftText, moment, percent, words } from "./format";
import { ChakraUI, React } from "./host";
import { Address, DataTable, Failed, Foreign, Lines, Loading, Notice, Section, TaskLink, ViewLink, When } from "./parts";
import { FLEET_ADDRESS, runAddress } from "./place";
import { WhereTheFilesAre } from "./SizeChart";
import { StartButton } from "./StartButton";
import { RunStatus, Severity, TableStatus } from "./status";
import { descriptionOf, explanationOf, Terms } from "./Terms";
import { Versions } from "./Versions";

const { Box, Code, Flex, Heading, HStack, SimpleGrid, Stack, Table, Text } = ChakraUI;

/** A member of a finding's evidence, by its name and its kind. */
const evidenceText = (name: string, value: unknown): string => {
  if (typeof value === "number") {
    return /bytes|size/iu.test(name) ? bytes(value) : /ms$/iu.test(name) ? moment(value) : count(value);
  }

  return typeof value === "string" ? value : JSON.stringify(value);
};

const limitText = (code: string | undefined, value: number | null | undefined): string =>
  code === "deleted_rows" ? percent(value) : code === "reclaimable_files" ? bytes(value) : count(value);

const checkpointText = (version: number | null): string =>
  version === null ? "and no checkpoint yet" : `since checkpoint ${count(version)}`;

const FindingCard = ({ finding }: { readonly finding: Finding }) => {
  const evidence = Object.entries(finding.evidence ?? {}).filter(([, value]) => value !== null);

  return (
    <Box as="li" borderRadius="md" borderWidth={1} p={3}>
      <HStack gap={3} mb={1} wrap="wrap">
        <Severity severity={finding.severity ?? "info"} />
        <Text fontSize="sm" fontWeight="semibold">
          {words(finding.code ?? "")}
        </Text>
        {typeof finding.number === "number" ? (
          <Text color="fg.muted" fontSize="sm">
            {`${limitText(finding.code, finding.number)}, limit ${limitText(finding.code, finding.limit)}`}
          </Text>
        ) : undefined}
      </HStack>
      <Text fontSize="sm">
        <Foreign>{finding.message ?? ""}</Foreign>
      </Text>
      {evidence.length === 0 ? undefined : (
        <Box as="details" fontSize="sm" mt={2}>
          <Box as="summary" color="fg.muted" cursor="pointer">
            Evidence
          </Box>
          <SimpleGrid as="dl" columnGap={4} columns={{ base: 1, md: 3, sm: 2 }} mt={1} rowGap={1}>
            {evidence.map(([name, value]) => (
              <Box key={name}>
                <Box as="dt" color="fg.muted" fontSize="xs">
                  {words(name)}
                </Box>
                <Box as="dd" fontVariantNumeric="tabular-nums">
                  <Foreign>{evidenceText(name, value)}</Foreign>
                </Box>
              </Box>
            ))}
          </SimpleGrid>
        </Box>
      )}
    </Box>
  );
};

const AdviceItem = ({ advice, position }: { readonly advice: Advice; readonly position: number }) => (
  <Box as="li" borderRadius="md" borderWidth={1} p={3}>
    <Text fontSize="sm">
      <Text as="span" fontWeight="semibold">{`${position}. ${advice.operation ?? ""}`}</Text>
      {" – "}
      <Foreign>{advice.why ?? ""}</Foreign>
    </Text>
    {advice.operator === undefined ? undefined : (
      <Text color="fg.muted" fontSize="sm">
        {`In a DAG: ${advice.operator}`}
        {Object.keys(advice.arguments ?? {}).length === 0 ? "" : ` with ${JSON.stringify(advice.arguments)}`}
      </Text>
    )}
    {advice.command === undefined ? undefined : (
      <Code display="block" fontSize="xs" mt={1} overflowX="auto" px={2} py={1} tabIndex={0} whiteSpace="pre">
        {advice.command}
      </Code>
    )}
  </Box>
);

const Figures = ({ health }: { readonly health: Health }) => {
  const { facts } = health;
  const figures: Array<[string, string, string]> = [
    ["Size", bytes(asNumber(facts, "sizeInBytes")), `${count(asNumber(facts, "numFiles"))} files`],
    [
      "Small files",
      count(asNumber(facts, "optimize", "numFilesToMerge")),
      `OPTIMIZE would write about ${count(asNumber(facts, "optimize", "numFilesToAddEstimate"))}`,
    ],
    [
      "Deleted rows",
      percent(asNumber(facts, "deletedRowsRatio")),
      `worst partition ${percent(asNumber(facts, "worstDeletedRowsRatio"))}, ${count(asNumber(facts, "numDeletionVectors"))} deletion vectors`,
    ],
    [
      "Log tail",
      `${count(asNumber(facts, "log", "numCommitsSinceCheckpoint"))} commits`,
      `${bytes(asNumber(facts, "log", "sizeOfCommitsSinceCheckpoint"))} ${checkpointText(asNumber(facts, "log", "checkpointVersion"))}; one is due after ${count(asNumber(facts, "log", "checkpointInterval"))}`,
    ],
    [
      "Reclaimable",
      bytes(asNumber(facts, "removedFiles", "reclaimable", "sizeInBytes")),
      `${count(asNumber(facts, "removedFiles", "reclaimable", "numFiles"))} removed files`,
    ],
    [
      "Held for time travel",
      bytes(asNumber(facts, "removedFiles", "held", "sizeInBytes")),
      `${count(asNumber(facts, "removedFiles", "held", "numFiles"))} removed files`,
    ],
    [
      "Log files",
      count(asNumber(facts, "log", "numFiles")),
      `since version ${count(asNumber(facts, "log", "firstVersion"))}, ${count(asNumber(facts, "log", "expired", "numFiles"))} expired`,
    ],
    ["Version", count(health.version), `read ${moment(health.read_ms)}`],
  ];
  return (
    <Section title="Figures">
      <Terms names={figures.map(([name]) => name)} />
      <SimpleGrid as="dl" gap={3} minChildWidth="min(45%, 18rem)">
        {figures.map(([name, value, note]) => (
          <Box borderRadius="md" borderWidth={1} key={name} p={3}>
            <Box aria-describedby={descriptionOf(name)} as="dt" color="fg.muted" fontSize="sm" title={explanationOf(name)}>
              {name}
            </Box>
            <Box as="dd" fontSize="lg" fontVariantNumeric="tabular-nums" fontWeight="semibold">
              {value}
            </Box>
            <Box as="dd" color="fg.muted" fontSize="xs">
              {note}
            </Box>
          </Box>
        ))}
      </SimpleGrid>
    </Section>
  );
};

const Features = ({ features, health }: { readonly features: Array<Feature>; readonly health: Health }) => {
  const refusals = Object.entries((health.facts["refusals"] ?? {}) as Record<string, unknown>);

  if (features.length === 0 && refusals.length === 0) {
    return undefined;
  }

  return (
    <Section title="Table features">
      {refusals.map(([operation, refusal]) => (
        <Notice key={operation} palette="purple" title={`${operation} refuses the table`}>
          <Foreign>{String((refusal as { why?: unknown } | null)?.why ?? "")}</Foreign>
        </Notice>
      ))}
      {features.length === 0 ? undefined : (
        <DataTable
          columns={[{ title: "Feature" }, { title: "What it means for maintenance" }, { title: "Refused by" }]}
          label="Table features"
          rows={features.map((feature) => ({
            cells: [<Foreign key="name">{feature.name}</Foreign>, feature.note, feature.refused.join(", ") || DASH],
            key: feature.name,
          }))}
        />
      )}
    </Section>
  );
};

const LatestPlan = ({ id, plan }: { readonly id: string; readonly plan: NonNullable<TableAnswer["plan"]> }) => (
  <Section title="Latest plan">
    <Text fontSize="sm" mb={2}>
      {plan.run.number === null ? (
        plan.run.operation
      ) : (
        <ViewLink to={runAddress(id, plan.run.number)}>{plan.run.operation}</ViewLink>
      )}
      {", planned "}
      <TaskLink source={plan.run}>
        <When timeMs={plan.run.time_ms} />
      </TaskLink>
      {plan.run.read_version === null ? "" : ` on version ${count(plan.run.read_version)}`}
    </Text>
    <Lines label="Latest plan">{plan.lines}</Lines>
  </Section>
);

/** A figure over the readings; the line of a screen reader names its first, highest and last value. */
const Line = ({
  format,
  points,
  title,
  value,
}: {
  readonly format: (value: number) => string;
  readonly points: Array<Point>;
  readonly title: string;
  readonly value: (point: Point) => number | null;
}) => {
  const known = points.flatMap((point) => {
    const found = value(point);

    return found === null ? [] : [{ time: point.read_ms, value: found }];
  });
  const [first] = known;
  const last = known.at(-1);

  if (first === undefined || last === undefined || known.length < 2) {
    return undefined;
  }
  const top = Math.max(...known.map((one) => one.value), 1);
  const span = Math.max(1, last.time - first.time);
  const corners = known.map(
    (one) => `${(((one.time - first.time) / span) * 300).toFixed(1)},${(58 - (one.value / top) * 54).toFixed(1)}`,
  );

  return (
    <Box borderRadius="md" borderWidth={1} colorPalette="blue" p={3}>
      <Flex fontSize="sm" justify="space-between">
        <Text color="fg.muted">{title}</Text>
        <Text fontVariantNumeric="tabular-nums">{`${format(first.value)} → ${format(last.value)}`}</Text>
      </Flex>
      <Box color="colorPalette.fg">
        <svg
          aria-label={`${title} over ${known.length} readings: first ${format(first.value)}, highest ${format(top)}, last ${format(last.value)}`}
          height="60"
          preserveAspectRatio="none"
          role="img"
          viewBox="0 0 300 60"
          width="100%"
        >
          <polyline
            fill="none"
            points={corners.join(" ")}
            stroke="currentColor"
            strokeWidth="2"
            vectorEffect="non-scaling-stroke"
          />
        </svg>
      </Box>
      <Flex color="fg.muted" fontSize="xs" justify="space-between">
        <When timeMs={first.time} />
        <When timeMs={last.time} />
      </Flex>
    </Box>
  );
};

const Trend = ({ points }: { readonly points: Array<Point> }) =>
  points.length < 2 ? undefined : (
    <Section title="Over time">
      <SimpleGrid gap={3} minChildWidth="min(100%, 18rem)">
        <Line format={count} points={points} title="Files" value={(point) => point.num_files} />
        <Line format={bytes} points={points} title="Size" value={(point) => point.size_bytes} />
        <Line format={count} points={points} title="Small files" value={(point) => point.small_files} />
        <Line format={count} points={points} title="Log tail" value={(point) => point.commits_since_checkpoint} />
      </SimpleGrid>
    </Section>
  );

/** What a run gained, in short. */
export const gainOf = (run: Run): string => {
  const size = run.table_size;
  const parts: Array<string> = [];

  if (size !== null && size["files_before"] !== size["files_after"]) {
    parts.push(`${count(size["files_before"])} → ${count(size["files_after"])} files`);
  }
  if (size !== null && size["bytes_before"] !== size["bytes_after"]) {
    parts.push(`${bytes(size["bytes_before"])} → ${bytes(size["bytes_after"])}`);
  }
  if (run.deleted_files !== null && run.deleted_files > 0) {
    parts.push(`${count(run.deleted_files)} files deleted${run.deleted_bytes === null ? "" : `, ${bytes(run.deleted_bytes)}`}`);
  }

  return parts.length === 0 ? DASH : parts.join(", ");
};

const RunText = ({ run }: { readonly run: Run }) => (
  <Stack fontSize="sm" gap={0}>
    {run.error === null ? undefined : (
      <Box color="red.fg" lineClamp={3}>
        <Foreign>{run.error}</Foreign>
      </Box>
    )}
    {run.summary === null ? undefined : (
      <Box lineClamp={3}>
        <Foreign>{run.summary}</Foreign>
      </Box>
    )}
    {run.dropped_bins !== null && run.dropped_bins > 0 ? (
      <Text color="fg.muted">{`${count(run.dropped_bins)} bins left out: another writer was faster.`}</Text>
    ) : undefined}
    {run.taken_over_bins !== null && run.taken_over_bins > 0 ? (
      <Text color="fg.muted">{`${count(run.taken_over_bins)} bins taken over from an earlier try.`}</Text>
    ) : undefined}
    {Object.keys(run.left_by_reason).length === 0 ? undefined : (
      <Text color="fg.muted">{`Files left: ${leftText(run.left_by_reason)}.`}</Text>
    )}
  </Stack>
);

const Runs = ({ id, runs }: { readonly id: string; readonly runs: Array<Run> }) => (
  <Section title="Runs">
    {runs.length === 0 ? (
      <Text color="fg.muted">No operator of this provider has run on the table.</Text>
    ) : (
      <Table.ScrollArea borderRadius="md" borderWidth={1}>
        <Table.Root size="sm">
          <Table.Header>
            <Table.Row bg="bg.muted">
              {["When", "Operation", "Result", "What it did", "Gain", "Time"].map((title) => (
                <Table.ColumnHeader key={title} scope="col">
                  {title}
                </Table.ColumnHeader>
              ))}
            </Table.Row>
          </Table.Header>
          <Table.Body>
            {runs.map((run) => (
              <Table.Row key={`${run.time_ms} ${run.run_id} ${run.task_id} ${run.map_index}`} verticalAlign="top">
                <Table.Cell whiteSpace="nowrap">
                  <TaskLink source={run}>
                    <When timeMs={run.time_ms} />
                  </TaskLink>
                </Table.Cell>
                <Table.Cell whiteSpace="nowrap">
                  {run.number === null ? run.operation : <ViewLink to={runAddress(id, run.number)}>{run.operation}</ViewLink>}
                </Table.Cell>
                <Table.Cell>
                  <RunStatus status={run.status} />
                </Table.Cell>
                <Table.Cell minW="56">
                  <RunText run={run} />
                </Table.Cell>
                <Table.Cell minW="40">{gainOf(run)}</Table.Cell>
                <Table.Cell whiteSpace="nowrap">{duration(run.duration_ms)}</Table.Cell>
              </Table.Row>
            ))}
          </Table.Body>
        </Table.Root>
      </Table.ScrollArea>
    )}
  </Section>
);

/**
 * Its grids go by the width of their place, not of the window: the tab of an asset is narrow in a wide window.
 *
 * @param allTables address of the view of all tables; on the tab of an asset the table is the view without a query.
 */
export const TableView = ({
  again,
  allTables = FLEET_ADDRESS,
  id,
}: {
  readonly again: number;
  readonly allTables?: string;
  readonly id: string;
}) => {
  const loaded = useAnswer<TableAnswer>(`tables/${encodeURIComponent(id)}`, again);

  if (loaded.state === "loading") {
    return <Loading />;
  }
  if (loaded.state === "failed") {
    return (
      <>
        <ViewLink to={allTables}>All Delta tables</ViewLink>
        <Failed message={loaded.message} />
      </>
    );
  }
  const { features, health, maintenance_dag: dagId, plan, row, runs, trend, versions } = loaded.answer;

  return (
    <Box aria-busy={loaded.isLoading}>
      <Text fontSize="sm" mb={2}>
        <ViewLink to={allTables}>All Delta tables</ViewLink>
      </Text>
      <HStack gap={3} wrap="wrap">
        <Heading as="h1" size="xl">
          <Foreign>{row.name}</Foreign>
        </Heading>
        <TableStatus status={row.status} />
        <StartButton dagId={dagId} row={row} />
      </HStack>
      <Text color="fg.muted" mb={4}>
        <Address>{row.table}</Address>
      </Text>
      {row.failure === null ? undefined : (
        <Notice palette="red" title={row.status === "unreadable" ? "No task can read this table" : `${row.failure.operation} failed`}>
          <TaskLink source={row.failure}>
            {`${row.failure.operation}, `}
            <When timeMs={row.failure.time_ms} />
          </TaskLink>
          {": "}
          <Foreign>{row.failure.message ?? "The task's log says why."}</Foreign>
          {row.status === "unreadable" && health !== null ? " What follows was found before." : ""}
        </Notice>
      )}
      {row.is_older_than_work ? (
        <Notice palette="blue" title="The figures are older than the last change">
          A run has changed the table since its health was read. The next task with DeltaTableHealthOperator brings new figures.
        </Notice>
      ) : undefined}
      {row.watch === null ? undefined : (
        <Text color="fg.muted" fontSize="sm">
          {"Watched for the asset "}
          <Foreign>{row.watch.asset}</Foreign>
          {row.watch.version === null
            ? "; it has no place in the log yet."
            : `; its place in the log is version ${count(row.watch.version)}.`}
        </Text>
      )}
      {health === null && row.status === "unreadable" ? undefined : health === null ? (
        <Notice palette="blue" title="No task has read the health of this table">
          {row.sight === null ? "" : "A sensor has waited for it. "}
          Run DeltaTableHealthOperator on it to see findings, recommendations and figures.
        </Notice>
      ) : (
        <>
          <Text color="fg.muted" fontSize="sm">
            {`Version ${count(health.version)}, read `}
            <TaskLink source={health}>
              <When timeMs={health.read_ms} />
            </TaskLink>
          </Text>
          {health.left_out.length === 0 ? undefined : (
            <Text fontSize="sm">{`The report was too long; left out: ${health.left_out.join(", ")}.`}</Text>
          )}
          <SimpleGrid columnGap={6} minChildWidth="min(100%, 36rem)">
            <Section title="Findings">
              {health.findings.length === 0 ? (
                <Text fontSize="sm">Nothing exceeds its limit.</Text>
              ) : (
                <Stack as="ul" gap={2} listStyleType="none">
                  {health.findings.map((finding) => (
                    <FindingCard finding={finding} key={finding.code} />
                  ))}
                </Stack>
              )}
            </Section>
            <Section title="What to do">
              {health.recommendations.length === 0 ? (
                <Text fontSize="sm">No operation has anything to do.</Text>
              ) : (
                <Stack as="ol" gap={2} listStyleType="none">
                  {health.recommendations.map((advice, position) => (
                    <AdviceItem advice={advice} key={advice.operation} position={position + 1} />
                  ))}
                </Stack>
              )}
            </Section>
          </SimpleGrid>
          <Figures health={health} />
          <WhereTheFilesAre health={health} />
          <Trend points={trend} />
        </>
      )}
      <Runs id={row.id} runs={runs} />
      <Versions id={row.id} runs={runs} versions={versions} />
      {plan === null ? undefined : <LatestPlan id={row.id} plan={plan} />}
      {health === null ? undefined : <Features features={features} health={health} />}
    </Box>
  );
};
