/** Versions over time: who wrote them, and which of them were maintenance. */
import type { Run, Version } from "./api";
import { count, DASH, moment } from "./format";
import { ChakraUI, React } from "./host";
import { DataTable, Foreign, Section, ViewLink, When } from "./parts";
import { runAddress } from "./place";

const { Box, Flex, HStack, Text } = ChakraUI;

const UNNAMED = "unnamed writer";
const MAX_LANES = 6;

const lanesOf = (versions: Array<Version>): Array<[string, Array<Version>]> => {
  const lanes = new Map<string, Array<Version>>();

  for (const version of versions) {
    const writer = version.writer ?? UNNAMED;

    lanes.set(writer, [...(lanes.get(writer) ?? []), version]);
  }

  return [...lanes].sort(([, one], [, other]) => other.length - one.length);
};

/** A lane of one writer: a circle is a write, a diamond is maintenance. */
const Lane = ({
  first,
  span,
  versions,
  writer,
}: {
  readonly first: number;
  readonly span: number;
  readonly versions: Array<Version>;
  readonly writer: string;
}) => {
  const maintenance = versions.filter((version) => version.is_maintenance).length;

  return (
    <Flex align="center" direction={{ base: "column", sm: "row" }} gap={{ base: 0, sm: 3 }}>
      <Box flexShrink={0} fontSize="sm" width={{ base: "full", sm: "48" }}>
        <Foreign>{writer}</Foreign>
      </Box>
      <Box bg="bg.muted" borderRadius="sm" flex="1" height={6} position="relative" width="full">
        <Box
          aria-label={`${writer}: ${count(versions.length)} version${versions.length === 1 ? "" : "s"}, ${count(maintenance)} of them maintenance`}
          height="full"
          mx={2}
          position="relative"
          role="img"
        >
          {versions.map((version) => (
            <Box
              bg={version.is_maintenance ? "green.solid" : "blue.solid"}
              borderRadius={version.is_maintenance ? "1px" : "full"}
              height={version.is_maintenance ? "9px" : "7px"}
              key={version.version}
              left={`${(100 * ((version.time_ms ?? first) - first)) / span}%`}
              position="absolute"
              title={`Version ${version.version}, ${version.operation ?? "no operation noted"}${version.time_ms === null ? "" : `, ${moment(version.time_ms)}`}`}
              top="50%"
              transform={`translate(-50%, -50%)${version.is_maintenance ? " rotate(45deg)" : ""}`}
              width={version.is_maintenance ? "9px" : "7px"}
            />
          ))}
        </Box>
      </Box>
    </Flex>
  );
};

export const Versions = ({
  id,
  runs,
  versions,
}: {
  readonly id: string;
  readonly runs: Array<Run>;
  readonly versions: Array<Version>;
}) => {
  const times = versions.flatMap((version) => (version.time_ms === null ? [] : [version.time_ms]));

  if (times.length === 0) {
    return undefined;
  }
  const first = Math.min(...times);
  const last = Math.max(...times);
  const lanes = lanesOf(versions);
  const byVersion = new Map(runs.flatMap((run) => (run.version === null ? [] : [[run.version, run] as const])));

  return (
    <Section
      note="What the writers noted in the log. Each reading of health lists the newest dozen versions, so there may be gaps."
      title="Versions over time"
    >
      <HStack color="fg.muted" fontSize="xs" gap={4} mb={2}>
        <HStack gap={1.5}>
          <Box aria-hidden bg="blue.solid" borderRadius="full" height="7px" width="7px" />
          write
        </HStack>
        <HStack gap={1.5}>
          <Box aria-hidden bg="green.solid" height="8px" transform="rotate(45deg)" width="8px" />
          maintenance
        </HStack>
      </HStack>
      <ChakraUI.Stack gap={1}>
        {lanes.slice(0, MAX_LANES).map(([writer, own]) => (
          <Lane first={first} key={writer} span={Math.max(1, last - first)} versions={own} writer={writer} />
        ))}
      </ChakraUI.Stack>
      {lanes.length > MAX_LANES ? (
        <Text color="fg.muted" fontSize="sm">{`and ${lanes.length - MAX_LANES} more writers, in the list below`}</Text>
      ) : undefined}
      <Flex color="fg.muted" fontSize="xs" justify="space-between" ms={{ base: 0, sm: "calc(12rem + 0.75rem)" }} mt={1}>
        <When timeMs={first} />
        <When timeMs={last} />
      </Flex>
      <Box as="details" mt={2}>
        <Box as="summary" color="fg.muted" cursor="pointer" fontSize="sm">
          {`List of ${count(versions.length)} versions`}
        </Box>
        <Box mt={1}>
          <DataTable
            columns={[
              { isNumber: true, title: "Version" },
              { title: "When" },
              { title: "Operation" },
              { title: "Writer" },
              { title: "Run" },
            ]}
            label="Versions"
            rows={versions.map((version) => {
              const run = byVersion.get(version.version);

              return {
                cells: [
                  count(version.version),
                  version.time_ms === null ? DASH : <When key="when" timeMs={version.time_ms} />,
                  <Foreign key="operation">{version.operation ?? DASH}</Foreign>,
                  <Foreign key="writer">{version.engine ?? UNNAMED}</Foreign>,
                  run === undefined || run.number === null ? (
                    ""
                  ) : (
                    <ViewLink key="run" to={runAddress(id, run.number)}>
                      {`${run.operation} run`}
                    </ViewLink>
                  ),
                ],
                key: String(version.version),
              };
            })}
          />
        </Box>
      </Box>
    </Section>
  );
};
