// Holds the table of README.md to the tests: every case that it calls tested is in the title of a test of each file that
// it names, and no title cites a case that the table does not know.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'

const FOLDER = import.meta.dirname
const ID = /\b[A-Z]{2}-\d{2}\b/g

/** A text followed by the function or the options of a test. */
const TITLE = /(['"`])((?:(?!\1|\n).)*)\1,\s*(?:async\b|\(|\{|_)/g

const casesIn = (path: string) =>
  [...readFileSync(join(FOLDER, path), 'utf8').matchAll(TITLE)].flatMap(
    ([, , title = '']) => title.match(ID) ?? [],
  )

const rows = [
  ...readFileSync(join(FOLDER, 'README.md'), 'utf8').matchAll(/^\| ([A-Z]{2}-\d{2}) \| .+ \| (.+) \|$/gm),
].map(([, id = '', here = '']) => ({
  id,
  here,
  files: [...here.matchAll(/`([a-z]+\/[a-z-]+)`/g)].map(([, file]) => `${file}.test.ts`),
}))

describe('the table of cases', () => {
  test('has each case once', () => {
    expect(rows.length).toBeGreaterThan(100)
    expect(new Set(rows.map(({ id }) => id)).size).toBe(rows.length)
  })

  test('says where each is tested, or why not', () => {
    const silent = rows.filter(({ here, files }) => files.length === 0 && !/^(later|not here): ./.test(here))
    expect(silent).toEqual([])
  })

  test('names files in which a title has the case', () => {
    const wrong = rows.flatMap(({ id, files }) =>
      files
        .filter((path) => !existsSync(join(FOLDER, path)) || !casesIn(path).includes(id))
        .map((path) => `${id} ${path}`),
    )
    expect(wrong).toEqual([])
  })

  test('names every file whose titles have a case', () => {
    const paths = readdirSync(FOLDER, { recursive: true, encoding: 'utf8' }).filter((path) =>
      path.endsWith('.test.ts'),
    )
    const missing = paths.flatMap((path) =>
      casesIn(path)
        .filter((id) => !rows.some((row) => row.id === id && row.files.includes(path)))
        .map((id) => `${id} ${path}`),
    )
    expect(missing).toEqual([])
  })
})
