/** The fleets that tasks have told of, each with a line about its newest night. */
import { type FleetLine, type FleetsAnswer, useAnswer } from "./api";
import { count } from "./format";
import { ChakraUI, React } from "./host";
import { Foreign, ViewLink, When } from "./parts";
import { nightAddress } from "./place";
import { Shape } from "./status";

const { Box, HStack, Stack, Text } = ChakraUI;

const Line = ({ fleet }: { readonly fleet: FleetLine }) => (
  <HStack as="li" fontSize="sm" gap={3} wrap="wrap">
    <Box fontWeight="semibold">
      {"Fleet "}
      <ViewLink to={nightAddress(fleet.asset_id)}>
        <Foreign>{fleet.asset.replace(/^delta-maintenance:/u, "")}</Foreign>
      </ViewLink>
    </Box>
    {fleet.figures === null ? (
      <Text color="red.fg">
        {"Its newest night cannot be read: "}
        <Foreign>{fleet.broken}</Foreign>
      </Text>
    ) : (
      <Text color="fg.muted">
        {"Last night "}
        <When timeMs={fleet.figures.started_ms} />
        {`: ${count(fleet.figures.num_unhealthy)} of ${count(fleet.figures.num_tables)} tables unhealthy, ${count(fleet.figures.num_done)} operations done`}
      </Text>
    )}
    {fleet.alerts.length === 0 ? undefined : (
      <HStack color="red.fg" gap={1}>
        <Shape name="octagon" />
        {fleet.alerts.length === 1 ? "1 alert" : `${fleet.alerts.length} alerts`}
      </HStack>
    )}
  </HStack>
);

export const Fleets = ({ again, dagId }: { readonly again: number; readonly dagId?: string }) => {
  const query = dagId === undefined ? "" : `?dag_id=${encodeURIComponent(dagId)}`;
  const loaded = useAnswer<FleetsAnswer>(`fleets${query}`, again);

  // The tables below do not depend on it, and most installations have no fleet.
  if (loaded.state !== "loaded" || loaded.answer.fleets.length === 0) {
    return <></>;
  }

  return (
    <Stack as="ul" aria-label="Fleets" borderRadius="md" borderWidth={1} gap={1} listStyleType="none" mb={4} p={3}>
      {loaded.answer.fleets.map((fleet) => (
        <Line fleet={fleet} key={fleet.asset_id} />
      ))}
    </Stack>
  );
};
