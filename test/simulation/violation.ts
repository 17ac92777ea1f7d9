/** The rules that checkers watch over. */
export type Rule =
  | 'exclusion at the store'
  | 'exclusion among leases'
  | 'fence order'
  | 'order of arrival'
  | 'deadline'
  | 'signal'
  | 'lost without a reason'
  | 'stale write'
  | 'patience'
  | 'error'
  | 'left behind'
  | 'liveness'
  | 'rest'

export class Violation extends Error {
  override readonly name = 'Violation'
  readonly rule: Rule

  constructor(rule: Rule, message: string) {
    super(`${rule}: ${message}`)
    this.rule = rule
  }
}
