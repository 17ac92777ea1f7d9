// One of several processes that start at once, each with a connection of its own. It migrates as told and reports
// whether it succeeded.
import pg from 'pg'
import { connectionsOf } from '../../src/postgres/connections.ts'
import { migrate } from '../../src/postgres/migrations.ts'

const [url = '', schema = '', migrations = '[]', count = '1'] = process.argv.slice(2)
process.stdout.write('ready\n')
process.stdin.once('data', async () => {
  const outcomes = await Promise.all(Array.from({ length: Number(count) }, start))
  process.stdout.write(`${outcomes.join('; ')}\n`, () => process.exit())
})

async function start(): Promise<string> {
  const connections = connectionsOf(new pg.Client(url), { max: 1, applicationName: 'starter' })
  try {
    await migrate(connections, { schema, component: 'store', migrations: JSON.parse(migrations) as string[] })
    return 'migrated'
  } catch (error) {
    return `${(error as Error).message} ${(error as { cause?: Error }).cause?.message}`
  } finally {
    await connections.close()
  }
}
