// One process that campaigns, says on its standard output what becomes of it, and ends politely on SIGTERM.
import { connect } from '../../src/index.ts'

const [url = '', name = ''] = process.argv.slice(2)
const locks = await connect(url, { label: name })
const end = new AbortController()
process.on('SIGTERM', () => end.abort())
const abandoned = () => process.exit(1)
process.on('disconnect', abandoned)
const tell = (what: string, fence: bigint) => process.send?.({ what, fence })

const campaign = locks.election('service').campaign(
  async ({ fence, signal }) => {
    tell('leads', fence)
    await new Promise((resolve) => signal.addEventListener('abort', resolve))
    tell(signal.reason.code, fence)
  },
  { ttl: 3000, value: name, signal: end.signal },
)
await campaign.catch((error: unknown) => {
  if (!end.signal.aborted) throw error
})
await locks.close()
// The channel alone would keep the process alive.
process.off('disconnect', abandoned)
process.disconnect()
