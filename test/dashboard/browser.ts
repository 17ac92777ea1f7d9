import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { ensureBinary } from '../servers/install.ts'

/** The distribution's Chromium, without a screen. */
export function startBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: ensureBinary('chromium'),
    args: ['--no-sandbox', '--disable-gpu'],
    timeout: 60_000,
  })
}

/** A page of its own, and whatever goes wrong in it: errors, what its policy has blocked, requests to other hosts. */
export interface Visit extends AsyncDisposable {
  readonly page: Page
  readonly wrongs: readonly string[]
}

export async function visit(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
): Promise<Visit> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options })
  context.setDefaultTimeout(45_000)
  const page = await context.newPage()
  const wrongs: string[] = []
  page.on('pageerror', (error) => wrongs.push(error.message))
  page.on('dialog', (dialog) => {
    wrongs.push(dialog.message())
    void dialog.dismiss()
  })
  page.on('console', (message) => {
    // Chromium says of every answer that is an error that it could not load it.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      wrongs.push(message.text())
  })
  page.on('request', (request) => {
    if (!request.url().startsWith(new URL(url).origin)) wrongs.push(request.url())
  })
  await page.goto(url)
  return { page, wrongs, [Symbol.asyncDispose]: () => context.close() }
}

/** Whether one has to scroll sideways to see all of it. */
export function isTooWide(page: Page): Promise<boolean> {
  return page.evaluate('document.documentElement.scrollWidth > innerWidth')
}
