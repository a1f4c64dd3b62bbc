/** Small parts that several views share. */
import type { ReactNode } from "react";

import type { Source } from "./api";
import { ago, moment } from "./format";
import { ChakraUI, React, ReactRouterDOM } from "./host";

const { Box, Flex, Heading, Link, Spinner, Table, Text } = ChakraUI;

/** A time of which people want to know how long ago it was; the exact time is its title. */
export const When = ({ timeMs }: { readonly timeMs: number }) => (
  <time dateTime={new Date(timeMs).toISOString()} title={moment(timeMs)}>
    {ago(timeMs)}
  </time>
);

/** A text of a table: its own direction of writing touches nothing around it, and it breaks anywhere. */
export const Foreign = ({ children }: { readonly children: string }) => (
  <bdi style={{ overflowWrap: "anywhere" }}>{children}</bdi>
);

/** An address or a name: it breaks behind its own separators, and within a word only where that is longer than a line. */
export const Address = ({ children }: { readonly children: string }) => (
  <bdi style={{ overflowWrap: "anywhere" }}>
    {children.split(/(?<=[/_.-])(?=[^/_.-])/u).map((part, position) => (
      // The parts of one text have no other identity than their place.
      <React.Fragment key={position}>
        {position === 0 ? undefined : <wbr />}
        {part}
      </React.Fragment>
    ))}
  </bdi>
);

const pathOf = (source: Source): string => {
  const run = `/dags/${encodeURIComponent(source.dag_id)}/runs/${encodeURIComponent(source.run_id)}`;
  const task = `${run}/tasks/${encodeURIComponent(source.task_id)}`;

  return source.map_index >= 0 ? `${task}/mapped/${source.map_index}` : task;
};

/** Leads to a task instance in Airflow. */
export const TaskLink = ({ children, source }: { readonly children: ReactNode; readonly source: Source }) => (
  <Link asChild colorPalette="blue" variant="underline">
    <ReactRouterDOM.Link to={pathOf(source)}>{children}</ReactRouterDOM.Link>
  </Link>
);

/** Leads to another view of this page. */
export const ViewLink = ({ children, to }: { readonly children: ReactNode; readonly to: string }) => (
  <Link asChild colorPalette="blue" variant="underline">
    <ReactRouterDOM.Link to={to}>{children}</ReactRouterDOM.Link>
  </Link>
);

export const Section = ({
  children,
  note,
  title,
}: {
  readonly children: ReactNode;
  readonly note?: string;
  readonly title: string;
}) => (
  <Box as="section" minW={0} mt={6}>
    <Heading as="h2" mb={note === undefined ? 2 : 0} size="md">
      {title}
    </Heading>
    {note === undefined ? undefined : (
      <Text color="fg.muted" fontSize="sm" mb={2}>
        {note}
      </Text>
    )}
    {children}
  </Box>
);

export interface Column {
  isNumber?: boolean;
  title: string;
}

/** A table of a section. Where it is wider than the screen, it alone moves sideways, also by the keyboard. */
export const DataTable = ({
  columns,
  label,
  rows,
}: {
  readonly columns: Array<Column>;
  readonly label: string;
  readonly rows: Array<{ cells: Array<ReactNode>; key: string }>;
}) => (
  <Table.ScrollArea aria-label={label} borderRadius="md" borderWidth={1} role="region" tabIndex={0}>
    <Table.Root size="sm">
      <Table.Header>
        <Table.Row bg="bg.muted">
          {columns.map((column) => (
            <Table.ColumnHeader key={column.title} scope="col" textAlign={column.isNumber ? "end" : "start"}>
              {column.title}
            </Table.ColumnHeader>
          ))}
        </Table.Row>
      </Table.Header>
      <Table.Body>
        {rows.map((row) => (
          <Table.Row key={row.key} verticalAlign="top">
            {row.cells.map((cell, position) => (
              <Table.Cell
                fontVariantNumeric="tabular-nums"
                key={columns[position]?.title}
                textAlign={columns[position]?.isNumber ? "end" : "start"}
                whiteSpace={columns[position]?.isNumber ? "nowrap" : undefined}
              >
                {cell}
              </Table.Cell>
            ))}
          </Table.Row>
        ))}
      </Table.Body>
    </Table.Root>
  </Table.ScrollArea>
);

/** Lines of a text that a program wrote, as it wrote them. */
export const Lines = ({ children, label }: { readonly children: Array<string>; readonly label: string }) => (
  <ChakraUI.Code
    aria-label={label}
    display="block"
    fontSize="sm"
    maxH="lg"
    overflow="auto"
    p={3}
    role="region"
    tabIndex={0}
    whiteSpace="pre"
  >
    {children.join("\n")}
  </ChakraUI.Code>
);

export const Loading = () => (
  <Flex align="center" gap={3} justify="center" py={16} role="status">
    <Spinner size="sm" />
    <Text>Loading…</Text>
  </Flex>
);

export const Notice = ({
  children,
  palette,
  title,
}: {
  readonly children: ReactNode;
  readonly palette: string;
  readonly title: string;
}) => (
  <Box
    bg="colorPalette.subtle"
    borderColor="colorPalette.solid"
    borderLeftWidth={4}
    borderRadius="md"
    colorPalette={palette}
    mb={4}
    px={4}
    py={3}
    role="note"
  >
    <Text fontWeight="semibold">{title}</Text>
    <Box fontSize="sm" overflowWrap="anywhere">
      {children}
    </Box>
  </Box>
);

export const Failed = ({ message }: { readonly message: string }) => (
  <Box role="alert">
    <Notice palette="red" title="This could not be loaded">
      {message}
    </Notice>
  </Box>
);
