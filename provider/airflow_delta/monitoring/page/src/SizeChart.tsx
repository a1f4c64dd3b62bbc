/** Files by size, and partitions by need: where the small files are. */
import type { Health } from "./api";
import { asNumber, asObject, asObjects, bytes, count, partitionText, percent } from "./format";
import { ChakraUI, React } from "./host";
import { DataTable, Foreign, Section } from "./parts";

const { Box, Flex, HStack, Stack, Text } = ChakraUI;

/** Where the classes of sizes begin; provider/delta_maintenance/health/file_sizes.py has the same. */
const STARTS = [0, 2 ** 16, 2 ** 19, 2 ** 22, 2 ** 25, 2 ** 27, 2 ** 29, 2 ** 30, 2 ** 32];

const classText = (start: number): string => {
  const next = STARTS.find((one) => one > start);

  return start === 0 ? `below ${bytes(next)}` : next === undefined ? `${bytes(start)} or more` : `${bytes(start)} to ${bytes(next)}`;
};

const Key = ({ bg, label }: { readonly bg: string; readonly label: string }) => (
  <HStack gap={1.5}>
    <Box aria-hidden bg={bg} borderRadius="xs" height={3} width={3} />
    <Text>{label}</Text>
  </HStack>
);

const SizeRow = ({ found, most }: { readonly found: Record<string, unknown>; readonly most: number }) => {
  const files = asNumber(found, "numFiles") ?? 0;
  const merged = asNumber(found, "toMerge", "numFiles") ?? 0;
  const share = (value: number) => `${(100 * value) / most}%`;

  return (
    <Flex align="center" as="li" direction={{ base: "column", sm: "row" }} gap={{ base: 0, sm: 3 }}>
      <Text color="fg.muted" flexShrink={0} width={{ base: "full", sm: "36" }}>
        {classText(asNumber(found, "fromBytes") ?? 0)}
      </Text>
      <Flex aria-hidden bg="bg.muted" borderRadius="sm" flex="1" height={4} overflow="hidden" width="full">
        <Box bg="orange.solid" minW={merged > 0 ? "2px" : 0} width={share(merged)} />
        <Box bg="blue.solid" minW={files > merged ? "2px" : 0} width={share(files - merged)} />
      </Flex>
      <Text flexShrink={0} fontVariantNumeric="tabular-nums" width={{ base: "full", sm: "56" }}>
        {`${count(files)} files, ${bytes(asNumber(found, "sizeInBytes"))}`}
        {merged > 0 ? (
          <Text as="span" color="fg.muted">
            {merged === files ? ", all to merge" : `, ${count(merged)} to merge`}
          </Text>
        ) : undefined}
      </Text>
    </Flex>
  );
};

const FileSizes = ({ health }: { readonly health: Health }) => {
  const classes = asObjects(health.facts["fileSizes"]);

  if (classes.length === 0) {
    return undefined;
  }
  const most = Math.max(1, ...classes.map((found) => asNumber(found, "numFiles") ?? 0));

  return (
    <Section title="Files by size">
      <HStack color="fg.muted" fontSize="xs" gap={4} mb={2} wrap="wrap">
        <Key bg="orange.solid" label="OPTIMIZE would merge these" />
        <Key bg="blue.solid" label="stay as they are" />
      </HStack>
      <Stack as="ul" fontSize="sm" gap={1.5} listStyleType="none">
        {classes.map((found) => (
          <SizeRow found={found} key={asNumber(found, "fromBytes")} most={most} />
        ))}
      </Stack>
    </Section>
  );
};

const Partitions = ({ health }: { readonly health: Health }) => {
  const needs = asObjects(health.facts["partitionsInNeed"]);
  const all = asNumber(health.facts, "numPartitionsInNeed") ?? needs.length;

  if (needs.length === 0) {
    return undefined;
  }

  return (
    <Section
      note={all > needs.length ? `The ${count(needs.length)} most needy of ${count(all)} partitions with something to do.` : undefined}
      title="Partitions by need"
    >
      <DataTable
        columns={[
          { title: "Partition" },
          { isNumber: true, title: "Files to merge" },
          { isNumber: true, title: "Bytes to merge" },
          { isNumber: true, title: "Deleted rows" },
        ]}
        label="Partitions by need"
        rows={needs.map((need) => {
          const name = partitionText(asObject(need["partition"]));

          return {
            cells: [
              <Foreign key="name">{name}</Foreign>,
              count(asNumber(need, "toMerge", "numFiles")),
              bytes(asNumber(need, "toMerge", "sizeInBytes")),
              percent(asNumber(need, "deletedRowsRatio")),
            ],
            key: name,
          };
        })}
      />
    </Section>
  );
};

export const WhereTheFilesAre = ({ health }: { readonly health: Health }) => (
  <ChakraUI.SimpleGrid columnGap={6} minChildWidth="min(100%, 36rem)">
    <FileSizes health={health} />
    <Partitions health={health} />
  </ChakraUI.SimpleGrid>
);
