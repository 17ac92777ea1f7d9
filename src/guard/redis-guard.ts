import { checkOptions, expected } from '../base/arguments.ts'
import { show } from '../base/duration.ts'
import { messageOf } from '../base/thrown.ts'
import { InvalidArgumentError } from '../errors.ts'
import { type Fence, parseFence, parseResource, staleFence } from './fence.ts'
import { scripts } from './lua/scripts.generated.ts'

/** The part of a `Redis` or `Cluster` of the package ioredis that is used. */
export interface IoredisScripting {
  evalsha(...never: never[]): unknown
  eval(script: string, numberOfKeys: number, ...keysAndArguments: string[]): Promise<unknown>
}

/** The part of a client or cluster of the package redis that is used. */
export interface NodeRedisScripting {
  evalSha(...never: never[]): unknown
  eval(script: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>
}

/** What to write, and under which fence. Either `command` or `script` is given. */
export interface RedisGuardOptions {
  /** The lease under which this is written, or its fence. */
  readonly fence: Fence
  /**
   * The name of what is guarded: a text of your own. All writers must use the same name. Default: the key of the lease.
   * The fence is kept in `{resource}:holdfast-fence`, so in a Cluster the keys need the hash tag `{resource}` (or be
   * the resource itself). A resource with a hash tag of its own keeps its fence in `resource:holdfast-tag-fence`.
   */
  readonly resource?: string | undefined
  /** The command that writes, with its keys before everything else: `'SET'`, `'HSET'`, `'DEL'`. */
  readonly command?: string | undefined
  /** Instead of a command: a Lua script of your own. It gets its KEYS and ARGV as usual. */
  readonly script?: string | undefined
  /** The keys that the command or script writes. At least one. */
  readonly keys: readonly string[]
  /** What follows the keys. Default: nothing. */
  readonly args?: readonly (string | number)[] | undefined
}

/**
 * Runs one command or script on Redis, unless the resource has seen a later fence. The check, the fence and the write
 * are one atomic step. It takes a client or a cluster of the packages ioredis and redis.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { redisGuard } from 'holdfast/guard'
 * import { redisStore } from 'holdfast/redis'
 * import { Redis } from 'ioredis'
 *
 * const redis = new Redis()
 * const locks = createLocks(redisStore(redis))
 * await locks.withLock('account:42', async (lease) => {
 *   await redisGuard(redis, { fence: lease, command: 'SET', keys: ['account:42'], args: ['500'] })
 * })
 * ```
 *
 * @returns the reply, as the client gives it.
 * @throws {StaleFenceError} when the resource has seen a later fence; nothing was written.
 * @throws {InvalidArgumentError} when an option is wrong, or the keys are in other slots of a cluster than the fence.
 * Errors of Redis come through as they are. If the command itself fails, the fence is remembered all the same.
 */
export async function redisGuard(
  client: IoredisScripting | NodeRedisScripting,
  options: RedisGuardOptions,
): Promise<unknown> {
  checkOptions(options, ['fence', 'resource', 'command', 'script', 'keys', 'args'])
  const fence = parseFence(options.fence)
  const resource = parseResource(options.resource, options.fence)
  const write = parseWrite(options)
  const keys = [fenceKey(resource), ...write.keys]
  const args = [fence, ...write.args]
  try {
    return await evaluate(client, { script: scripts.guard + write.script, keys, args })
  } catch (error) {
    const said = messageOf(error)
    if (said.startsWith('STALEFENCE ')) throw staleFence(resource, fence, error)
    if (said.startsWith('CROSSSLOT ')) throw otherSlots(resource, error)
    throw error
  }
}

function otherSlots(resource: string, cause: unknown): InvalidArgumentError {
  const tag = /\{(.*?)\}/.exec(fenceKey(resource))?.[0]
  return new InvalidArgumentError(
    `Expected \`keys\` to be in the slot of the resource ${show(resource)}, where its fence is, got keys of others. ` +
      `Give each of them the hash tag ${tag}; nothing was written.`,
    { key: resource, cause },
  )
}

interface Evaluation {
  readonly script: string
  readonly keys: readonly string[]
  readonly args: readonly string[]
}

function parseWrite(options: RedisGuardOptions): Evaluation {
  const { command, script, keys, args = [] } = options
  if (!Array.isArray(keys) || keys.length === 0 || !keys.every((key) => typeof key === 'string')) {
    throw expected('keys', 'an array with at least one text', keys)
  }
  if (!Array.isArray(args) || !args.every((arg) => typeof arg === 'string' || Number.isFinite(arg))) {
    throw expected('args', 'an array of texts and numbers', args)
  }
  const texts = args.map(String)
  if (typeof command === 'string' && command !== '' && script === undefined) {
    return { script: scripts.command, keys, args: [command, ...texts] }
  }
  if (typeof script === 'string' && command === undefined) return { script, keys, args: texts }
  throw expected(
    'command',
    'the name of a command (or `script` a Lua script, instead of it)',
    command ?? script,
  )
}

/**
 * The key of the fence, in the slot of the resource. If the resource has a hash tag, the key has the same one
 * (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags). Otherwise the whole resource is the
 * tag. A tag cannot contain `}`, so that is escaped. Each case has its own ending. Otherwise `x` and `{x}` would share a fence,
 * and so would `a}` and its escaped form.
 */
function fenceKey(resource: string): string {
  if (/^[^{]*\{[^}]+\}/.test(resource)) return `${resource}:holdfast-tag-fence`
  if (!resource.includes('}')) return `{${resource}}:holdfast-fence`
  const escaped = resource.replace(/[%}]/g, (character) => (character === '%' ? '%25' : '%7D'))
  return `{${escaped}}:holdfast-escaped-fence`
}

/** The script is sent with its whole text each time. The server knows the text by its hash and compiles it once. */
function evaluate(client: unknown, { script, keys, args }: Evaluation): Promise<unknown> {
  if (can(client, 'evalSha')) {
    return (client as NodeRedisScripting).eval(script, { keys: [...keys], arguments: [...args] })
  }
  if (can(client, 'evalsha')) return (client as IoredisScripting).eval(script, keys.length, ...keys, ...args)
  throw expected('client', 'a `Redis` of the package ioredis or a client of the package redis', client)
}

function can(client: unknown, name: string): boolean {
  return typeof (client as Record<string, unknown> | null | undefined)?.[name] === 'function'
}
