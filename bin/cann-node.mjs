#!/usr/bin/env node
import { main } from './lib/main.mjs'

// A reader that has had enough, as in `cann-node info FILE | head`, is no error.
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error) => {
    if (error.code !== 'EPIPE') throw error
    process.exit()
  })
}

process.exitCode = await main(process.argv.slice(2))
