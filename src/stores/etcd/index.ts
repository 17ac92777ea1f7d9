/**
 * A store on etcd. See [etcd](../../../docs/etcd.md).
 *
 * @module
 */
export { etcdStore, openEtcd } from './open.ts'
export type { EtcdStoreOptions, EtcdTls } from './options.ts'
