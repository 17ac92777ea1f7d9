// Draws the run. `picture` stands in the script element before; timeline.ts makes it.
const ENDS = ['granted', 'gave up', 'released', 'lost', 'killed']
const FAULTS = ['kill', 'pause', 'cut', 'outage', 'clock', 'server']
const LANE = 13
const HEAD = 22
const LEFT = 128
const AXIS = 22

const run = /** @type {any} */ (globalThis).picture
const bars = run.bars.map(([key, slot, worker, isHold, from, lasts, end, fence]) => ({
  key,
  slot,
  worker,
  isHold: isHold === 1,
  from,
  until: from + lasts,
  end: ENDS[end],
  fence,
}))
const whole = { from: 0, until: Math.max(1, run.endAt) }
let view = { ...whole }
const colours = /** @type {Record<string, string>} */ ({})

const find = (id) => /** @type {HTMLElement} */ (document.getElementById(id))
const lanes = /** @type {HTMLCanvasElement} */ (find('lanes'))
const overview = /** @type {HTMLCanvasElement} */ (find('overview'))
const tip = find('tip')

/** The groups of lanes: the faults, and then each key. */
const groups = [{ name: 'faults', key: -1 }, ...run.keys.map((name, key) => ({ name, key }))].map(
  (group, index) => ({
    ...group,
    top: AXIS + index * (HEAD + run.slots * LANE + 6),
  }),
)
const height = AXIS + groups.length * (HEAD + run.slots * LANE + 6)

function laneOf(key, slot) {
  return groups[key + 1].top + HEAD + slot * LANE
}

function fill() {
  const broken = !run.holds
  find('verdict').textContent = broken ? 'broken' : 'no promise was broken'
  if (broken) find('verdict').dataset.broken = ''
  document.title = `Holdfast torture: ${broken ? 'broken' : 'no promise was broken'}`
  const { asked, granted, lateWrites, refusedWrites } = run.numbers
  find('run').textContent =
    `${run.store}: · ${run.slots} processes · ${clock(run.ranMs)} · ttl ${duration(run.ttlMs)} · seed ${run.seed} · ${granted} leases of ${asked} requests · ${lateWrites} late writes, of which fences refused ${refusedWrites}`
  for (const { title, examined, of, broken: count, excused } of run.checks) {
    const row = addRow('checks', title, [
      count,
      `of ${examined} ${of}${excused > 0 ? `, ${excused} excused` : ''}`,
    ])
    if (count > 0) row.dataset.broken = ''
  }
  const { waitMs, handOverMs, lossLateMs, takeOverMs } = run.numbers
  const times = [
    ['waited for a key', waitMs],
    ['hand-over', handOverMs],
    ['a loss told after its deadline', lossLateMs],
    ...Object.entries(takeOverMs).map(([kind, took]) => [`take-over after ${kind}`, took]),
  ]
  for (const [title, { count, median, p99, longest }] of times) {
    const text = count === 0 ? '' : `median, ${duration(p99)} p99, ${duration(longest)} longest (${count})`
    addRow('numbers', title, [count === 0 ? 'not seen' : duration(median), text])
  }
  for (const text of run.failures) addFinding('the run itself', text, whole)
  for (const finding of run.findings) addFinding(finding.check, finding.text, finding)
  find('left').textContent = run.left > 0 ? `${run.left} of the shortest bars are left out.` : ''
  const legend = [
    ['hold', 'holds'],
    ['share', 'holds with others'],
    ['wait', 'waits'],
    ['gave-up', 'gave up'],
    ['lost', 'lost or killed'],
    ...FAULTS.filter((kind) => run.numbers.faults[kind] > 0).map((kind) => [kind, kind]),
  ]
  for (const [name = '', text = ''] of legend) {
    const item = document.createElement('span')
    const patch = document.createElement('i')
    patch.style.background = `var(--${name})`
    item.append(patch, text)
    find('legend').append(item)
  }
}

function addRow(table, title, [first, second]) {
  const row = document.createElement('tr')
  find(table).querySelector('tbody')?.append(row)
  const head = document.createElement('th')
  head.textContent = title
  row.append(head)
  row.insertCell().textContent = first
  row.insertCell().textContent = second
  return row
}

function addFinding(check, text, { from, until }) {
  find('findings').hidden = false
  const item = document.createElement('li')
  const button = document.createElement('button')
  const name = document.createElement('strong')
  name.textContent = `${check}: `
  button.append(name, text)
  button.addEventListener('click', () => {
    const margin = Math.max(40, (until - from) * 1.5)
    look(from - margin, until + margin)
    lanes.scrollIntoView({ block: 'center' })
  })
  item.append(button)
  find('findings').querySelector('ol')?.append(item)
}

function look(from, until) {
  const span = Math.min(whole.until, Math.max(2, until - from))
  const start = Math.max(0, Math.min(from, whole.until - span))
  view = { from: start, until: start + span }
  draw()
}

function zoom(factor, at = (view.from + view.until) / 2) {
  look(at - (at - view.from) * factor, at + (view.until - at) * factor)
}

function sized(canvas, tall) {
  const wide = canvas.clientWidth
  const scale = window.devicePixelRatio || 1
  canvas.style.height = `${tall}px`
  canvas.width = wide * scale
  canvas.height = tall * scale
  const pen = canvas.getContext('2d')
  pen.setTransform(scale, 0, 0, scale, 0, 0)
  pen.clearRect(0, 0, wide, tall)
  return { pen, wide }
}

function draw() {
  const style = getComputedStyle(document.documentElement)
  for (const name of [
    'text',
    'quiet',
    'line',
    'card',
    'danger',
    'hold',
    'share',
    'wait',
    'gave-up',
    'lost',
    ...FAULTS,
  ]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim()
  }
  drawLanes()
  drawOverview()
  find('span').textContent = `${clock(view.from)} – ${clock(view.until)}`
}

function drawLanes() {
  const { pen, wide } = sized(lanes, height)
  const scale = (wide - LEFT) / (view.until - view.from)
  const x = (at) => LEFT + (at - view.from) * scale
  pen.font = '12px system-ui, sans-serif'
  drawAxis(pen, x, wide)
  for (const { name, top } of groups) {
    pen.fillStyle = colours.text
    pen.font = '600 12px system-ui, sans-serif'
    pen.fillText(name, 0, top + 15)
    pen.font = '11px system-ui, sans-serif'
    for (let slot = 0; slot < run.slots; slot += 1) {
      const y = top + HEAD + slot * LANE
      pen.fillStyle = colours.quiet
      pen.fillText(`place ${slot + 1}`, 8, y + LANE - 3)
      pen.strokeStyle = colours.line
      pen.lineWidth = 0.5
      pen.beginPath()
      pen.moveTo(LEFT, y + LANE - 0.5)
      pen.lineTo(wide, y + LANE - 0.5)
      pen.stroke()
    }
  }
  pen.save()
  pen.beginPath()
  pen.rect(LEFT, 0, wide - LEFT, height)
  pen.clip()
  drawFaults(pen, x)
  for (const hold of [false, true]) for (const bar of bars) if (bar.isHold === hold) drawBar(pen, x, bar)
  drawFindings(pen, x)
  pen.restore()
}

function drawAxis(pen, x, wide) {
  const span = view.until - view.from
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 3e5, 6e5, 36e5]
  const step = steps.find((one) => (span / one) * 90 <= wide - LEFT) ?? 36e5
  pen.fillStyle = colours.quiet
  pen.strokeStyle = colours.line
  pen.lineWidth = 1
  for (let at = Math.ceil(view.from / step) * step; at <= view.until; at += step) {
    pen.beginPath()
    pen.moveTo(x(at), 16)
    pen.lineTo(x(at), height)
    pen.stroke()
    pen.fillText(clock(at, step), x(at) + 3, 12)
  }
}

function drawFaults(pen, x) {
  for (const { kind, slot, from, until } of run.faults) {
    if (until < view.from || from > view.until) continue
    const wide = Math.max(2, x(until) - x(from))
    pen.fillStyle = colours[kind]
    const slots = slot === null ? Array.from({ length: run.slots }, (_, index) => index) : [slot]
    for (const each of slots) {
      pen.globalAlpha = 1
      pen.fillRect(x(from), laneOf(-1, each) + 2, wide, LANE - 4)
      // The lanes of the struck process are shaded in every key.
      pen.globalAlpha = 0.1
      for (let key = 0; key < run.keys.length; key += 1) pen.fillRect(x(from), laneOf(key, each), wide, LANE)
    }
    pen.globalAlpha = 1
  }
}

function drawBar(pen, x, { key, slot, isHold, from, until, end }) {
  if (until < view.from || from > view.until) return
  const y = laneOf(key, slot)
  const left = Math.max(LEFT - 2, x(from))
  const wide = Math.max(isHold ? 1.5 : 0.5, x(until) - left)
  if (!isHold) {
    pen.fillStyle = colours[end === 'gave up' ? 'gave-up' : 'wait']
    pen.fillRect(left, y + LANE - 5, wide, 3)
    return
  }
  const isShared = run.keys[key] === 'permits' || run.keys[key] === 'read-write'
  pen.fillStyle = colours[isShared ? 'share' : 'hold']
  pen.globalAlpha = isShared ? 0.75 : 1
  pen.fillRect(left, y + 1, wide, LANE - 6)
  pen.globalAlpha = 1
  if (end === 'released') return
  pen.fillStyle = colours.lost
  pen.fillRect(left + wide - 2, y, 3, LANE - 3)
}

function drawFindings(pen, x) {
  pen.strokeStyle = colours.danger
  pen.lineWidth = 1.5
  for (const { key, from, until } of run.findings) {
    if (until < view.from || from > view.until) continue
    const top = key < 0 ? AXIS : groups[key + 1].top + HEAD - 3
    const tall = key < 0 ? height - AXIS : run.slots * LANE + 5
    pen.strokeRect(x(from) - 2, top, Math.max(4, x(until) - x(from) + 4), tall)
  }
}

function drawOverview() {
  const { pen, wide } = sized(overview, 36)
  const scale = (wide - LEFT) / (whole.until - whole.from)
  const x = (at) => LEFT + at * scale
  const counts = Array.from({ length: Math.max(1, Math.floor((wide - LEFT) / 3)) }, () => 0)
  for (const { isHold, from } of bars) {
    const place = Math.min(counts.length - 1, Math.floor((from / whole.until) * counts.length))
    if (isHold) counts[place] = (counts[place] ?? 0) + 1
  }
  const most = Math.max(1, ...counts)
  pen.fillStyle = colours.hold
  pen.globalAlpha = 0.55
  for (const [index, count] of counts.entries()) {
    pen.fillRect(LEFT + index * 3, 36 - (count / most) * 24, 2.5, (count / most) * 24)
  }
  pen.globalAlpha = 1
  for (const { kind, from, until } of run.faults) {
    pen.fillStyle = colours[kind]
    pen.fillRect(x(from), 2, Math.max(2, x(until) - x(from)), 6)
  }
  pen.fillStyle = colours.danger
  for (const { from } of run.findings) pen.fillRect(x(from) - 1, 0, 2, 36)
  pen.fillStyle = colours.quiet
  pen.font = '11px system-ui, sans-serif'
  pen.fillText('leases', 8, 30)
  pen.strokeStyle = colours.text
  pen.strokeRect(x(view.from) + 0.5, 0.5, Math.max(3, x(view.until) - x(view.from) - 1), 35)
}

function timeAt(canvas, clientX, { from, until }) {
  const box = canvas.getBoundingClientRect()
  return from + ((clientX - box.left - LEFT) / (box.width - LEFT)) * (until - from)
}

function clock(ms, step = 100) {
  const minutes = Math.floor(ms / 60000)
  const rest = (ms - minutes * 60000) / 1000
  const digits = step < 10 ? 3 : step < 100 ? 2 : step < 1000 ? 1 : 0
  return minutes > 0
    ? `${minutes}:${rest.toFixed(digits).padStart(digits > 0 ? 3 + digits : 2, '0')}`
    : `${rest.toFixed(digits)} s`
}

function duration(ms) {
  return ms < 1000 ? `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`
}

function whatIsAt(event) {
  const at = timeAt(lanes, event.clientX, view)
  const y = event.clientY - lanes.getBoundingClientRect().top
  const near = ((view.until - view.from) / lanes.clientWidth) * 3
  const group = groups.findLast(({ top }) => top <= y)
  if (group === undefined || at < view.from) return undefined
  const slot = Math.floor((y - group.top - HEAD) / LANE)
  if (slot < 0 || slot >= run.slots) return undefined
  const covers = ({ from, until }) => from - near <= at && until + near >= at
  if (group.key < 0) {
    const fault = run.faults.find((one) => (one.slot === null || one.slot === slot) && covers(one))
    return fault && `${fault.kind}: ${fault.how}\n${clock(fault.from, 1)} – ${clock(fault.until, 1)}`
  }
  const here = bars.filter((one) => one.key === group.key && one.slot === slot && covers(one))
  const inUpperHalf = (y - group.top - HEAD) % LANE < LANE - 5
  const bar = here.find(({ isHold }) => isHold === inUpperHalf) ?? here[0]
  if (bar === undefined) return undefined
  const { worker, isHold, from, until, end, fence } = bar
  const what = isHold ? `held under fence ${fence}, ${end}` : `waited, ${end}`
  return `process ${worker} (place ${slot + 1}): ${what}\n${clock(from, 1)} – ${clock(until, 1)} (${duration(until - from)})`
}

let dragged
lanes.addEventListener('pointerdown', (event) => {
  dragged = { at: event.clientX, view }
  lanes.setPointerCapture(event.pointerId)
})
lanes.addEventListener('pointermove', (event) => {
  if (dragged !== undefined) {
    const perPixel = (dragged.view.until - dragged.view.from) / (lanes.clientWidth - LEFT)
    const by = (dragged.at - event.clientX) * perPixel
    return look(dragged.view.from + by, dragged.view.until + by)
  }
  const text = whatIsAt(event)
  tip.hidden = text === undefined
  tip.textContent = text ?? ''
  tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - 330)}px`
  tip.style.top = `${event.clientY + 16}px`
})
for (const name of ['pointerup', 'pointercancel']) lanes.addEventListener(name, () => (dragged = undefined))
lanes.addEventListener('pointerleave', () => (tip.hidden = true))
lanes.addEventListener(
  'wheel',
  (event) => {
    // With shift the wheel moves the page.
    if (event.shiftKey) return
    event.preventDefault()
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = (event.deltaX * (view.until - view.from)) / lanes.clientWidth
      return look(view.from + by, view.until + by)
    }
    zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, timeAt(lanes, event.clientX, view))
  },
  { passive: false },
)
lanes.addEventListener('dblclick', (event) => zoom(0.25, timeAt(lanes, event.clientX, view)))
overview.addEventListener('pointerdown', (event) => {
  const at = timeAt(overview, event.clientX, whole)
  const half = (view.until - view.from) / 2
  look(at - half, at + half)
})
document.addEventListener('keydown', ({ key }) => {
  const by = (view.until - view.from) / 5
  if (key === '+' || key === '=') zoom(0.5)
  else if (key === '-') zoom(2)
  else if (key === '0') look(whole.from, whole.until)
  else if (key === 'ArrowLeft') look(view.from - by, view.until - by)
  else if (key === 'ArrowRight') look(view.from + by, view.until + by)
})
find('in').addEventListener('click', () => zoom(0.5))
find('out').addEventListener('click', () => zoom(2))
find('all').addEventListener('click', () => look(whole.from, whole.until))

const dark = window.matchMedia('(prefers-color-scheme: dark)')
function setTheme(theme) {
  document.documentElement.dataset.theme = theme
  find('theme').textContent = theme === 'dark' ? 'Light' : 'Dark'
  draw()
}
find('theme').addEventListener('click', () =>
  setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'),
)
dark.addEventListener('change', () => setTheme(dark.matches ? 'dark' : 'light'))
window.addEventListener('resize', draw)
fill()
setTheme(dark.matches ? 'dark' : 'light')
