import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { type Browser, type BrowserContextOptions, chromium, type Page, type Request } from 'playwright-core'
import { ensureBinary } from '../servers/install.ts'
import { until } from '../servers/until.ts'

/** The distribution's Chromium without a screen: it takes half the processor time of the whole one. */
export function startBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: ensureBinary('chromium-headless-shell'),
    args: ['--no-sandbox', '--disable-gpu'],
    timeout: 120_000,
  })
}

/**
 * A page of its own, and everything that goes wrong in it: errors, requests that its policy has blocked, requests to
 * other hosts.
 */
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
  context.setDefaultTimeout(60_000)
  const page = await context.newPage()
  const wrongs: string[] = []
  page.on('pageerror', (error) => wrongs.push(error.message))
  page.on('dialog', (dialog) => {
    wrongs.push(dialog.message())
    void dialog.dismiss()
  })
  page.on('console', (message) => {
    // Chromium reports every answer with an error status as a failed load.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      wrongs.push(message.text())
  })
  page.on('request', (request) => {
    if (!request.url().startsWith(new URL(url).origin)) wrongs.push(request.url())
  })
  await until('the page is loaded with all of its files', () => isLoaded(page, url))
  return { page, wrongs, [Symbol.asyncDispose]: () => context.close() }
}

/**
 * Opens the page. Returns false if a network interface of this machine came or went meanwhile, as other tests cause it.
 * Chromium then drops its open requests, and a page without one of its scripts shows nothing.
 */
async function isLoaded(page: Page, url: string): Promise<boolean> {
  let isWhole = true
  const note = (request: Request): void => {
    if (request.failure()?.errorText === NETWORK_CHANGED) isWhole = false
  }
  page.on('requestfailed', note)
  try {
    await page.goto(url)
  } catch (error) {
    if (!String(error).includes(NETWORK_CHANGED)) throw error
    isWhole = false
  } finally {
    page.off('requestfailed', note)
  }
  return isWhole
}

const NETWORK_CHANGED = 'net::ERR_NETWORK_CHANGED'

/** Whether a user has to scroll sideways to see the whole page. */
export function isTooWide(page: Page): Promise<boolean> {
  return page.evaluate('document.documentElement.scrollWidth > innerWidth')
}

/**
 * What axe-core finds wrong with the page as it is, by the rules of WCAG 2.2 AA and the best practices: the rule, and the elements.
 */
export async function accessibilityFaults(page: Page): Promise<readonly string[]> {
  // Evaluated, as the page's policy lets in no foreign script element.
  await page.evaluate(AXE)
  const violations = await page.evaluate<{ id: string; nodes: { html: string }[] }[]>(
    'axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations)',
  )
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`)
}

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
