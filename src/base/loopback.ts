/** Whether an address or a name leads to this machine and nowhere else. */
export function isLoopback(host: string): boolean {
  const bare = host.replace(/^\[(.*)\]$/, '$1').replace(/^::ffff:(?=\d+\.)/i, '')
  return /^127(\.\d{1,3}){3}$/.test(bare) || bare === '::1' || bare.toLowerCase() === 'localhost'
}
