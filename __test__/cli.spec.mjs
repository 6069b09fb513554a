// The command `cann-node` as a process: what it prints where, and its exit codes.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'

import { writeGguf } from '../tools/gguf.mjs'
import { tinyTokens, writeTinyLlama } from '../tools/tiny-llama.mjs'

const bin = fileURLToPath(new URL('../bin/cann-node.mjs', import.meta.url))
const { version } = createRequire(import.meta.url)('../package.json')

describe('cann-node', { timeout: 300_000 }, () => {
  let folder
  let model

  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'cann-node-cli-'))
    model = join(folder, 'tiny.gguf')
    writeTinyLlama(model)
  })
  after(() => rmSync(folder, { recursive: true, force: true }))

  /** Runs the command; `onStderr(text, child)` sees the errors as they come. */
  function cli(args, { env = {}, onStderr } = {}) {
    return new Promise((resolve, reject) => {
      const child = spawn(process.execPath, [bin, ...args], { env: { ...process.env, CANN_NODE_LOG: '', ...env } })
      let [stdout, stderr] = ['', '']
      child.stdout.on('data', (data) => (stdout += data))
      child.stderr.on('data', (data) => {
        stderr += data
        onStderr?.(stderr, child)
      })
      child.on('error', reject)
      child.on('close', (code, signal) => resolve({ code, signal, stdout, stderr }))
    })
  }

  test('a reader that goes away early is no error', async () => {
    const child = spawn(process.execPath, [bin, 'devices'])
    child.stdout.destroy()
    let stderr = ''
    child.stderr.on('data', (data) => (stderr += data))
    const code = await new Promise((resolve) => child.on('close', resolve))
    assert.deepEqual([code, stderr], [0, ''])
  })

  test('help, version and wrong usage', async () => {
    assert.equal((await cli(['--version'])).stdout.trim(), version)
    const overview = await cli(['--help'])
    assert.equal(overview.code, 0)
    for (const name of ['devices', 'doctor', 'info', 'upload', 'run']) {
      assert.match(overview.stdout, new RegExp(`^  ${name}`, 'm'))
      const help = await cli([name, '--help'])
      assert.equal(help.code, 0)
      assert.match(help.stdout, new RegExp(`Usage: cann-node ${name}`))
      assert.match(help.stdout, /--json/)
    }
    for (const args of [[], ['nothing'], ['info'], ['info', 'a', 'b'], ['upload', model, '--convert', 'q1'], ['devices', '--colour']]) {
      const { code, stdout, stderr } = await cli(args)
      assert.equal(code, 2, args.join(' '))
      assert.equal(stdout, '')
      assert.ok(stderr.length > 0)
    }
    for (const ids of ['1,x', '', '1,-2']) assert.equal((await cli(['run', model, `--prompt-ids=${ids}`])).code, 2)
    assert.equal((await cli(['run', model, '--prompt-ids=9999'])).code, 2)
  })

  test('help works where the addon does not, and the error says what to do', async () => {
    const env = { CANN_NODE_BINARY_PATH: join(folder, 'missing.node') }
    assert.equal((await cli(['--help'], { env })).code, 0)
    const { code, stderr } = await cli(['devices'], { env })
    assert.equal(code, 1)
    assert.match(stderr, /^error ERR_LOAD: /)
    assert.doesNotMatch(stderr, /^ {4}at /m)
  })

  test('devices and doctor', async () => {
    const text = await cli(['devices'])
    assert.equal(text.code, 0)
    assert.match(text.stdout, /^NAME .*\n(CANN|HOST)0 /)
    const devices = JSON.parse((await cli(['devices', '--json'], { env: { CANN_NODE_HOST_DEVICES: '2' } })).stdout)
    assert.deepEqual(devices.filter((d) => d.driver === 'host').map((d) => d.name), ['HOST0', 'HOST1'])

    const doctor = JSON.parse((await cli(['doctor', '--json'])).stdout)
    assert.ok(doctor.drivers.some((d) => d.driver === 'host' && d.available))
    assert.ok(doctor.checks.every((c) => c.ok))
    assert.match((await cli(['doctor'])).stdout, /HOST0 computes/)
    const wrong = await cli(['doctor'], { env: { CANN_NODE_HOST_MEMORY: 'lots', CANN_NODE_HOST_DEVICES: '-1' } })
    assert.match(wrong.stdout, /hint: CANN_NODE_HOST_DEVICES=-1 is not understood, the default is used; CANN_NODE_HOST_MEMORY=lots is/)
  })

  test('info', async () => {
    const { code, stdout } = await cli(['info', model, '--tensors'])
    assert.equal(code, 0)
    assert.match(stdout, /general\.architecture +llama/)
    assert.match(stdout, /blk\.0\.attn_q\.weight +q4_0 +128 × 128/)
    assert.match(stdout, /tokenizer\.ggml\.tokens +\[259 items\]/)
    const info = JSON.parse((await cli(['info', model, '--json', '--full'])).stdout)
    assert.equal(info.metadata['tokenizer.ggml.tokens'].length, 259)
    assert.equal(info.tensors.length, info.types.reduce((n, t) => n + t.tensors, 0))
  })

  test('upload', async () => {
    const { code, stdout, stderr } = await cli(['upload', model])
    assert.equal(code, 0)
    assert.match(stdout, /tensors, .* on (HOST|CANN)0 in /)
    assert.match(stdout, /q4_0 +q4_0/)
    // Plain lines where there is no terminal.
    assert.match(stderr, /^100% .*ETA 00:00$/m)
    assert.ok(!stderr.includes('\r'))
    const result = JSON.parse((await cli(['upload', model, '--json'])).stdout)
    assert.ok(result.bytes > 0 && result.seconds > 0)
  })

  test('errors have a code and no stack, unless it is asked for', async () => {
    const cut = join(folder, 'cut.gguf')
    writeFileSync(cut, 'GGUF')
    for (const [file, code] of [[join(folder, 'none.gguf'), 'ERR_IO'], [cut, 'ERR_GGUF']]) {
      for (const command of [['info', file], ['upload', file], ['run', file, '--prompt-ids', '1']]) {
        const result = await cli(command)
        assert.equal(result.code, 1)
        assert.ok(result.stderr.startsWith(`error ${code}: ${file}: `), result.stderr)
        assert.doesNotMatch(result.stderr, /^ {4}at /m)
      }
    }
    assert.match((await cli(['info', cut], { env: { CANN_NODE_LOG: 'debug' } })).stderr, /^ {4}at /m)
    const lost = await cli(['upload', model, '--device', 'CANN7'])
    assert.equal(lost.code, 1)
    assert.match(lost.stderr, /^error ERR_NOT_FOUND: /)
  })

  test('run prints text, or ids and figures as JSON', async () => {
    const ids = tinyTokens('Hello').join()
    const text = await cli(['run', model, '--prompt-ids', ids, '--max-tokens', '4'])
    assert.equal(text.code, 0, text.stderr)
    assert.ok(text.stdout.length > 1)
    assert.match(text.stderr, /prompt of 5 tokens/)
    const json = JSON.parse((await cli(['run', model, '--prompt-ids', ids, '--max-tokens', '4', '--json'])).stdout)
    assert.equal(json.ids.length, 4)
    assert.equal(`${json.text}\n`, text.stdout)
  })

  test('run ends at the end of the context', async () => {
    const ids = Array.from({ length: 250 }, () => tinyTokens('a')[0]).join()
    const { code, stdout, stderr } = await cli(['run', model, '--prompt-ids', ids, '--max-tokens', '400', '--context', '1', '--json'])
    assert.equal(code, 0, stderr)
    // Six rows of the cache are left, and the last token needs none.
    assert.equal(JSON.parse(stdout).ids.length, 7)
    const long = await cli(['run', model, '--prompt-ids', Array(257).fill(1).join(), '--context', '1'])
    assert.deepEqual([long.code, long.stderr], [1, 'error: the cache holds 256 tokens\n'])
  })

  test('Ctrl-C stops an upload and the exit code says so', { skip: process.platform === 'win32' }, async () => {
    // Large enough that the first line of progress comes long before the end.
    const large = join(folder, 'large.gguf')
    const [ne, zeros] = [[4096, 4096], new Uint8Array(4096 * 4096 * 2)]
    const tensors = Array.from({ length: 6 }, (_, i) => ({ name: `t${i}`, ne, type: 'f16', data: () => zeros }))
    writeGguf(large, [['general.architecture', 'string', 'test']], tensors)
    let sent = false
    const { code, stdout, stderr } = await cli(['upload', large], {
      onStderr(text, child) {
        // Not child.kill(), after which Deno gives the signal for the exit code.
        if (!sent && text.includes('%')) sent = process.kill(child.pid, 'SIGINT')
      },
    })
    assert.equal(code, 130, stderr)
    assert.match(stderr, /^interrupted$/m)
    assert.equal(stdout, '')
  })
})
