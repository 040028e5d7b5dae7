// Runs once, when Bokeh has drawn the document. Arguments: heads and matrices, a source a model;
// sources and plots, by place; about, JSON: an object a model, what to show, the strong closure.
const root = document.querySelector(".head-explorer")
const { models, facts, compared, strong } = JSON.parse(about)
const get = (table, name) => (table instanceof Map ? table.get(name) : table[name])
const control = (name) => root.querySelector(`[name=${name}]`)
const [chosen, level] = get(plots, "map").tags
// Bokeh's own array with a shape, which its images want; the page starts with one.
const NDArray = get(sources, "core").data.image[0].constructor
const state = { model: -1, row: -1 }

const number = (value, digits = 4) => {
  if (Number.isNaN(value)) return null
  const size = Math.abs(value)
  return size !== 0 && (size < 1e-3 || size >= 1e4)
    ? value.toExponential(2)
    : String(Number(value.toPrecision(digits)))
}

// Single precision ends there; a p-value can be smaller.
const written = (column, value) => (column === "null_p" && value < 1e-37 ? "< 1e-37" : number(value))

function useModel(index) {
  if (state.model === index) return
  state.model = index
  const { layers, n_heads } = models[index]
  const data = heads[index].data
  const map = get(plots, "map")
  get(sources, "map").selected.indices = []
  get(sources, "map").data = { layer: Array.from(data.layer), head: Array.from(data.head), closure: Array.from(data.closure) }
  map.x_range.setv({ start: Math.min(...layers) - 0.5, end: Math.max(...layers) + 0.5 })
  map.y_range.setv({ start: n_heads - 0.5, end: -0.5 })
  map.height = Math.round(Math.min(560, Math.max(150, 70 + 22 * n_heads)))
  control("layer").replaceChildren(...layers.map((layer) => new Option(layer, layer)))
  control("head").max = n_heads - 1
  control("rank").max = Math.max(...data.rank)
}

function matrix(name, block, entries, words) {
  get(sources, name).data = { image: [entries], x: [0], y: [0], dw: [block], dh: [block] }
  const plot = get(plots, name)
  plot.x_range.setv({ start: 0, end: block })
  plot.y_range.setv({ start: block, end: 0 })
  plot.title.text = words
}

function grid(block, entry) {
  const entries = Float32Array.from({ length: block * block }, (_, k) => entry(Math.floor(k / block), k % block))
  return new NDArray(entries, [block, block])
}

function showMatrices(row) {
  const { block, d_head, random } = models[state.model]
  const at = heads[state.model].data.matrix[row]
  const title = root.querySelector(".matrices-title")
  const found = at >= 0
  root.querySelector(".matrices").hidden = !found
  if (!found) {
    get(sources, "angles").data = { direction: [], cosine: [] }
    title.textContent = "The angles and matrices of this head are not in the page, which keeps those of the heads of highest closure."
    return
  }
  const data = matrices[state.model].data
  const n = block * block
  const entry = (column) => (i, j) => data[column][at * n + i * block + j] / 127
  const cosine = (i) => data.cosines[at * d_head + i] / 255
  const direction = Array.from({ length: d_head }, (_, i) => i + 1)
  get(sources, "angles").data = { direction, cosine: direction.map((i) => cosine(i - 1)) }
  get(plots, "angles").x_range.setv({ start: 0.5, end: d_head + 0.5 })
  level.data = { x: [0, d_head + 1], y: [random, random] }
  const top = cosine(0) || 1
  matrix("core", block, grid(block, entry("core")), "core K")
  matrix("support", block, grid(block, (i, j) => (i === j ? cosine(i) / top : 0)), "support D")
  matrix("response", block, grid(block, entry("response")), "response KDK")
  const all = block === d_head
  title.textContent =
    (all ? `All ${d_head} principal directions` : `The ${block} best aligned of ${d_head} principal directions`) +
    ", each matrix divided by its largest entry: blue is -1, white 0, red 1. Where KDK looks like K or its negative, the head closes."
}

function show(model, row) {
  useModel(model)
  const data = heads[model].data
  if (!(row >= 0 && row < data.layer.length)) return
  state.row = row
  const [layer, head, closure] = [data.layer[row], data.head[row], data.closure[row]]
  control("model").selectedIndex = model
  control("layer").value = layer
  control("head").value = head
  control("rank").value = data.rank[row] || ""
  chosen.data = { layer: [layer], head: [head] }
  const reason = models[model].reasons[row]
  root.querySelector(".facts tbody").replaceChildren(
    ...facts.map(([name, column, absent]) => {
      const line = document.createElement("tr")
      const cell = line.appendChild(document.createElement("th"))
      cell.scope = "row"
      cell.textContent = name
      line.appendChild(document.createElement("td")).textContent = written(column, data[column][row]) ?? absent
      return line
    }),
  )
  const context = get(sources, "context")
  context.data = { ...context.data, closure: compared.map((column) => data[column][row]) }
  showMatrices(row)
  root.querySelector(".status").textContent =
    `${models[model].label}, layer ${layer}, head ${head}: ` +
    (Number.isNaN(closure)
      ? `closure is not defined (${reason ?? "no reason given"})`
      : `closure ${closure.toFixed(4)}, rank ${data.rank[row]} of ${Math.max(...data.rank)}` +
        (closure >= strong ? ", a strong head" : ""))
}

const rowOf = (model, layer, head) => {
  const data = heads[model].data
  return data.layer.findIndex((value, row) => value === layer && data.head[row] === head)
}
const rowOfRank = (model, rank) => heads[model].data.rank.indexOf(rank)
const strongest = (model) => Math.max(0, rowOfRank(model, 1))
const limited = (value, low, high) => Math.min(high, Math.max(low, Number(value) || low))

control("model").addEventListener("change", (event) => {
  const model = event.target.selectedIndex
  useModel(model)
  show(model, strongest(model))
})
for (const name of ["layer", "head"]) {
  control(name).addEventListener("change", () => {
    const head = limited(control("head").value, 0, models[state.model].n_heads - 1)
    show(state.model, rowOf(state.model, Number(control("layer").value), head))
  })
}
control("rank").addEventListener("change", (event) => {
  show(state.model, rowOfRank(state.model, limited(event.target.value, 1, Number(event.target.max))))
})

root.querySelector(".map").addEventListener("keydown", (event) => {
  const { layers, n_heads } = models[state.model]
  const data = heads[state.model].data
  const layer = layers.indexOf(data.layer[state.row])
  const [head, rank] = [data.head[state.row], data.rank[state.row]]
  const to = (l, h) => rowOf(state.model, layers[limited(l, 0, layers.length - 1)], limited(h, 0, n_heads - 1))
  const moves = {
    ArrowLeft: () => to(layer - 1, head),
    ArrowRight: () => to(layer + 1, head),
    ArrowUp: () => to(layer, head - 1),
    ArrowDown: () => to(layer, head + 1),
    Home: () => strongest(state.model),
    PageDown: () => rowOfRank(state.model, rank + 1),
    PageUp: () => rowOfRank(state.model, rank - 1),
  }
  if (!(event.key in moves) || event.altKey || event.ctrlKey || event.metaKey) return
  // The page has arrow keys of its own: to scroll, and in this theme to turn pages.
  event.preventDefault()
  event.stopPropagation()
  show(state.model, moves[event.key]())
})

const selected = get(sources, "map").selected
selected.properties.indices.change.connect(() => {
  if (selected.indices.length) {
    const row = selected.indices[0]
    selected.indices = []
    show(state.model, row)
  }
})

show(0, strongest(0))
root.dataset.ready = "yes"
