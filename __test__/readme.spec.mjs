// README.zh-CN.md has not fallen behind README.md in what can be compared.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync, readdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { root, withFolder } from './helpers/index.mjs'

const at = withFolder()
const read = (name) => readFileSync(`${root}${name}`, 'utf8').replaceAll('\r\n', '\n')

test('README.zh-CN.md has the code, the figures and the links of README.md', () => {
  const all = (pattern) => (name) => Array.from(read(name).matchAll(pattern), ([text]) => text)
  const [code, headings] = [all(/^```[\s\S]*?^```/gm), all(/^#+ /gm)]
  // Rows of numbers, and the names of variables and errors, are the same in every language.
  const [figures, names] = [all(/^\| \w+ \| \d.*$/gm), all(/`(?:CANN_NODE|GGML_CANN|ERR)_[A-Z_0-9]+`/g)]
  const links = (name) => Array.from(read(name).matchAll(/\]\(([^)]+)\)/g), ([, to]) => to).filter((to) => !/^(README|#)/.test(to)).sort()
  for (const part of [code, headings, figures, names, links]) {
    const english = part('README.md')
    assert.ok(english.length > 0)
    assert.deepEqual(part('README.zh-CN.md'), english)
  }
})

test('scripts answer --help at once, and refuse an option they do not have', () => {
  const scripts = readdirSync(`${root}scripts`).map((name) => `scripts/${name}`)
  const commands = ['bench/bench.mjs', ...scripts].filter((name) => name.endsWith('.mjs') && /^ *(commandLine|const .* = (commandLine|parseArgs))\(/m.test(read(name)))
  assert.ok(commands.length > 10, commands.join())
  for (const name of commands) {
    const script = (option) => spawnSync(process.execPath, [name, option], { cwd: root, encoding: 'utf8' })
    const help = script('--help')
    assert.deepEqual([help.status, help.stderr], [0, ''], name)
    assert.match(help.stdout, /^.{20,}\n/, name)
    assert.notEqual(script('--no-such-option').status, 0, name)
  }
})

test('a script runs by a path through a link', () => {
  symlinkSync(root, join(at.folder, 'link'), 'junction')
  const { status, stdout } = spawnSync(process.execPath, [join(at.folder, 'link/scripts/pack.mjs'), '--help'], { encoding: 'utf8' })
  assert.equal(status, 0)
  assert.match(stdout, /^Makes the tarballs/)
})
