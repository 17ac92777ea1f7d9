import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { readProjectFile, root } from '../tidy/project.ts'

/** The recipe of the documentation, as a reader copies it. */
let putReport: (url: string, body: string, fence: bigint) => Promise<void>
let folder: string
beforeAll(async () => {
  const page = readProjectFile('docs/guard.md')
  const from = page.indexOf("import { StaleFenceError } from 'holdfast'")
  const recipe = page.slice(from, page.indexOf('```', from))
  mkdirSync(join(root, '.docs'), { recursive: true })
  folder = mkdtempSync(join(root, '.docs/recipe-'))
  const file = join(folder, 'put-report.ts')
  writeFileSync(file, recipe.replace(`'holdfast'`, JSON.stringify(join(root, 'src/index.ts'))))
  putReport = (await import(pathToFileURL(file).href)).putReport
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** One object, as S3 keeps it: with an ETag that changes with each write, a header of its owner's, and If-Match. */
let stored: { readonly body: string; readonly fence: string | undefined; readonly version: number }
let puts: number
let onHead: () => unknown
const server = createServer(async (request, response) => {
  const etag = `"${stored.version}"`
  if (request.method === 'HEAD') {
    const headers = { etag, ...(stored.fence === undefined ? {} : { 'x-amz-meta-fence': stored.fence }) }
    await onHead()
    return response.writeHead(200, headers).end()
  }
  puts += 1
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  if (request.headers['if-match'] !== `"${stored.version}"`) return response.writeHead(412).end()
  write(String(Buffer.concat(chunks)), String(request.headers['x-amz-meta-fence']))
  return response.writeHead(200).end()
})
function write(body: string, fence?: string): void {
  stored = { body, fence, version: stored.version + 1 }
}
let url: string
beforeEach(async () => {
  stored = { body: 'first', fence: undefined, version: 1 }
  puts = 0
  onHead = () => {}
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/report`
})
afterEach(async () => {
  server.closeAllConnections()
  server.close()
  await once(server, 'close')
})

test('the recipe writes under its fence or a later one, and a stale one does not even try', async () => {
  await putReport(url, 'one', 7n)
  await putReport(url, 'two', 7n)
  await putReport(url, 'three', 1_790_000_000_000_000n)
  expect(stored).toMatchObject({ body: 'three', fence: '1790000000000000' })
  await expect(putReport(url, 'late', 7n)).rejects.toMatchObject({ code: 'stale-fence' })
  expect([stored.body, puts]).toEqual(['three', 3])
})

test('a holder that was paused between its look and its write is refused, once a later holder has written', async () => {
  let looks = 0
  onHead = async () => {
    looks += 1
    if (looks === 1) await putReport(url, 'of the next one', 8n)
  }
  await expect(putReport(url, 'late', 7n)).rejects.toMatchObject({ code: 'stale-fence' })
  expect(stored).toMatchObject({ body: 'of the next one', fence: '8' })
  // The old holder's look, the next holder's look, and the old holder's second look after the server had refused its
  // write.
  expect([looks, puts]).toEqual([3, 2])
})

test('a writer that is overtaken under no later fence looks again and writes, and gives up after five times', async () => {
  let looks = 0
  onHead = () => {
    looks += 1
    if (looks === 1) write('of the same holder', '7')
  }
  await putReport(url, 'at last', 7n)
  expect(stored).toMatchObject({ body: 'at last', fence: '7' })
  onHead = () => write('again', '7')
  await expect(putReport(url, 'never', 7n)).rejects.toThrow('was written by others five times in a row')
  expect(stored.body).toBe('again')
})
