import { tmpdir } from 'node:os'
import { expect, test } from 'vitest'
import { fileSystemOf, refuseNetworkFileSystem } from '../../../src/stores/sqlite/file-system.ts'

const MOUNTS = `22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /mnt/nas rw,relatime shared:7 - nfs4 server:/export rw,vers=4.2
31 22 0:41 / /mnt/nas/local rw - xfs /dev/vdb rw
32 22 0:42 / /media/my\\040files rw master:2 - fuse.sshfs me@host: rw
33 22 0:43 / /over rw - ext4 /dev/vdc rw
34 33 0:44 / /over rw - cifs //server/share rw
35 22 0:45 / /data rw - fuse.mergerfs a:b rw
`

test('the file system of a path is that of the innermost and latest mount above it', () => {
  const types = [
    '/',
    '/mnt/nas',
    '/mnt/nas/a/b',
    '/mnt/nas/local/a',
    '/mnt/nastier',
    '/media/my files/x',
    '/over/a',
  ].map((path) => fileSystemOf(path, MOUNTS))
  expect(types).toEqual(['ext4', 'nfs4', 'nfs4', 'xfs', 'ext4', 'fuse.sshfs', 'cifs'])
  expect(fileSystemOf('/anywhere', '')).toBe(undefined)
})

test('a folder on a network file system is refused, with its type; a local one is not', () => {
  const folder = tmpdir()
  const mountedAs = (type: string) =>
    `22 1 254:0 / / rw - ext4 /dev/vda rw\n23 22 0:1 / ${folder} rw - ${type} source rw\n`
  for (const type of [
    'nfs',
    'nfs4',
    'cifs',
    'smb3',
    '9p',
    'virtiofs',
    'ceph',
    'fuse.sshfs',
    'fuse.glusterfs',
    'fakeowner',
    'fuse.grpcfuse',
    'virtiofs.virtiofs0',
  ]) {
    expect(() => refuseNetworkFileSystem(folder, mountedAs(type))).toThrow(
      expect.objectContaining({
        code: 'store-refused',
        message: `Expected the lock file to be on a disk of this machine, got "${folder}" on ${type}, where SQLite's locks do not hold. Name a file on a local disk, or use a server store.`,
      }),
    )
  }
  for (const type of ['ext4', 'xfs', 'btrfs', 'overlay', 'tmpfs', 'zfs', 'fuse.mergerfs', 'fuse-overlayfs']) {
    refuseNetworkFileSystem(folder, mountedAs(type))
  }
})
