// Unpacks the Chromium that an npm package carries, with the libraries and the fonts that a bare Linux lacks.

import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { brotliDecompressSync } from "node:zlib";

const FROM = "node_modules/@sparticuz/chromium/bin";
const TO = "node_modules/.chromium";

const unpacked = (name) => brotliDecompressSync(readFileSync(`${FROM}/${name}.br`));

const FONTS = `<?xml version="1.0"?>
<fontconfig>
  <dir>${process.cwd()}/${TO}/fonts</dir>
  <cachedir>${process.cwd()}/${TO}/fonts-cache</cachedir>
</fontconfig>
`;

// The package has a program for one kind of machine only.
if (process.platform === "linux" && process.arch === "x64" && !existsSync(`${TO}/chromium`)) {
  mkdirSync(TO, { recursive: true });
  for (const name of ["al2023.tar", "fonts.tar"]) execFileSync("tar", ["-x", "-C", TO], { input: unpacked(name) });
  // What comes with the fonts names a folder of another kind of machine.
  writeFileSync(`${TO}/fonts.conf`, FONTS);
  // The program comes last and whole: where it is, everything is.
  writeFileSync(`${TO}/part`, unpacked("chromium"));
  chmodSync(`${TO}/part`, 0o755);
  renameSync(`${TO}/part`, `${TO}/chromium`);
}
