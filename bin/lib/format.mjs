// Numbers, tables and JSON for people.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB']

export function bytes(n) {
  let unit = 0
  while (n >= 1024 && unit < UNITS.length - 1) {
    n /= 1024
    unit++
  }
  return `${unit === 0 || n >= 100 ? n.toFixed(0) : n.toFixed(1)} ${UNITS[unit]}`
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return '--:--'
  const whole = Math.ceil(seconds)
  const pad = (n) => String(n).padStart(2, '0')
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60]
  return hours ? `${hours}:${pad(minutes)}:${pad(whole % 60)}` : `${pad(minutes)}:${pad(whole % 60)}`
}

/** Lines of equal columns. Columns named in `right` are aligned so. */
export function table(head, rows, right = []) {
  const cells = [head, ...rows].map((row) => row.map(String))
  const widths = head.map((_, i) => Math.max(...cells.map((row) => row[i].length)))
  const line = (row) =>
    row.map((cell, i) => (right.includes(head[i]) ? cell.padStart(widths[i]) : cell.padEnd(widths[i]))).join('  ').trimEnd()
  return cells.map(line).join('\n')
}

export function json(value) {
  return JSON.stringify(value, (_, item) => (typeof item === 'bigint' ? Number(item) : item), 2)
}
