/** What persons have said of a fleet's tables: pauses and acknowledged failures, which the next run obeys. */
import { changeHolds, type FleetAnswer, type Hold } from "./api";
import { ChakraUI, React } from "./host";
import { Foreign, Notice, Section } from "./parts";

const { Box, Button, Field, HStack, Input, NativeSelect, Stack, Text } = ChakraUI;

const KINDS: Record<string, string> = {
  acknowledge: "Acknowledge failures",
  pause: "Pause",
};
export const EVERYTHING = "**";

const isSame = (one: Hold, other: Hold): boolean => one.kind === other.kind && one.match === other.match;

const told = (hold: Hold): string =>
  `${hold.kind === "pause" ? "Paused" : "Failures acknowledged"}${hold.until ? ` until ${hold.until}` : ""}: ${hold.match === EVERYTHING ? "the whole fleet" : hold.match}`;

/** A change that is sent, and what came of it. */
const useChange = (assetId: number, onDone: () => void) => {
  const [state, setState] = React.useState<{ isSent: boolean; why: string }>({ isSent: false, why: "" });

  const change = (next: (holds: Array<Hold>) => Array<Hold>) => {
    setState({ isSent: true, why: "" });
    changeHolds(assetId, next)
      .then(() => {
        setState({ isSent: false, why: "" });
        onDone();
      })
      .catch((error: unknown) => setState({ isSent: false, why: error instanceof Error ? error.message : String(error) }));
  };

  return { ...state, change };
};

const Line = ({ assetId, hold, mayChange, onDone }: { readonly assetId: number; readonly hold: Hold; readonly mayChange: boolean; readonly onDone: () => void }) => {
  const { change, isSent, why } = useChange(assetId, onDone);

  return (
    <HStack as="li" fontSize="sm" gap={3} wrap="wrap">
      <Box>
        <Foreign>{told(hold)}</Foreign>
        <Text as="span" color="fg.muted">
          {". "}
          <Foreign>{hold.why}</Foreign>
        </Text>
      </Box>
      {mayChange ? (
        <Button
          aria-label={`Take back: ${told(hold)}`}
          loading={isSent}
          onClick={() => change((holds) => holds.filter((one) => !isSame(one, hold)))}
          size="2xs"
          variant="outline"
        >
          Take back
        </Button>
      ) : undefined}
      {why === "" ? undefined : (
        <Text color="red.fg" role="alert">
          <Foreign>{why}</Foreign>
        </Text>
      )}
    </HStack>
  );
};

const Form = ({ assetId, hold, onDone, onEnd }: { readonly assetId: number; readonly hold: Hold; readonly onDone: () => void; readonly onEnd: () => void }) => {
  const [wanted, setWanted] = React.useState(hold);
  const { change, isSent, why } = useChange(assetId, () => {
    onEnd();
    onDone();
  });
  const needsDate = wanted.kind === "acknowledge" && !wanted.until;
  const send = (event: React.FormEvent) => {
    event.preventDefault();
    change((holds) => [...holds.filter((one) => !isSame(one, wanted)), { ...wanted, until: wanted.until ? wanted.until : null }]);
  };

  return (
    <Box as="form" borderRadius="md" borderWidth={1} mb={3} onSubmit={send} p={3}>
      <HStack align="flex-end" gap={3} wrap="wrap">
        <Field.Root width="auto">
          <Field.Label>What</Field.Label>
          <NativeSelect.Root size="sm">
            <NativeSelect.Field onChange={(event) => setWanted({ ...wanted, kind: event.target.value })} value={wanted.kind}>
              {Object.entries(KINDS).map(([kind, label]) => (
                <option key={kind} value={kind}>
                  {label}
                </option>
              ))}
            </NativeSelect.Field>
            <NativeSelect.Indicator />
          </NativeSelect.Root>
        </Field.Root>
        <Field.Root flex="2" minW="52">
          <Field.Label>{"Tables: an address, or a pattern; ** is the whole fleet"}</Field.Label>
          <Input maxLength={1000} onChange={(event) => setWanted({ ...wanted, match: event.target.value })} required size="sm" value={wanted.match} />
        </Field.Root>
        <Field.Root flex="2" minW="52">
          <Field.Label>Reason</Field.Label>
          <Input autoFocus maxLength={1000} onChange={(event) => setWanted({ ...wanted, why: event.target.value })} required size="sm" value={wanted.why} />
        </Field.Root>
        <Field.Root width="auto">
          <Field.Label>{wanted.kind === "pause" ? "Last day, if any" : "Last day"}</Field.Label>
          <Input
            onChange={(event) => setWanted({ ...wanted, until: event.target.value })}
            required={needsDate}
            size="sm"
            type="date"
            value={wanted.until ?? ""}
          />
        </Field.Root>
        <HStack>
          <Button colorPalette="blue" loading={isSent} size="sm" type="submit">
            Save
          </Button>
          <Button disabled={isSent} onClick={onEnd} size="sm" variant="outline">
            Cancel
          </Button>
        </HStack>
      </HStack>
      {why === "" ? undefined : (
        <Text color="red.fg" fontSize="sm" mt={2} role="alert">
          {"Not saved: "}
          <Foreign>{why}</Foreign>
        </Text>
      )}
    </Box>
  );
};

/**
 * @param wanted the hold that the user is about to say, if they are.
 */
export const Holds = ({
  fleet,
  onChanged,
  setWanted,
  wanted,
}: {
  readonly fleet: FleetAnswer;
  readonly onChanged: () => void;
  readonly setWanted: (hold: Hold | undefined) => void;
  readonly wanted: Hold | undefined;
}) => (
  <Section note="The next run obeys them. A run that goes on is ended as any run of Airflow." title="Paused and acknowledged">
    {fleet.broken_holds === "" ? undefined : (
      <Notice palette="red" title="They cannot be read, so the next run will fail">
        <Foreign>{fleet.broken_holds}</Foreign>
      </Notice>
    )}
    {wanted === undefined ? undefined : (
      <Form
        assetId={fleet.asset_id}
        hold={wanted}
        key={`${wanted.kind} ${wanted.match}`}
        onDone={onChanged}
        onEnd={() => setWanted(undefined)}
      />
    )}
    {fleet.holds.length === 0 ? (
      <Text color="fg.muted" fontSize="sm">
        Nothing is paused or acknowledged here. The policy may know more.
      </Text>
    ) : (
      <Stack as="ul" gap={1} listStyleType="none">
        {fleet.holds.map((hold) => (
          <Line assetId={fleet.asset_id} hold={hold} key={`${hold.kind} ${hold.match}`} mayChange={fleet.may_change} onDone={onChanged} />
        ))}
      </Stack>
    )}
    {fleet.may_change && wanted === undefined ? (
      <HStack gap={2} mt={2} wrap="wrap">
        <Button onClick={() => setWanted({ kind: "pause", match: EVERYTHING, why: "" })} size="sm" variant="outline">
          Pause the fleet
        </Button>
        <Button onClick={() => setWanted({ kind: "pause", match: "", why: "" })} size="sm" variant="outline">
          Pause or acknowledge tables
        </Button>
      </HStack>
    ) : undefined}
  </Section>
);
