import type { ParsedArguments, Subcommand } from './arguments.ts'
import { bench } from './bench/command.ts'
import { completion } from './completion/command.ts'
import { dashboard } from './dashboard/command.ts'
import { demo } from './demo/command.ts'
import { doctor } from './doctor/command.ts'
import { init } from './init/command.ts'
import { jobs } from './jobs/command.ts'
import { acquire, extend, release } from './lease/commands.ts'
import { evict, ls, show, wait } from './rooms/commands.ts'
import { run } from './run/command.ts'
import { schedules } from './schedules/command.ts'
import { top } from './top/command.ts'
import { torture } from './torture/command.ts'

export interface RunnableCommand extends Subcommand {
  /** Imports what the command does, which the other commands should not have to load. */
  readonly load: () => Promise<CommandAction>
}

/** Resolves with the exit code. */
type CommandAction = (given: ParsedArguments, commands: readonly Subcommand[]) => Promise<number>

const ALL_BUT_HELP: readonly RunnableCommand[] = [
  { ...run, load: async () => (await import('./run/run.ts')).runCommand },
  { ...acquire, load: async () => (await import('./lease/acquire.ts')).acquireLease },
  { ...extend, load: async () => (await import('./lease/extend.ts')).extendLease },
  { ...release, load: async () => (await import('./lease/release.ts')).releaseLease },
  { ...wait, load: async () => (await import('./rooms/wait.ts')).waitForKey },
  { ...ls, load: async () => (await import('./rooms/ls.ts')).listRooms },
  { ...show, load: async () => (await import('./rooms/show.ts')).showRoom },
  { ...evict, load: async () => (await import('./rooms/evict.ts')).evictTickets },
  { ...top, load: async () => (await import('./top/top.ts')).showTop },
  { ...dashboard, load: async () => (await import('./dashboard/dashboard.ts')).serveDashboard },
  { ...jobs, load: async () => (await import('./jobs/jobs.ts')).manageJobs },
  { ...schedules, load: async () => (await import('./schedules/schedules.ts')).manageSchedules },
  { ...doctor, load: async () => (await import('./doctor/doctor.ts')).examine },
  { ...init, load: async () => (await import('./init/init.ts')).initServers },
  { ...demo, load: async () => (await import('./demo/demo.ts')).performDemo },
  { ...torture, load: async () => (await import('./torture/torture.ts')).runTorture },
  { ...bench, load: async () => (await import('./bench/bench.ts')).measureStore },
  { ...completion, load: async () => (await import('./completion/completion.ts')).printCompletion },
]

/** `holdfast help run`. */
const help: RunnableCommand = {
  name: 'help',
  usage: '[COMMAND]',
  summary: 'Shows what there is, or what one command takes.',
  examples: ['holdfast help run'],
  options: {},
  firstWords: [...ALL_BUT_HELP.map(({ name }) => name), 'help'],
  load: async () => (await import('./help.ts')).showHelp,
}

/** Every command, in the order of the help. The parser, the help and the completions read nothing else. */
export const COMMANDS: readonly RunnableCommand[] = [...ALL_BUT_HELP, help].map((command) => ({
  ...command,
  options: { ...command.options, help: { short: 'h', help: 'this text' } },
}))
