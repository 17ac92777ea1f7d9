import { explained } from '../../../base/explained.ts'
import type { Jobs } from '../../../jobs/index.ts'
import { plain } from '../../text.ts'
import type { ActionNotice } from '../frame.ts'
import { counted } from '../header.ts'
import type { JobRepair, JobsTyping } from './jobs-view.ts'

export type AskedAction = Extract<JobsTyping, { tag: 'action' }>
type AskedPause = Extract<JobsTyping, { tag: 'pause' }>
export type AskedChange = AskedAction | AskedPause

/** Does what a person has confirmed, and says what became of it. Never rejects. */
export function performed(jobs: Jobs, asked: AskedChange): Promise<ActionNotice> {
  return asked.tag === 'pause' ? pausedOrResumed(jobs, asked) : repaired(jobs, asked)
}

async function pausedOrResumed(jobs: Jobs, { verb, name }: AskedPause): Promise<ActionNotice> {
  try {
    await jobs[verb](name)
    const text = verb === 'pause' ? `Paused ${plain(name)}. Jobs that run go on.` : `Resumed ${plain(name)}.`
    return { text, isBad: false }
  } catch (error) {
    return { text: `The ${verb} is not confirmed. ${plain(explained(error))}`, isBad: true }
  }
}

async function repaired(jobs: Jobs, { action, selection, text }: AskedAction): Promise<ActionNotice> {
  const reason = text.trim()
  if (action === 'cancel' && reason === '') return { text: 'Nothing was cancelled: say why.', isBad: true }
  const { done, otherwise } = WORDS[action]
  try {
    const ids = action === 'cancel' ? await jobs.cancel(selection, { reason }) : await jobs[action](selection)
    if (ids.length === 0) return { text: `Nothing was ${done}: ${otherwise}.`, isBad: true }
    return { text: `${done[0]?.toUpperCase()}${done.slice(1)} ${counted(ids.length, 'job')}.`, isBad: false }
  } catch (error) {
    // Some of the jobs may be changed, or the answer was lost.
    return { text: `The ${action} is not confirmed. ${plain(explained(error))}`, isBad: true }
  }
}

const WORDS: Readonly<Record<JobRepair, { readonly done: string; readonly otherwise: string }>> = {
  retry: { done: 'retried', otherwise: 'there is no such job that is over and not completed' },
  cancel: { done: 'cancelled', otherwise: 'there is no such job that is not over' },
  remove: { done: 'removed', otherwise: 'there is no such job that is over' },
}
