import { closeSync, fstatSync, openSync, readSync, writeSync } from 'node:fs'
import type { RegisterLine } from './record.ts'

/**
 * Two registers in one file, to which every write is appended, so the kernel orders the writes. One knows no fences: the last
 * write counts. In the other one a write counts only if no higher fence stands before it.
 */
export class Registers {
  readonly #file: number
  #readTo = 0
  #unread = ''
  #highest = 0n
  #last = ''
  #lastFenced = ''

  constructor(path: string) {
    this.#file = openSync(path, 'a+')
  }

  /** The last write in each register, as the file has it now. */
  look(): Pick<RegisterLine, 'saw' | 'sawFenced'> {
    const size = fstatSync(this.#file).size
    const bytes = Buffer.alloc(size - this.#readTo)
    const count = readSync(this.#file, bytes, 0, bytes.length, this.#readTo)
    this.#readTo += count
    const lines = (this.#unread + bytes.toString('latin1', 0, count)).split('\n')
    this.#unread = lines.pop() ?? ''
    for (const line of lines) if (line.endsWith('}')) this.#apply(JSON.parse(line) as RegisterLine)
    return { saw: this.#last, sawFenced: this.#lastFenced }
  }

  append(line: RegisterLine): void {
    writeSync(this.#file, `\n${JSON.stringify(line)}\n`)
  }

  close(): void {
    closeSync(this.#file)
  }

  #apply({ id, nth, what, fence }: RegisterLine): void {
    const isOld = BigInt(fence) < this.#highest
    if (!isOld) this.#highest = BigInt(fence)
    if (what === 'enter') return
    this.#last = `${id} ${nth}`
    if (!isOld) this.#lastFenced = `${id} ${nth}`
  }
}
