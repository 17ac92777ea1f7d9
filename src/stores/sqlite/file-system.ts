import { readFileSync, realpathSync } from 'node:fs'
import { StoreError } from '../../errors.ts'

/**
 * File systems that another kernel may write to at the same time: over a network, or between a virtual machine and its host.
 * SQLite's shared memory and locks do not reach the other kernel, and two machines have two clocks.
 */
const SHARED_BETWEEN_MACHINES: ReadonlySet<string> = new Set([
  ...['nfs', 'nfs4', 'cifs', 'smb3', 'smbfs', 'afs', 'coda', 'ncpfs', 'davfs'],
  ...['ceph', 'glusterfs', 'lustre', 'beegfs', 'gpfs', 'orangefs', 'pvfs2', 'ocfs2', 'gfs', 'gfs2'],
  ...['9p', 'virtiofs', 'vboxsf', 'vmhgfs', 'prl_fs'],
  // Docker Desktop, between a container and the host.
  ...['fakeowner', 'osxfs', 'grpcfuse', 'fuse.osxfs', 'fuse.grpcfuse'],
  ...[
    'fuse.sshfs',
    'fuse.nfs',
    'fuse.glusterfs',
    'fuse.ceph',
    'fuse.ceph-fuse',
    'fuse.juicefs',
    'fuse.davfs2',
  ],
  ...[
    'fuse.s3fs',
    'fuse.gcsfuse',
    'fuse.rclone',
    'fuse.goofys',
    'fuse.curlftpfs',
    'fuse.smbnetfs',
    'fuse.vmhgfs-fuse',
    'fuse.blobfuse',
    'fuse.blobfuse2',
    'fuse.mount-s3',
  ],
])

/** @throws {StoreError} `store-refused` when the folder is known to be shared with other machines. */
export function refuseNetworkFileSystem(folder: string, mountinfo: string = readMounts()): void {
  const type = fileSystemOf(realpathSync(folder), mountinfo)
  const network = folder.startsWith('\\\\') ? 'a network share' : type
  if (network === undefined || (type !== undefined && !isShared(type))) return
  throw new StoreError(
    'store-refused',
    `Expected the lock file to be on a disk of this machine, got ${JSON.stringify(folder)} on ${network}, where SQLite's locks do not hold. Name a file on a local disk, or use a server store.`,
  )
}

/** The kernel may add the name of a device to the type, as in `virtiofs.virtiofs0`. */
function isShared(type: string): boolean {
  return SHARED_BETWEEN_MACHINES.has(type) || SHARED_BETWEEN_MACHINES.has(type.split('.')[0] ?? type)
}

/** The type of the file system that a path lies on, such as `ext4`, `nfs4` or `fuse.sshfs`. */
export function fileSystemOf(path: string, mountinfo: string): string | undefined {
  let found: { readonly point: string; readonly type: string } | undefined
  for (const line of mountinfo.split('\n')) {
    // 36 35 98:0 /root /mount/point options [optional fields] - type source options
    const [before, after] = line.split(' - ')
    const point = before?.split(' ')[4]?.replace(/\\(\d{3})/g, (_, octal: string) => character(octal))
    const type = after?.split(' ')[0]
    if (point === undefined || type === undefined) continue
    const inside = point === '/' || path === point || path.startsWith(`${point}/`)
    // If mount points have equal length, the last one counts: it was mounted over the others.
    if (inside && point.length >= (found?.point.length ?? 0)) found = { point, type }
  }
  return found?.type
}

/** The mounted file systems on Linux. Empty elsewhere, where only the path itself can tell. */
function readMounts(): string {
  try {
    return readFileSync('/proc/self/mountinfo', 'utf8')
  } catch {
    return ''
  }
}

function character(octal: string): string {
  return String.fromCharCode(Number.parseInt(octal, 8))
}
