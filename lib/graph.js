'use strict'

const { native } = require('./binding.js')
const check = require('./check.js')
const { disposed, invalid } = require('./errors.js')
const { homeOf, nativeOf } = require('./handle.js')
const { Tensor } = require('./tensor.js')
const OPS = require('./ops.js')
const { toSvg } = require('./graph-svg.js')

const KEY = Symbol('cann-node')
const VIEWS = new Set(['VIEW', 'RESHAPE', 'PERMUTE', 'TRANSPOSE'])

/** A node. What it looks like is asked of the graph once. */
class GraphTensor {
  #graph
  #id
  #name
  #info

  constructor(key, graph, id, name) {
    if (key !== KEY) throw new TypeError('GraphTensor objects are made by a Graph, not by new')
    this.#graph = graph
    this.#id = id
    this.#name = name
  }

  static place(node) {
    return { graph: node.#graph, id: node.#id }
  }

  #look() {
    return (this.#info ??= Graph.native(this.#graph).info(this.#id))
  }

  get name() {
    return this.#name ?? this.#look().name
  }

  get op() {
    return this.#look().op
  }

  get type() {
    return this.#look().type
  }

  get ne() {
    return [...this.#look().ne]
  }

  get nb() {
    return [...this.#look().nb]
  }

  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    const { name, op, type, ne } = this
    return `GraphTensor ${inspect({ name, op, type, ne }, options)}`
  }
}

class Graph {
  #native = new (native().Graph)()
  #nodes = []
  /** Sources of each node and the outputs, by position: what a picture needs. */
  #edges = []
  #outputs = []
  /** What was done, for a backend in another process: shapes are inferred here, and there it is done again. */
  #steps = []
  /** The process of its tensors, once it has one (see homeOf); null before. */
  #home = null
  /** Leaves that stand for a tensor in another process: the native graph's name for each, and the tensor's. */
  #stands = new Map()

  static native(graph) {
    return graph.#native
  }

  /** The graph as the native object `backend` takes it. */
  static of(graph, backend, name) {
    const { home } = backend
    if (graph.#home !== null && graph.#home !== home) throw invalid('graph over tensors of the same process', name, graph)
    return home === undefined ? graph.#native : backend.graph(graph, graph.#steps)
  }

  input(name, type, ne) {
    check.string(name, 'name')
    check.string(type, 'type')
    check.extents(ne, 'ne')
    const id = this.#native.input(name, type, ne)
    this.#steps.push(['input', name, type, [...ne]])
    return this.#node(id)
  }

  tensor(t) {
    check.instance(t, Tensor, 't')
    const home = homeOf(t)
    if (this.#home !== null && this.#home !== home) throw invalid("Tensor of the same process as the graph's others", 't', t)
    const tensor = nativeOf(t)
    const id = home === undefined ? this.#native.tensor(tensor) : this.#stand(tensor)
    this.#home = home
    this.#steps.push(['tensor', tensor])
    return this.#node(id, [], home && t.name)
  }

  /** A leaf that looks like a tensor of another process. */
  #stand(tensor) {
    if (tensor.disposed) throw disposed('the tensor')
    const name = `\0${this.#stands.size}`
    const id = this.#native.input(name, tensor.type, tensor.ne)
    this.#stands.set(name, tensor.name)
    return id
  }

  op(op, src, params, result) {
    check.string(op, 'op')
    if (!Array.isArray(src)) throw invalid('array of GraphTensor or null', 'src', src)
    const ids = src.map((node, i) => (node === null || node === undefined ? -1 : this.#idOf(node, `src[${i}]`)))
    const given = [params && checkParams(params), result && checkResult(result)]
    const id = this.#native.op(op, ids, ...given)
    this.#steps.push(['op', op, ids, ...given.map(copyOf)])
    return this.#node(id, ids.filter((source) => source >= 0))
  }

  output(name, t) {
    check.string(name, 'name')
    const node = this.#idOf(t, 't')
    this.#native.output(name, node)
    this.#steps.push(['output', name, node])
    this.#outputs.push({ name, node })
  }

  get nodes() {
    return [...this.#nodes]
  }

  toDot() {
    const quoted = (name) => name.replace(/["\\]/g, '\\$&')
    return this.#native.toDot().replace(/\0\d+/g, (name) => quoted(this.#stands.get(name) ?? name))
  }

  toSvg() {
    const nodes = this.#nodes.map(({ op, name, type, ne }, i) => {
      const leaf = op === 'NONE'
      return { op, name, type, ne, src: this.#edges[i], leaf, view: VIEWS.has(op) }
    })
    return toSvg(nodes, this.#outputs)
  }

  // Views: extents and strides are arguments here, not options.

  view(x, ne, nb, offset = 0) {
    check.extents(ne, 'ne')
    check.size(offset, 'offset')
    return this.op('VIEW', [x], { offset }, nb === undefined || nb === null ? { ne } : { ne, nb })
  }

  reshape(x, ne) {
    return this.op('RESHAPE', [x], undefined, { ne: check.extents(ne, 'ne') })
  }

  permute(x, ...axes) {
    return this.op('PERMUTE', [x], { axes: Array.isArray(axes[0]) ? axes[0] : axes })
  }

  #node(id, sources = [], name = undefined) {
    const node = new GraphTensor(KEY, this, id, name)
    this.#nodes.push(node)
    this.#edges.push(sources)
    return node
  }

  #idOf(node, name) {
    check.instance(node, GraphTensor, name)
    const { graph, id } = GraphTensor.place(node)
    if (graph !== this) throw invalid('GraphTensor of this graph', name, node)
    return id
  }
}

/** Parameters as they are now: the caller may change the object. */
function copyOf(values) {
  return values && Object.fromEntries(Object.entries(values).map(([name, value]) => [name, Array.isArray(value) ? [...value] : value]))
}

function checkParams(params) {
  for (const [name, value] of Object.entries(check.object(params, 'params'))) {
    const numbers = check.arrayOf(value, (item) => typeof item === 'number')
    if (!numbers && !['number', 'boolean', 'string'].includes(typeof value)) {
      throw invalid('number, boolean, string or array of numbers', `params.${name}`, value)
    }
  }
  return params
}

function checkResult(result) {
  const { type, ne, nb } = check.options(result, ['type', 'ne', 'nb'], 'result')
  if (type !== undefined) check.string(type, 'result.type')
  if (ne !== undefined) check.extents(ne, 'result.ne')
  if (nb !== undefined) check.extents(nb, 'result.nb')
  return { type, ne, nb }
}

/** The call of a typed method: sources in order, then an options object with parameters (and optional sources by name). */
function typedCall(row, args) {
  const { op, sources, params } = row
  const src = []
  let at = 0
  while (at < sources.length && at < args.length) {
    const value = args[at]
    if (!(value instanceof GraphTensor) && value !== null && value !== undefined) break
    src.push(value ?? null)
    at += 1
  }
  const options = args[at] ?? {}
  if (at < args.length - 1 || typeof options !== 'object' || Array.isArray(options)) {
    throw invalid(at < sources.length ? 'GraphTensor or options object' : 'options object', sources[at] ?? 'options', args[at])
  }
  const given = {}
  const result = {}
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined) continue
    const source = sources.indexOf(name)
    if (Object.hasOwn(params, name)) given[params[name]] = value
    else if (source >= 0) {
      while (src.length < source) src.push(null)
      src[source] = value
    } else if (name === 'type' || name === 'ne' || name === 'nb') result[name] = value
    else {
      const known = [...Object.keys(params), ...sources.slice(row.required)]
      throw invalid(known.length ? `one of ${known.join(', ')}` : 'no options', `a name in the options of ${op}`, name)
    }
  }
  return [op, src, given, Object.keys(result).length ? result : undefined]
}

for (const row of OPS) {
  if (Object.hasOwn(Graph.prototype, row.method)) continue
  const method = {
    [row.method](...args) {
      return this.op(...typedCall(row, args))
    },
  }[row.method]
  Object.defineProperty(Graph.prototype, row.method, { value: method, writable: true, configurable: true })
}

module.exports = { Graph, GraphTensor }
