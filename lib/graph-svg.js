'use strict'

// A graph as one SVG picture: rows by depth, leaves as boxes, operators as rounded boxes, views dashed. No dependency and no
// layout engine: a node stands under its deepest source, beside its sources' middle where there is room.

const BOX = { width: 190, height: 46, gapX: 18, gapY: 44 }

const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c])
const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text)

/**
 * @param {{ op: string, name: string, type: string, ne: number[], src: number[], view: boolean, leaf: boolean }[]} nodes in
 *   the order they were created; `src` are positions in this list
 * @param {{ name: string, node: number }[]} outputs
 */
function toSvg(nodes, outputs) {
  const depth = []
  for (const node of nodes) depth.push(node.leaf ? 0 : 1 + Math.max(0, ...node.src.map((s) => depth[s])))
  // A leaf stands just above its first reader.
  const reader = nodes.map(() => Infinity)
  nodes.forEach((node, i) => node.src.forEach((s) => (reader[s] = Math.min(reader[s], depth[i]))))
  nodes.forEach((node, i) => {
    if (node.leaf && reader[i] !== Infinity) depth[i] = reader[i] - 1
  })

  const rows = []
  nodes.forEach((_, i) => (rows[depth[i]] ??= []).push(i))
  const x = []
  const step = BOX.width + BOX.gapX
  for (const row of rows.filter(Boolean)) {
    const wish = new Map(
      row.map((i) => {
        const above = nodes[i].src.map((s) => x[s]).filter((v) => v !== undefined)
        return [i, above.length ? above.reduce((a, b) => a + b, 0) / above.length : 0]
      }),
    )
    let free = -Infinity
    for (const i of [...row].sort((a, b) => wish.get(a) - wish.get(b) || a - b)) {
      x[i] = Math.max(wish.get(i), free)
      free = x[i] + step
    }
  }
  const left = Math.min(0, ...x)
  const y = (i) => 20 + depth[i] * (BOX.height + BOX.gapY)
  const width = Math.max(BOX.width, ...x.map((v) => v - left + BOX.width)) + 40
  const height = 40 + (rows.length || 1) * (BOX.height + BOX.gapY)
  const at = (i) => x[i] - left + 20
  const named = new Map(outputs.map(({ name, node }) => [node, name]))

  const lines = nodes.flatMap((node, i) =>
    node.src.map((s) => {
      const [x1, y1, x2, y2] = [at(s) + BOX.width / 2, y(s) + BOX.height, at(i) + BOX.width / 2, y(i)]
      const bend = (y2 - y1) / 2
      return `<path d="M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}"/>`
    }),
  )
  const boxes = nodes.map((node, i) => {
    const kind = node.leaf ? 'leaf' : node.view ? 'view' : 'op'
    const title = named.has(i) ? `${node.op} → ${named.get(i)}` : node.leaf ? node.name : node.op
    return (
      `<g class="${kind}${named.has(i) ? ' out' : ''}" transform="translate(${at(i)} ${y(i)})">` +
      `<title>${escape(`${node.op} ${node.name} ${node.type} [${node.ne}]`)}</title>` +
      `<rect width="${BOX.width}" height="${BOX.height}" rx="${node.leaf ? 2 : 10}"/>` +
      `<text x="${BOX.width / 2}" y="19" class="name">${escape(short(title, 26))}</text>` +
      `<text x="${BOX.width / 2}" y="36">${escape(short(`${node.type} [${node.ne}]`, 30))}</text></g>`
    )
  })
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="ui-monospace,monospace" font-size="11" text-anchor="middle">`,
    '<style>rect{fill:#eef3fb;stroke:#4a6fa5}.leaf rect{fill:#f6f2e7;stroke:#a08948}.view rect{fill:#fff;stroke-dasharray:4 3}.out rect{stroke-width:2.5}.name{font-weight:bold}path{fill:none;stroke:#8a94a3}</style>',
    ...lines,
    ...boxes,
    '</svg>',
    '',
  ].join('\n')
}

module.exports = { toSvg }
