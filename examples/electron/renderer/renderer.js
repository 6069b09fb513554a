// The page. `window.model` is what preload.cjs exposes.

const $ = (id) => document.getElementById(id)
const { model } = window
const mebibytes = (bytes) => `${(bytes / 2 ** 20).toFixed(0)} MiB`

let ready = false
let answer

function busy(on) {
  $('open').disabled = on
  $('stop').disabled = !on
  $('prompt').disabled = $('send').disabled = on || !ready
  if (!on) {
    $('upload').hidden = true
    if (ready) $('prompt').focus()
  }
}

function say(text, kind = '') {
  $('status').textContent = text
  $('status').className = kind
}

function add(kind, text) {
  const paragraph = document.createElement('p')
  paragraph.className = kind
  paragraph.textContent = text
  $('talk').append(paragraph)
  paragraph.scrollIntoView()
  return paragraph
}

/** Runs a request; gives its value, or undefined after showing why there is none. */
async function ask(request) {
  busy(true)
  const { value, error } = await request()
  busy(false)
  if (error) say([error.code, error.message, error.hint].filter(Boolean).join(' · '), 'error')
  return value
}

model.onEvent((event) => {
  if (event.type === 'progress') {
    $('upload').hidden = false
    $('progress').value = event.done / event.total
    $('bytes').textContent = `${mebibytes(event.done)} of ${mebibytes(event.total)}`
  } else if (event.type === 'text') {
    answer?.append(event.text)
    answer?.scrollIntoView()
  } else if (event.type === 'lost') {
    say(`The device's process ended (${event.reason}). The model is loaded again with the next prompt.`, 'error')
  }
})

$('open').addEventListener('click', async () => {
  say('')
  const loaded = await ask(() => model.open())
  if (!loaded) return
  ready = true
  $('name').textContent = loaded.name
  $('device').textContent = loaded.device
  busy(false)
})

$('form').addEventListener('submit', async (event) => {
  event.preventDefault()
  const prompt = $('prompt').value.trim()
  if (!prompt) return
  $('prompt').value = ''
  say('')
  add('prompt', prompt)
  answer = add('answer', '')
  const done = await ask(() => model.generate(prompt))
  if (done) say(`${done.tokens} tokens, ${done.tokensPerSecond.toFixed(1)} per second${done.stopped ? ', stopped' : ''}`)
})

$('prompt').addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey) return
  event.preventDefault()
  $('form').requestSubmit()
})

$('stop').addEventListener('click', () => model.stop())

const { value: devices } = await model.devices()
if (devices) say(devices.map(({ name, description, memory }) => `${name}: ${description}, ${mebibytes(memory.free)} free`).join(' · '))
