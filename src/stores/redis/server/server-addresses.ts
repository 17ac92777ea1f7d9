import { show } from '../../../base/duration.ts'
import { InvalidArgumentError } from '../../../errors.ts'
import type { ServerAddress } from './client-link.ts'

/** The subject of a list of addresses, for defaults and messages. */
export interface AddressesExpected {
  /** The name of the option. */
  readonly option: string
  readonly noun: string
  readonly example: ServerAddress
}

/** Checks a list of one address or more. The port is that of the example where it is left out. */
export function parseAddresses(
  addresses: unknown,
  { option, noun, example }: AddressesExpected,
): readonly [ServerAddress, ...ServerAddress[]] {
  if (!Array.isArray(addresses) || addresses.length === 0) {
    throw new InvalidArgumentError(
      `Expected \`${option}\` to be a list of one ${noun} or more, got ${show(addresses)}.`,
    )
  }
  const parsed = addresses.map((address: { readonly host?: unknown; readonly port?: unknown } | null) => {
    const host = address?.host
    const port = Number(address?.port ?? example.port)
    if (typeof host === 'string' && host !== '' && Number.isInteger(port) && port > 0 && port < 65_536)
      return { host, port }
    throw new InvalidArgumentError(
      `Expected each of \`${option}\` to be like { host: '${example.host}', port: ${example.port} }, got one that is not.`,
    )
  })
  return parsed as [ServerAddress, ...ServerAddress[]]
}
