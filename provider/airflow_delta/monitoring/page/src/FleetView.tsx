/** All tables: how many are in which state, and which to look at first. */
import { type Asset, type Fleet, type Row, useAnswer } from "./api";
import { Fleets } from "./Fleets";
import { bytes, count, DASH, percent } from "./format";
import { ChakraUI, React } from "./host";
import { isUrgent, reasonOf } from "./Panel";
import { Address, Failed, Foreign, Loading, Notice, TaskLink, ViewLink, When } from "./parts";
import { type Place, tableAddress } from "./place";
import { Sparkline } from "./Sparkline";
import { StartButton } from "./StartButton";
import { Shape, TABLE_STATUSES, TableStatus } from "./status";
import { descriptionOf, explanationOf, Terms } from "./Terms";

const { Box, Button, Flex, Heading, HStack, Input, NativeSelect, SimpleGrid, Stack, Table, Text, VisuallyHidden } =
  ChakraUI;

/** Each table has one of these, so their counts add up. */
const ORDER = ["unreadable", "critical", "attention", "unsupported", "unknown", "healthy"];
/** A table of any status may have a failed run. */
const FAILING = "failing";
const PAGE = 50;

interface Column {
  /** The order that is wanted first. */
  first: "asc" | "desc";
  isNumber?: boolean;
  sort?: string;
  title: string;
  /** What is left of the table's width goes to the column without one. */
  width?: string;
}

const COLUMNS: Array<Column> = [
  { first: "asc", sort: "urgency", title: "Status", width: "9.5rem" },
  { first: "asc", sort: "table", title: "Table", width: "15%" },
  { first: "asc", title: "Needs" },
  { first: "desc", isNumber: true, sort: "size_bytes", title: "Size", width: "5rem" },
  { first: "desc", isNumber: true, sort: "num_files", title: "Files", width: "5rem" },
  { first: "desc", isNumber: true, sort: "small_files", title: "Small files", width: "5rem" },
  { first: "desc", isNumber: true, sort: "deleted_rows_ratio", title: "Deleted rows", width: "5.5rem" },
  { first: "desc", isNumber: true, sort: "commits_since_checkpoint", title: "Log tail", width: "4.5rem" },
  { first: "desc", isNumber: true, sort: "reclaimable_bytes", title: "Reclaimable", width: "7rem" },
  { first: "desc", sort: "last_work", title: "Last runs", width: "8.5rem" },
];

const CountButton = ({ fleet, place, status }: { readonly fleet: Fleet; readonly place: Place; readonly status: string }) => {
  const look = TABLE_STATUSES[status];
  const isChosen = place.get("status") === status;

  return (
    <Button
      aria-pressed={isChosen}
      bg={isChosen ? "colorPalette.subtle" : "bg"}
      borderColor={isChosen ? "colorPalette.solid" : "border"}
      borderWidth={1}
      colorPalette={look?.palette}
      height="auto"
      justifyContent="flex-start"
      onClick={() => place.set({ offset: null, status: isChosen ? null : status })}
      minW={0}
      px={{ base: 2, sm: 3 }}
      py={2}
      variant="plain"
      whiteSpace="normal"
    >
      <Stack align="flex-start" gap={0} textAlign="left">
        <Text color="fg" fontSize="2xl" fontVariantNumeric="tabular-nums" fontWeight="semibold" lineHeight="short">
          {count(fleet.counts[status] ?? 0)}
        </Text>
        <HStack color="colorPalette.fg" fontSize="sm" gap={1.5}>
          {look ? <Shape name={look.shape} /> : undefined}
          {look?.label}
        </HStack>
      </Stack>
    </Button>
  );
};

const Counts = ({ all, fleet, place }: { readonly all: number; readonly fleet: Fleet; readonly place: Place }) => (
  <Flex direction={{ base: "column", lg: "row" }} gap={{ base: 3, lg: 6 }} mb={4}>
    <Box aria-labelledby="delta-by-status" flex="5" role="group">
      <Text color="fg.muted" fontSize="sm" id="delta-by-status" mb={1}>
        {all === 1 ? "1 table, by status" : `${count(all)} tables, by status`}
      </Text>
      <SimpleGrid columns={{ base: 2, md: 3, xl: 6 }} gap={3}>
        {ORDER.map((status) => (
          <CountButton fleet={fleet} key={status} place={place} status={status} />
        ))}
      </SimpleGrid>
    </Box>
    <Box aria-labelledby="delta-among-them" flex="1" role="group">
      <Text color="fg.muted" fontSize="sm" id="delta-among-them" mb={1}>
        Among them, of any status
      </Text>
      <SimpleGrid columns={{ base: 2, lg: 1, md: 3 }} gap={3}>
        <CountButton fleet={fleet} place={place} status={FAILING} />
      </SimpleGrid>
    </Box>
  </Flex>
);

/** What the user types is looked for a moment after the last key. */
export const Search = ({ place }: { readonly place: Place }) => {
  const held = place.get("search") ?? "";
  const [typed, setTyped] = React.useState(held);

  React.useEffect(() => setTyped(held), [held]);
  React.useEffect(() => {
    if (typed === held) {
      return undefined;
    }
    const timer = setTimeout(() => place.set({ offset: null, search: typed === "" ? null : typed }, true), 300);

    return () => clearTimeout(timer);
  }, [typed, held, place]);

  return (
    <Input
      aria-label="Search tables by address"
      maxLength={500}
      maxW={{ base: "full", md: "sm" }}
      onChange={(event) => setTyped(event.target.value)}
      placeholder="Search by address"
      size="sm"
      type="search"
      value={typed}
    />
  );
};

const sortOf = (place: Place): { order: string; sort: string } => ({
  order: place.get("order") ?? "asc",
  sort: place.get("sort") ?? "urgency",
});

const SortButton = ({ column, place }: { readonly column: Column; readonly place: Place }) => {
  const { order, sort } = sortOf(place);
  const isChosen = sort === column.sort;
  const next = isChosen ? (order === "asc" ? "desc" : "asc") : column.first;

  return (
    <Button
      aria-describedby={descriptionOf(column.title)}
      color="inherit"
      fontSize="inherit"
      fontWeight="inherit"
      gap={1}
      height="auto"
      minW={0}
      justifyContent={column.isNumber ? "flex-end" : "flex-start"}
      onClick={() => place.set({ offset: null, order: next, sort: column.sort ?? null })}
      px={0}
      textAlign="inherit"
      title={explanationOf(column.title)}
      variant="plain"
      whiteSpace="normal"
    >
      {column.title}
      <Box aria-hidden as="span" opacity={isChosen ? 1 : 0.35}>
        {isChosen ? (order === "asc" ? "▲" : "▼") : "↕"}
      </Box>
    </Button>
  );
};

const SortSelect = ({ place }: { readonly place: Place }) => {
  const { order, sort } = sortOf(place);

  return (
    <NativeSelect.Root hideFrom="xl" size="sm" width={{ base: "full", md: "56" }}>
      <NativeSelect.Field
        aria-label="Sort by"
        onChange={(event) => {
          const [name, wanted] = event.target.value.split(" ");

          place.set({ offset: null, order: wanted ?? null, sort: name ?? null });
        }}
        value={`${sort} ${order}`}
      >
        {COLUMNS.flatMap((column) =>
          column.sort === undefined
            ? []
            : [column.first, column.first === "asc" ? "desc" : "asc"].map((wanted) => (
                <option key={`${column.sort} ${wanted}`} value={`${column.sort} ${wanted}`}>
                  {`Sort by ${column.title.toLowerCase()}, ${wanted === "asc" ? "ascending" : "descending"}`}
                </option>
              )),
        )}
      </NativeSelect.Field>
      <NativeSelect.Indicator />
    </NativeSelect.Root>
  );
};

/** In the order of urgency, and with nothing chosen, the first table is the one to look at. */
const First = ({ fleet, place }: { readonly fleet: Fleet; readonly place: Place }) => {
  const [row] = fleet.tables;
  const { order, sort } = sortOf(place);

  if (row === undefined || !isUrgent(row) || sort !== "urgency" || order !== "asc" || fleet.offset > 0) {
    return undefined;
  }
  if (place.get("status") !== null || place.get("search") !== null) {
    return undefined;
  }

  return (
    <Box
      borderColor={row.status === "attention" ? "orange.solid" : "red.solid"}
      borderRadius="md"
      borderWidth={1}
      mb={4}
      p={{ base: 3, md: 4 }}
    >
      <HStack align="center" gap={3} wrap="wrap">
        <Heading as="h2" size="md">
          {"Look first at "}
          <ViewLink to={tableAddress(row.id)}>
            <Foreign>{row.name}</Foreign>
          </ViewLink>
        </Heading>
        <TableStatus status={row.status} />
      </HStack>
      <Text mt={1}>
        <Text as="span" fontWeight="semibold">
          {"Why: "}
        </Text>
        <Foreign>{reasonOf(row)}</Foreign>
        {row.num_findings > 1 ? ` And ${moreFindings(row)}.` : ""}
      </Text>
      {row.next === null ? undefined : (
        <Text>
          <Text as="span" fontWeight="semibold">{`What to do: ${row.next.operation ?? ""}. `}</Text>
          <Foreign>{row.next.why ?? ""}</Foreign>
        </Text>
      )}
    </Box>
  );
};

const moreFindings = (row: Row) => `${row.num_findings - 1} more ${row.num_findings === 2 ? "finding" : "findings"}`;

/** Why there is a row, if no task has worked at the table. */
const knownBy = (row: Row) => {
  if (row.last_work !== null) {
    return "";
  }
  if (row.sight !== null) {
    return "A sensor waits for it. ";
  }

  return row.watch === null ? "" : "A watcher looks at it. ";
};

const Needs = ({ dagId, row }: { readonly dagId: string | null; readonly row: Row }) => (
  <Stack fontSize="sm" gap={1}>
    {row.failure === null ? undefined : (
      <Box color="red.fg">
        <TaskLink source={row.failure}>{`${row.failure.operation} failed`}</TaskLink> <When timeMs={row.failure.time_ms} />
        {row.failure.message === null ? undefined : (
          <Box lineClamp={3}>
            <Foreign>{row.failure.message}</Foreign>
          </Box>
        )}
      </Box>
    )}
    {row.finding?.message && row.finding.message !== row.failure?.message ? (
      <Box lineClamp={3}>
        <Foreign>{row.finding.message}</Foreign>
        {row.num_findings > 1 ? ` (and ${moreFindings(row)})` : ""}
      </Box>
    ) : undefined}
    {row.next === null ? undefined : (
      <Box color="fg.muted" lineClamp={2}>
        <Text as="span" color="fg" fontWeight="semibold">{`${row.is_next_done ? "Done since" : "Next"}: ${row.next.operation ?? ""}. `}</Text>
        <Foreign>{row.next.why ?? ""}</Foreign>
      </Box>
    )}
    {row.status === "unknown" && row.failure === null ? (
      <Text color="fg.muted">
        {`${knownBy(row)}No task has read its health.`}
      </Text>
    ) : undefined}
    {row.is_older_than_work ? (
      <Text color="fg.muted">A run has changed the table since its health was read.</Text>
    ) : undefined}
    {row.next === null && row.failure === null ? undefined : <StartButton dagId={dagId} row={row} />}
  </Stack>
);

const LastRuns = ({ row }: { readonly row: Row }) => {
  const runs = Object.entries(row.last_runs).sort(([, one], [, other]) => other.time_ms - one.time_ms);

  if (runs.length === 0) {
    return <Text color="fg.muted">{DASH}</Text>;
  }

  return (
    <Stack as="ul" fontSize="sm" gap={0} listStyleType="none">
      {runs.map(([operation, run]) => (
        <Box as="li" key={operation}>
          {row.last_work?.operation === operation && row.last_work.time_ms === run.time_ms ? (
            <TaskLink source={row.last_work}>{operation}</TaskLink>
          ) : (
            operation
          )}{" "}
          <Text as="span" color="fg.muted">
            <When timeMs={run.time_ms} />
            {run.status === "nothing_to_do" ? ", skipped" : run.status === "planned" ? ", planned only" : ""}
          </Text>
        </Box>
      ))}
    </Stack>
  );
};

const Name = ({ row }: { readonly row: Row }) => (
  <Box>
    <Box fontWeight="semibold">
      <ViewLink to={tableAddress(row.id)}>
        <Address>{row.name}</Address>
      </ViewLink>
    </Box>
    <Box color="fg.muted" fontSize="xs" lineClamp={2} title={row.table}>
      <Address>{row.table}</Address>
    </Box>
  </Box>
);

const figuresOf = (row: Row): Array<string> => [
  bytes(row.size_bytes),
  count(row.num_files),
  count(row.small_files),
  percent(row.deleted_rows_ratio),
  count(row.commits_since_checkpoint),
  bytes(row.reclaimable_bytes),
];
const FIGURES = COLUMNS.filter((column) => column.isNumber).map((column) => column.title);

const TRENDS: Record<string, (row: Row) => Array<number | null>> = {
  Files: (row) => row.trend.num_files,
  "Small files": (row) => row.trend.small_files,
};

const TrendOf = ({ row, title }: { readonly row: Row; readonly title: string | undefined }) => {
  const points = title === undefined ? undefined : TRENDS[title]?.(row);

  return points === undefined ? undefined : <Sparkline points={points} title={title ?? ""} />;
};

const WideTable = ({ fleet, place }: { readonly fleet: Fleet; readonly place: Place }) => {
  const { order, sort } = sortOf(place);

  return (
    <Table.ScrollArea borderRadius="md" borderWidth={1} hideBelow="xl">
      <Table.Root size="sm" tableLayout="fixed">
        <VisuallyHidden asChild>
          <caption>Delta tables</caption>
        </VisuallyHidden>
        <Table.Header>
          <Table.Row bg="bg.muted">
            {COLUMNS.map((column) => (
              <Table.ColumnHeader
                aria-sort={sort === column.sort ? (order === "asc" ? "ascending" : "descending") : undefined}
                key={column.title}
                scope="col"
                px={2}
                textAlign={column.isNumber ? "end" : "start"}
                verticalAlign="bottom"
                width={column.width}
              >
                {column.sort === undefined ? column.title : <SortButton column={column} place={place} />}
              </Table.ColumnHeader>
            ))}
          </Table.Row>
        </Table.Header>
        <Table.Body>
          {fleet.tables.map((row) => (
            <Table.Row key={row.id} verticalAlign="top">
              <Table.Cell px={2}>
                <TableStatus status={row.status} />
              </Table.Cell>
              <Table.Cell px={2}>
                <Name row={row} />
              </Table.Cell>
              <Table.Cell px={2}>
                <Needs dagId={fleet.maintenance_dag} row={row} />
              </Table.Cell>
              {figuresOf(row).map((figure, position) => (
                <Table.Cell fontVariantNumeric="tabular-nums" key={FIGURES[position]} px={2} textAlign="end" whiteSpace="nowrap">
                  {figure}
                  <TrendOf row={row} title={FIGURES[position]} />
                </Table.Cell>
              ))}
              <Table.Cell px={2}>
                <LastRuns row={row} />
              </Table.Cell>
            </Table.Row>
          ))}
        </Table.Body>
      </Table.Root>
    </Table.ScrollArea>
  );
};

/** The same on a narrow screen: a card for each table. */
const Cards = ({ fleet }: { readonly fleet: Fleet }) => (
  <Stack as="ul" gap={3} hideFrom="xl" listStyleType="none">
    {fleet.tables.map((row) => (
      <Stack as="li" borderRadius="md" borderWidth={1} gap={2} key={row.id} p={3}>
        <Box>
          <TableStatus status={row.status} />
        </Box>
        <Name row={row} />
        <Needs dagId={fleet.maintenance_dag} row={row} />
        <SimpleGrid as="dl" columns={3} fontSize="sm" gap={2}>
          {figuresOf(row).map((figure, position) => (
            <Box key={FIGURES[position]}>
              <Box as="dt" color="fg.muted" fontSize="xs">
                {FIGURES[position]}
              </Box>
              <Box as="dd" fontVariantNumeric="tabular-nums">
                {figure}
                <TrendOf row={row} title={FIGURES[position]} />
              </Box>
            </Box>
          ))}
        </SimpleGrid>
        <LastRuns row={row} />
      </Stack>
    ))}
  </Stack>
);

const Pages = ({ fleet, place }: { readonly fleet: Fleet; readonly place: Place }) => {
  const last = fleet.offset + fleet.tables.length;

  if (fleet.total <= PAGE && fleet.offset === 0) {
    return undefined;
  }

  return (
    <HStack as="nav" aria-label="Pages" justify="flex-end" mt={3}>
      <Button
        disabled={fleet.offset === 0}
        onClick={() => place.set({ offset: fleet.offset > PAGE ? String(fleet.offset - PAGE) : null })}
        size="sm"
        variant="outline"
      >
        Previous
      </Button>
      <Button
        disabled={last >= fleet.total}
        onClick={() => place.set({ offset: String(fleet.offset + PAGE) })}
        size="sm"
        variant="outline"
      >
        Next
      </Button>
    </HStack>
  );
};

const Broken = ({ fleet }: { readonly fleet: Fleet }) =>
  fleet.broken.length === 0 ? undefined : (
    <Notice palette="orange" title={`${fleet.broken.length} newest reports that cannot be read`}>
      <Stack as="ul" gap={0} listStyleType="none">
        {fleet.broken.slice(-5).map((one) => (
          <Box as="li" key={`${one.time_ms} ${one.dag_id} ${one.task_id}`}>
            <When timeMs={one.time_ms} />
            {one.dag_id === "" ? ", " : `, ${one.dag_id}, ${one.task_id}: `}
            <Foreign>{one.why}</Foreign>
          </Box>
        ))}
      </Stack>
    </Notice>
  );

const Nothing = ({ dagId, days }: { readonly dagId?: string; readonly days: number }) => (
  <Notice palette="blue" title={dagId === undefined ? "No task or watcher has told of a table yet" : "This DAG has told of no table"}>
    {`Tables appear here when an operator of airflow-provider-delta has run, or DeltaTableHealthOperator has read their health, within the last ${days} days, in a DAG that you may read.${dagId === undefined ? " So do the tables that a watcher knows." : ""}`}
  </Notice>
);

/**
 * @param asset whose tab this is; only its tables are shown.
 * @param dagId of the DAG whose tab this is; only its tables are shown.
 */
export const FleetView = ({
  again,
  asset,
  dagId,
  place,
}: {
  readonly again: number;
  readonly asset?: Asset;
  readonly dagId?: string;
  readonly place: Place;
}) => {
  const query = new URLSearchParams({ limit: String(PAGE) });

  if (dagId !== undefined) {
    query.set("dag_id", dagId);
  }
  if (asset !== undefined) {
    query.set("asset_name", asset.name);
    query.set("asset_uri", asset.uri);
  }

  for (const name of ["status", "search", "sort", "order", "offset"]) {
    const value = place.get(name);

    if (value !== null) {
      query.set(name, value);
    }
  }
  const loaded = useAnswer<Fleet>(`tables?${query.toString()}`, again);

  if (loaded.state === "loading") {
    return <Loading />;
  }
  if (loaded.state === "failed") {
    return <Failed message={loaded.message} />;
  }
  const fleet = loaded.answer;
  const all = Object.entries(fleet.counts).reduce((sum, [name, value]) => sum + (name === FAILING ? 0 : value), 0);
  const range =
    fleet.tables.length === 0 ? "No tables" : `${count(fleet.offset + 1)}–${count(fleet.offset + fleet.tables.length)}`;

  return (
    <Box aria-busy={loaded.isLoading}>
      <Heading as="h1" size="xl">
        Delta tables
      </Heading>
      <Text color="fg.muted" mb={4}>
        {asset !== undefined
          ? `The tables of this asset that tasks or watchers have told of in the last ${fleet.days} days.`
          : dagId === undefined
          ? `What maintenance tasks have reported in the last ${fleet.days} days.`
          : `The tables that this DAG has told of in the last ${fleet.days} days, whatever DAG told the newest of them.`}
      </Text>
      {asset === undefined ? <Fleets again={again} dagId={dagId} /> : undefined}
      <Broken fleet={fleet} />
      {all === 0 ? (
        <Nothing dagId={dagId} days={fleet.days} />
      ) : (
        <>
          <First fleet={fleet} place={place} />
          <Counts all={all} fleet={fleet} place={place} />
          <Flex align="center" gap={3} mb={3} wrap="wrap">
            <Search place={place} />
            <SortSelect place={place} />
            <Text color="fg.muted" fontSize="sm" ms="auto" role="status">
              {fleet.total === all ? `${range} of ${count(all)} tables` : `${range} of ${count(fleet.total)} chosen, ${count(all)} in all`}
            </Text>
          </Flex>
          <Terms names={FIGURES} />
          <WideTable fleet={fleet} place={place} />
          <Cards fleet={fleet} />
          <Pages fleet={fleet} place={place} />
        </>
      )}
    </Box>
  );
};
