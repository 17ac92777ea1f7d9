import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { transformWithOxc } from 'vite'
import type { Store } from '../../src/contract/store.ts'
import type { StoreTime } from '../../src/law/room.ts'
import type { Law } from './witness.ts'

/** One small mistake that a programmer could make. */
export interface Mutant {
  readonly name: string
  readonly file: 'law.ts' | 'lone.ts' | 'room.ts' | 'view.ts' | 'memory-store.ts'
  /** A text that occurs once in the source, and the text that replaces it. */
  readonly find: string
  readonly replace: string
  /** The layers that cannot notice the mistake. All others have to notice it. */
  readonly missedBy: readonly Detector[]
}

/** The rules of `rules.ts`, the comparison with the real law, and the conformance suite. */
export type Detector = 'rules' | 'comparison' | 'conformance'

export interface Mutated {
  readonly law: Law
  readonly memoryStore: (options: { readonly now: () => StoreTime }) => Store
}

/** The law and the memory store with the mistake built in, as modules of their own. */
export async function mutate(mutant: Mutant | undefined): Promise<Mutated> {
  const contract = await moduleOf('../../src/contract/store.ts', mutant, {})
  const sum = await moduleOf('../../src/law/law.ts', mutant, { '../contract/store.ts': contract })
  const room = await moduleOf('../../src/law/room.ts', mutant, {
    '../contract/store.ts': contract,
    './law.ts': sum,
    './roster.ts': await moduleOf('../../src/law/roster.ts', mutant, {}),
  })
  const lone = await moduleOf('../../src/law/lone.ts', mutant, {
    '../contract/store.ts': contract,
    './room.ts': room,
  })
  const store = await moduleOf('../../src/stores/memory/memory-store.ts', mutant, {
    '../../contract/store.ts': contract,
    '../../law/lone.ts': lone,
    '../../law/room.ts': room,
    '../../law/view.ts': await moduleOf('../../src/law/view.ts', mutant, {}),
    './memory-rooms.ts': await moduleOf('../../src/stores/memory/memory-rooms.ts', mutant, {
      '../../law/lone.ts': lone,
    }),
  })
  const [law, { memoryStore }] = await Promise.all([import(room), import(store)])
  return { law, memoryStore }
}

/**
 * A source without its types, and with other modules in the place of its imports. Returns an address to import the
 * source from.
 */
async function moduleOf(
  path: string,
  mutant: Mutant | undefined,
  imports: Readonly<Record<string, string>>,
): Promise<string> {
  let source = await readFile(new URL(path, import.meta.url), 'utf8')
  if (mutant !== undefined && path.endsWith(`/${mutant.file}`)) {
    assert.equal(source.split(mutant.find).length, 2, `Expected the source to hold once:\n${mutant.find}`)
    source = source.replace(mutant.find, () => mutant.replace)
  }
  let { code } = await transformWithOxc(source, path)
  for (const [name, address] of Object.entries(imports))
    code = code.replace(`"${name}"`, () => `"${address}"`)
  return `data:text/javascript;base64,${Buffer.from(code).toString('base64')}`
}
