// Bundles src/ into the script that the wheel holds. The output depends on the sources and the locked esbuild alone.
import { build } from "esbuild";

const out = process.argv[2] ?? "../static/delta-tables.js";

await build({
  entryPoints: ["src/main.tsx"],
  outfile: out,
  bundle: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  minify: true,
  banner: { js: "// Made from monitoring/page/src by `./dev ui`." },
});
