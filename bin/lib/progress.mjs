// Progress of an upload: a bar that is drawn over itself on a terminal, a line every tenth elsewhere.

import { bytes, duration } from './format.mjs'

const BAR = 24
const REDRAW_MS = 80

/** { update(progress), end() } that writes to `stream`. */
export function progress(stream = process.stderr) {
  const start = performance.now()
  let drawn = -Infinity
  let tenth = -1

  const rate = (done) => done / Math.max((performance.now() - start) / 1000, 1e-3)
  const text = ({ bytesDone, bytesTotal }) => {
    const speed = rate(bytesDone)
    const left = duration((bytesTotal - bytesDone) / speed)
    const percent = String(Math.floor((100 * bytesDone) / Math.max(bytesTotal, 1))).padStart(3)
    return { percent, rest: `${bytes(bytesDone)} of ${bytes(bytesTotal)}  ${bytes(speed)}/s  ETA ${left}` }
  }
  return {
    update(p) {
      const last = p.bytesDone >= p.bytesTotal
      const { percent, rest } = text(p)
      if (stream.isTTY) {
        if (!last && performance.now() - drawn < REDRAW_MS) return
        drawn = performance.now()
        const filled = Math.round((BAR * p.bytesDone) / Math.max(p.bytesTotal, 1))
        const bar = '█'.repeat(filled) + '░'.repeat(BAR - filled)
        const line = `${percent}% ${bar} ${rest}  ${p.tensor}`
        stream.write(`\r\x1b[K${line.slice(0, Math.max(20, (stream.columns || 80) - 1))}`)
        return
      }
      const now = Math.floor((10 * p.bytesDone) / Math.max(p.bytesTotal, 1))
      if (now === tenth) return
      tenth = now
      stream.write(`${percent}%  ${rest}\n`)
    },
    /** Takes the bar away. */
    end() {
      if (stream.isTTY && drawn > 0) stream.write('\r\x1b[K')
    },
  }
}
