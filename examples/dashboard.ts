// A dashboard beside an application's own routes. Here a program looks at it in place of a person.
// Needs: nothing.
// Run: npx tsx examples/dashboard.ts
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { connect } from 'holdfast'
import { createDashboard } from 'holdfast/dashboard'

const token = 'a-long-secret-of-your-own'
const locks = await connect('sqlite:./dashboard.db', { label: 'web-1' })
const dashboard = createDashboard(locks, { token, path: '/locks', title: 'Shop' })

const server = createServer((request, response) => {
  if (request.url?.startsWith('/locks')) dashboard(request, response)
  else response.end('Hello.\n')
})
server.listen(0, '127.0.0.1')
await once(server, 'listening')
const page = `http://127.0.0.1:${(server.address() as AddressInfo).port}/locks/`
console.log(`a person opens ${page}?token=${token}`)

const lease = await locks.acquire('invoice:42')
const headers = { authorization: `Bearer ${token}` }
const view = await fetch(`${page}api/view?key=invoice:42`, { headers })
const { holders } = (await view.json()) as { holders: { fence: string; owner: { label: string } }[] }
console.log(`${holders[0]?.owner.label} holds invoice:42 under fence ${holders[0]?.fence}`)
if (holders[0]?.fence !== String(lease.fence)) throw new Error('the dashboard shows something else')

const stranger = await fetch(`${page}api/view`)
if (stranger.status !== 401) throw new Error('a stranger was let in')

await lease.release()
await dashboard.close()
server.close()
await locks.close()
