export { type EtcdStoreOptions, type EtcdTls, etcdStore } from './client.ts'
export { openEtcd } from './open.ts'
