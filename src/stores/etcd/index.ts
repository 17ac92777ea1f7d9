export { etcdStore, openEtcd } from './open.ts'
export type { EtcdStoreOptions, EtcdTls } from './options.ts'
