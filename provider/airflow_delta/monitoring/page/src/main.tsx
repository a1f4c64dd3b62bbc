/**
 * The page Delta tables, the tabs of DAGs, of task instances and of assets, and the panel of the home page.
 *
 * Airflow loads this script once for all of them, and takes a component from the global object by the name that the plugin states
 * (provider/airflow_delta/monitoring/plugin.py). The query of the address chooses the view.
 */
import type { Asset } from "./api";
import { AssetTab } from "./AssetTab";
import { FleetView } from "./FleetView";
import { ChakraUI, host, React } from "./host";
import { NightView } from "./NightView";
import { Panel } from "./Panel";
import { usePlace } from "./place";
import { RunView } from "./RunView";
import { TableView } from "./TableView";
import { TaskTab } from "./TaskTab";

const { Box, Button } = ChakraUI;

/** What Airflow tells of the place of a tab; on the page itself, nothing. An asset comes after its id, when Airflow has read it. */
interface Place {
  asset?: Asset;
  assetId?: string;
  dagId?: string;
  mapIndex?: string;
  runId?: string;
  taskId?: string;
}

const DeltaTables = ({ asset, assetId, dagId, mapIndex, runId, taskId }: Place) => {
  const place = usePlace();
  const [again, setAgain] = React.useState(0);
  const table = place.get("table");
  const run = place.get("run");
  const fleet = place.get("fleet");
  const isOfTask = dagId !== undefined && runId !== undefined && taskId !== undefined;

  return (
    <Box as="main" height="full" overflow="auto" p={{ base: 3, md: 5 }} position="relative">
      <Button float="right" onClick={() => setAgain(again + 1)} size="sm" variant="outline">
        Refresh
      </Button>
      {table !== null && run !== null ? (
        <RunView again={again} id={table} key={run} number={run} />
      ) : table !== null ? (
        <TableView again={again} id={table} key={table} />
      ) : fleet !== null && /^\d+$/u.test(fleet) ? (
        <NightView again={again} id={Number(fleet)} key={fleet} place={place} />
      ) : isOfTask ? (
        <TaskTab again={again} task={{ dagId, mapIndex, runId, taskId }} />
      ) : assetId !== undefined ? (
        <AssetTab again={again} asset={asset} place={place} />
      ) : (
        <FleetView again={again} dagId={dagId} place={place} />
      )}
    </Box>
  );
};

host.AirflowPlugin = DeltaTables;
host["Delta tables"] = DeltaTables;
host["Delta tables panel"] = Panel;
