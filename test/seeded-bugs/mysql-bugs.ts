// Faults in transactions and connections.
import type { Bug } from './bug.ts'

const bug = (name: string, file: string, edits: Bug['edits'], noticedBy: Bug['noticedBy']): Bug => ({
  name,
  file: `mysql/${file}`,
  edits,
  noticedBy: noticedBy.map((test) => `${test}.test.ts`),
})

export const mysqlBugs: readonly Bug[] = [
  bug(
    'rows are inserted with IGNORE',
    'hot-text.ts',
    [['insert into ${table}', 'insert ignore into ${table}']],
    ['mysql/inbox', 'traps/inbox'],
  ),
  bug(
    'keys are looked up before the row is locked',
    'admission.ts',
    [
      [
        '    raise(counts),\n    numbersOf([...counts.keys()]),\n    earlierOf(db, submissions, options),\n',
        '    earlierOf(db, submissions, options),\n    raise(counts),\n    numbersOf([...counts.keys()]),\n',
      ],
      ['(_raised, rows, earlier) =>', '(earlier, _raised, rows) =>'],
    ],
    ['traps/inbox'],
  ),
  bug(
    'a repeated enqueue does not look for itself',
    'admission.ts',
    [['if (key !== id || repeated) keys.set', 'if (key !== id) keys.set']],
    ['mysql/inbox'],
  ),
  bug(
    'a locked row holds up its whole batch',
    'ledger.ts',
    [['lockRows(ids, !waitForLocks)', 'lockRows(ids, false)']],
    ['mysql/ledger'],
  ),
  bug(
    'a lost answer is not settled by comparing',
    'ledger.ts',
    [['if (operation.inDoubt && hasHappened', 'if (operation.inDoubt?.row.id === "" && hasHappened']],
    ['mysql/ledger-doubt', 'traps/turns'],
  ),
  bug(
    'a doubt is forgotten when the next try fails as well',
    'ledger.ts',
    [
      [
        'if (inDoubt) for (const [operation, doubt] of doubts) operation.inDoubt = doubt',
        'for (const operation of operations) Object.assign(operation, { inDoubt: doubts.get(operation) })',
      ],
    ],
    ['traps/turns'],
  ),
  bug(
    'a later rule of a session gets stale reads',
    'ledger.ts',
    [['if (draft?.touched && (operation', 'if (false as boolean && draft && (operation']],
    ['mysql/ledger'],
  ),
  bug(
    'a bad change takes its neighbours along',
    'ledger.ts',
    [['} else if (operations.length > 1) {', '} else if (operations.length > 1000) {']],
    ['mysql/ledger', 'traps/inbox'],
  ),
  bug(
    'trouble is not retried',
    'ledger.ts',
    [['if (inDoubt || isRetryable(error)) {', 'if (inDoubt) {']],
    ['mysql/ledger', 'traps/server-cases'],
  ),
  bug(
    'COMMIT comes before the writes',
    'exchange.ts',
    [['join([...decision.writes, COMMIT])', 'join([COMMIT, ...decision.writes])']],
    ['mysql/ledger', 'mysql/inbox', 'traps/inbox'],
  ),
  bug(
    'a failed exchange is not rolled back',
    'connect.ts',
    [['          await connection.executeQuery(ROLLBACK)\n', '']],
    ['mysql/connect', 'mysql/ledger', 'traps/inbox'],
  ),
  bug(
    'a connection comes back with its transaction',
    'guarded-connection.ts',
    [
      [
        "else if (this.#inTransaction)\n        this.discard(new Error('A connection came back with an open transaction.'))\n",
        '',
      ],
    ],
    ['mysql/guard', 'traps/inbox'],
  ),
  bug(
    'a transaction goes on after the server undid it',
    'guarded-connection.ts',
    [['if (this.#inTransaction && trouble.isRolledBack(error)) this.#doom = error', '']],
    ['mysql/guard', 'traps/inbox'],
  ),
  bug(
    'a statement may wait for ever',
    'guarded-connection.ts',
    [
      [
        'return await withDeadline(answer, ms, () => new NoAnswer(`MySQL did not answer within ${ms} ms.`))',
        'return await withDeadline(answer, ms * 1000, () => new NoAnswer(""))',
      ],
    ],
    ['mysql/guard'],
  ),
  bug(
    'waiting_since survives the work',
    'drafts.ts',
    [["waiting_since: 'if(inbox_seq > values(done_seq), waiting_since, null)',\n", '']],
    ['mysql/ledger', 'session/enqueue'],
  ),
  bug(
    'the sweep looks for a handler of what is not to run',
    'sessions.ts',
    [[".on('m.status', 'is', null)\n        .onRef('m.seq', '>', 's.stop_seq')", '']],
    ['mysql/sessions'],
  ),
  bug(
    'the sweep does not see sessions of the dead',
    'sessions.ts',
    [
      [
        "eb('s.running_by', 'is', null),\n        eb(sql<string>`substring_index(s.running_by, '.', 1)`, 'not in', options.alive),",
        "eb('s.running_by', 'is', null),",
      ],
    ],
    ['mysql/sessions'],
  ),
]
