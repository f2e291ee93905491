// stop-outcome.ts: what became of a message that was under way, told from the ends of its turns.
import { expect, test } from 'vitest'
import type { TurnOutcome } from '../../src/protocol/session-row.ts'
import { resultOf } from '../../src/protocol/stop-outcome.ts'

const end = (attempt: number, outcome: TurnOutcome, detached = false) => ({ attempt, outcome, detached })

test.each([
  ['it obeyed', [end(1, 'stopped')], 'aborted'],
  ['it ignored its signal', [end(1, 'stopped', true)], 'fenced'],
  ['it failed and was stopped before its next attempt', [end(1, 'retrying'), end(1, 'stopped')], 'aborted'],
  ['it failed, its final state is still to come', [end(1, 'retrying')], 'aborted'],
  ['its process died', [end(1, 'lost'), end(1, 'stopped')], 'fenced'],
  ['its process died, its final state is still to come', [end(1, 'lost')], 'fenced'],
  ['only its first process died', [end(1, 'lost'), end(2, 'stopped')], 'aborted'],
  ['it was handed over', [end(1, 'handed_over'), end(1, 'stopped')], 'aborted'],
  ['it was handed over and ignored that', [end(1, 'handed_over', true), end(1, 'stopped')], 'fenced'],
  ['it ignored only an earlier signal', [end(1, 'handed_over', true), end(2, 'stopped')], 'aborted'],
  ['it completed first', [end(1, 'retrying'), end(2, 'completed')], 'already-done'],
  ['it failed for good first', [end(3, 'failed')], 'already-done'],
  ['its row was gone', [end(1, 'retrying'), end(1, 'missing')], 'already-done'],
  ['it had not started after all', [end(0, 'stopped')], 'never-started'],
  ['its entries were removed since', [], 'fenced'],
] as const)('I5 · what became of a stopped message when %s', (_what, ends, expected) => {
  expect(resultOf(ends)).toBe(expected)
})
