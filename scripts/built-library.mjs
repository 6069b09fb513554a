// Shared libraries that cargo made of this checkout.

import { existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))

/** The newest build of a library such as 'ascendcl_host', if there is one: `cargo test` leaves it in deps, `cargo build` above. */
export function builtLibrary(name) {
  const file = { win32: `${name}.dll`, darwin: `lib${name}.dylib` }[process.platform] ?? `lib${name}.so`
  const target = process.env.CARGO_TARGET_DIR ?? join(root, 'target')
  const places = ['debug', 'release'].flatMap((profile) => ['', 'deps'].map((folder) => join(target, profile, folder, file)))
  return places.filter(existsSync).sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)[0]
}
