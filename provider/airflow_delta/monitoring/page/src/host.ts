/**
 * React, Chakra UI and the router of Airflow's own UI, which it offers to plugins as global objects.
 *
 * The page uses these very instances, so it shares the theme, the colour mode and the address bar, and the bundle holds none of
 * them.
 */
import type * as ChakraTypes from "@chakra-ui/react";
import type * as ReactTypes from "react";

type SearchParams = readonly [
  URLSearchParams,
  (next: URLSearchParams, options?: { replace?: boolean }) => void,
];

interface Router {
  Link: ReactTypes.ComponentType<{ children?: ReactTypes.ReactNode; to: string }>;
  useSearchParams: () => SearchParams;
}

interface Host {
  AirflowPlugin?: ReactTypes.ComponentType;
  "Delta tables"?: ReactTypes.ComponentType;
  "Delta tables panel"?: ReactTypes.ComponentType;
  ChakraUI: typeof ChakraTypes;
  React: typeof ReactTypes;
  ReactRouterDOM: Router;
}

export const host = globalThis as unknown as Host;
export const { ChakraUI, React, ReactRouterDOM } = host;
