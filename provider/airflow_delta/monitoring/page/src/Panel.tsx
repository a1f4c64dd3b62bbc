/** The panel of Airflow's home page: tables by status, and those to look at first. */
import { type Fleet, type Row, useAnswer } from "./api";
import { count } from "./format";
import { ChakraUI, React } from "./host";
import { Foreign, ViewLink } from "./parts";
import { pageAddress, tableAddress } from "./place";
import { Shape, TABLE_STATUSES, TableStatus } from "./status";

const { Box, Flex, Heading, HStack, Stack, Text } = ChakraUI;

const SHOWN = 3;
const COUNTED = ["unreadable", "critical", "attention", "healthy"];

export const isUrgent = (row: Row): boolean =>
  row.status === "unreadable" || row.failure !== null || (!row.is_next_done && (row.status === "critical" || row.status === "attention"));

export const reasonOf = (row: Row): string =>
  row.finding?.message ?? (row.failure === null ? "" : `${row.failure.operation} failed. ${row.failure.message ?? ""}`);

const CountLink = ({ fleet, status }: { readonly fleet: Fleet; readonly status: string }) => {
  const look = TABLE_STATUSES[status];

  return (
    <HStack color="colorPalette.fg" colorPalette={look?.palette} gap={1}>
      {look ? <Shape name={look.shape} /> : undefined}
      <ViewLink to={pageAddress(`?status=${status}`)}>{`${count(fleet.counts[status] ?? 0)} ${look?.label.toLowerCase()}`}</ViewLink>
    </HStack>
  );
};

export const Panel = () => {
  const loaded = useAnswer<Fleet>(`tables?limit=${SHOWN}`, 0);

  // Who may not see assets has no use for a fault on the home page, and neither has who runs no maintenance.
  if (loaded.state !== "loaded" || Object.values(loaded.answer.counts).every((found) => found === 0)) {
    return <></>;
  }
  const fleet = loaded.answer;

  return (
    <Box as="section" borderRadius="md" borderWidth={1} order={6} p={4}>
      <Flex align="baseline" gap={4} justify="space-between" wrap="wrap">
        <Heading as="h2" size="sm">
          Delta tables
        </Heading>
        <HStack fontSize="sm" gap={4} wrap="wrap">
          {COUNTED.map((status) => (
            <CountLink fleet={fleet} key={status} status={status} />
          ))}
          <HStack gap={1.5}>
            {"among all:"}
            <CountLink fleet={fleet} status="failing" />
          </HStack>
          <ViewLink to={pageAddress("")}>All tables</ViewLink>
        </HStack>
      </Flex>
      <Stack as="ul" gap={1.5} listStyleType="none" mt={2}>
        {fleet.tables.filter(isUrgent).map((row) => (
          <HStack align="baseline" as="li" fontSize="sm" gap={3} key={row.id} wrap="wrap">
            <TableStatus status={row.status} />
            <Box fontWeight="semibold">
              <ViewLink to={pageAddress(tableAddress(row.id))}>
                <Foreign>{row.name}</Foreign>
              </ViewLink>
            </Box>
            <Text color="fg.muted" flex="1" lineClamp={1} minW="40">
              <Foreign>{reasonOf(row)}</Foreign>
            </Text>
          </HStack>
        ))}
      </Stack>
    </Box>
  );
};
