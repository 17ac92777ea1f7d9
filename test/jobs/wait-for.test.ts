import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { StoreError } from '../../src/errors.ts'
import { JobViews } from '../../src/jobs/job-views.ts'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test('a wait goes on if the database does not answer just after the end of the job', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const id = (await jobs.enqueue('a')) ?? ''
  await jobs.cancel(id, { reason: 'tested' })
  const find = vi.spyOn(JobViews.prototype, 'find')
  onTestFinished(() => find.mockRestore())
  find.mockRejectedValueOnce(new StoreError('store-unavailable', 'It did not answer.'))
  expect(await jobs.waitFor(id)).toMatchObject({ state: 'cancelled' })
  expect(find).toHaveBeenCalledTimes(2)
  find.mockRejectedValueOnce(new StoreError('store-refused', 'It refused.'))
  await expect(jobs.waitFor(id)).rejects.toMatchObject({ code: 'store-refused' })
})

test('a wait goes on if the job is tried again just after its end', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const id = (await jobs.enqueue('a')) ?? ''
  await jobs.cancel(id, { reason: 'tested' })
  const find = vi.spyOn(JobViews.prototype, 'find')
  onTestFinished(() => find.mockRestore())
  find.mockImplementationOnce(async () => {
    await jobs.retry(id)
    jobs.work({ a: () => 'done' })
    return jobs.find(id)
  })
  expect(await jobs.waitFor(id)).toMatchObject({ state: 'completed', result: 'done' })
})
