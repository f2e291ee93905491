// Faults in what the service stands on: readers' positions, keys, and what it tells people who ask why.
import type { Bug } from './bug.ts'

const bug = (name: string, file: string, from: string, to: string, ...noticedBy: string[]): Bug => ({
  name,
  file,
  edits: [[from, to]],
  noticedBy: noticedBy.map((test) => `${test}.test.ts`),
})

export const serviceBugs: readonly Bug[] = [
  bug(
    'an older position moves a reader back',
    'session/reader-cursor.ts',
    '> 0 ? other : one',
    '!== 0 ? other : one',
    'session/reader-cursor',
  ),
  {
    name: 'a reader’s position is read before its row is locked',
    file: 'mysql/cursors.ts',
    edits: [
      [
        '    // Creates and locks',
        '    const early = await select(trx, sessionId, reader)\n    // Creates and locks',
      ],
      ['    const before = await select(trx, sessionId, reader)\n', '    const before = early\n'],
    ],
    noticedBy: ['session/reader-cursor.test.ts'],
  },
  bug(
    'a reader inherits what was read of a deleted life',
    'session/reader-cursor.ts',
    '(purged === 0 || parseCursor(cursor).entry > purged)',
    'purged >= 0',
    'session/reader-cursor',
  ),
  bug(
    'readers of the next life go with those of the deleted one',
    'mysql/retention.ts',
    'as unsigned) <= ${through})',
    'as unsigned) >= 0 or ${through} < 0)',
    'session/reader-cursor',
  ),
  bug(
    'a revoked key is let in',
    'mysql/keys.ts',
    "    .where('revoked_at', 'is', null)\n",
    '',
    'session/keyring',
  ),
  bug(
    'the id of a key is enough',
    'session/keyring.ts',
    '!row || !timingSafeEqual(Buffer.from(row.hash), Buffer.from(hash))',
    '!row',
    'session/keyring',
  ),
  bug(
    'a key is remembered for a minute',
    'session/keyring.ts',
    'REMEMBER_MS = 3000',
    'REMEMBER_MS = 60_000',
    'session/keyring',
  ),
  bug(
    'an explanation mixes the rows of two moments',
    'mysql/standing.ts',
    "'repeatable read'",
    "'read committed'",
    'session/explain',
  ),
  bug(
    'a deleted life’s turns are told of the next one',
    'mysql/standing.ts',
    "select('purge_entry_seq')",
    "select((one) => one.lit(0).as('none'))",
    'session/explain',
  ),
  bug(
    'a stopped message is said to need a handler',
    'session/verdict.ts',
    ' || stopSeq > doneSeq) return { wanted: {}',
    ') return { wanted: {}',
    'session/verdict',
  ),
  bug(
    'a dead process is waited for',
    'session/verdict.ts',
    'if (holderAlive === true)',
    'if (holderAlive !== null)',
    'session/verdict',
  ),
  bug(
    'a tenant is told which processes there are',
    'http/session-routes.ts',
    "principal.tenants === 'all' ? told : withoutFleet(told)",
    "principal.rights.has('watch') ? told : withoutFleet(told)",
    'http/answers',
  ),
]
