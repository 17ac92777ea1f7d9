/** Whether a key comes after another one in the order of the bytes, in which etcd and the tables of PostgreSQL list them. */
export function comesAfter(key: string, other: string): boolean {
  return Buffer.compare(Buffer.from(key), Buffer.from(other)) > 0
}
