/** Where the user is within the page: the query of the address, so that a view can be kept and sent to others. */
import { React, ReactRouterDOM } from "./host";

export interface Place {
  get: (name: string) => string | null;
  /** Changes parameters; `null` removes one. */
  set: (changes: Record<string, string | null>, replace?: boolean) => void;
}

export const usePlace = (): Place => {
  const [params, setParams] = ReactRouterDOM.useSearchParams();

  return React.useMemo(
    () => ({
      get: (name) => params.get(name),
      set: (changes, replace = false) => {
        const next = new URLSearchParams(params);

        for (const [name, value] of Object.entries(changes)) {
          if (value === null) {
            next.delete(name);
          } else {
            next.set(name, value);
          }
        }
        setParams(next, { replace });
      },
    }),
    [params, setParams],
  );
};

export const tableAddress = (id: string): string => `?table=${encodeURIComponent(id)}`;
export const runAddress = (id: string, number: number): string => `${tableAddress(id)}&run=${number}`;
export const nightAddress = (assetId: number): string => `?fleet=${assetId}`;
export const FLEET_ADDRESS = "?";
/** Of a table on the page itself, from elsewhere in Airflow. */
export const pageAddress = (query: string): string => `/plugin/delta-tables${query}`;
