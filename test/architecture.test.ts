// Keeps the house in order: who may import whom, which words belong where, how long a file may be, and that every
// invariant of ARCHITECTURE.md is held by a test. Reads the source as text and starts nothing.
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..')
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')
const filesIn = (folder: string) =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .map((path) => posix.join(folder, path))
    .sort()
const sources = filesIn('src').map((path) => ({ path, text: read(path) }))

/** `base/ids.ts` → `base`; `index.ts` → `index`. */
const layerOf = (path: string) =>
  path.includes('/') ? path.slice(0, path.indexOf('/')) : path.replace(/\.ts$/, '')

/** Each layer, and what it may import of ours besides itself. */
const MAY_IMPORT: Record<string, readonly string[]> = {
  base: [],
  protocol: ['base'],
  redis: ['base'],
  mysql: ['base', 'protocol'],
  session: ['base', 'protocol', 'redis', 'mysql'],
  index: ['base', 'protocol', 'redis', 'mysql', 'session'],
  // The service and the shell are the proof that the public API suffices.
  http: ['index'],
  cli: ['index', 'http'],
  demo: ['index', 'cli'],
}

/** Single files that may be imported from elsewhere, and why. */
const ALSO: Record<string, readonly string[]> = {
  http: ['base/timing.ts'], // the only place with timers
  cli: ['base/timing.ts'], // the only place with timers
  demo: ['base/timing.ts'],
}

function importsOf(path: string, text: string): string[] {
  return [...text.matchAll(/(?:\bfrom|\bimport)\s*\(?\s*'([^']+)'/g)].map(([, name = '']) =>
    name.startsWith('.') ? posix.join(posix.dirname(path), name) : name,
  )
}

test('each layer imports only what lies below it', () => {
  const wrong = sources.flatMap(({ path, text }) => {
    const from = layerOf(path.slice('src/'.length))
    return importsOf(path, text)
      .filter((name) => name.startsWith('src/'))
      .map((name) => name.slice('src/'.length))
      .filter((name) => layerOf(name) !== from && !MAY_IMPORT[from]?.includes(layerOf(name)))
      .filter((name) => !ALSO[from]?.includes(name))
      .map((name) => `${path} imports ${name}`)
  })
  expect(wrong).toEqual([])
})

const CEILING = 250
/** Longer files, how long they may be, and why. Take one out when it has become shorter. */
const LONGER: Record<string, readonly [lines: number, why: string]> = {
  'src/session/client.ts': [395, 'the public API of producers: half of it is what its users read'],
  'src/session/worker.ts': [
    330,
    'wires all parts of a process in one place, in the order they start and end',
  ],
  'src/session/butler.ts': [290, 'one state machine, drawn at its top'],
  'src/session/turn.ts': [280, 'one run of a handler with its watch'],
}

test(`no file is longer than ${CEILING} lines but those listed, which need it`, () => {
  const lines = (text: string) => text.split('\n').length - 1
  const long = sources.filter(({ path, text }) => lines(text) > (LONGER[path]?.[0] ?? CEILING))
  expect(long.map(({ path, text }) => `${path}: ${lines(text)} lines`)).toEqual([])
  const needless = Object.keys(LONGER).filter(
    (path) => !sources.some((file) => file.path === path && lines(file.text) > CEILING),
  )
  expect(needless).toEqual([])
})

const BLOCKING = 'blmove|brpop|blpop|brpoplpush|blmpop|bzpop\\w*|xread\\w*'
const REDIS = 'evalsha|lpush|rpush|lmove|llen|smembers|sadd|srem|unsubscribe|pexpire|mget|pubsub'
const SQL = 'selectFrom|insertInto|updateTable|deleteFrom'
const call = (names: string) => new RegExp(`\\.(?:${names})\\(|redis\\.p?call\\('(?:${names})'`, 'i')
const BANS: readonly [what: string, words: RegExp, allowed: RegExp][] = [
  [
    'timers outside base/timing.ts',
    /(?<![.\w])set(?:Timeout|Interval|Immediate)\(/,
    /^src\/base\/timing\.ts$/,
  ],
  ['blocking Redis commands', call(BLOCKING), /^$/],
  ['Redis commands outside redis/', call(REDIS), /^src\/redis\//],
  ['SQL builders outside mysql/', call(SQL), /^src\/mysql\//],
  ['SQL text outside mysql/', /\bsql`|\b(?:select|update|insert|delete)\b.*\bbutler_[a-z]/i, /^src\/mysql\//],
  // The demo is an application, and probes ask a server that is not ours yet whether it answers.
  ['imports of ioredis outside redis/', /'ioredis'/, /^src\/(?:redis|demo)\//],
  [
    'imports of mysql2 outside mysql/',
    /'mysql2(?:\/promise)?'/,
    /^src\/(?:mysql|demo)\/|^src\/cli\/probes\.ts$/,
  ],
  ['default exports', /^export default\b|\bas default\b/m, /^$/],
  ['enums and namespaces', /^\s*(?:export\s+)?(?:const\s+)?(?:enum|namespace)\s+\w/m, /^$/],
]

/** Words in comments are no code. */
const code = (text: string) => text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '')

test.each(BANS)('there are no %s', (_what, words, allowed) => {
  const found = sources.filter(({ path, text }) => !allowed.test(path) && words.test(code(text)))
  expect(found.map(({ path }) => path)).toEqual([])
})

describe('invariants', () => {
  const known = [...read('ARCHITECTURE.md').matchAll(/^\| (I\d+) \|/gm)].map(([, id = '']) => id)
  const cited = new Set(
    filesIn('test').flatMap((path) =>
      [...read(path).matchAll(/['"`](I\d+(?: I\d+)*) · /g)].flatMap(([, ids = '']) => ids.split(' ')),
    ),
  )

  test('each one of ARCHITECTURE.md begins the title of some test', () => {
    expect(known.length).toBeGreaterThanOrEqual(10)
    expect(known.filter((id) => !cited.has(id))).toEqual([])
  })

  test('no test cites one that ARCHITECTURE.md does not know', () => {
    expect([...cited].filter((id) => !known.includes(id))).toEqual([])
  })
})
