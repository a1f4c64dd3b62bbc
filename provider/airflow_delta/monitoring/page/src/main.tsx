/** The page Delta tables: three views, chosen by the query of the address. Airflow renders `AirflowPlugin`. */
import { FleetView } from "./FleetView";
import { ChakraUI, host, React } from "./host";
import { usePlace } from "./place";
import { RunView } from "./RunView";
import { TableView } from "./TableView";

const { Box, Button } = ChakraUI;

const DeltaTables = () => {
  const place = usePlace();
  const [again, setAgain] = React.useState(0);
  const table = place.get("table");
  const run = place.get("run");

  return (
    <Box as="main" height="full" overflow="auto" p={{ base: 3, md: 5 }} position="relative">
      <Button float="right" onClick={() => setAgain(again + 1)} size="sm" variant="outline">
        Refresh
      </Button>
      {table === null ? (
        <FleetView again={again} place={place} />
      ) : run === null ? (
        <TableView again={again} id={table} key={table} />
      ) : (
        <RunView again={again} id={table} key={run} number={run} />
      )}
    </Box>
  );
};

host.AirflowPlugin = DeltaTables;
