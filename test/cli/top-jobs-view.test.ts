import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { NO_FILTER } from '../../src/cli/job-filter.ts'
import { width } from '../../src/cli/text.ts'
import type { JobsSeen } from '../../src/cli/top/jobs/job-looks.ts'
import { jobsFrameOf } from '../../src/cli/top/jobs/jobs-screen.ts'
import { firstJobsView, type JobsOnScreen, type JobsView, pressed } from '../../src/cli/top/jobs/jobs-view.ts'
import { JOB_STATES, type JobDetails } from '../../src/jobs/index.ts'

const FACTS: JobsOnScreen = {
  jobs: ['9', '8', '7', '6'].map((id) => ({ id, name: id === '9' ? 'mail' : 'bill' })),
  openName: undefined,
  paused: [],
  next: '6',
  pageSize: 2,
  titlesLine: 4,
}

function viewAfter(
  keys: readonly string[],
  { view = firstJobsView(NO_FILTER), facts = FACTS } = {},
): JobsView {
  return keys.reduce((before, key) => pressed(before, key, facts), view)
}

describe('a key changes what is seen of the jobs', () => {
  test('the marked job moves, and stays on the page', () => {
    expect(viewAfter(['down']).selected).toBe('9')
    expect(viewAfter(['down', 'j', 'k']).selected).toBe('9')
    expect(viewAfter(['end', 'end', 'down']).selected).toBe('6')
    expect(viewAfter(['end', 'end', 'home', 'page-down']).selected).toBe('7')
  })

  test('older and newer pages', () => {
    expect(viewAfter([']']).pages).toEqual(['6'])
    expect(viewAfter(['N', 'P']).pages).toEqual([])
    expect(viewAfter(['[']).pages).toEqual([])
    expect(viewAfter([']'], { facts: { ...FACTS, next: null } }).pages).toEqual([])
  })

  test('s goes through all states, and comes back to all jobs', () => {
    const seen = Array.from(
      JOB_STATES,
      (_, at) => viewAfter(Array.from({ length: at + 1 }, () => 's')).filter.state,
    )
    expect(new Set(seen)).toEqual(new Set(JOB_STATES))
    expect(viewAfter(Array.from({ length: JOB_STATES.length + 1 }, () => 's')).filter.state).toBeUndefined()
  })

  test('a name is typed, applied by Enter, and cleared by Esc with the state', () => {
    const named = viewAfter(['s', '/', 'm', 'x', 'backspace', 'q', 'enter'])
    expect(named).toMatchObject({ filter: { name: 'mq', state: 'ready' }, typing: undefined, pages: [] })
    expect(viewAfter(['/', 'm', 'escape']).filter.name).toBeUndefined()
    expect(viewAfter(['escape'], { view: named }).filter).toEqual(NO_FILTER)
  })

  test('ids and times are typed as on the command line, and cleared by an empty text', () => {
    const chosen = viewAfter(['i', ...'47, 11', 'enter', 'B', ...'2026-11-23', 'enter'])
    expect(chosen.filter).toEqual({ ...NO_FILTER, id: ['47', '11'], before: new Date('2026-11-23') })
    expect(viewAfter(['i'], { view: chosen }).typing).toMatchObject({ text: '47,11' })
    expect(viewAfter(['B'], { view: chosen }).typing).toMatchObject({ text: '2026-11-23T00:00:00.000Z' })
    expect(viewAfter(['i', 'ctrl-u', 'enter', 'B', 'ctrl-u', 'enter'], { view: chosen }).filter).toEqual(
      NO_FILTER,
    )
    const hourAgo = Date.now() - 3_600_000
    const since = viewAfter(['S', '1', 'h', 'enter']).filter.since?.getTime() ?? 0
    expect(Math.abs(since - hourAgo)).toBeLessThan(60_000)
  })

  test('a text that is too long is not applied, whatever key follows, and is erased as a whole', () => {
    const ids = Array.from({ length: 200 }, (_, at) => String(4711 + at)).join(',')
    const long = viewAfter(['i', ...ids])
    expect(long.typing).toMatchObject({ problem: 'This text is too long. Backspace erases it.' })
    for (const key of ['left', 'wheel-up', 'click 3 3', '7', 'enter'])
      expect(viewAfter([key, 'enter'], { view: long })).toEqual(long)
    const erased = viewAfter(['backspace', '7', 'enter'], { view: long })
    expect(erased).toMatchObject({ filter: { id: ['7'] }, typing: undefined })
    expect(viewAfter(['escape'], { view: long })).toMatchObject({ filter: NO_FILTER, typing: undefined })
  })

  test('a long list of ids from the command line can be shortened', () => {
    const id = Array.from({ length: 200 }, (_, at) => String(4711 + at))
    const view = firstJobsView({ ...NO_FILTER, id })
    const shorter = viewAfter(['i', ...Array.from({ length: 5 }, () => 'backspace'), 'enter'], { view })
    expect(shorter.filter.id).toEqual(id.slice(0, -1))
  })

  test('a text that is no id or no time stays to be corrected, and the jobs stay as they were', () => {
    const wrong = viewAfter(['down', 'i', 'x', 'enter'])
    expect(wrong).toMatchObject({ filter: NO_FILTER, selected: '9', typing: { text: 'x' } })
    expect(wrong.typing).toMatchObject({ problem: expect.stringContaining('Expected --id to be the id') })
    const right = viewAfter(['backspace', '7'], { view: wrong })
    expect(right.typing).toMatchObject({ text: '7', problem: undefined })
    expect(viewAfter(['enter'], { view: right }).filter.id).toEqual(['7'])
    expect(viewAfter(['escape'], { view: wrong })).toMatchObject({ typing: undefined, filter: NO_FILTER })
    expect(viewAfter(['S', ...'2026-99', 'enter']).typing).toMatchObject({
      problem: expect.stringContaining('Expected --since to be a time such as 2026-11-23T05:00Z'),
    })
  })

  test('an action asks about the marked job, the ticked ones, or all of the filter', () => {
    expect(viewAfter(['R']).typing).toBeUndefined()
    expect(viewAfter(['down', 'R']).typing).toMatchObject({
      action: 'retry',
      selection: ['9'],
      chosen: 'job 9',
    })
    const ticked = viewAfter(['down', 't', 't', 'D'])
    expect(ticked.typing).toMatchObject({ action: 'remove', selection: ['9', '8'], chosen: '2 jobs' })
    expect(viewAfter(['escape'], { view: ticked }).typing).toBeUndefined()
    expect(viewAfter(['x', ' '], { view: ticked }).typing).toEqual(ticked.typing)
    expect(viewAfter(['down', 't', 'up', 't', 'D']).typing).toMatchObject({ chosen: 'job 8' })
    const all = viewAfter(['s', '*', 'C', 'w', 'h', 'y'])
    expect(all.typing).toMatchObject({
      action: 'cancel',
      selection: { state: 'ready' },
      chosen: 'all jobs that fit the filter (state ready)',
      text: 'why',
    })
    const some = viewAfter(['i', '9', ',', '6', 'enter', '*', 'R'])
    expect(some.typing).toMatchObject({
      selection: { id: ['9', '6'] },
      chosen: 'all jobs that fit the filter (id 9,6)',
    })
  })

  test('Z asks about the name of the marked job, of the open job, or of the filter', () => {
    expect(viewAfter(['Z']).typing).toBeUndefined()
    const marked = viewAfter(['down', 'Z'])
    expect(marked.typing).toEqual({ tag: 'pause', verb: 'pause', name: 'mail' })
    expect(viewAfter(['x', 'Z'], { view: marked }).typing).toEqual(marked.typing)
    expect(viewAfter(['escape'], { view: marked }).typing).toBeUndefined()
    const facts = { ...FACTS, openName: 'old', paused: ['mail', 'old'] }
    expect(viewAfter(['down', 'Z'], { facts }).typing).toMatchObject({ verb: 'resume', name: 'mail' })
    expect(viewAfter(['down', 'enter', 'Z'], { facts }).typing).toMatchObject({ verb: 'resume', name: 'old' })
    expect(viewAfter(['/', 'a', 'enter', 'Z']).typing).toMatchObject({ verb: 'pause', name: 'a' })
    expect(viewAfter(['H', 'Z']).typing).toBeUndefined()
  })

  test('without a filter not all jobs are ticked, and another filter drops the ticks', () => {
    expect(viewAfter(['*']).ticked).toEqual({ tag: 'ids', ids: new Set() })
    expect(viewAfter(['s', '*']).ticked).toEqual({ tag: 'filter' })
    expect(viewAfter(['s', '*', 's']).ticked).toEqual({ tag: 'ids', ids: new Set() })
    expect(viewAfter(['down', 't', 's']).ticked).toEqual({ tag: 'ids', ids: new Set() })
    expect(viewAfter(['s', '*', '*']).ticked).toEqual({ tag: 'ids', ids: new Set() })
  })

  test('on the page of a job an action is about that job alone', () => {
    const page = viewAfter(['down', 't', 'enter'])
    expect(page).toMatchObject({ page: 'job', selected: '8' })
    expect(viewAfter(['C'], { view: page }).typing).toMatchObject({ selection: ['8'] })
    expect(viewAfter(['q'], { view: page }).page).toBe('list')
    expect(viewAfter(['h', 'escape'], { view: page }).page).toBe('job')
  })

  test('a job that has left the page is not marked any more', () => {
    const view = viewAfter(['down'])
    const facts = { ...FACTS, jobs: [{ id: '10', name: 'mail' }] }
    expect(viewAfter(['R'], { view, facts }).typing).toBeUndefined()
    expect(viewAfter(['t'], { view, facts }).ticked).toEqual({ tag: 'ids', ids: new Set() })
  })

  test('a click marks a line, and opens the marked one', () => {
    expect(viewAfter(['click 3 6']).selected).toBe('8')
    expect(viewAfter(['click 3 6', 'click 3 6']).page).toBe('job')
    expect(viewAfter(['click 3 4', 'click 3 60']).selected).toBeUndefined()
  })
})

const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 80 }),
  fc.constantFrom('\x1b[2J\x1b]0;x\x07', '日本'.repeat(60), 'a\nb\u202e'),
)
const date = fc.date({ min: new Date(0), max: new Date('9999-01-01'), noInvalidDate: true })
const job: fc.Arbitrary<JobDetails> = fc.record({
  id: fc.bigInt({ min: 1n, max: 10n ** 17n }).map(String),
  name: text,
  state: fc.constantFrom(...JOB_STATES),
  attempt: fc.nat(),
  failures: fc.nat(),
  maxAttempts: fc.nat(),
  priority: fc.integer(),
  key: fc.option(text),
  group: fc.option(text),
  groupLimit: fc.constantFrom(1, 5),
  worker: fc.option(text),
  error: fc.option(text),
  progress: fc.option(text),
  enqueuedAt: date,
  startedAt: fc.option(date),
  dueAt: fc.option(date),
  endedAt: fc.option(date),
  ageMs: fc.nat(),
  payload: fc.jsonValue(),
  result: fc.option(text),
  children: fc.array(fc.constant('3'), { maxLength: 2 }),
  failedAttempts: fc.array(
    fc.record({ attempt: fc.nat(), worker: fc.option(text), startedAt: date, endedAt: date, error: text }),
    { maxLength: 2 },
  ),
})

test('a question about a filter shows the whole filter, also on a small screen', () => {
  const filter = { ...NO_FILTER, state: 'dead', name: '請求書', id: ['4711', '4712', '4713'] } as const
  const shown = (rows: number): readonly string[] =>
    jobsFrameOf({
      store: 'postgres db',
      everyMs: 1000,
      paint,
      view: viewAfter(['*', 'D'], { view: firstJobsView(filter) }),
      seen: NOTHING_SEEN,
      notice: undefined,
      size: { columns: 40, rows },
    }).lines
  const whole = 'Remove all jobs that fit the filter (state dead, name 請求書, id 4711,4712,4713)?'
  for (const rows of [10, 6, 4]) expect(shown(rows).join('')).toContain(whole)
  expect(shown(4).at(-1)).toContain('Enter: yes. Esc: no.')
})

const NOTHING_SEEN: JobsSeen = {
  at: 7,
  store: { tag: 'present', lookMs: 3 },
  page: { jobs: [], next: null },
  job: undefined,
  counts: [],
  paused: [],
  history: [],
  countsProblem: undefined,
  historyProblem: undefined,
}

test('whatever the jobs contain, and whatever was pressed, the lines fit the screen and control no terminal', () => {
  const keys = [
    'up',
    'down',
    'end',
    'enter',
    'escape',
    'q',
    'h',
    's',
    '/',
    'i',
    'S',
    'B',
    '日',
    't',
    '*',
    ']',
    '[',
  ]
  const scenes = fc.record({
    jobs: fc.uniqueArray(job, { maxLength: 8, selector: ({ id }) => id }),
    size: fc.record({ columns: fc.integer({ min: 1, max: 200 }), rows: fc.integer({ min: 1, max: 40 }) }),
    typed: fc.array(fc.constantFrom(...keys, 'R', 'C', 'D', 'Z', 'H', 'P', ' '), { maxLength: 12 }),
    tag: fc.constantFrom('present', 'away', 'refused'),
    name: fc.option(text, { nil: undefined }),
    notice: fc.option(
      text.map(() => ({ text: 'Done.', isBad: true })),
      { nil: undefined },
    ),
  })
  fc.assert(
    fc.property(scenes, ({ jobs, size, typed, tag, name, notice }) => {
      const store = { tag, sinceAt: 5, lookMs: 3, message: 'gone\x1b[2J' } as const
      const seen: JobsSeen = {
        ...NOTHING_SEEN,
        store,
        page: { jobs, next: jobs.at(-1)?.id ?? null },
        job: jobs[0],
        counts: jobs.map(({ name, state }) => ({ name, state, count: 2, oldestMs: 5 })),
      }
      let view = firstJobsView({ ...NO_FILTER, name })
      for (const key of [...typed, '']) {
        const frame = jobsFrameOf({ store: 'postgres db', everyMs: 1000, paint, view, seen, notice, size })
        expect(frame.lines).toHaveLength(size.rows)
        for (const line of frame.lines) expect(width(line)).toBeLessThanOrEqual(size.columns)
        expect(frame.lines.join('')).not.toMatch(/\p{Cc}|\u202e/u)
        const { top, pageSize, above } = frame
        const onScreen = { jobs, openName: jobs[0]?.name, paused: [], next: '1', pageSize, titlesLine: above }
        view = pressed({ ...view, top }, key, onScreen)
      }
    }),
  )
})

function paint(_: unknown, line: string): string {
  return line
}
