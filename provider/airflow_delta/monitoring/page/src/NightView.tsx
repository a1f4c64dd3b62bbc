/** One fleet: its newest night, what the next one is expected to do, and why each table was worked on or not. */
import { addressOf, type BudgetUse, type FleetAnswer, type Hold, type LeftWork, type TableNight, useAnswer } from "./api";
import { Search } from "./FleetView";
import { bytes, count, duration, moment, percent } from "./format";
import { EVERYTHING, Holds } from "./Holds";
import { ChakraUI, React } from "./host";
import { Address, DataTable, Failed, Foreign, Loading, Notice, Section, TaskLink, ViewLink, When } from "./parts";
import { FLEET_ADDRESS, type Place, tableAddress } from "./place";
import { Sparkline } from "./Sparkline";
import { NIGHT_STATES, NightState, Shape } from "./status";

const { Box, Button, Flex, Heading, HStack, Link, NativeSelect, SimpleGrid, Stack, Table, Text, VisuallyHidden } = ChakraUI;

const PAGE = 50;
const ALERTS: Record<string, string> = {
  failed: "New failures",
  late: "Unhealthy longer than allowed",
  not_run: "The fleet has not run",
  over_budget: "More than the budget",
};
/** These stand for themselves, beside the states that add up. */
const BESIDE = ["unhealthy", "late"];
const SORTS: Array<[string, string]> = [
  ["urgency asc", "most urgent first"],
  ["gain desc", "greatest gain first"],
  ["small_files desc", "most small files first"],
  ["reclaimable_bytes desc", "most reclaimable first"],
  ["size_bytes desc", "largest first"],
  ["unhealthy_since_ms asc", "longest unhealthy first"],
  ["written_ms asc", "longest without a write first"],
  ["table asc", "by address"],
];
const IDLE = ["0", "7", "30", "90"];
const CHOICE = ["state", "search", "prefix", "owner", "idle_days", "sort", "order"];

const queryOf = (place: Place, names: Array<string>): URLSearchParams => {
  const query = new URLSearchParams();

  for (const name of names) {
    const value = place.get(name);

    if (value !== null) {
      query.set(name, value);
    }
  }

  return query;
};

// -- the night --------------------------------------------------------------------------------------------------------

const RESOURCES: Record<string, string> = { cost: "Cost", read: "Bytes read", requests: "Requests", worker_hours: "Hours of a processor" };

const amount = (resource: string, value: number): string =>
  resource === "read" ? bytes(value) : value.toLocaleString("en-US", { maximumSignificantDigits: 3 });

const Bar = ({ isForecast, one }: { readonly isForecast: boolean; readonly one: BudgetUse }) => {
  const value = isForecast ? one.forecast : one.used;
  const share = one.limit === null ? 0 : value / one.limit;
  const palette = share > 1 ? "red" : share > 0.8 ? "orange" : "blue";

  return (
    <Box fontSize="sm">
      <Flex gap={2} justify="space-between" wrap="wrap">
        <Text fontWeight="semibold">{RESOURCES[one.resource] ?? one.resource}</Text>
        <Text color={share > 1 ? "red.fg" : "fg.muted"}>
          {one.limit === null
            ? `${amount(one.resource, value)}, without a limit`
            : `${amount(one.resource, value)} of ${amount(one.resource, one.limit)} (${percent(share)})`}
        </Text>
      </Flex>
      {one.limit === null ? undefined : (
        <Box aria-hidden bg="bg.muted" borderRadius="full" height={2} mt={1} overflow="hidden">
          <Box bg={`${palette}.solid`} height="full" style={{ width: `${Math.min(share, 1) * 100}%` }} />
        </Box>
      )}
      {isForecast ? undefined : (
        <Text color="fg.muted" fontSize="xs">{`forecast ${amount(one.resource, one.forecast)}`}</Text>
      )}
    </Box>
  );
};

const Figure = ({ children, title }: { readonly children: React.ReactNode; readonly title: string }) => (
  <Box borderRadius="md" borderWidth={1} px={3} py={2}>
    <Box as="dt" color="fg.muted" fontSize="sm">
      {title}
    </Box>
    <Box as="dd" fontSize="xl" fontVariantNumeric="tabular-nums" fontWeight="semibold">
      {children}
    </Box>
  </Box>
);

const Figures = ({ fleet }: { readonly fleet: FleetAnswer }) => (
  <SimpleGrid as="dl" columns={{ base: 2, md: 3, xl: 6 }} gap={3} mb={4}>
    <Figure title="Tables">{count(fleet.figures.num_tables)}</Figure>
    <Figure title="Unhealthy, as surveyed">
      <HStack justify="space-between">
        {count(fleet.figures.num_unhealthy)}
        <Sparkline points={fleet.trend.map((one) => one.num_unhealthy)} title="Unhealthy tables" />
      </HStack>
    </Figure>
    <Figure title="Operations done">{count(fleet.figures.num_done)}</Figure>
    <Figure title="Operations failed">{count(fleet.figures.num_failed)}</Figure>
    <Figure title="Small files, as chosen">{count(fleet.totals.small_files)}</Figure>
    <Figure title="Reclaimable, as chosen">{bytes(fleet.totals.reclaimable_bytes)}</Figure>
  </SimpleGrid>
);

const Nights = ({ fleet }: { readonly fleet: FleetAnswer }) => (
  <SimpleGrid columns={{ base: 1, lg: 2 }} gap={6} mb={2}>
    <Section note="Of the window, with all its runs." title="Budget used">
      <Stack gap={3}>
        {fleet.budget.map((one) => (
          <Bar isForecast={false} key={one.resource} one={one} />
        ))}
      </Stack>
    </Section>
    <Section
      note={`Expected at ${moment(fleet.next.starts_ms)}. Tables that were worked on are surveyed first.`}
      title={`Next night: ${count(fleet.next.num_tables)} ${fleet.next.num_tables === 1 ? "table" : "tables"} so far`}
    >
      <Stack gap={3}>
        {fleet.next.budget.map((one) => (
          <Bar isForecast key={one.resource} one={one} />
        ))}
      </Stack>
    </Section>
  </SimpleGrid>
);

// -- choice -----------------------------------------------------------------------------------------------------------

const StateButton = ({ fleet, place, state }: { readonly fleet: FleetAnswer; readonly place: Place; readonly state: string }) => {
  const look = NIGHT_STATES[state];
  const isChosen = place.get("state") === state;

  return (
    <Button
      aria-pressed={isChosen}
      bg={isChosen ? "colorPalette.subtle" : "bg"}
      borderColor={isChosen ? "colorPalette.solid" : "border"}
      borderWidth={1}
      color="colorPalette.fg"
      colorPalette={look?.palette ?? "gray"}
      gap={1.5}
      onClick={() => place.set({ offset: null, state: isChosen ? null : state })}
      size="xs"
      variant="plain"
    >
      {look === undefined ? undefined : <Shape name={look.shape} />}
      {`${count(fleet.counts[state] ?? 0)} ${look?.label ?? state}`}
    </Button>
  );
};

const States = ({ fleet, place }: { readonly fleet: FleetAnswer; readonly place: Place }) => {
  const states = Object.keys(fleet.counts)
    .filter((state) => !BESIDE.includes(state))
    .sort((one, other) => (fleet.counts[other] ?? 0) - (fleet.counts[one] ?? 0));

  return (
    <Stack gap={2} mb={3}>
      <HStack aria-label="Tables by what became of them" gap={2} role="group" wrap="wrap">
        {states.map((state) => (
          <StateButton fleet={fleet} key={state} place={place} state={state} />
        ))}
      </HStack>
      <HStack aria-label="Among them" fontSize="sm" gap={2} role="group" wrap="wrap">
        {"Among them:"}
        {BESIDE.map((state) => (
          <StateButton fleet={fleet} key={state} place={place} state={state} />
        ))}
      </HStack>
    </Stack>
  );
};

const Select = ({ label, name, options, place, value }: {
  readonly label: string;
  readonly name: (chosen: string) => Record<string, string | null>;
  readonly options: Array<[string, string]>;
  readonly place: Place;
  readonly value: string;
}) => (
  <NativeSelect.Root size="sm" width="auto">
    <NativeSelect.Field aria-label={label} onChange={(event) => place.set({ offset: null, ...name(event.target.value) })} value={value}>
      {options.map(([option, title]) => (
        <option key={option} value={option}>
          {title}
        </option>
      ))}
    </NativeSelect.Field>
    <NativeSelect.Indicator />
  </NativeSelect.Root>
);

const sortOf = (chosen: string): Record<string, string | null> => {
  const [sort, order] = chosen.split(" ");

  return { order: order ?? null, sort: sort ?? null };
};

const Choice = ({ fleet, place }: { readonly fleet: FleetAnswer; readonly place: Place }) => (
  <Flex align="center" gap={3} mb={3} wrap="wrap">
    <Search place={place} />
    <Select
      label="Sort"
      name={sortOf}
      options={SORTS}
      place={place}
      value={`${place.get("sort") ?? "urgency"} ${place.get("order") ?? "asc"}`}
    />
    <Select
      label="Group"
      name={(group) => ({ group: group === "" ? null : group })}
      options={[["", "no groups"], ["owner", "group by owner"], ["prefix", "group by directory"]]}
      place={place}
      value={place.get("group") ?? ""}
    />
    <Select
      label="Last write"
      name={(days) => ({ idle_days: days === "0" ? null : days })}
      options={IDLE.map((days) => [days, days === "0" ? "written at any time" : `not written for ${days} days`])}
      place={place}
      value={place.get("idle_days") ?? "0"}
    />
    {["prefix", "owner"].map((name) =>
      place.get(name) === null ? undefined : (
        <Button key={name} onClick={() => place.set({ [name]: null, offset: null })} size="xs" variant="outline">
          <Foreign>{`${name === "prefix" ? "below" : "owner"} ${place.get(name) ?? ""}`}</Foreign>
          {" ✕"}
        </Button>
      ),
    )}
    <Link download="fleet.csv" fontSize="sm" href={addressOf(`fleets/${fleet.asset_id}/tables.csv?${queryOf(place, CHOICE).toString()}`)} variant="underline">
      CSV
    </Link>
  </Flex>
);

const Groups = ({ fleet, place }: { readonly fleet: FleetAnswer; readonly place: Place }) => {
  const by = place.get("group");

  if (by === null || fleet.groups.length === 0) {
    return undefined;
  }

  return (
    <Box mb={4}>
      <DataTable
        columns={[
          { title: by === "owner" ? "Owner" : "Directory" },
          ...["Tables", "Unhealthy", "Failed", "Done", "Size", "Small files", "Reclaimable"].map((title) => ({ isNumber: true, title })),
        ]}
        label="Groups"
        rows={fleet.groups.map((group) => ({
          cells: [
            <Button
              height="auto"
              justifyContent="flex-start"
              key="name"
              onClick={() => place.set({ [by]: group.name, group: null, offset: null })}
              px={0}
              size="xs"
              textAlign="start"
              variant="plain"
              whiteSpace="normal"
            >
              <Address>{group.name === "-" ? "without an owner" : group.name}</Address>
            </Button>,
            count(group.num_tables),
            count(group.num_unhealthy),
            count(group.num_failed),
            count(group.num_done),
            bytes(group.size_bytes),
            count(group.small_files),
            bytes(group.reclaimable_bytes),
          ],
          key: group.name,
        }))}
      />
      {fleet.num_groups > fleet.groups.length ? (
        <Text color="fg.muted" fontSize="sm">{`and ${count(fleet.num_groups - fleet.groups.length)} more`}</Text>
      ) : undefined}
    </Box>
  );
};

// -- tables -----------------------------------------------------------------------------------------------------------

const Left = ({ isNext = false, left }: { readonly isNext?: boolean; readonly left: LeftWork }) => (
  <Box>
    {isNext ? "Next night: " : ""}
    <Text as="span" fontWeight="semibold">
      {left.operations.length === 0 ? "" : `${left.operations.join(", ").toUpperCase()}: `}
      {`${(NIGHT_STATES[left.reason]?.label ?? left.reason).toLowerCase()}. `}
    </Text>
    <Foreign>{left.why}</Foreign>
    {left.next_ms === null || left.next_ms === undefined ? "" : ` Not before ${moment(left.next_ms)}.`}
  </Box>
);

const Done = ({ row }: { readonly row: TableNight }) => (
  <>
    {(row.done ?? []).map((work) => (
      <Box color={work.message === "" ? undefined : "red.fg"} key={work.operation}>
        <Text as="span" fontWeight="semibold">{`${work.operation.toUpperCase()} ${work.status.replaceAll("_", " ")}. `}</Text>
        {work.message === "" ? (
          `${bytes(work.outcome.read_bytes)} read (forecast ${bytes(work.forecast.read_bytes)}), ` +
          `${duration(work.outcome.worker_seconds * 1000)} (forecast ${duration(work.forecast.worker_seconds * 1000)}); ` +
          `${count(work.saved_files)} files less, ${bytes(work.saved_bytes)} freed`
        ) : (
          <Foreign>{work.message}</Foreign>
        )}
      </Box>
    ))}
  </>
);

const Why = ({ row }: { readonly row: TableNight }) => (
  <Stack fontSize="sm" gap={1}>
    <Done row={row} />
    {row.left.map((left) => (
      <Left key={`${left.reason} ${left.operations.join(" ")}`} left={left} />
    ))}
    <Box color="fg.muted">
      {row.due_next.length > 0 ? (
        <>
          {"Next night: "}
          {row.due_next.map((work) => (
            <Box as="span" key={work.operation}>
              <Text as="span" fontWeight="semibold">{`${work.operation.toUpperCase()}. `}</Text>
              <Foreign>{work.why}</Foreign>{" "}
            </Box>
          ))}
        </>
      ) : (
        row.left_next
          .filter((left) => row.left.every((one) => one.reason !== left.reason))
          .map((left) => (
            <Left isNext key={`${left.reason} ${left.operations.join(" ")}`} left={left} />
          ))
      )}
    </Box>
    {row.unhealthy_since_ms === null ? undefined : (
      <Box color={isLate(row) ? "red.fg" : "fg.muted"}>
        {"Unhealthy since "}
        <When timeMs={row.unhealthy_since_ms} />
        {row.deadline_ms === null ? "" : isLate(row) ? "; the policy's time is over" : `; to be healthy by ${moment(row.deadline_ms)}`}
      </Box>
    )}
  </Stack>
);

const isLate = (row: TableNight): boolean => row.deadline_ms !== null && row.deadline_ms < Date.now();

const Name = ({ onHold, row }: { readonly onHold: ((hold: Hold) => void) | undefined; readonly row: TableNight }) => (
  <Box>
    <Box fontWeight="semibold">
      <ViewLink to={tableAddress(row.id)}>
        <Address>{row.table.replace(/\/$/u, "").split("/").at(-1) ?? row.table}</Address>
      </ViewLink>
    </Box>
    <Box color="fg.muted" fontSize="xs" title={row.table}>
      <Address>{row.table}</Address>
    </Box>
    {row.owner === null ? undefined : (
      <Box color="fg.muted" fontSize="xs">
        <Foreign>{row.owner}</Foreign>
      </Box>
    )}
    {onHold === undefined ? undefined : (
      <HStack gap={1} mt={1} wrap="wrap">
        <Button aria-label={`Pause ${row.table}`} onClick={() => onHold({ kind: "pause", match: row.table, why: "" })} size="2xs" variant="outline">
          Pause
        </Button>
        {["failed", "unread", "stopped"].includes(row.state) ? (
          <Button
            aria-label={`Acknowledge ${row.table}`}
            onClick={() => onHold({ kind: "acknowledge", match: row.table, why: "" })}
            size="2xs"
            variant="outline"
          >
            Acknowledge
          </Button>
        ) : undefined}
      </HStack>
    )}
  </Box>
);

const FIGURES = ["Gain", "Files", "Small files", "Reclaimable", "Last write"];

const figuresOf = (row: TableNight): Array<React.ReactNode> => [
  row.value === 0 ? "–" : row.value.toLocaleString("en-US", { maximumSignificantDigits: 3 }),
  count(row.num_files),
  count(row.small_files),
  bytes(row.reclaimable_bytes),
  row.written_ms === null ? "–" : <When timeMs={row.written_ms} />,
];

interface Rows {
  readonly fleet: FleetAnswer;
  readonly onHold: ((hold: Hold) => void) | undefined;
}

const WideTable = ({ fleet, onHold }: Rows) => (
  <Table.ScrollArea borderRadius="md" borderWidth={1} hideBelow="xl">
    <Table.Root size="sm" tableLayout="fixed">
      <VisuallyHidden asChild>
        <caption>Tables of the fleet</caption>
      </VisuallyHidden>
      <Table.Header>
        <Table.Row bg="bg.muted">
          {[["State", "11rem"], ["Table", "20%"], ["Why", undefined]].map(([title, width]) => (
            <Table.ColumnHeader key={title} px={2} scope="col" width={width}>
              {title}
            </Table.ColumnHeader>
          ))}
          {FIGURES.map((title) => (
            <Table.ColumnHeader key={title} px={2} scope="col" textAlign="end" width="6rem">
              {title}
            </Table.ColumnHeader>
          ))}
        </Table.Row>
      </Table.Header>
      <Table.Body>
        {fleet.tables.map((row) => (
          <Table.Row key={row.id} verticalAlign="top">
            <Table.Cell px={2}>
              <NightState state={row.state} />
            </Table.Cell>
            <Table.Cell px={2}>
              <Name onHold={onHold} row={row} />
            </Table.Cell>
            <Table.Cell overflowWrap="anywhere" px={2} whiteSpace="normal">
              <Why row={row} />
            </Table.Cell>
            {figuresOf(row).map((figure, position) => (
              <Table.Cell fontVariantNumeric="tabular-nums" key={FIGURES[position]} px={2} textAlign="end">
                {figure}
              </Table.Cell>
            ))}
          </Table.Row>
        ))}
      </Table.Body>
    </Table.Root>
  </Table.ScrollArea>
);

/** The same on a narrow screen: a card for each table. */
const Cards = ({ fleet, onHold }: Rows) => (
  <Stack as="ul" gap={3} hideFrom="xl" listStyleType="none">
    {fleet.tables.map((row) => (
      <Stack as="li" borderRadius="md" borderWidth={1} gap={2} key={row.id} p={3}>
        <Box>
          <NightState state={row.state} />
        </Box>
        <Name onHold={onHold} row={row} />
        <Why row={row} />
        <SimpleGrid as="dl" columns={3} fontSize="sm" gap={2}>
          {figuresOf(row).map((figure, position) => (
            <Box key={FIGURES[position]}>
              <Box as="dt" color="fg.muted" fontSize="xs">
                {FIGURES[position]}
              </Box>
              <Box as="dd" fontVariantNumeric="tabular-nums">
                {figure}
              </Box>
            </Box>
          ))}
        </SimpleGrid>
      </Stack>
    ))}
  </Stack>
);

const Pages = ({ fleet, place }: { readonly fleet: FleetAnswer; readonly place: Place }) =>
  fleet.total <= PAGE && fleet.offset === 0 ? undefined : (
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
        disabled={fleet.offset + fleet.tables.length >= fleet.total}
        onClick={() => place.set({ offset: String(fleet.offset + PAGE) })}
        size="sm"
        variant="outline"
      >
        Next
      </Button>
    </HStack>
  );

// -- the view ---------------------------------------------------------------------------------------------------------

const Head = ({ fleet }: { readonly fleet: FleetAnswer }) => (
  <Box mb={4}>
    <Text fontSize="sm">
      <ViewLink to={FLEET_ADDRESS}>All Delta tables</ViewLink>
    </Text>
    <Heading as="h1" size="xl">
      {"Fleet "}
      <Foreign>{fleet.asset.replace(/^delta-maintenance:/u, "")}</Foreign>
    </Heading>
    <Text color="fg.muted">
      {"Last night began "}
      <When timeMs={fleet.started_ms} />
      {` and took ${duration(fleet.finished_ms - fleet.started_ms)}. `}
      <TaskLink source={fleet}>{`${fleet.dag_id} / ${fleet.task_id}`}</TaskLink>
    </Text>
  </Box>
);

const Alerts = ({ fleet }: { readonly fleet: FleetAnswer }) => (
  <>
    {fleet.holds.some((one) => one.kind === "pause" && one.match === EVERYTHING) ? (
      <Notice palette="gray" title="The whole fleet is paused">
        Its tables are surveyed and reported, and not changed.
      </Notice>
    ) : undefined}
    {fleet.alerts.map((alert) => (
      <Notice key={`${alert.kind} ${alert.why}`} palette={alert.kind === "over_budget" ? "orange" : "red"} title={ALERTS[alert.kind] ?? alert.kind}>
        <Foreign>{alert.why}</Foreign>
      </Notice>
    ))}
  </>
);

export const NightView = ({ again, id, place }: { readonly again: number; readonly id: number; readonly place: Place }) => {
  const [changes, setChanges] = React.useState(0);
  const [wanted, setWanted] = React.useState<Hold | undefined>(undefined);
  const query = queryOf(place, [...CHOICE, "group", "offset"]);
  const loaded = useAnswer<FleetAnswer>(`fleets/${id}?${query.toString()}`, again + changes);

  if (loaded.state === "loading") {
    return <Loading />;
  }
  if (loaded.state === "failed") {
    return <Failed message={loaded.message} />;
  }
  const fleet = loaded.answer;
  const range =
    fleet.tables.length === 0 ? "No tables" : `${count(fleet.offset + 1)}–${count(fleet.offset + fleet.tables.length)}`;

  return (
    <Box aria-busy={loaded.isLoading}>
      <Head fleet={fleet} />
      <Alerts fleet={fleet} />
      <Figures fleet={fleet} />
      <Nights fleet={fleet} />
      <Holds fleet={fleet} onChanged={() => setChanges(changes + 1)} setWanted={setWanted} wanted={wanted} />
      <Section title="Tables">
        <States fleet={fleet} place={place} />
        <Choice fleet={fleet} place={place} />
        <Groups fleet={fleet} place={place} />
        <Text color="fg.muted" fontSize="sm" mb={2} role="status">
          {`${range} of ${count(fleet.total)} chosen, ${count(fleet.figures.num_tables)} in all`}
        </Text>
        <WideTable fleet={fleet} onHold={fleet.may_change ? setWanted : undefined} />
        <Cards fleet={fleet} onHold={fleet.may_change ? setWanted : undefined} />
        <Pages fleet={fleet} place={place} />
      </Section>
    </Box>
  );
};
