/** Has the wall clock of this process be ahead by so many milliseconds. Call it before anything else is imported that reads the clock. */
export function setWallClockAhead(byMs: number): void {
  const RealDate = Date
  globalThis.Date = class extends RealDate {
    constructor(...given: []) {
      super(...(given.length === 0 ? ([RealDate.now() + byMs] as unknown as []) : given))
    }

    static override now(): number {
      return RealDate.now() + byMs
    }
  } as DateConstructor
}
