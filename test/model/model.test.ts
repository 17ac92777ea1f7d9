import { readdirSync } from 'node:fs'
import { beforeAll, describe, expect, it } from 'vitest'
import { WORLDS } from '../../model/checks.ts'
import { notice, verify } from '../../model/verify.ts'
import { ensureBinary } from '../servers/install.ts'
import { readProjectFile, root } from '../tidy/project.ts'

beforeAll(() => {
  ensureBinary('spin')
  ensureBinary('gcc', { packageName: 'build-essential' })
})

describe.each(WORLDS)('the model “$name”', (world) => {
  it('holds what it should in every state that can be reached', async () => {
    const { found } = await verify(world, { full: false })
    expect(found).toMatchObject({ violation: null, isComplete: true })
    expect(found.states).toBeGreaterThan(1000)
  })

  const plants = world.properties.flatMap((property) => property.plants.map((plant) => ({ property, plant })))
  it.each(plants)('breaks “$property.name” with the error $plant.name', async ({ property, plant }) => {
    const { isFine, found } = await notice(world, property, plant)
    expect(found.violation).not.toBeNull()
    expect(isFine).toBe(true)
  })
})

describe('the list of checks', () => {
  const models = readdirSync(`${root}model`).filter((name) => name.endsWith('.pml'))
  const texts = models.map((name) => readProjectFile(`model/${name}`)).join('\n')

  it('has each property and each planted error of the models', () => {
    const properties = WORLDS.flatMap((world) => world.properties)
    const named = (kind: string): string[] => [
      ...new Set(Array.from(texts.matchAll(new RegExp(`${kind}_(\\w+)`, 'g')), ([, name = '']) => name)),
    ]
    expect(named('CHECK').sort()).toEqual([...new Set(properties.map(({ name }) => name))].sort())
    const plants = properties.flatMap((property) => property.plants.map(({ name }) => name))
    expect(
      named('PLANT')
        .filter((name) => name !== '')
        .sort(),
    ).toEqual([...new Set(plants)].sort())
  })
})

describe('the page about the models', () => {
  const page = readProjectFile('docs/model.md')
  const rows = Array.from(
    page.matchAll(/^\| `(\w+)` \| `([\w-]+\.pml)` \| (.+) \|$/gm),
    ([, step = '', model = '', code = '']) => ({ step, model, code }),
  )

  it('names steps, files and functions that exist', () => {
    expect(rows.length).toBeGreaterThan(25)
    for (const { step, model, code } of rows) {
      const text = readProjectFile(`model/${model}`)
      expect(text, `${step} in ${model}`).toMatch(new RegExp(`(?:inline|proctype|#define|ltl) ${step}\\b`))
      const places = Array.from(code.matchAll(/\[([\w-]+\.\w+)\]\(\.\.\/([^)]+)\): ((?:`[^`]+`(?:, )?)+)/g))
      expect(places.length, step).toBeGreaterThan(0)
      for (const [, , path = '', names = ''] of places) {
        const source = readProjectFile(path)
        for (const [, name = ''] of names.matchAll(/`([^`]+)`/g))
          expect(source, `${path}: ${name}`).toContain(name)
      }
    }
  })

  it('has a row for each step of the models', () => {
    const steps = readdirSync(`${root}model`)
      .filter((name) => name.endsWith('.pml'))
      .flatMap((model) =>
        Array.from(
          readProjectFile(`model/${model}`).matchAll(/^inline (\w+)/gm),
          ([, step = '']) => `${model} ${step}`,
        ),
      )
      .filter((one) => !BOOKKEEPING.has(one.split(' ')[1] ?? ''))
    const listed = new Set(rows.map(({ step, model }) => `${model} ${step}`))
    expect(steps.filter((one) => !listed.has(one))).toEqual([])
  })
})

/** What a model needs for itself. */
const BOOKKEEPING = new Set(['tidy', 'forget', 'end_round', 'answer_late'])
