// Faults in the pure rules.
import type { Bug } from './bug.ts'

const turnRules = (
  name: string,
  from: string,
  to: string,
  noticedBy = ['protocol/turn-rules.test.ts'],
): Bug => ({
  name,
  file: 'protocol/turn-rules.ts',
  edits: [[from, to]],
  noticedBy,
})

const intake = (name: string, from: string, to: string, noticedBy = ['protocol/intake.test.ts']): Bug => ({
  name,
  file: 'protocol/intake.ts',
  edits: [[from, to]],
  noticedBy,
})

const ownership = (name: string, from: string, to: string): Bug => ({
  name,
  file: 'protocol/ownership.ts',
  edits: [[from, to]],
  noticedBy: ['protocol/ownership.test.ts'],
})

const fence = (name: string, to: string): Bug => ({
  name,
  file: 'protocol/session-row.ts',
  edits: [
    ['return row.owner === turn.owner && row.runningSeq === turn.seq && row.starts === turn.starts', to],
  ],
  noticedBy: ['protocol/turn-rules.test.ts', 'protocol/ownership.test.ts', 'traps/turns.test.ts'],
})

export const protocolBugs: readonly Bug[] = [
  turnRules(
    'start does not read the tombstone',
    "if (row.stopSeq >= seq) return skip(draft, seq, 'stopped')",
    '',
  ),
  turnRules(
    'start does not check the owner',
    'row.owner !== token || row.runningSeq !== null',
    'row.runningSeq !== null',
  ),
  turnRules(
    'start does not see that a turn runs',
    'row.owner !== token || row.runningSeq !== null',
    'row.owner !== token',
  ),
  turnRules(
    'start ignores the back-off',
    "if (row.retryInMs !== null && row.retryInMs > 0) return { outcome: 'later', retryInMs: row.retryInMs }",
    '',
  ),
  turnRules(
    'a message may crash its process for ever',
    'if (row.crashes >= limits.maxCrashes)',
    'if (row.crashes >= Infinity)',
  ),
  turnRules(
    'a message may be started for ever',
    'if (row.starts >= limits.maxStarts)',
    'if (row.starts >= Infinity)',
  ),
  turnRules(
    'a missing message stops the session',
    "if (!head) return skip(draft, seq, 'missing')",
    "if (!head) return { outcome: 'nothing', doneSeq: row.doneSeq }",
  ),
  turnRules(
    'a withdrawn message runs',
    "if (head.status === 'withdrawn') return skip(draft, seq, 'withdrawn')",
    '',
  ),
  turnRules('a start does not ask for the lock', "if (!limits.holdsLock()) return { outcome: 'unheld' }", ''),
  turnRules('a repeated append writes twice', 'if (draft.row.entrySeq === expected) for', 'for'),
  turnRules(
    'tool calls stay open when a turn ends',
    'for (const callId of end.openCalls) {',
    'for (const callId of end.openCalls.slice(1)) {',
  ),
  turnRules(
    'a finished turn still runs in the row',
    'draft.set({ runningSeq: null })\n}',
    'draft.set({})\n}',
  ),
  turnRules(
    'counters go over to the next message',
    'doneSeq: seq, starts: 0, failures: 0',
    'doneSeq: seq, failures: 0',
  ),
  turnRules(
    'a handed-over session keeps its owner',
    'handovers: row.handovers + 1, owner: null',
    'handovers: row.handovers + 1',
  ),
  turnRules('a detached handler keeps the token', 'if (successor) draft.set', 'if (!successor) draft.set'),
  fence('turns are fenced by the owner alone', 'return row.owner === turn.owner && row.runningSeq !== null'),
  fence(
    'turns are fenced without the attempt',
    'return row.owner === turn.owner && row.runningSeq === turn.seq',
  ),
  fence(
    'turns are fenced without the owner',
    'return row.runningSeq === turn.seq && row.starts === turn.starts',
  ),
  ownership(
    'a running turn is fenced by whoever finds the lock free',
    "if (running) return { outcome: 'refused', running }",
    '',
  ),
  ownership(
    'a repeated acquire takes another epoch',
    'if (row.owner !== token) {',
    'if (row.owner !== token || row.runningSeq === null) {',
  ),
  ownership('the epoch stands still', 'owner: token, epoch: row.epoch + 1', 'owner: token, epoch: row.epoch'),
  ownership(
    'a verdict names a token, not a turn',
    'if (!isTurn(draft.row, turn)) return',
    'if (draft.row.owner !== turn.owner) return',
  ),
  ownership('a death is no crash of its message', "(verdict === 'dead' ? 1 : 0)", '0'),
  intake(
    'a key may come with other content',
    'if (earlier.fingerprint !== submission.fingerprint) {',
    'if (false as boolean) {',
  ),
  intake('an interrupt stops itself', 'row.stopSeq = row.inboxSeq - 1', 'row.stopSeq = row.inboxSeq'),
  intake(
    'a stop reaches into the future',
    'Math.min(through ?? row.inboxSeq, row.inboxSeq)',
    'through ?? row.inboxSeq',
  ),
  intake('a stop lowers the tombstone', 'if (target > row.stopSeq)', 'if (target !== row.stopSeq)'),
  intake(
    'a stop of one turn stops what waits behind it',
    'if (seq === underWay) raise(draft, seq)',
    'if (seq === underWay) raise(draft, row.inboxSeq)',
  ),
  intake(
    'a message between two attempts has no turn to stop',
    'const underWay = row.starts > 0 ? row.doneSeq + 1 : undefined',
    'const underWay = row.runningSeq ?? undefined',
  ),
  {
    name: 'a handler that was left behind is taken for one that has returned',
    file: 'protocol/stop-outcome.ts',
    edits: [["own.outcome === 'lost' || own.detached", "own.outcome === 'lost'"]],
    noticedBy: ['protocol/stop-outcome.test.ts'],
  },
  intake(
    'a message that has started can be withdrawn',
    "if (seq === row.doneSeq + 1 && row.starts > 0) return 'started'",
    '',
  ),
  intake(
    'a message that is taken back stays the next one',
    "if (seq === row.doneSeq + 1 && row.runningSeq === null && draft.head) passOver(draft, 'withdrawn')",
    '',
    ['protocol/intake.test.ts', 'session/stop.test.ts'],
  ),
  intake(
    'one batch takes a key twice',
    'known.set(key, { seq: result.seq',
    "known.set('', { seq: result.seq",
    ['protocol/intake.test.ts', 'mysql/inbox.test.ts'],
  ),
]
