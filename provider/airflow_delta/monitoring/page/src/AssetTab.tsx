/** The tab of an asset: the table that it stands for, or the tables that its watcher looks at. */
import { type Asset, type Fleet, useAnswer } from "./api";
import { FleetView } from "./FleetView";
import { React } from "./host";
import { Failed, Loading, Notice } from "./parts";
import { pageAddress, type Place } from "./place";
import { TableView } from "./TableView";

const TablesOf = ({ again, asset, place }: { readonly again: number; readonly asset: Asset; readonly place: Place }) => {
  const query = new URLSearchParams({ asset_name: asset.name, asset_uri: asset.uri, limit: "1" });
  const loaded = useAnswer<Fleet>(`tables?${query.toString()}`, again);

  if (loaded.state === "loading") {
    return <Loading />;
  }
  if (loaded.state === "failed") {
    return <Failed message={loaded.message} />;
  }
  const [table] = loaded.answer.tables;

  if (table === undefined) {
    return (
      <Notice palette="blue" title="No Delta table is known of this asset">
        {"An asset has the tables whose address is its URI, whose maintenance it tells of (delta-maintenance:…), or which its watcher looks at. " +
          `A table is known when a task of airflow-provider-delta or a watcher has told of it within the last ${loaded.answer.days} days.`}
      </Notice>
    );
  }

  return loaded.answer.total === 1 ? (
    <TableView again={again} allTables={pageAddress("")} id={table.id} key={table.id} />
  ) : (
    <FleetView again={again} asset={asset} place={place} />
  );
};

export const AssetTab = ({
  again,
  asset,
  place,
}: {
  readonly again: number;
  readonly asset?: Asset;
  readonly place: Place;
}) => (asset === undefined ? <Loading /> : <TablesOf again={again} asset={asset} key={asset.uri} place={place} />);
