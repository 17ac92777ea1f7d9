import { describe, expect, test } from 'vitest'
import { Ticks } from '../../src/base/ticks.ts'
import { Stage } from './stage.ts'

const HOUR_MS = 3_600_000

async function ticks(from: string, hours: number, expression: string, timezone?: string): Promise<string[]> {
  const stage = new Stage(from)
  const member = stage.member('a')
  member.schedule.add('job', expression, { timezone }, stage.work(member))
  member.schedule.start()
  await stage.clock.advance(hours * HOUR_MS)
  return stage.ticks.map((tick) => tick.slice(8, 16))
}

test('an expression is read in UTC, whatever the zone of the machine', async () => {
  const { TZ } = process.env
  try {
    process.env['TZ'] = 'America/New_York'
    expect(new Date(0).getHours()).not.toBe(0)
    expect(await ticks('2027-01-15T00:00:30Z', 9, '0 3 * * *')).toEqual(['15T03:00'])
  } finally {
    if (TZ === undefined) delete process.env['TZ']
    else process.env['TZ'] = TZ
  }
})

test('or in the zone that is named', async () => {
  expect(await ticks('2027-01-15T20:00:30Z', 8, '0 3 * * *', 'Asia/Kolkata')).toEqual(['15T21:30'])
})

test('a time that the change to summer time leaves out comes when the missing hour is over', async () => {
  expect(await ticks('2027-03-27T23:00:30Z', 5, '30 2 * * *', 'Europe/Berlin')).toEqual(['28T01:00'])
})

test('a time that the change to winter time brings twice comes once', async () => {
  expect(await ticks('2027-10-30T23:00:30Z', 5, '30 2 * * *', 'Europe/Berlin')).toEqual(['31T00:30'])
})

test('intervals go on through both changes', async () => {
  const inUtc = (day: string, hours: readonly string[]) => hours.map((hour) => `${day}T${hour}`)
  expect(await ticks('2027-03-27T23:30:30Z', 3, '*/30 * * * *', 'Europe/Berlin')).toEqual(
    inUtc('28', ['00:00', '00:30', '01:00', '01:30', '02:00', '02:30']),
  )
  expect(await ticks('2027-10-30T23:30:30Z', 3, '*/30 * * * *', 'Europe/Berlin')).toEqual(
    inUtc('31', ['00:00', '00:30', '01:00', '01:30', '02:00', '02:30']),
  )
})

/** What an expression means on the days on which a zone changes its clocks: the ticks between two instants, in UTC. */
const changes: readonly [
  zone: string,
  expression: string,
  from: string,
  to: string,
  ticks: readonly string[],
][] = [
  // 2:00 to 3:00 does not exist: named times run once when the hour is over, at 1:00 UTC.
  ['Europe/Berlin', '0,30 2 * * *', '2027-03-28T00:00Z', '2027-03-28T12:00Z', ['01:00']],
  ['Europe/Berlin', '30 2-4 * * *', '2027-03-28T00:00Z', '2027-03-28T12:00Z', ['01:00', '01:30', '02:30']],
  ['Europe/Berlin', '0 2,3 * * *', '2027-03-28T00:00Z', '2027-03-28T12:00Z', ['01:00']],
  ['Europe/Berlin', '0 0 2 * * *', '2027-03-28T00:00Z', '2027-03-28T12:00Z', ['01:00']],
  ['Europe/Berlin', '*/30 2 * * *', '2027-03-28T00:00Z', '2027-03-28T12:00Z', []],
  ['Europe/Berlin', '15 * * * *', '2027-03-28T00:00Z', '2027-03-28T03:00Z', ['00:15', '01:15', '02:15']],
  // 2:00 to 3:00 comes twice, from 0:00 and from 1:00 UTC: named times run the first time.
  ['Europe/Berlin', '0,30 2 * * *', '2027-10-30T22:00Z', '2027-10-31T12:00Z', ['00:00', '00:30']],
  ['Europe/Berlin', '30 1-3 * * *', '2027-10-30T22:00Z', '2027-10-31T12:00Z', ['23:30', '00:30', '02:30']],
  [
    'Europe/Berlin',
    '*/30 2 * * *',
    '2027-10-30T22:00Z',
    '2027-10-31T12:00Z',
    ['00:00', '00:30', '01:00', '01:30'],
  ],
  ['Europe/Berlin', '15 * * * *', '2027-10-30T23:30Z', '2027-10-31T03:00Z', ['00:15', '01:15', '02:15']],
  // The same at 2:00 of New York: 7:00 UTC in spring. In autumn 1:00 to 2:00 comes twice, from 5:00 and from 6:00 UTC.
  ['America/New_York', '0,30 2 * * *', '2027-03-14T04:00Z', '2027-03-14T20:00Z', ['07:00']],
  ['America/New_York', '30 1,13 * * *', '2027-11-07T04:00Z', '2027-11-08T03:00Z', ['05:30', '18:30']],
  ['America/New_York', '30 1,13 * * *', '2027-03-14T04:00Z', '2027-03-15T03:00Z', ['06:30', '17:30']],
  // Half an hour: 2:00 to 2:30 does not exist (it is 15:30 UTC then), and 1:30 to 2:00 comes twice, from 14:30 and from 15:00 UTC.
  ['Australia/Lord_Howe', '0,15,45 2 * * *', '2027-10-02T12:00Z', '2027-10-03T06:00Z', ['15:30', '15:45']],
  ['Australia/Lord_Howe', '15 2,14 * * *', '2027-10-02T12:00Z', '2027-10-03T06:00Z', ['15:30', '03:15']],
  ['Australia/Lord_Howe', '45 1,13 * * *', '2027-04-03T12:00Z', '2027-04-04T06:00Z', ['14:45', '03:15']],
  [
    'Australia/Lord_Howe',
    '*/15 1 * * *',
    '2027-04-03T12:00Z',
    '2027-04-04T06:00Z',
    ['14:00', '14:15', '14:30', '14:45', '15:00', '15:15'],
  ],
]

describe('on the day of a change', () => {
  test.each(changes)(
    'in %s, %s runs from %s to %s at the right times',
    (zone, expression, from, to, expected) => {
      const ticks = new Ticks(expression, zone)
      const found: number[] = []
      let tick = ticks.next(Date.parse(from) - 1)
      for (; tick !== undefined && tick < Date.parse(to); tick = ticks.next(tick)) found.push(tick)
      expect(found.map((at) => new Date(at).toISOString().slice(11, 16))).toEqual(expected)
      // A process that looks back finds the same ticks.
      const backwards: number[] = []
      let last = ticks.last(Date.parse(to) - 1)
      for (; last !== undefined && last >= Date.parse(from); last = ticks.last(last - 1))
        backwards.unshift(last)
      expect(backwards).toEqual(found)
    },
  )

  test('a fleet runs several named times of the hour that does not exist once', async () => {
    expect(await ticks('2027-03-27T23:00:30Z', 5, '0,30 2 * * *', 'Europe/Berlin')).toEqual(['28T01:00'])
  })
})
