import { realpathSync } from 'node:fs'

/** Whether a module, by its import.meta.filename, is the program that was started: import.meta.main, which Node has from 24.2 on. */
export function isMain(filename) {
  try {
    return realpathSync(process.argv[1]) === filename
  } catch {
    return false
  }
}
