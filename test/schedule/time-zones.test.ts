import { expect, test } from 'vitest'
import { Stage } from './stage.ts'

const HOUR_MS = 3_600_000

async function ticks(from: string, hours: number, expression: string, timezone?: string): Promise<string[]> {
  const stage = new Stage(from)
  const member = stage.member('a')
  member.schedule.add('job', expression, stage.work(member), { timezone })
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

test('a time that the change to summer time leaves out comes when the hour is over', async () => {
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
