/** What the figures of a table mean. Not every reader knows the words of the Delta protocol and of this page. */
import { ChakraUI, React } from "./host";

const { Box, SimpleGrid } = ChakraUI;

const TERMS: Record<string, string> = {
  "Deleted rows": "Rows that deletion vectors mark as deleted, as a share of all rows in the files. Readers skip them; REORG PURGE takes them out.",
  "Held for time travel": "Files that the table no longer uses, but that older versions need. VACUUM keeps them until their retention is over.",
  "Log tail": "Commits after the newest checkpoint. A reader that opens the table reads each of them; a checkpoint sums them up.",
  Reclaimable: "Bytes of files that the table no longer uses and whose retention is over. VACUUM may delete them.",
  "Small files": "Files that OPTIMIZE would merge into larger ones, so that queries open fewer.",
};

export const explanationOf = (name: string): string | undefined => TERMS[name];

const idOf = (name: string): string => `delta-term-${name.toLowerCase().replaceAll(" ", "-")}`;

/** The id of the explanation in `Terms`, which a screen reader tells with what is described by it. */
export const descriptionOf = (name: string): string | undefined => (name in TERMS ? idOf(name) : undefined);

/** The explanations, folded. A page has one of these. */
export const Terms = ({ names }: { readonly names: Array<string> }) => (
  <Box as="details" fontSize="sm" mb={3}>
    <Box as="summary" color="fg.muted" cursor="pointer">
      What the figures mean
    </Box>
    <SimpleGrid as="dl" columnGap={6} columns={{ base: 1, lg: 2 }} mt={2} rowGap={2}>
      {names
        .filter((name) => name in TERMS)
        .map((name) => (
          <Box key={name}>
            <Box as="dt" fontWeight="semibold">
              {name}
            </Box>
            <Box as="dd" color="fg.muted" id={idOf(name)}>
              {TERMS[name]}
            </Box>
          </Box>
        ))}
    </SimpleGrid>
  </Box>
);
